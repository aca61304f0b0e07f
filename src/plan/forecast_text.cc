#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/metrics/progress.h"
#include "trireme/plan/forecast.h"
#include "trireme/plan/units.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTableLine =
    "{:>8} {:>6} {:>9} {:>9} {:>10} {:>7} {:>10} {:>10} {:>10} {:>10} {:>9}\n";
constexpr std::string_view kCheckLine =
    "{:>12} {:>8} {:>11} {:>11} {:>9} {:>11} {:>11} {:>9} {:>8} {:>11} {:>11}\n";

// "-" where there is no figure.
std::string Known(double value, int decimals, const char* unit = "") {
  return std::isfinite(value) ? fmt::format("{:.{}f}{}", value, decimals, unit) : "-";
}

std::string Percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

std::string Title(Way way, const ForecastQuestion& question) {
  const std::string servers =
      fmt::format("{} {}{}", question.servers, question.servers == 1 ? "server" : "servers",
                  question.servers_on_workers ? " on the workers' hosts" : "");
  const char* overlap = question.overlap ? ", computing meanwhile" : "";
  const char* batch = question.split ? "workers in step split a batch" : "every worker brings a batch";
  switch (way) {
    case Way::kAllReduce:
      return fmt::format("allreduce: replicas in step; {}", batch);
    case Way::kServerSync:
      return fmt::format("server-sync: in step through {}; {}", servers, batch);
    case Way::kAsync:
      return fmt::format("async: {}, each push applied at once{}; every worker brings a batch", servers,
                         overlap);
    case Way::kSsp:
      return fmt::format("ssp: {}, at most {} rounds ahead of the slowest{}; every worker brings a batch",
                         servers, question.bound, overlap);
    case Way::kShared:
      return "shared: threads of one process, each push applied at once; every worker brings a batch";
  }
  return "";
}

std::string WayTable(const Forecast& forecast, Way way) {
  std::string table = fmt::format("{}\n", Title(way, forecast.question));
  table += fmt::format(kTableLine, "workers", "hosts", "steps/s", "speed-up", "efficiency", "idle %", "round",
                       "compute", "network", "waiting", "staleness");
  for (const ForecastRow& row : forecast.rows) {
    if (row.way != way) continue;
    const Outcome& o = row.outcome;
    const std::string mark = row.beyond_processors ? "+" : row.beyond_shards ? "*" : "";
    table +=
        fmt::format(kTableLine, fmt::format("{}{}", mark, row.workers), o.hosts, FormatCount(o.steps_per_s),
                    fmt::format("{:.2f}", row.speedup), fmt::format("{:.3f}", row.efficiency),
                    fmt::format("{:.1f}", 100 * o.idle()), FormatSeconds(o.round_s),
                    FormatSeconds(o.compute_s), FormatSeconds(o.communication_s), FormatSeconds(o.waiting_s),
                    InStep(way) ? "-" : fmt::format("{:.2f}", o.staleness.mean()));
  }
  return table;
}

std::string CheckTable(const std::vector<ForecastCheck>& checks) {
  std::string table = "validation: real runs on this machine\n";
  table += fmt::format(kCheckLine, "way", "workers", "predicted/s", "measured/s", "error", "predicted x",
                       "measured x", "error", "had", "pred. stale", "meas. stale");
  for (const ForecastCheck& check : checks) {
    table += fmt::format(kCheckLine, WayName(check.way), check.workers,
                         FormatCount(check.predicted_steps_per_s), FormatCount(check.measured_steps_per_s),
                         Percent(check.RateError()), fmt::format("{:.2f}", check.predicted_speedup),
                         fmt::format("{:.2f}", check.measured_speedup), Percent(check.SpeedupError()),
                         Known(100 * check.processors_had, 0, " %"), Known(check.predicted_staleness, 2),
                         Known(check.measured_staleness, 2));
  }
  if (std::ranges::any_of(checks, [](const ForecastCheck& check) { return check.processors_had < 0.9; })) {
    table +=
        "had: runs did not have their processors to themselves, so this validates little; repeat it when "
        "nothing else runs\n";
  }
  return table;
}

std::string SlownessText(const Slowness& slow) {
  std::string text;
  if (slow.worker >= 0 && slow.factor != 1) {
    text +=
        fmt::format("worker {} is {:g} times slower where there are that many\n", slow.worker, slow.factor);
  }
  if (slow.chance > 0) {
    text += fmt::format("a round of any worker is {:g} times slower with a chance of {:g}\n", slow.slowdown,
                        slow.chance);
  }
  return text;
}

