#include "trireme/tune/samplers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme {

RandomStream DrawsOf(std::uint64_t seed, int number, int attempt) {
  return {seed, Purpose::kTune, static_cast<std::uint32_t>(attempt), static_cast<std::uint64_t>(number)};
}

std::vector<double> SpreadPlaces(std::uint64_t seed, std::size_t dimensions, int number, int attempt) {
  std::vector<double> places(dimensions);
  if (attempt > 0) {
    RandomStream draws = DrawsOf(seed, number, attempt);
    for (double& place : places) place = draws.NextUniform();
    return places;
  }
  double root = 1.5;
  for (int i = 0; i < 50; ++i) root = std::pow(1 + root, 1.0 / (static_cast<double>(dimensions) + 1));
  RandomStream shifts(seed, Purpose::kTune, ~0U, 0);
  double factor = 1;
  for (double& place : places) {
    factor /= root;
    const double way = shifts.NextUniform() + factor * (number + 1.0);
    place = way - std::floor(way);
  }
  return places;
}

std::vector<int> Ranked(std::span<const PastTrial> history) {
  using Outcome = PastTrial::Outcome;
  std::vector<std::tuple<int, double, double, int>> keys;
  for (int i = 0; i < static_cast<int>(history.size()); ++i) {
    const PastTrial& trial = history[static_cast<std::size_t>(i)];
    if (trial.outcome == Outcome::kRunning) continue;
    const bool valued = trial.outcome != Outcome::kFailed && std::isfinite(trial.value);
    const int group = !valued ? 2 : trial.outcome == Outcome::kComplete ? 0 : 1;
    keys.emplace_back(group, group == 1 ? -trial.progress : 0.0, valued ? trial.value : 0.0, i);
  }
  std::ranges::sort(keys);
  std::vector<int> ranked;
  for (const auto& key : keys) ranked.push_back(std::get<3>(key));
  return ranked;
}

// By Newton's method on the logarithm, from a first guess that is right in the middle and in the tails.
double NormalQuantile(double p) {
  const bool upper = p > 0.5;
  const double tail = std::max(upper ? 1 - p : p, 1e-300);
  double x = tail > 0.1 ? (0.5 - tail) * std::sqrt(2 * std::numbers::pi) : std::sqrt(-2 * std::log(tail));
  for (int i = 0; i < 30; ++i) {
    const double above = 0.5 * std::erfc(x * std::numbers::sqrt2 / 2);
    const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
    const double step = above * (std::log(above) - std::log(tail)) / density;
    x += step;
    if (std::abs(step) < 1e-12) break;
  }
  return upper ? x : -x;
}

namespace {

class RandomSampler final : public Sampler {
 public:
  RandomSampler(const Space& space, const SamplerOptions& options) : space_(space), seed_(options.seed) {}
  std::optional<Point> Propose(std::span<const PastTrial>, int number, int attempt) override {
    return space_.At(SpreadPlaces(seed_, space_.size(), number, attempt));
  }

 private:
  const Space& space_;
  std::uint64_t seed_;
};

// Points of a grid in an order that jumps: whoever stops early has seen all parts of it.
class GridSampler final : public Sampler {
 public:
  GridSampler(const Space& space, const SamplerOptions& options)
      : space_(space),
        levels_(options.grid_levels),
        size_(static_cast<std::uint64_t>(GridSize(space, levels_))) {
    RandomStream draws(options.seed, Purpose::kTune, ~0U, 1);
    stride_ = static_cast<std::uint64_t>(draws.NextUniform() * static_cast<double>(size_));
    while (std::gcd(stride_, size_) != 1) ++stride_;
    at_ = static_cast<std::uint64_t>(draws.NextUniform() * static_cast<double>(size_));
  }

  // Points that differ only in what does not count are one.
  std::optional<Point> Propose(std::span<const PastTrial>, int number, int attempt) override {
    if (attempt > 0) return std::nullopt;
    while (static_cast<int>(found_.size()) <= number && visited_ < size_) {
      const auto place =
          static_cast<std::uint64_t>((static_cast<unsigned __int128>(stride_) * visited_ + at_) % size_);
      if (std::optional<Point> point = PointAt(place)) found_.push_back(*std::move(point));
      ++visited_;
    }
    if (number >= static_cast<int>(found_.size())) return std::nullopt;
    return found_[static_cast<std::size_t>(number)];
  }

  static int LevelsOf(const Parameter& parameter, int most) {
    const int levels = parameter.Levels();
    if (parameter.categorical()) return levels;
    const int whole = parameter.whole ? static_cast<int>(parameter.high - parameter.low) + 1 : most;
    return std::min({levels > 0 ? levels : most, whole, most});
  }

 private:
  std::optional<Point> PointAt(std::uint64_t place) const {
    Point point(space_.size());
    std::vector<std::uint64_t> digits(space_.size());
    for (std::size_t i = 0; i < space_.size(); ++i) {
      const Parameter& parameter = space_.parameters()[i];
      const auto levels = static_cast<std::uint64_t>(LevelsOf(parameter, levels_));
      digits[i] = place % levels;
      place /= levels;
      // From one end to the other.
      const double way = levels == 1 ? 0.5 : static_cast<double>(digits[i]) / static_cast<double>(levels - 1);
      const bool all = static_cast<int>(levels) == parameter.Levels();
      point[i] =
          all ? parameter.FromUnit((static_cast<double>(digits[i]) + 0.5) / static_cast<double>(levels))
              : parameter.FromUnit(way);
    }
    for (std::size_t i = 0; i < space_.size(); ++i) {
      if (digits[i] > 0 && !space_.Counts(i, point)) return std::nullopt;
    }
    space_.Tidy(point);
    return point;
  }

  const Space& space_;
  int levels_;
  std::uint64_t size_, stride_ = 1, at_ = 0, visited_ = 0;
  std::vector<Point> found_;
};

}  // namespace

double GridSize(const Space& space, int levels) {
  double size = 1;
  for (const Parameter& parameter : space.parameters()) size *= GridSampler::LevelsOf(parameter, levels);
  return std::min(size, 1e18);
}

std::unique_ptr<Sampler> MakeRandomSampler(const Space& space, const SamplerOptions& options) {
  return std::make_unique<RandomSampler>(space, options);
}
std::unique_ptr<Sampler> MakeGridSampler(const Space& space, const SamplerOptions& options) {
  return std::make_unique<GridSampler>(space, options);
}

std::unique_ptr<Sampler> MakeSampler(std::string_view name, const Space& space,
                                     const SamplerOptions& options) {
  if (name == "tpe") return MakeTpeSampler(space, options);
  if (name == "random") return MakeRandomSampler(space, options);
  if (name == "grid") return MakeGridSampler(space, options);
  if (name == "cmaes") return MakeCmaEsSampler(space, options);
  Fail("there is no sampler '{}': choose one of {}", name, fmt::join(kSamplers, ", "));
}

}  // namespace trireme
