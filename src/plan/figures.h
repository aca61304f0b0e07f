// One list of figures per row makes the line of a table for people and the object of JSON.
//
// A figure that is not known is NaN where it is computed, "-" in a table and null in JSON.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace trireme {

using Json = nlohmann::ordered_json;

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct Figure {
  std::string key;      // in JSON; empty: not there
  std::string heading;  // in the table; empty: not there
  std::size_t width = 0;
  Json value = nullptr;
  std::string text = {};  // of `value`, for people
};

// NaN and infinity have no place in JSON.
Json Number(double value);
// With so many decimals.
std::string Cell(double value, int decimals, const char* unit = "");

// Each ends in a newline.
std::string HeadingLine(std::span<const Figure> figures);
std::string TableLine(std::span<const Figure> figures);
Json JsonOf(std::span<const Figure> figures);

// The middle value, or the mean of the two middle ones; NaN values do not count. NaN when there is none.
double Median(std::vector<double> values);

}  // namespace trireme