// NaN and infinity have no place in JSON.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json JsonOf(const ForecastRow& row) {
  const Outcome& o = row.outcome;
  Json staleness = nullptr;
  if (!InStep(row.way)) {
    staleness = {{"mean", o.staleness.mean()}, {"most", o.staleness.most}, {"histogram", o.staleness.pushes}};
  }
  return {{"way", WayName(row.way)},
          {"workers", row.workers},
          {"hosts", o.hosts},
          {"simulated", true},
          {"beyond_shards", row.beyond_shards},
          {"beyond_processors", row.beyond_processors},
          {"steps_per_s", Number(o.steps_per_s)},
          {"speedup", Number(row.speedup)},
          {"efficiency", Number(row.efficiency)},
          {"idle", Number(o.idle())},
          {"round_s", Number(o.round_s)},
          {"compute_s", Number(o.compute_s)},
          {"communication_s", Number(o.communication_s)},
          {"waiting_s", Number(o.waiting_s)},
          {"bytes_per_round", Number(o.bytes_per_round)},
          {"messages_per_round", Number(o.messages_per_round)},
          {"server_busy", Number(o.server_busy)},
          {"staleness", staleness}};
}

Json JsonOf(const ForecastCheck& check) {
  return {{"way", WayName(check.way)},
          {"store", check.store},
          {"workers", check.workers},
          {"predicted_steps_per_s", Number(check.predicted_steps_per_s)},
          {"measured_steps_per_s", Number(check.measured_steps_per_s)},
          {"steps_per_s_error", Number(check.RateError())},
          {"predicted_speedup", Number(check.predicted_speedup)},
          {"measured_speedup", Number(check.measured_speedup)},
          {"speedup_error", Number(check.SpeedupError())},
          {"processors_had", Number(check.processors_had)},
          {"predicted_staleness", Number(check.predicted_staleness)},
          {"measured_staleness", Number(check.measured_staleness)}};
}

}  // namespace

std::string ForecastTable(const Forecast& forecast, const ConstantTable& constants) {
  const ForecastQuestion& question = forecast.question;
  std::string text = fmt::format("{} on {}: predicted by simulation, seed {}\nconstants\n{}", forecast.algo,
                                 forecast.env, question.seed, constants.ToText());
  text +=
      fmt::format("{} {} per host, {}\n", question.cores, question.cores == 1 ? "processor" : "processors",
                  question.hosts == 0 ? "as many hosts as there must be"
                                      : fmt::format("at most {} for workers", question.hosts));
  text += SlownessText(question.slow);
  text += fmt::format("speed-up is relative to one worker with its own parameters: {} steps/s\n",
                      FormatCount(forecast.one_worker_steps_per_s));
  for (const EnumName<Way>& way : kWayNames) {
    const auto is_of = [&](const ForecastRow& row) { return row.way == way.value; };
    if (std::ranges::any_of(forecast.rows, is_of)) text += fmt::format("\n{}", WayTable(forecast, way.value));
  }
  bool shards = false, processors = false;
  for (const ForecastRow& row : forecast.rows) {
    shards = shards || row.beyond_shards;
    processors = processors || row.beyond_processors;
  }
  if (shards) text += "*  a run has 64 shards at most: as if it could have more; see also --batch grow\n";
  if (processors) text += "+  workers share processors\n";
  if (!forecast.checks.empty()) text += fmt::format("\n{}", CheckTable(forecast.checks));
  for (const std::string& note : forecast.notes) text += fmt::format("{}\n", note);
  return text;
}

std::string ForecastJson(const Forecast& forecast, const ConstantTable& constants) {
  const ForecastQuestion& question = forecast.question;
  Json json = {{"env", forecast.env},
               {"algo", forecast.algo},
               {"seed", question.seed},
               {"hosts", question.hosts},
               {"cores", question.cores},
               {"servers", question.servers},
               {"servers_on", question.servers_on_workers ? "workers" : "own"},
               {"overlap", question.overlap},
               {"ssp", question.bound},
               {"batch", question.split ? "split" : "grow"},
               {"straggler",
                {{"worker", question.slow.worker},
                 {"factor", question.slow.factor},
                 {"chance", question.slow.chance},
                 {"slowdown", question.slow.slowdown}}},
               {"one_worker_steps_per_s", Number(forecast.one_worker_steps_per_s)}};
  for (const ConstantTable::Row& row : constants.Rows()) {
    // A number or a list of numbers is written alike in TOML and JSON.
    json["constants"][row.name] = {{"value", Json::parse(row.exact)}, {"origin", row.origin}};
  }
  json["rows"] = Json::array();
  for (const ForecastRow& row : forecast.rows) json["rows"].push_back(JsonOf(row));
  json["validation"] = Json::array();
  for (const ForecastCheck& check : forecast.checks) json["validation"].push_back(JsonOf(check));
  json["notes"] = forecast.notes;
  return json.dump();
}

}  // namespace trireme
