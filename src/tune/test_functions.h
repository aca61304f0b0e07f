// Functions that samplers are tried on and compared by, with their spaces; bench/tune_samplers.py has the same ones in Python.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/tune/sampler.h"

namespace trireme::testing {

struct TestFunction {
  std::string name;
  Space space;
  std::function<double(const Point&)> value;  // to be minimised
  double noise = 0;                           // deviation of what is seen of it
  double least = 0;                           // what it is at its best
};

inline Parameter Real(std::string name, double low, double high, Search::Kind scale = Search::Kind::kLinear) {
  return {.name = name, .setting = name, .scale = scale, .low = low, .high = high};
}
inline Parameter Whole(std::string name, double low, double high,
                       Search::Kind scale = Search::Kind::kLinear) {
  return {.name = name, .setting = name, .scale = scale, .low = low, .high = high, .whole = true};
}
inline Parameter ChoiceOf(std::string name, std::vector<std::string> choices) {
  return {.name = name, .setting = name, .scale = Search::Kind::kChoices, .choices = std::move(choices)};
}

inline double Branin(double x, double y) {
  constexpr double pi = std::numbers::pi;
  const double a = y - 5.1 / (4 * pi * pi) * x * x + 5 / pi * x - 6;
  return a * a + 10 * (1 - 1 / (8 * pi)) * std::cos(x) + 10;
}

inline double Hartmann6(const Point& x) {
  constexpr double weight[4] = {1.0, 1.2, 3.0, 3.2};
  constexpr double a[4][6] = {{10, 3, 17, 3.5, 1.7, 8},
                              {0.05, 10, 17, 0.1, 8, 14},
                              {3, 3.5, 1.7, 10, 17, 8},
                              {17, 8, 0.05, 10, 0.1, 14}};
  constexpr double p[4][6] = {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
                              {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
                              {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
                              {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}};
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    double exponent = 0;
    for (int j = 0; j < 6; ++j) exponent += a[i][j] * std::pow(x[static_cast<std::size_t>(j)] - p[i][j], 2);
    sum -= weight[i] * std::exp(-exponent);
  }
  return sum;
}

inline double Rosenbrock(const Point& x) {
  double sum = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i)
    sum += 100 * std::pow(x[i + 1] - x[i] * x[i], 2) + std::pow(1 - x[i], 2);
  return sum;
}

// Like a training: a rate on a log scale whose best value depends on the optimizer, layers, a momentum that counts for one
// optimizer only, and a choice that is simply better.
inline double Mixed(const Point& x) {
  constexpr double best_rate[3] = {-3, -1.5, -2.5}, offset[3] = {0, 0.3, 0.5};
  constexpr double activation[4] = {0.4, 0, 0.8, 1.2};
  const auto optimizer = static_cast<std::size_t>(x[0]);
  double value = offset[optimizer] + std::pow(std::log10(x[1]) - best_rate[optimizer], 2);
  if (optimizer == 1) value += 4 * std::pow(x[2] - 0.9, 2);
  value += 0.1 * std::pow(x[3] - 3, 2) + activation[static_cast<std::size_t>(x[4])];
  return value + 2 * std::pow(x[5] - 0.3, 2);
}

inline std::vector<TestFunction> TestFunctions() {
  using Kind = Search::Kind;
  std::vector<Parameter> unit, wide;
  for (int i = 0; i < 6; ++i) unit.push_back(Real(fmt::format("x{}", i), 0, 1));
  for (int i = 0; i < 5; ++i) wide.push_back(Real(fmt::format("x{}", i), -2, 2));
  Parameter momentum = Real("momentum", 0, 0.99);
  momentum.parent = 0;
  momentum.parent_values = {1};
  const Space mixed({ChoiceOf("optimizer", {"adam", "momentum", "rmsprop"}),
                     Real("rate", 1e-5, 1, Kind::kLog), momentum, Whole("layers", 1, 6),
                     ChoiceOf("activation", {"tanh", "relu", "elu", "sigmoid"}), Real("clip", 0, 1)});
  const Space branin({Real("x", -5, 10), Real("y", 0, 15)});
  const auto branin_value = [](const Point& x) { return Branin(x[0], x[1]); };
  return {{"branin", branin, branin_value, 0, 0.397887},
          {"hartmann6", Space(unit), Hartmann6, 0, -3.32237},
          {"rosenbrock5", Space(wide), Rosenbrock, 0, 0},
          {"mixed", mixed, Mixed, 0, 0},
          {"noisy", branin, branin_value, 2, 0.397887}};
}

// The history of a search of `trials`, one at a time, and the value (without noise) at the trial that looked best.
struct Searched {
  std::vector<PastTrial> history;
  double best = 0;
};
inline Searched RunSearch(const TestFunction& function, Sampler& sampler, int trials, std::uint64_t seed) {
  Searched searched;
  double looked = std::numeric_limits<double>::infinity();
  for (int i = 0; i < trials; ++i) {
    const std::optional<Point> point = sampler.Propose(searched.history, i, 0);
    if (!point) break;
    RandomStream noise(seed, Purpose::kTest, 0, static_cast<std::uint64_t>(i));
    const double value = function.value(*point), seen = value + function.noise * noise.NextNormal();
    if (seen < looked) {
      looked = seen;
      searched.best = value;
    }
    searched.history.push_back({*point, PastTrial::Outcome::kComplete, seen, 0});
  }
  return searched;
}

}  // namespace trireme::testing
