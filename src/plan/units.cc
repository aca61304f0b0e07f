#include "trireme/plan/units.h"

#include <cmath>
#include <optional>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/parse.h"

namespace trireme {
namespace {

struct Unit {
  std::string_view name;
  double value;
};

// From the smallest to the largest; what is printed uses these, in this order.
constexpr Unit kDurations[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit kByteRates[] = {{"B/s", 1}, {"kB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}};
constexpr Unit kRates[] = {{"B/s", 1},          {"kB/s", 1e3},       {"MB/s", 1e6},      {"GB/s", 1e9},
                           {"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}};

double Parse(std::string_view text, std::span<const Unit> units, const std::string& origin,
             std::string_view expected) {
  const std::string_view trimmed = Trim(text);
  std::optional<double> value;
  for (const Unit& unit : units) {
    if (value || !trimmed.ends_with(unit.name)) continue;
    value = ParseDouble(trimmed.substr(0, trimmed.size() - unit.name.size()));
    if (value) *value *= unit.value;
  }
  if (!value || !(*value > 0) || !std::isfinite(*value)) Fail("{} {}: expected {}", origin, text, expected);
  return *value;
}

std::string Format(double value, std::span<const Unit> units) {
  if (!std::isfinite(value)) return "-";
  Unit chosen = units.front();
  for (const Unit& unit : units) {
    if (std::abs(value) >= 0.9995 * unit.value) chosen = unit;
  }
  const double shown = value / chosen.value;
  const int decimals = std::abs(shown) < 9.995 ? 2 : std::abs(shown) < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", shown, decimals, chosen.name);
}

}  // namespace

double ParseSeconds(std::string_view text, const std::string& origin) {
  return Parse(text, kDurations, origin, "a duration above 0, like 50us, 1.5ms or 2s");
}

double ParseBytesPerSecond(std::string_view text, const std::string& origin) {
  return Parse(text, kRates, origin, "a rate above 0, like 125MB/s, 1.2GB/s or 10Gbit/s");
}

std::string FormatSeconds(double seconds) { return Format(seconds, kDurations); }
std::string FormatBytesPerSecond(double rate) { return Format(rate, kByteRates); }

}  // namespace trireme
