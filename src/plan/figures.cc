#include "trireme/plan/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

// A line of headings and one per row, in columns: texts begin below each other, numbers end so.
std::string TableOf(const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max({widths[i], row[i].heading.size(), row[i].text.size()});
    }
  }
  std::string table;
  const auto add_line = [&](const Row& row, std::string Figure::*text) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i].heading.empty()) continue;
      const std::string blanks(widths[i] - (row[i].*text).size(), ' ');
      line += row[i].value.is_string() ? row[i].*text + blanks : blanks + row[i].*text;
      line += "  ";
    }
    if (!line.empty()) table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add_line(rows.front(), &Figure::heading);
  for (const Row& row : rows) add_line(row, &Figure::text);
  return table;
}

}  // namespace
Figure Decimal(const char* key, const char* heading, double value, int decimals, double scale,
               const char* unit) {
  return {key, heading, value,
          std::isfinite(value) ? fmt::format("{:.{}f}{}", scale * value, decimals, unit) : "-"};
}

Figure Count(const char* key, const char* heading, double value) {
  return {key, heading, value, FormatCount(value)};
}

Figure Duration(const char* key, const char* heading, double seconds) {
  return {key, heading, seconds, FormatSeconds(seconds)};
}

Json JsonOf(const Row& row) {
  Json json = Json::object();
  for (const Figure& figure : row) {
    if (!figure.key.empty()) json[figure.key] = figure.value;
  }
  return json;
}

// A value is written alike in TOML and JSON.
Json JsonOf(const ConfigFields& fields) {
  Json json = Json::object();
  for (const ConfigFields::Field& field : fields.fields()) json[field.name] = Json::parse(field.get());
  return json;
}

std::string Report::ToText() const {
  std::string text = heading + "\n";
  for (const Section& section : sections) {
    if (!section.title.empty()) text += "\n" + section.title + "\n";
    text += TableOf(section.rows);
  }
  for (const std::string& note : notes) text += note + "\n";
  return text;
}

std::string Report::ToJson() const {
  Json json = facts;
  for (const Section& section : sections) {
    if (section.key.empty()) continue;
    Json& all = json[section.key];
    if (all.is_null()) all = Json::array();
    for (const Row& row : section.rows) all.push_back(JsonOf(row));
  }
  json["notes"] = notes;
  return json.dump();
}

PlotSeries& Report::Plot(const std::string& name, double x, double y) {
  const auto found = std::ranges::find(plot.series, name, &PlotSeries::name);
  PlotSeries& series =
      found != plot.series.end() ? *found : plot.series.emplace_back(PlotSeries{name, {}, {}});
  series.x.push_back(x);
  series.y.push_back(y);
  return series;
}

double Median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return kUnknown;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string FormatSeconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  double shown = seconds * 1e9;
  std::size_t unit = 0;
  for (; std::abs(shown) >= 999.5 && unit < 3; ++unit) shown /= 1000;
  const int decimals = std::abs(shown) < 9.995 ? 2 : std::abs(shown) < 99.95 ? 1 : 0;
  constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  return fmt::format("{:.{}f} {}", shown, decimals, kUnits[unit]);
}

}  // namespace trireme
