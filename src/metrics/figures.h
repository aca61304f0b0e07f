// Numbers for people and for programs: one list of figures per row makes the line of a table and the object of
// JSON. A figure that is not known is NaN where it is computed, "-" in a table and null in JSON.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trireme/metrics/plot.h"

namespace trireme {

using Json = nlohmann::ordered_json;

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct Figure {
  std::string key;        // in JSON; empty: not there
  std::string heading;    // in the table; empty: not there
  Json value;             // NaN and infinity are null in JSON
  std::string text = {};  // for people; empty: the value
};
using Row = std::vector<Figure>;

// In the table: `scale` times the value, with so many decimals and the unit.
Figure Decimal(const char* key, const char* heading, double value, int decimals, double scale = 1,
               const char* unit = "");
// "1.2k"
Figure Count(const char* key, const char* heading, double value);
// "12.3 us"
Figure Duration(const char* key, const char* heading, double seconds);

// What a command has to say, for people as text and for programs as JSON.
struct CommandReport {
  struct Section {
    std::string title;      // above the table; may be empty
    std::string key;        // of an array in JSON, which sections may share; empty: not there
    std::vector<Row> rows;  // with the same headings
  };
  std::string heading;
  Json facts = Json::object();  // in JSON, before sections and notes
  std::vector<Section> sections = {};
  std::vector<std::string> notes = {};
  LinePlot plot = {};

  // Every line ends in a newline.
  std::string ToText() const;
  // One object on one line.
  std::string ToJson() const;
  // Adds a point to the series of that name in the plot, which is made if there is none.
  PlotSeries& Plot(const std::string& series, double x, double y);
};

Json JsonOf(const Row& row);
std::string TextOf(const Figure& figure);

}  // namespace trireme
