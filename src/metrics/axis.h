// The scale of one axis of a plot: its range and the round numbers marked on it.
#pragma once

#include <string>
#include <vector>

namespace trireme {

struct Tick {
  double value;
  std::string label;  // "0", "0.05", "250", "20k", "1.5M"; "2e-4" where all ticks are small
};

struct Axis {
  double low;
  double high;
  std::vector<Tick> ticks;  // ascending, within [low, high], at steps of 1, 2 or 5 times a power of ten

  // Position of `value` between low (0) and high (1).
  double Fraction(double value) const { return (value - low) / (high - low); }
};

// Numbers beyond this cannot be put on an axis.
inline constexpr double kLargestPlottable = 1e300;

// An axis over [low, high], widened by `margin` times its length at both ends, with about `wanted_ticks`
// ticks. A range without length is widened to one around its value; an empty one (low > high) becomes [0, 1].
// Both must be at most kLargestPlottable in magnitude, or low > high.
Axis MakeAxis(double low, double high, double margin, int wanted_ticks);

}  // namespace trireme
