// CMA-ES, evolution of a normal distribution: Hansen, "The CMA evolution strategy: a tutorial" (arXiv:1604.00772), with its
// constants, over the places of the numbers in [0, 1].
//
//   proposal:  x = m + s B D z,   z ~ N(0, I),   C = B D^2 B'
//   after each generation of L trials, y_k = (x_k - m) / s of the k-th best of them, weights w_k:
//     m   <- m + s sum_{w > 0} w_k y_k
//     p_s <- (1 - c_s) p_s + sqrt(c_s (2 - c_s) mu) C^{-1/2} sum w_k y_k
//     s   <- s exp((c_s / d_s) (|p_s| / E|N(0, I)| - 1))
//     p_c, C by the rank-one and rank-mu updates, with negative weights for the worse half
//
// Generation j is what trials L j, ..., L j + L - 1 have given; those that have not ended when trial L (j + 1) is proposed are not
// waited for. The distribution is computed from the history alone, however the trials came about.
//
// Choices have no distances: each is drawn by how often it is found among the better trials. What does not count at a trial
// has the mean as its place there.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "trireme/tune/samplers.h"

namespace trireme {
namespace {

constexpr double kFirstDeviation = 0.12, kMargin = 0.3;
constexpr int kMostTries = 20;  // to draw a point inside

// A symmetric matrix as eigenvectors (columns of `vectors`) and eigenvalues, by Jacobi's rotations. [n, n]
void Decompose(std::vector<double> a, std::size_t n, std::vector<double>& vectors,
               std::vector<double>& values) {
  vectors.assign(n * n, 0);
  for (std::size_t i = 0; i < n; ++i) vectors[i * n + i] = 1;
  for (int sweep = 0; sweep < 30; ++sweep) {
    double off = 0, all = 0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) (i == j ? all : off) += a[i * n + j] * a[i * n + j];
    }
    if (off <= 1e-22 * all) break;
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (std::size_t k = 0; k < n; ++k) {
          const double kp = a[k * n + p], kq = a[k * n + q];
          a[k * n + p] = c * kp - s * kq;
          a[k * n + q] = s * kp + c * kq;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double pk = a[p * n + k], qk = a[q * n + k];
          a[p * n + k] = c * pk - s * qk;
          a[q * n + k] = s * pk + c * qk;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double kp = vectors[k * n + p], kq = vectors[k * n + q];
          vectors[k * n + p] = c * kp - s * kq;
          vectors[k * n + q] = s * kp + c * kq;
        }
      }
    }
  }
  values.resize(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = a[i * n + i];
}

// What follows from the number of dimensions.
struct Constants {
  explicit Constants(std::size_t dimensions) : n(static_cast<double>(dimensions)) {
    lambda = 4 + static_cast<int>(3 * std::log(std::max(1.0, n)));
    const int half = lambda / 2;
    std::vector<double> raw(static_cast<std::size_t>(lambda));
    for (int i = 0; i < lambda; ++i)
      raw[static_cast<std::size_t>(i)] = std::log((lambda + 1) / 2.0) - std::log(i + 1);
    double positive = 0, positive_squares = 0, negative = 0, negative_squares = 0;
    for (int i = 0; i < lambda; ++i) {
      const double w = raw[static_cast<std::size_t>(i)];
      (i < half ? positive : negative) += w;
      (i < half ? positive_squares : negative_squares) += w * w;
    }
    mu = positive * positive / positive_squares;
    const double mu_negative = negative * negative / negative_squares;
    c_c = (4 + mu / n) / (n + 4 + 2 * mu / n);
    c_s = (mu + 2) / (n + mu + 5);
    c_1 = 2 / ((n + 1.3) * (n + 1.3) + mu);
    c_mu = std::min(1 - c_1, 2 * (mu - 2 + 1 / mu) / ((n + 2) * (n + 2) + mu));
    d_s = 1 + 2 * std::max(0.0, std::sqrt((mu - 1) / (n + 1)) - 1) + c_s;
    chi = std::sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n));
    const double alpha =
        std::min({1 + c_1 / c_mu, 1 + 2 * mu_negative / (mu + 2), (1 - c_1 - c_mu) / (n * c_mu)});
    for (const double w : raw) weights.push_back(w >= 0 ? w / positive : alpha * w / std::abs(negative));
  }

  double n;
  int lambda;
  std::vector<double> weights;  // the best first; those of the worse half are negative
  double mu, c_c, c_s, c_1, c_mu, d_s, chi;
};

