#include "trireme/tune/space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

#include "trireme/base/parse.h"

namespace trireme {
namespace {

using Kind = Search::Kind;
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// Six digits are as many as anybody can tell apart, and can be read.
double Rounded(double value) { return std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr); }

// The way along which places are spread evenly.
double Stretch(Kind scale, double value) {
  switch (scale) {
    case Kind::kLog:
      return std::log(value);
    case Kind::kNearOne:
      return -std::log(1 - value);
    case Kind::kPowersOfTwo:
      return std::log2(value);
    default:
      return value;
  }
}

double Unstretch(Kind scale, double way) {
  switch (scale) {
    case Kind::kLog:
      return Rounded(std::exp(way));
    case Kind::kNearOne:
      return 1 - Rounded(std::exp(-way));
    case Kind::kPowersOfTwo:
      return std::exp2(std::round(way));
    default:
      return Rounded(way);
  }
}

// A list "[32, 32]" as layers of one width: their number and the width of the first.
std::pair<double, double> LayersOf(std::string_view text) {
  const auto count = 1 + std::ranges::count(text, ',');
  text = Trim(text.substr(std::min<std::size_t>(1, text.size())));
  const double width = std::strtod(std::string(text).c_str(), nullptr);
  return {static_cast<double>(count), width > 0 ? width : 1};
}

}  // namespace

int Parameter::Levels() const {
  if (categorical()) return static_cast<int>(choices.size());
  if (scale == Kind::kPowersOfTwo) return static_cast<int>(std::round(std::log2(high / low))) + 1;
  return whole && scale == Kind::kLinear ? static_cast<int>(high - low + 1) : 0;
}

// Whole numbers on a log scale have shares of the way that shrink: the way goes from low - 1/2 to high + 1/2.
double Parameter::ToUnit(double value) const {
  if (categorical()) return (value + 0.5) / Levels();
  const double margin = whole ? 0.5 : 0;
  if (scale == Kind::kPowersOfTwo) return (std::log2(value / low) + 0.5) / Levels();
  const double begin = Stretch(scale, low - margin), end = Stretch(scale, high + margin);
  return std::clamp((Stretch(scale, value) - begin) / (end - begin), 0.0, 1.0);
}

double Parameter::FromUnit(double place) const {
  place = std::clamp(place, 0.0, 1.0);
  if (categorical() || scale == Kind::kPowersOfTwo) {
    const double level = std::min(std::floor(place * Levels()), Levels() - 1.0);
    return categorical() ? level : low * std::exp2(level);
  }
  const double margin = whole ? 0.5 : 0;
  const double begin = Stretch(scale, low - margin), end = Stretch(scale, high + margin);
  const double value = Unstretch(scale, begin + place * (end - begin));
  return std::clamp(whole ? std::round(value) : value, low, high);
}

std::string Parameter::Text(double value) const {
  if (categorical()) return choices[static_cast<std::size_t>(value)];
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

std::string Parameter::RangeText() const {
  if (categorical()) {
    std::string text;
    for (const std::string& choice : choices) text += fmt::format("{}{}", text.empty() ? "" : ", ", choice);
    return "one of " + text;
  }
  const char* how = scale == Kind::kLog           ? "log"
                    : scale == Kind::kNearOne     ? "near_one"
                    : scale == Kind::kPowersOfTwo ? "powers_of_two"
                                                  : "linear";
  return fmt::format("{}{}, {} to {}", how, whole && scale != Kind::kPowersOfTwo ? " whole" : "", Text(low),
                     Text(high));
}

Space::Space(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {
  for (std::size_t i = 0; i < size(); ++i) TRIREME_CHECK(parameters_[i].parent < static_cast<int>(i));
}

bool Space::Counts(std::size_t i, std::span<const double> point) const {
  const Parameter& parameter = parameters_[i];
  if (parameter.parent < 0) return true;
  const double value = point[static_cast<std::size_t>(parameter.parent)];
  if (std::isnan(value)) return false;
  return std::ranges::find(parameter.parent_values, static_cast<int>(value)) != parameter.parent_values.end();
}

void Space::Tidy(Point& point) const {
  TRIREME_CHECK(point.size() == size());
  for (std::size_t i = 0; i < size(); ++i) {
    if (!Counts(i, point)) point[i] = kNothing;
  }
}

Point Space::At(std::span<const double> places) const {
  Point point(size());
  for (std::size_t i = 0; i < size(); ++i) point[i] = parameters_[i].FromUnit(places[i]);
  Tidy(point);
  return point;
}

void Space::Apply(const Point& point, ConfigFields& fields) const {
  for (std::size_t i = 0; i < size(); ++i) {
    if (std::isnan(point[i])) continue;
    const Parameter& parameter = parameters_[i];
    if (parameter.name == parameter.setting) {
      fields.Set(parameter.setting, parameter.Text(point[i]), parameter.name);
    } else if (parameter.name.ends_with("_layers")) {  // its width comes next
      const std::vector<std::string> layers(static_cast<std::size_t>(point[i]),
                                            parameters_[i + 1].Text(point[i + 1]));
      fields.Set(parameter.setting, fmt::format("[{}]", fmt::join(layers, ", ")), parameter.name);
    }
  }
}

Point Space::Nearest(const ConfigFields& fields) const {
  Point point(size());
  for (std::size_t i = 0; i < size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const std::string text = Unquoted(fields.Get(parameter.setting));
    if (parameter.categorical()) {
      const auto found = std::ranges::find(parameter.choices, text);
      point[i] =
          found == parameter.choices.end() ? 0 : static_cast<double>(found - parameter.choices.begin());
      continue;
    }
    double value = ParseDouble(text).value_or(parameter.low);
    if (parameter.name != parameter.setting) {
      const auto [count, width] = LayersOf(text);
      value = parameter.name.ends_with("_layers") ? count : width;
    }
    point[i] = parameter.FromUnit(parameter.ToUnit(std::clamp(value, parameter.low, parameter.high)));
  }
  Tidy(point);
  return point;
}

std::string Space::Describe(const Point& point) const {
  std::string text;
  for (std::size_t i = 0; i < size(); ++i) {
    if (std::isnan(point[i])) continue;
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", parameters_[i].name,
                        parameters_[i].Text(point[i]));
  }
  return text;
}

std::string Space::ToText() const {
  std::size_t name = 0, range = 0;
  for (const Parameter& parameter : parameters_) {
    name = std::max(name, parameter.name.size());
    range = std::max(range, parameter.RangeText().size());
  }
  std::string text;
  for (const Parameter& parameter : parameters_) {
    std::string when;
    for (const int value : parameter.parent_values) {
      when += fmt::format("{}{}", when.empty() ? "" : " or ", parameters_[parameter.parent].choices[value]);
    }
    if (!when.empty()) when = fmt::format("; only where {} is {}", parameters_[parameter.parent].name, when);
    text += fmt::format("{:<{}}  {:<{}}  {}{}\n", parameter.name, name, parameter.RangeText(), range,
                        parameter.doc, when);
  }
  return text;
}

}  // namespace trireme
