// Tree-structured Parzen estimator: Bergstra et al. 2011 ("Algorithms for hyper-parameter optimization"), with kernels over all
// parameters together (Falkner et al. 2018, arXiv:1807.01774).
//
// The best trials make a density l(x), all others a density g(x). Of some points drawn from l the one with the largest
// l(x) / g(x) is proposed: it is like the good ones and unlike the others. A density is a mixture: a kernel around each trial,
// and one uniform kernel so that nothing is ever ruled out.
//
//   kernel of trial t at x:  prod_i k_i(x_i | t_i)     over the parameters i that count at x
//     numbers:  normal density with deviation s_i around t_i, cut off at 0 and 1; of parameters with levels its mass on a level
//     choices:  (1 - c) [x_i = t_i] + c / n
//     where i does not count at t:  1, or 1 / n
//
// s_i follows the spread of the trials in the density: it shrinks as the search closes in. Trials that are still running count
// as bad ones, so that parallel proposals keep away from each other.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

#include "trireme/base/simd.h"
#include "trireme/tune/samplers.h"

namespace trireme {
namespace {

constexpr int kStart = 10;       // trials that end before there is something to learn from
constexpr int kCandidates = 32;  // points drawn from l; with more of them the search looks less far
constexpr int kMostGood = 25;
constexpr int kMostTable =
    64;  // levels for which masses are tabulated; more are like a number without levels
constexpr double kSmoothing = 0.5;  // c: much, or a choice that was unlucky at the beginning never comes back

// logs[k] += offsets[k] - ((x - centers[k]) weights[k])^2
struct AddNormals {
  TRIREME_INLINE void Run(double* logs, const double* centers, const double* offsets, const double* weights,
                          double x, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) {
      const double away = (x - centers[k]) * weights[k];
      logs[k] += offsets[k] - away * away;
    }
  }
};

// e^x to 1e-12 of it, for -700 <= x <= 0. The library's function would take one at a time, and a proposal is made of thousands.
struct Power {
  TRIREME_INLINE double Of(double x) {
    constexpr double kRounds =
        6755399441055744.0;  // 1.5 * 2^52: adding it leaves a whole number in the last bits
    const double y = x * std::numbers::log2e;
    const double shifted = y + kRounds;
    const double f = (y - (shifted - kRounds)) * std::numbers::ln2;  // from -0.35 to 0.35
    double p = 1.0 / 3628800;
    p = p * f + 1.0 / 362880;
    p = p * f + 1.0 / 40320;
    p = p * f + 1.0 / 5040;
    p = p * f + 1.0 / 720;
    p = p * f + 1.0 / 120;
    p = p * f + 1.0 / 24;
    p = p * f + 1.0 / 6;
    p = p * f + 0.5;
    p = p * f + 1;
    p = p * f + 1;
    return std::bit_cast<double>(std::bit_cast<std::int64_t>(p) +
                                 (std::bit_cast<std::int64_t>(shifted) << 52));
  }
};

// The sum of e^(logs[k] - highest), in an order of its own; changes `logs`.
struct SumOfPowers {
  static constexpr double kNegligible = 60;  // below the highest
  static constexpr std::size_t kLanes = 8;

  TRIREME_INLINE double Run(double* logs, std::size_t n, double highest) {
    for (std::size_t k = 0; k < n; ++k) {
      const double below = logs[k] - highest;
      logs[k] = Power::Of(below > -kNegligible ? below : -kNegligible);
    }
    double sums[kLanes] = {};
    std::size_t k = 0;
    for (; k + kLanes <= n; k += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += logs[k + lane];
    }
    for (; k < n; ++k) sums[0] += logs[k];
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum;
  }
};

// offsets[k]: the logarithm of the peak of a normal density around centers[k], of which what lies outside 0 and 1 is cut off.
struct PeaksOfNormals {
  // The share of a normal distribution beyond z >= 0 deviations: Abramowitz and Stegun 26.2.17, to 1e-7.
  TRIREME_INLINE double Beyond(double z) {
    const double t = 1 / (1 + 0.2316419 * z);
    double p = 1.330274429;
    p = p * t - 1.821255978;
    p = p * t + 1.781477937;
    p = p * t - 0.356563782;
    p = p * t + 0.319381530;
    const double square = -0.5 * z * z;
    return Power::Of(square > -60 ? square : -60) * 0.3989422804014327 * p * t;
  }

