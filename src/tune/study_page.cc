#include "trireme/tune/study_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "trireme/metrics/markup.h"
#include "trireme/metrics/page.h"
#include "trireme/metrics/plot.h"
#include "trireme/tune/importance.h"
#include "trireme/tune/lineage.h"
#include "trireme/tune/samplers.h"

namespace trireme {
namespace {

constexpr std::size_t kMostLines = 400;  // of trials that are drawn through their settings: the best

// What was not reached has a value that no axis should show.
bool Shown(const Aim& aim, const StudyTrial& trial) {
  if (trial.state != TrialState::kComplete || !trial.value) return false;
  if (aim.objective == Objective::kTimeToTarget) return *trial.value < kDay / 100;
  return aim.maximise() || *trial.value < static_cast<double>(aim.steps);
}

std::string HistoryPlot(const StudyPage& page) {
  const char* unit = page.aim.objective == Objective::kTimeToTarget    ? "seconds to the target"
                     : page.aim.objective == Objective::kStepsToTarget ? "steps to the target"
                                                                       : "return";
  LinePlot plot;
  plot.title = "Trials that came to their end";
  plot.x_label = "trial";
  plot.y_label = unit;
  PlotSeries each, best;
  each.name = "each";
  each.markers = each.faint = true;
  best.name = "best so far";
  double so_far = std::nan("");
  for (const StudyTrial& trial : page.trials) {
    if (!Shown(page.aim, trial)) continue;
    each.x.push_back(trial.number);
    each.y.push_back(*trial.value);
    const bool better =
        std::isnan(so_far) || (page.aim.maximise() ? *trial.value > so_far : *trial.value < so_far);
    if (better) so_far = *trial.value;
    best.x.push_back(trial.number);
    best.y.push_back(so_far);
  }
  plot.series = {std::move(each), std::move(best)};
  return "<div class=\"card\">" + plot.ToSvg() + "</div>\n";
}

std::string ImportanceTable(const StudyPage& page, const Space& space) {
  const std::vector<double> shares = Importance(space, page.history);
  if (shares.empty())
    return fmt::format("<p class=\"note\">What mattered can be said after {} trials with a value.</p>\n",
                       kFewestForImportance);
  std::vector<std::size_t> order(space.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return shares[a] > shares[b]; });
  std::string html = "<div class=\"card\"><table>\n";
  for (const std::size_t i : order) {
    html += fmt::format(
        "<tr><th>{}</th><td><svg width=\"260\" height=\"12\" style=\"display:inline\"><rect width=\"{:.1f}\" "
        "height=\"12\" "
        "fill=\"#0072b2\"/></svg> {:.0f} %</td></tr>\n",
        EscapeMarkup(space.parameters()[i].name), 260 * shares[i], 100 * shares[i]);
  }
  return html + "</table></div>\n";
}

// One axis for each setting, one line for each trial; the better, the darker, and the best on top.
std::string ParallelCoordinates(const StudyPage& page, const Space& space) {
  std::vector<int> ranked = Ranked(page.history);
  std::erase_if(ranked, [&](int i) {
    return page.history[static_cast<std::size_t>(i)].outcome == PastTrial::Outcome::kFailed;
  });
  if (ranked.empty() || space.size() < 2) return "";
  if (ranked.size() > kMostLines) ranked.resize(kMostLines);
  const double step = 90, width = 40 + step * static_cast<double>(space.size() - 1) + 60, top = 60,
               height = 240;
  const auto x = [&](std::size_t i) { return 40 + step * static_cast<double>(i); };
  const auto y = [&](double place) { return top + height * (1 - place); };
  std::string svg = fmt::format(
      "<div class=\"card\" style=\"overflow-x:auto\"><svg viewBox=\"0 0 {:.0f} {:.0f}\" "
      "style=\"min-width:{:.0f}px\" "
      "font-family=\"sans-serif\" font-size=\"10\" fill=\"#333\">\n",
      width, top + height + 30, std::min(width, 1600.0));
  for (std::size_t r = ranked.size(); r-- > 0;) {
    const Point& point = page.history[static_cast<std::size_t>(ranked[r])].point;
    const double good = 1 - static_cast<double>(r) / static_cast<double>(ranked.size());
    std::string points;
    for (std::size_t i = 0; i < space.size(); ++i) {
      if (std::isnan(point[i])) continue;
      points += fmt::format("{:.1f},{:.1f} ", x(i), y(space.parameters()[i].ToUnit(point[i])));
    }
    svg += fmt::format(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" "
        "stroke-opacity=\"{:.2f}\"/>\n",
        points, r == 0 ? "#d55e00" : "#0072b2", r == 0 ? 3 : 1, r == 0 ? 1 : 0.05 + 0.6 * good * good * good);
  }
  for (std::size_t i = 0; i < space.size(); ++i) {
    const Parameter& parameter = space.parameters()[i];
    svg +=
        fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#333\"/>\n",
                    x(i), top, top + height);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(i),
                       i % 2 == 0 ? 20 : 34, EscapeMarkup(parameter.name));
    const double low = parameter.FromUnit(0), high = parameter.FromUnit(1);
    svg += fmt::format("<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\">{2}</text>\n", x(i),
                       top + height + 16, EscapeMarkup(parameter.Text(low)));
    svg += fmt::format("<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\">{2}</text>\n", x(i), top - 8,
                       EscapeMarkup(parameter.Text(high)));
  }
  return svg +
         "</svg></div>\n<p class=\"note\">The best trial is drawn thick; darker lines are better "
         "trials.</p>\n";
}

