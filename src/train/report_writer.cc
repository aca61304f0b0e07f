#include "trireme/train/report_writer.h"

#include <cmath>
#include <nlohmann/json.hpp>

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

// NaN has no place in JSON.
nlohmann::ordered_json Number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json PerRound(std::uint64_t count, const RunFacts& facts) {
  if (facts.rounds == 0) return nullptr;
  return static_cast<double>(count) / static_cast<double>(facts.rounds);
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
        "epsilon", "learning_rate", "grad_norm", "explained_variance", "steps_per_s"}) {
    PlotSeries series = Curve(rows, name);
    if (series.x.empty()) continue;
    series.name.clear();
    report.details.push_back(
        {.title = name, .x_label = "steps", .y_label = "", .series = {std::move(series)}, .target = {}});
  }
  WriteReport(folder.path(), report);
}

std::string ResultJson(const RunFacts& facts) {
  const auto optional = [](const auto& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json json = {{"env", facts.env},
                                 {"env_options", facts.env_options},
                                 {"algo", facts.algo},
                                 {"store", facts.store},
                                 {"device", facts.device},
                                 {"precision", facts.precision},
                                 {"workers", facts.workers},
                                 {"seed", facts.seed},
                                 {"steps", facts.steps},
                                 {"wall_s", Number(facts.wall_s)},
                                 {"cpu_s", Number(facts.cpu_s)},
                                 {"steps_per_s", Number(facts.steps_per_s)},
                                 {"eval_return_mean", Number(facts.eval_return_mean)},
                                 {"eval_return_std", Number(facts.eval_return_std)},
                                 {"eval_episodes", facts.eval_episodes},
                                 {"best_return_mean", Number(facts.best_return_mean)},
                                 {"best_return_std", Number(facts.best_return_std)},
                                 {"best_steps", optional(facts.best_steps)},
                                 {"target", optional(facts.target)},
                                 {"reached_target", facts.reached_target},
                                 {"time_to_target_s", optional(facts.time_to_target_s)},
                                 {"steps_to_target", optional(facts.steps_to_target)},
                                 {"params_sha256", facts.params_sha256},
                                 {"bytes_sent", facts.bytes_sent},
                                 {"messages_sent", facts.messages_sent},
                                 {"rounds", facts.rounds},
                                 {"bytes_per_round", PerRound(facts.bytes_sent, facts)},
                                 {"messages_per_round", PerRound(facts.messages_sent, facts)},
                                 {"experience_bytes", facts.experience_bytes}};
  if (!facts.env_note.empty()) json["env_note"] = facts.env_note;
  if (facts.env_failures > 0) {
    json["env_failures"] = facts.env_failures;
    json["env_last_failure"] = facts.env_last_failure;
  }
  if (!facts.env_warning.empty()) json["env_warning"] = facts.env_warning;
  if (facts.eval_cut_off > 0) json["eval_cut_off"] = facts.eval_cut_off;
  if (!facts.which.empty()) json["which"] = facts.which;
  double idle_s = 0;
  auto workers = nlohmann::ordered_json::array();
  for (const WorkerFacts& worker : facts.per_worker) {
    idle_s += worker.idle_s;
    workers.push_back(
        {{"steps", worker.steps}, {"busy_s", Number(worker.busy_s)}, {"idle_s", Number(worker.idle_s)}});
  }
  json["idle_s"] = Number(idle_s);
  json["per_worker"] = std::move(workers);
  if (!facts.links.empty()) {
    auto& links = json["links"] = nlohmann::ordered_json::array();
    for (const LinkFacts& link : facts.links) {
      links.push_back({{"worker", link.worker},
                       {"to", link.to},
                       {"latency_s", Number(link.latency_s)},
                       {"bytes_per_s", Number(link.bytes_per_s)},
                       {"bytes", link.bytes},
                       {"messages", link.messages},
                       {"estimate_s", Number(link.estimate_s)},
                       {"waited_s", Number(link.waited_s)}});
    }
  }
  if (!facts.staleness.empty()) {
    json["staleness_mean"] = Number(facts.staleness_mean);
    json["staleness_max"] = facts.staleness_most;
    json["staleness_histogram"] = facts.staleness;
  }
  return json.dump();
}

}  // namespace trireme