  TRIREME_INLINE void Run(const double* centers, double* offsets, double deviation, std::size_t n) {
    const double peak = -std::log(deviation * std::sqrt(2 * std::numbers::pi));
    for (std::size_t k = 0; k < n; ++k) {
      const double inside = 1 - Beyond(centers[k] / deviation) - Beyond((1 - centers[k]) / deviation);
      // Its logarithm by 2 artanh((x - 1) / (x + 1)): x is 1/3 at least, since no deviation is above 1.
      const double t = (inside - 1) / (inside + 1), u = t * t;
      double sum = 1.0 / 19;
      sum = sum * u + 1.0 / 17;
      sum = sum * u + 1.0 / 15;
      sum = sum * u + 1.0 / 13;
      sum = sum * u + 1.0 / 11;
      sum = sum * u + 1.0 / 9;
      sum = sum * u + 1.0 / 7;
      sum = sum * u + 1.0 / 5;
      sum = sum * u + 1.0 / 3;
      sum = sum * u + 1;
      offsets[k] = peak - 2 * t * sum;
    }
  }
};

int GoodOf(int ended) { return std::clamp(static_cast<int>(std::ceil(0.1 * ended)), 1, kMostGood); }

// One parameter of a density.
struct Dimension {
  bool categorical = false;
  int levels = 0;  // 0: none, or too many
  double deviation = 0;
  std::vector<double> log_mass = {};  // [levels, levels]: of being at the first, around the second
};

class Density {
 public:
  // Of the trials `members` of the history, whose places are rows of `places`, [trials, d], NaN where nothing counts.
  Density(const Space& space, std::span<const double> places, std::vector<int> members)
      : space_(space), places_(places), members_(std::move(members)), dimensions_(space.size()) {
    for (std::size_t i = 0; i < dimensions_.size(); ++i) Prepare(i);
    PrepareKernels();
  }

  // Draws a kernel and a point around it, in places.
  void Draw(RandomStream& draws, std::span<double> x) const {
    const auto kernel = draws.NextBelow(static_cast<std::uint32_t>(members_.size()) + 1);
    for (std::size_t i = 0; i < dimensions_.size(); ++i) {
      const Dimension& dimension = dimensions_[i];
      const double center = kernel < members_.size() ? PlaceOf(kernel, i) : kNothing;
      const double u = draws.NextUniform();
      if (std::isnan(center)) {
        x[i] = u;
      } else if (dimension.categorical) {
        x[i] = u < 1 - kSmoothing ? center : (u - (1 - kSmoothing)) / kSmoothing;
      } else {
        const double below = NormalBelow(-center / dimension.deviation);
        const double above = NormalBelow((center - 1) / dimension.deviation);
        const double p = below + u * (1 - below - above);
        x[i] = std::clamp(center + dimension.deviation * NormalQuantile(std::clamp(p, 1e-15, 1 - 1e-15)), 0.0,
                          1.0);
      }
    }
  }

  // log density at x, up to what is the same for all densities over these parameters. x is NaN where nothing counts.
  double Log(std::span<const double> x) const {
    const std::size_t n = members_.size();
    logs_.assign(n + 1, 0.0);  // the last is the uniform kernel
    for (std::size_t i = 0; i < dimensions_.size(); ++i) {
      if (std::isnan(x[i])) continue;
      const Dimension& dimension = dimensions_[i];
      if (dimension.levels > 0) {
        const double even = -std::log(dimension.levels);
        const double* const masses = &dimension.log_mass[LevelOf(dimension, x[i]) * dimension.levels];
        const int* const levels = &levels_[i * n];
        for (std::size_t k = 0; k < n; ++k) logs_[k] += levels[k] < 0 ? even : masses[levels[k]];
        logs_[n] += even;
        continue;
      }
      SimdCall<AddNormals>(logs_.data(), &centers_[i * n], &offsets_[i * n], &weights_[i * n], x[i], n);
    }
    double highest = logs_[n];
    for (const double log : logs_) highest = log > highest ? log : highest;
    const double sum = SimdCall<SumOfPowers>(logs_.data(), logs_.size(), highest);
    return highest + std::log(sum / static_cast<double>(logs_.size()));
  }