std::string RungsTable(const StudyPage& page) {
  struct Rung {
    int came = 0, ended = 0;
    double best = -std::numeric_limits<double>::infinity();
  };
  std::map<std::int64_t, Rung> rungs;
  for (const StudyTrial& trial : page.trials) {
    for (const auto& [step, value] : trial.reports) {
      Rung& rung = rungs[step];
      ++rung.came;
      rung.best = std::max(rung.best, value);
      rung.ended += trial.state == TrialState::kPruned && step == trial.reports.rbegin()->first;
    }
  }
  std::erase_if(rungs,
                [](const auto& rung) { return rung.second.came < 2; });  // where single trials were cut off
  if (rungs.empty()) return "";
  std::string html =
      "<h2>Rungs</h2>\n<div class=\"card\"><table>\n<tr><th>steps</th><td>came there</td><td>ended "
      "there or after</td><td>best mean return</td></tr>\n";
  for (const auto& [step, rung] : rungs)
    html += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td>{:.1f}</td></tr>\n", step, rung.came,
                        rung.ended, rung.best);
  return html + "</table></div>\n";
}

std::string FinalistsTable(const StudyPage& page, const Space& space) {
  if (page.finalists.empty()) return "";
  std::string html = "<h2>Finalists</h2>\n<div class=\"card\"><table>\n";
  for (const Finalist& finalist : page.finalists) {
    const std::string fresh =
        finalist.fresh
            ? fmt::format("{} on {} fresh seeds", TextOf(page.aim, *finalist.fresh), finalist.seeds.size())
            : "not run again";
    html += fmt::format("<tr><th>trial {}: {}</th><td>{}<br><span class=\"note\">{}</span></td></tr>\n",
                        finalist.number, EscapeMarkup(TextOf(page.aim, finalist.found)), EscapeMarkup(fresh),
                        EscapeMarkup(space.Describe(finalist.point)));
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string StudyPageHtml(const StudyPage& page, const Space& space) {
  const auto count = [&](TrialState state) {
    return fmt::format("{}", std::ranges::count(page.trials, state, &StudyTrial::state));
  };
  std::string html = fmt::format("<h1>{} <small>{}</small></h1>\n<div class=\"tiles\">\n",
                                 EscapeMarkup(page.title), NameOf(page.aim.objective));
  if (!page.finalists.empty()) {
    const Finalist& best = page.finalists.front();
    html += HtmlTile(TextOf(page.aim, best.fresh.value_or(best.found)),
                     fmt::format("trial {}, the best", best.number));
  }
  html += HtmlTile(fmt::format("{}", page.trials.size()), "trials");
  html += HtmlTile(count(TrialState::kComplete), "came to their end");
  html += HtmlTile(count(TrialState::kPruned), "ended early");
  html += HtmlTile(count(TrialState::kFail), "failed");
  html += "</div>\n" + HistoryPlot(page) + "<h2>What mattered</h2>\n" + ImportanceTable(page, space);
  html += "<h2>All trials</h2>\n" + ParallelCoordinates(page, space) + RungsTable(page) +
          LineageHtml(page, space) + FinalistsTable(page, space);
  if (!page.preset.empty())
    html += "<h2>The best settings</h2>\n<div class=\"card\"><pre>" + EscapeMarkup(page.preset) +
            "</pre></div>\n";
  return HtmlPage(EscapeMarkup(page.title) + " – Trireme study", html);
}

}  // namespace trireme
