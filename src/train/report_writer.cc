#include "trireme/train/report_writer.h"

#include <cmath>

#include "trireme/metrics/jsonl.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

PlotSeries Curve(const std::vector<MetricRow>& rows, const std::string& name) {
  PlotSeries series{.name = name, .x = {}, .y = {}};
  for (const MetricRow& row : rows) {
    const double value = row.Get(name);
    if (std::isnan(value)) continue;
    series.x.push_back(static_cast<double>(row.step()));
    series.y.push_back(value);
  }
  return series;
}

}  // namespace

void WriteRunReport(const RunFolder& folder, const RunFacts& facts, ReportStrip strip) {
  // A process that has never led a run on servers has measured nothing.
  std::vector<MetricRow> rows;
  std::error_code error;
  if (std::filesystem::exists(folder.metrics(), error)) rows = ReadJsonl(folder.metrics());
  RunReport report{.facts = facts,
                   .evaluation = Curve(rows, "eval_return_mean"),
                   .training = Curve(rows, "episode_return_mean"),
                   .details = {},
                   .config = folder.ReadConfig(),
                   .strip = std::move(strip)};
  const PlotSeries spread = Curve(rows, "eval_return_std");
  for (std::size_t i = 0; i < spread.y.size() && spread.y.size() == report.evaluation.y.size(); ++i) {
    report.evaluation.low.push_back(report.evaluation.y[i] - spread.y[i]);
    report.evaluation.high.push_back(report.evaluation.y[i] + spread.y[i]);
  }
  for (const char* name :
       {"policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "q_loss", "q_value", "td_error",
        "epsilon", "learning_rate", "grad_norm", "explained_variance", "steps_per_s", "residual_norm"}) {
    PlotSeries series = Curve(rows, name);
    if (series.x.empty()) continue;
    series.name.clear();
    report.details.push_back(
        {.title = name, .x_label = "steps", .y_label = "", .series = {std::move(series)}, .target = {}});
  }
  WriteReport(folder.path(), report);
}

}  // namespace trireme
