#include "trireme/plan/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

std::string Line(std::span<const Figure> figures, std::string Figure::*text) {
  std::string line;
  for (const Figure& figure : figures) {
    if (figure.heading.empty()) continue;
    line += fmt::format("{}{:>{}}", line.empty() ? "" : " ", figure.*text, figure.width);
  }
  return line + "\n";
}

}  // namespace

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string Cell(double value, int decimals, const char* unit) {
  return std::isfinite(value) ? fmt::format("{:.{}f}{}", value, decimals, unit) : "-";
}

std::string HeadingLine(std::span<const Figure> figures) { return Line(figures, &Figure::heading); }
std::string TableLine(std::span<const Figure> figures) { return Line(figures, &Figure::text); }

Json JsonOf(std::span<const Figure> figures) {
  Json json = Json::object();
  for (const Figure& figure : figures) {
    if (!figure.key.empty()) json[figure.key] = figure.value;
  }
  return json;
}

double Median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return kUnknown;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace trireme