// The distribution after some generations.
struct Evolution {
  explicit Evolution(std::size_t n)
      : mean(n, 0.5), path_s(n), path_c(n), covariance(n * n), vectors(n * n), roots(n, 1) {
    for (std::size_t i = 0; i < n; ++i) covariance[i * n + i] = vectors[i * n + i] = 1;
  }

  int generations = 0;
  double deviation = kFirstDeviation;
  std::vector<double> mean, path_s, path_c;
  std::vector<double> covariance, vectors, roots;  // C, B, D

  // With the places of a generation, the best first. [count, n], NaN: does not count.
  void Update(const Constants& constants, const std::vector<std::vector<double>>& places);

 private:
  // C^{-1/2} y
  std::vector<double> Whiten(const std::vector<double>& y) const;
};

std::vector<double> Evolution::Whiten(const std::vector<double>& y) const {
  const std::size_t n = y.size();
  std::vector<double> out(n);
  for (std::size_t j = 0; j < n; ++j) {
    double along = 0;
    for (std::size_t i = 0; i < n; ++i) along += vectors[i * n + j] * y[i];
    for (std::size_t i = 0; i < n; ++i) out[i] += vectors[i * n + j] * along / roots[j];
  }
  return out;
}

void Evolution::Update(const Constants& k, const std::vector<std::vector<double>>& places) {
  const std::size_t n = mean.size();
  ++generations;
  std::vector<std::vector<double>> steps;
  for (const std::vector<double>& place : places) {
    std::vector<double>& y = steps.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) y[i] = std::isnan(place[i]) ? 0 : (place[i] - mean[i]) / deviation;
    // Trials of somebody else, or of long ago, may be far away: they show the direction.
    const std::vector<double> z = Whiten(y);
    const double length = std::sqrt(std::inner_product(z.begin(), z.end(), z.begin(), 0.0));
    const double most = k.chi + 2 * std::sqrt(k.n) / (k.n + 2) + 2;
    if (length > most) {
      for (double& part : y) part *= most / length;
    }
  }
  // With fewer trials than a generation has the weights are those of the best; the negative ones go.
  const bool whole = static_cast<int>(steps.size()) == k.lambda;
  std::vector<double> weights(k.weights.begin(),
                              k.weights.begin() + static_cast<std::ptrdiff_t>(steps.size()));
  double positive = 0;
  for (double& w : weights) {
    if (!whole && w < 0) w = 0;
    positive += std::max(0.0, w);
  }
  for (double& w : weights) w = w > 0 ? w / positive : w;
  std::vector<double> step(n);
  for (std::size_t t = 0; t < steps.size(); ++t) {
    for (std::size_t i = 0; i < n; ++i) step[i] += std::max(0.0, weights[t]) * steps[t][i];
  }
  for (std::size_t i = 0; i < n; ++i) mean[i] = std::clamp(mean[i] + deviation * step[i], 0.0, 1.0);

  const std::vector<double> white = Whiten(step);
  double length = 0;
  for (std::size_t i = 0; i < n; ++i) {
    path_s[i] = (1 - k.c_s) * path_s[i] + std::sqrt(k.c_s * (2 - k.c_s) * k.mu) * white[i];
    length += path_s[i] * path_s[i];
  }
  length = std::sqrt(length);
  const double fresh = std::sqrt(1 - std::pow(1 - k.c_s, 2 * generations));
  const double h = length / fresh < (1.4 + 2 / (k.n + 1)) * k.chi ? 1 : 0;
  for (std::size_t i = 0; i < n; ++i)
    path_c[i] = (1 - k.c_c) * path_c[i] + h * std::sqrt(k.c_c * (2 - k.c_c) * k.mu) * step[i];

  double total = 0;
  for (const double w : weights) total += w;
  std::vector<double> scaled(weights);  // negative ones so that C stays positive
  for (std::size_t t = 0; t < steps.size(); ++t) {
    if (weights[t] >= 0) continue;
    const std::vector<double> z = Whiten(steps[t]);
    scaled[t] *= k.n / (std::inner_product(z.begin(), z.end(), z.begin(), 0.0) + 1e-12);
  }
  const double keep = 1 + k.c_1 * (1 - h) * k.c_c * (2 - k.c_c) - k.c_1 - k.c_mu * total;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double c = keep * covariance[i * n + j] + k.c_1 * path_c[i] * path_c[j];
      for (std::size_t t = 0; t < steps.size(); ++t) c += k.c_mu * scaled[t] * steps[t][i] * steps[t][j];
      covariance[i * n + j] = covariance[j * n + i] = c;
    }
  }
  deviation =
      std::clamp(deviation * std::exp(std::min(1.0, k.c_s / k.d_s * (length / k.chi - 1))), 1e-8, 0.5);
  std::vector<double> values;
  Decompose(covariance, n, vectors, values);
  for (std::size_t i = 0; i < n; ++i) roots[i] = std::sqrt(std::max(values[i], 1e-14));
}

