#include "trireme/metrics/axis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// The smallest of 1, 2, 5, 10, 20, ... that is not below `wish`.
double RoundStep(double wish) {
  const double power = std::pow(10.0, std::floor(std::log10(wish)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= wish * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string TrimZeros(std::string number) {
  if (number.find('.') == std::string::npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number;
}

// Decimals that show multiples of `step` exactly.
int DecimalsFor(double step) {
  return std::clamp(static_cast<int>(-std::floor(std::log10(step) + 1e-9)), 0, 9);
}

std::string Scientific(double value, double step) {
  int exponent = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  const double power = std::pow(10.0, exponent);
  return fmt::format("{}e{}", TrimZeros(fmt::format("{:.{}f}", value / power, DecimalsFor(step / power))),
                     exponent);
}

std::string Label(double value, double step, double largest) {
  if (std::abs(value) < step / 2) return "0";
  if (largest < 1e-3 || largest >= 1e15) return Scientific(value, step);
  constexpr std::array<std::pair<double, const char*>, 5> kScales = {
      {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}}};
  const auto scale = std::find_if(kScales.begin(), kScales.end() - 1, [&](const auto& entry) {
    return std::abs(value) * (1 + 1e-9) >= entry.first;
  });
  const auto& [unit, suffix] = *scale;
  return TrimZeros(fmt::format("{:.{}f}", value / unit, DecimalsFor(step / unit))) + suffix;
}

}  // namespace

Axis MakeAxis(double low, double high, double margin, int wanted_ticks) {
  TRIREME_CHECK(wanted_ticks > 0);
  if (low > high) return MakeAxis(0, 1, 0, wanted_ticks);
  const double magnitude = std::max(std::abs(low), std::abs(high));
  TRIREME_CHECK(magnitude <= kLargestPlottable);
  if (magnitude < 1e-290) {
    low = -1;
    high = 1;
  } else if (high - low < 1e-5 * magnitude) {  // labels could not tell the ends of the range apart
    const double middle = low + (high - low) / 2;
    low = middle - 0.1 * magnitude;
    high = middle + 0.1 * magnitude;
  } else {
    const double extra = margin * (high - low);
    low -= extra;
    high += extra;
  }
  Axis axis{low, high, {}};
  const double step = RoundStep((high - low) / wanted_ticks);
  const double largest = std::max(std::abs(low), std::abs(high));
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) {
    const double value = std::clamp(i * step, low, high);
    axis.ticks.push_back({value, Label(value, step, largest)});
  }
  return axis;
}

}  // namespace trireme