 private:
  static constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

  static std::size_t LevelOf(const Dimension& dimension, double place) {
    return static_cast<std::size_t>(
        std::clamp(static_cast<int>(place * dimension.levels), 0, dimension.levels - 1));
  }
  double PlaceOf(std::size_t kernel, std::size_t i) const {
    return places_[static_cast<std::size_t>(members_[kernel]) * dimensions_.size() + i];
  }

  void Prepare(std::size_t i) {
    const Parameter& parameter = space_.parameters()[i];
    Dimension& dimension = dimensions_[i];
    dimension.categorical = parameter.categorical();
    dimension.levels = parameter.Levels() <= kMostTable || dimension.categorical ? parameter.Levels() : 0;
    if (dimension.categorical) {
      dimension.log_mass.assign(static_cast<std::size_t>(dimension.levels * dimension.levels),
                                std::log(kSmoothing / dimension.levels));
      for (int k = 0; k < dimension.levels; ++k)
        dimension.log_mass[static_cast<std::size_t>(k * dimension.levels + k)] =
            std::log(1 - kSmoothing + kSmoothing / dimension.levels);
      return;
    }
    dimension.deviation = DeviationOf(i, parameter.Levels());
    if (dimension.levels == 0) return;
    const int n = dimension.levels;
    dimension.log_mass.resize(static_cast<std::size_t>(n * n));
    std::vector<double> below(static_cast<std::size_t>(n) + 1);  // the shares up to the borders of levels
    for (int from = 0; from < n; ++from) {
      const double center = (from + 0.5) / n;
      for (int to = 0; to <= n; ++to)
        below[static_cast<std::size_t>(to)] =
            NormalBelow((static_cast<double>(to) / n - center) / dimension.deviation);
      const double whole = below[static_cast<std::size_t>(n)] - below[0];
      for (int to = 0; to < n; ++to) {
        const double mass = below[static_cast<std::size_t>(to) + 1] - below[static_cast<std::size_t>(to)];
        dimension.log_mass[static_cast<std::size_t>(to * n + from)] = std::log(std::max(mass / whole, 1e-12));
      }
    }
  }

  // In proportion to the spread, less with more trials, whatever the number of parameters: faster than for the estimate of a density,
  // since what counts is where it is high. With a floor so that kernels never become needles, nor stay at one level.
  double DeviationOf(std::size_t i, int levels) const {
    double sum = 0, squares = 0;
    int count = 0;
    for (std::size_t k = 0; k < members_.size(); ++k) {
      const double place = PlaceOf(k, i);
      if (std::isnan(place)) continue;
      sum += place;
      squares += place * place;
      ++count;
    }
    // As if one more trial had the spread of a uniform distribution around the mean.
    const double mean = count > 0 ? sum / count : 0.5;
    const double variance = (std::max(0.0, squares - count * mean * mean) + 1.0 / 12) / (count + 1);
    const double narrowed = std::sqrt(variance) * std::pow(count + 1.0, -1.0 / 3);
    const double floor = std::max(1.0 / std::min(200.0, 20.0 + count), levels > 0 ? 0.7 / levels : 0.0);
    return std::max(narrowed, floor);
  }