class CmaEsSampler final : public Sampler {
 public:
  CmaEsSampler(const Space& space, const SamplerOptions& options)
      : space_(space), seed_(options.seed), numbers_(NumbersOf(space)), constants_(numbers_.size()) {}

  std::optional<Point> Propose(std::span<const PastTrial> history, int number, int attempt) override {
    RandomStream draws = DrawsOf(seed_, number, attempt);
    std::vector<double> places(space_.size());
    if (!numbers_.empty()) {
      const Evolution evolution = EvolutionBefore(history, number);
      if (number < constants_.lambda && attempt == 0) {
        SpreadNumbers(number, places);
      } else {
        DrawNumbers(evolution, draws, places);
      }
    }
    DrawChoices(history, draws, places);
    return space_.At(places);
  }

 private:
  static std::vector<std::size_t> NumbersOf(const Space& space) {
    std::vector<std::size_t> numbers;
    for (std::size_t i = 0; i < space.size(); ++i) {
      if (!space.parameters()[i].categorical()) numbers.push_back(i);
    }
    return numbers;
  }

  // The first generation fills the space evenly, but for its margins.
  void SpreadNumbers(int number, std::vector<double>& places) const {
    const std::vector<double> even = SpreadPlaces(seed_, space_.size(), number, 0);
    for (const std::size_t i : numbers_) places[i] = kMargin + (1 - 2 * kMargin) * even[i];
  }

  void DrawNumbers(const Evolution& evolution, RandomStream& draws, std::vector<double>& places) const {
    const std::size_t n = numbers_.size();
    std::vector<double> z(n), x(n);
    for (int attempt = 0; attempt < kMostTries; ++attempt) {
      for (std::size_t j = 0; j < n; ++j) z[j] = evolution.roots[j] * draws.NextNormal();
      bool inside = true;
      for (std::size_t i = 0; i < n; ++i) {
        double y = 0;
        for (std::size_t j = 0; j < n; ++j) y += evolution.vectors[i * n + j] * z[j];
        x[i] = evolution.mean[i] + evolution.deviation * y;
        inside = inside && x[i] >= 0 && x[i] <= 1;
      }
      if (inside) break;
    }
    for (std::size_t i = 0; i < n; ++i) {
      // Among levels a small deviation would stay at one for ever.
      const int levels = space_.parameters()[numbers_[i]].Levels();
      const double stir = levels > 0 ? 0.3 / levels * draws.NextNormal() : 0;
      places[numbers_[i]] = std::clamp(x[i] + stir, 0.0, 1.0);
    }
  }

