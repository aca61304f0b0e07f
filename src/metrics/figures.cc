#include "trireme/metrics/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

// A line of headings and one per row, in columns: texts begin below each other, numbers end so.
std::string TableOf(const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  std::vector<std::string> lines(1 + rows.size());  // headings, and one for each row
  for (std::size_t column = 0; column < rows.front().size(); ++column) {
    if (rows.front()[column].heading.empty()) continue;
    std::vector<std::string> texts = {rows.front()[column].heading};
    for (const Row& row : rows) texts.push_back(TextOf(row[column]));
    const std::size_t width = std::ranges::max(texts, {}, &std::string::size).size();
    const char* const format = rows.front()[column].value.is_string() ? "{:<{}}  " : "{:>{}}  ";
    for (std::size_t i = 0; i < lines.size(); ++i)
      lines[i] += fmt::format(fmt::runtime(format), texts[i], width);
  }
  std::string table;
  for (const std::string& line : lines) {
    if (!line.empty()) table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
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

std::string TextOf(const Figure& figure) {
  if (!figure.text.empty()) return figure.text;
  return figure.value.is_string() ? figure.value.get<std::string>() : figure.value.dump();
}

Json JsonOf(const Row& row) {
  Json json = Json::object();
  for (const Figure& figure : row) {
    if (!figure.key.empty()) json[figure.key] = figure.value;
  }
  return json;
}

std::string CommandReport::ToText() const {
  std::string text = heading + "\n";
  for (const Section& section : sections) {
    if (!section.title.empty()) text += "\n" + section.title + "\n";
    text += TableOf(section.rows);
  }
  for (const std::string& note : notes) text += note + "\n";
  return text;
}

std::string CommandReport::ToJson() const {
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

PlotSeries& CommandReport::Plot(const std::string& name, double x, double y) {
  const auto found = std::ranges::find(plot.series, name, &PlotSeries::name);
  PlotSeries& series =
      found != plot.series.end() ? *found : plot.series.emplace_back(PlotSeries{name, {}, {}});
  series.x.push_back(x);
  series.y.push_back(y);
  return series;
}

}  // namespace trireme
