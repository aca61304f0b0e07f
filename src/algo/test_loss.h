// What the tests of losses share: numbers to try, and slopes without calculus.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/base/rng.h"

namespace trireme {

constexpr double kLogTwoPi = 1.8378770664093453;
constexpr float kUntouched = 12345.0f;  // marks floats that no kernel may write

// d f / d x[i] by central differences. The losses are smooth but at kinks, which random inputs keep away from.
template <class F>
double Slope(std::vector<double>& x, std::size_t i, F&& f) {
  constexpr double kStep = 1e-5;
  const double saved = x[i];
  x[i] = saved + kStep;
  const double above = f();
  x[i] = saved - kStep;
  const double below = f();
  x[i] = saved;
  return (above - below) / (2 * kStep);
}

// Random outputs, rounded to float so that both sides see the same numbers.
inline std::vector<double> RandomOutputs(std::size_t size, double scale, RandomStream& random) {
  std::vector<double> values(size);
  for (double& v : values) v = static_cast<float>(scale * random.NextNormal());
  return values;
}

inline std::vector<float> ToFloats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

}  // namespace trireme