  // In proportion to how often a choice is among the better quarter, and once more for each.
  void DrawChoices(std::span<const PastTrial> history, RandomStream& draws,
                   std::vector<double>& places) const {
    if (numbers_.size() == space_.size()) return;
    std::vector<int> ranked = Ranked(history);
    ranked.resize((ranked.size() + 3) / 4);
    for (std::size_t i = 0; i < space_.size(); ++i) {
      const Parameter& parameter = space_.parameters()[i];
      if (!parameter.categorical()) continue;
      const int levels = parameter.Levels();
      std::vector<double> weights(static_cast<std::size_t>(levels), 1.0);
      for (const int trial : ranked) {
        const double value = history[static_cast<std::size_t>(trial)].point[i];
        if (!std::isnan(value)) weights[static_cast<std::size_t>(value)] += 2;
      }
      double left = draws.NextUniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
      int chosen = 0;
      while (chosen < levels - 1 && (left -= weights[static_cast<std::size_t>(chosen)]) >= 0) ++chosen;
      places[i] = (chosen + 0.5) / levels;
    }
  }

  // After all generations before that of `number`.
  Evolution EvolutionBefore(std::span<const PastTrial> history, int number) {
    const int generation = number / constants_.lambda;
    if (!SameBeginning(history)) known_.clear();
    if (known_.empty()) known_.emplace_back(numbers_.size());
    const int from = std::min(generation, static_cast<int>(known_.size()) - 1);
    Evolution evolution = known_[static_cast<std::size_t>(from)];
    bool settled = from == static_cast<int>(known_.size()) - 1;
    for (int g = from; g < generation; ++g) {
      const auto begin = static_cast<std::size_t>(g * constants_.lambda);
      const std::size_t end = std::min(begin + static_cast<std::size_t>(constants_.lambda), history.size());
      if (begin >= end) break;
      const std::span<const PastTrial> trials = history.subspan(begin, end - begin);
      std::vector<std::vector<double>> places;
      for (const int i : Ranked(trials)) places.push_back(PlacesOf(trials[static_cast<std::size_t>(i)]));
      settled = settled && static_cast<int>(places.size()) == constants_.lambda;
      if (2 * static_cast<int>(places.size()) >= constants_.lambda) evolution.Update(constants_, places);
      if (settled) Remember(evolution, trials);
    }
    return evolution;
  }

  std::vector<double> PlacesOf(const PastTrial& trial) const {
    std::vector<double> places;
    for (const std::size_t i : numbers_) {
      const double value = trial.point[i];
      places.push_back(std::isnan(value) ? value : space_.parameters()[i].ToUnit(value));
    }
    return places;
  }

  // Generations whose trials have all ended do not change any more; that is checked all the same.
  void Remember(const Evolution& evolution, std::span<const PastTrial> trials) {
    known_.push_back(evolution);
    for (const PastTrial& trial : trials) beginning_.push_back(trial);
  }
  bool SameBeginning(std::span<const PastTrial> history) {
    const auto same = [](const PastTrial& a, const PastTrial& b) {
      const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
      return a.outcome == b.outcome && equal(a.value, b.value) && a.progress == b.progress &&
             std::ranges::equal(a.point, b.point, equal);
    };
    if (history.size() >= beginning_.size() &&
        std::equal(beginning_.begin(), beginning_.end(), history.begin(), same))
      return true;
    beginning_.clear();
    return false;
  }

  const Space& space_;
  std::uint64_t seed_;
  std::vector<std::size_t> numbers_;  // parameters that are no choices
  Constants constants_;
  std::vector<Evolution> known_;      // after 0, 1, ... generations
  std::vector<PastTrial> beginning_;  // the trials they are from
};

}  // namespace

std::unique_ptr<Sampler> MakeCmaEsSampler(const Space& space, const SamplerOptions& options) {
  return std::make_unique<CmaEsSampler>(space, options);
}

}  // namespace trireme
