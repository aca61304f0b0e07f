#include "trireme/tune/lineage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "trireme/metrics/markup.h"

namespace trireme {
namespace {

constexpr const char *kBest = "#d55e00", *kOther = "#0072b2", *kFailed = "#999";

// The trials that the best of the last stretch has come from, the first one first.
std::vector<int> LineOfBest(const StudyPage& page) {
  const auto size = static_cast<std::size_t>(page.population);
  const std::size_t last = (page.trials.size() - 1) / size * size;
  int best = -1;
  for (std::size_t i = last; i < page.trials.size(); ++i) {
    const StudyTrial& trial = page.trials[i];
    if (trial.state != TrialState::kComplete || !trial.value) continue;
    if (best < 0 || *trial.value > *page.trials[static_cast<std::size_t>(best)].value)
      best = static_cast<int>(i);
  }
  std::vector<int> line;
  for (; best >= 0; best = page.trials[static_cast<std::size_t>(best)].parent)
    line.insert(line.begin(), best);
  return line;
}

std::string FamilyTree(const StudyPage& page, const std::vector<int>& line) {
  const std::set<int> in_line(line.begin(), line.end());
  const int stretches = (static_cast<int>(page.trials.size()) - 1) / page.population + 1;
  const double column = std::clamp(900.0 / stretches, 12.0, 80.0),
               row = std::clamp(400.0 / page.population, 8.0, 26.0);
  const auto x = [&](int trial) { return 30 + column * (trial / page.population); };
  const auto y = [&](int trial) { return 20 + row * (trial % page.population); };
  std::string lines, dots;
  for (const StudyTrial& trial : page.trials) {
    const bool best = in_line.contains(trial.number);
    if (trial.parent >= 0)
      lines += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
          "stroke-width=\"{}\"/>\n",
          x(trial.parent), y(trial.parent), x(trial.number), y(trial.number), best ? kBest : kOther,
          best ? 3 : 1);
    const bool failed = trial.state != TrialState::kComplete;
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"><title>trial {}{}</title></circle>\n",
        x(trial.number), y(trial.number),
        failed ? kFailed
        : best ? kBest
               : kOther,
        trial.number, trial.value ? fmt::format(": {:.1f}", *trial.value) : "");
  }
  const double width = 60 + column * (stretches - 1), height = 40 + row * (page.population - 1);
  return fmt::format(
      "<div class=\"card\" style=\"overflow-x:auto\"><svg viewBox=\"0 0 {:.0f} {:.0f}\" "
      "style=\"max-width:{:.0f}px\" font-family=\"sans-serif\" font-size=\"10\">\n{}{}</svg></div>\n",
      width, height, width, lines, dots);
}

// The settings that changed along the line, stretch by stretch.
std::string Course(const StudyPage& page, const Space& space, const std::vector<int>& line) {
  std::string html =
      "<div class=\"card\" "
      "style=\"overflow-x:auto\"><table>\n<tr><th>stretch</th><td>trial</td><td>return</td>";
  std::vector<std::size_t> changing;
  for (std::size_t i = 0; i < space.size(); ++i) {
    if (space.parameters()[i].shapes) continue;
    changing.push_back(i);
    html += fmt::format("<td>{}</td>", EscapeMarkup(space.parameters()[i].name));
  }
  html += "</tr>\n";
  for (const int number : line) {
    const StudyTrial& trial = page.trials[static_cast<std::size_t>(number)];
    html += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td>", number / page.population, number,
                        trial.value ? fmt::format("{:.1f}", *trial.value) : "");
    for (const std::size_t i : changing) {
      const Parameter& parameter = space.parameters()[i];
      const double value = trial.point[i];
      html += fmt::format("<td>{}</td>", std::isnan(value) ? ""
                                         : parameter.categorical() || parameter.whole
                                             ? EscapeMarkup(parameter.Text(value))
                                             : fmt::format("{:.4g}", value));
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string LineageHtml(const StudyPage& page, const Space& space) {
  if (page.population == 0 || page.trials.empty()) return "";
  const std::vector<int> line = LineOfBest(page);
  std::string html = "<h2>Lineage</h2>\n" + FamilyTree(page, line) +
                     "<p class=\"note\">A row is a member, a column a stretch; a line leads from the trial "
                     "whose state another one went "
                     "on from. The line of the best is thick.</p>\n";
  if (!line.empty()) html += Course(page, space, line);
  return html;
}

}  // namespace trireme