  void PrepareKernels() {
    const std::size_t n = members_.size();
    for (std::vector<double>* values : {&centers_, &offsets_, &weights_})
      values->resize(n * dimensions_.size());
    levels_.resize(n * dimensions_.size());
    for (std::size_t i = 0; i < dimensions_.size(); ++i) {
      double* const centers = &centers_[i * n];
      for (std::size_t k = 0; k < n; ++k) centers[k] = PlaceOf(k, i);
      if (dimensions_[i].levels > 0) {
        for (std::size_t k = 0; k < n; ++k)
          levels_[i * n + k] =
              std::isnan(centers[k]) ? -1 : static_cast<int>(LevelOf(dimensions_[i], centers[k]));
        continue;
      }
      const double weight = std::numbers::sqrt2 / 2 / dimensions_[i].deviation;
      std::fill_n(&weights_[i * n], n, weight);
      SimdCall<PeaksOfNormals>(static_cast<const double*>(centers), &offsets_[i * n],
                               dimensions_[i].deviation, n);
      for (std::size_t k = 0; k < n; ++k) {
        if (std::isnan(centers[k]))
          centers[k] = offsets_[i * n + k] = weights_[i * n + k] = 0;  // the same everywhere
      }
    }
  }

  const Space& space_;
  std::span<const double> places_;
  std::vector<int> members_;
  std::vector<Dimension> dimensions_;
  std::vector<double> centers_, offsets_, weights_;  // [d, members]
  std::vector<int> levels_;           // [d, members], where there are levels; -1: does not count
  mutable std::vector<double> logs_;  // of the kernels at one x
};

class TpeSampler final : public Sampler {
 public:
  TpeSampler(const Space& space, const SamplerOptions& options) : space_(space), seed_(options.seed) {}

  std::optional<Point> Propose(std::span<const PastTrial> history, int number, int attempt) override {
    std::vector<int> ranked = Ranked(history);
    if (static_cast<int>(ranked.size()) < kStart)
      return space_.At(SpreadPlaces(seed_, space_.size(), number, attempt));
    const std::span<const double> places = PlacesOf(history);
    const auto good = ranked.begin() + GoodOf(static_cast<int>(ranked.size()));
    std::vector<int> others(good, ranked.end());
    for (std::size_t i = 0; i < history.size(); ++i) {
      if (history[i].outcome == PastTrial::Outcome::kRunning) others.push_back(static_cast<int>(i));
    }
    const Density l(space_, places, {ranked.begin(), good}), g(space_, places, std::move(others));
    RandomStream draws = DrawsOf(seed_, number, attempt);
    Point best;
    double best_score = -std::numeric_limits<double>::infinity();
    std::vector<double> x(space_.size());
    for (int i = 0; i < kCandidates; ++i) {
      l.Draw(draws, x);
      Point point = space_.At(x);
      for (std::size_t j = 0; j < x.size(); ++j)
        x[j] = std::isnan(point[j]) ? point[j] : space_.parameters()[j].ToUnit(point[j]);
      const double score = l.Log(x) - g.Log(x);
      if (score <= best_score) continue;
      best_score = score;
      best = std::move(point);
    }
    return best;
  }

 private:
  // Of all trials, [trials, d]; those of points that were there at the last call are known.
  std::span<const double> PlacesOf(std::span<const PastTrial> history) {
    const std::size_t d = space_.size();
    values_.resize(history.size() * d, std::numeric_limits<double>::infinity());
    places_.resize(history.size() * d);
    for (std::size_t t = 0; t < history.size(); ++t) {
      const Point& point = history[t].point;
      if (std::memcmp(point.data(), &values_[t * d], d * sizeof(double)) == 0) continue;
      for (std::size_t i = 0; i < d; ++i) {
        const double value = values_[t * d + i] = point[i];
        places_[t * d + i] = std::isnan(value) ? value : space_.parameters()[i].ToUnit(value);
      }
    }
    return places_;
  }

  const Space& space_;
  std::uint64_t seed_;
  std::vector<double> values_, places_;  // of the history at the last call
};

}  // namespace

std::unique_ptr<Sampler> MakeTpeSampler(const Space& space, const SamplerOptions& options) {
  return std::make_unique<TpeSampler>(space, options);
}

}  // namespace trireme
