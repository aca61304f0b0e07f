#include "trireme/plan/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/metrics/progress.h"
#include "trireme/plan/units.h"

namespace trireme {
namespace {

constexpr int kMostShards = 64;  // of a run

std::string Title(const PlanWay& way, const Scenario& scenario) {
  std::string title = fmt::format("{}: {}", way.name, way.round);
  if (way.on_servers) {
    title += fmt::format("; {} {}{}", scenario.servers, scenario.servers == 1 ? "server" : "servers",
                         scenario.servers_on_workers ? " on the workers' hosts" : "");
    if (way.bounded) title += fmt::format(", at most {} rounds ahead", scenario.bound);
    if (!way.in_step && scenario.overlap) title += ", computing meanwhile";
  }
  const bool split = way.in_step && scenario.split;
  return title + (split ? "; workers split a batch\n" : "; every worker brings a batch\n");
}

std::vector<Figure> FiguresOf(const ForecastRow& row, bool predicted) {
  const Outcome& o = row.outcome;
  const PlanWay& way = *row.way;
  const std::string mark = row.beyond_processors ? "+" : row.beyond_shards ? "*" : "";
  Json staleness = nullptr;
  if (!way.in_step && predicted) {
    staleness = {{"mean", o.staleness.mean()}, {"most", o.staleness.most}, {"histogram", o.staleness.pushes}};
  }
  std::vector<Figure> figures = {
      {"way", "", 0, way.name},
      {"workers", "workers", 8, row.workers, fmt::format("{}{}", mark, row.workers)},
      {"hosts", "hosts", 6, o.hosts, fmt::format("{}", o.hosts)},
      {"simulated", "", 0, true},
      {"predicted", "", 0, predicted},
      {"beyond_shards", "", 0, row.beyond_shards},
      {"beyond_processors", "", 0, row.beyond_processors}};
  const auto add = [&](const char* key, const char* heading, std::size_t width, double value,
                       const std::string& text) {
    figures.push_back(
        {key, heading, width, predicted ? Number(value) : Json(nullptr), predicted ? text : "-"});
  };
  const double efficiency = row.speedup / row.workers;
  add("steps_per_s", "steps/s", 9, o.steps_per_s, FormatCount(o.steps_per_s));
  add("speedup", "speed-up", 9, row.speedup, Cell(row.speedup, 2));
  add("efficiency", "efficiency", 10, efficiency, Cell(efficiency, 3));
  add("idle", "idle %", 7, o.idle(), Cell(100 * o.idle(), 1));
  add("round_s", "round", 10, o.round_s, FormatSeconds(o.round_s));
  add("compute_s", "compute", 10, o.compute_s, FormatSeconds(o.compute_s));
  add("communication_s", "network", 10, o.communication_s, FormatSeconds(o.communication_s));
  add("waiting_s", "waiting", 10, o.waiting_s, FormatSeconds(o.waiting_s));
  add("bytes_per_round", "", 0, o.bytes_per_round, "");
  add("messages_per_round", "", 0, o.messages_per_round, "");
  add("server_busy", "", 0, o.server_busy, "");
  figures.push_back(
      {"staleness", "staleness", 9, staleness, staleness.is_null() ? "-" : Cell(o.staleness.mean(), 2)});
  return figures;
}

std::vector<Figure> FiguresOf(const ForecastCheck& c) {
  const auto percent = [](double share) { return fmt::format("{:+.1f} %", 100 * share); };
  return {
      {"way", "way", 12, c.way->name, std::string(c.way->name)},
      {"store", "", 0, c.way->store},
      {"workers", "workers", 8, c.workers, fmt::format("{}", c.workers)},
      {"predicted_steps_per_s", "predicted/s", 11, Number(c.predicted_steps_per_s),
       FormatCount(c.predicted_steps_per_s)},
      {"measured_steps_per_s", "measured/s", 11, Number(c.measured_steps_per_s),
       FormatCount(c.measured_steps_per_s)},
      {"steps_per_s_error", "error", 9, Number(c.RateError()), percent(c.RateError())},
      {"predicted_speedup", "predicted x", 11, Number(c.predicted_speedup), Cell(c.predicted_speedup, 2)},
      {"measured_speedup", "measured x", 11, Number(c.measured_speedup), Cell(c.measured_speedup, 2)},
      {"speedup_error", "error", 9, Number(c.SpeedupError()), percent(c.SpeedupError())},
      {"processors_had", "had", 8, Number(c.processors_had), Cell(100 * c.processors_had, 0, " %")},
      {"predicted_staleness", "pred. stale", 11, Number(c.predicted_staleness),
       Cell(c.predicted_staleness, 2)},
      {"measured_staleness", "meas. stale", 11, Number(c.measured_staleness), Cell(c.measured_staleness, 2)}};
}

std::string WayTable(const Forecast& forecast, const PlanWay& way) {
  const auto why = forecast.not_predicted.find(&way);
  const bool predicted = why == forecast.not_predicted.end();
  std::string table;
  for (const ForecastRow& row : forecast.rows) {
    if (row.way != &way) continue;
    if (table.empty())
      table = "\n" + Title(way, forecast.question.scenario) + HeadingLine(FiguresOf(row, true));
    table += TableLine(FiguresOf(row, predicted));
  }
  return predicted || table.empty() ? table : table + fmt::format("not predicted: {}\n", why->second);
}

std::string CheckTable(const std::vector<ForecastCheck>& checks) {
  if (checks.empty()) return "";
  std::string table = "\nvalidation: real runs on this machine\n" + HeadingLine(FiguresOf(checks.front()));
  for (const ForecastCheck& check : checks) table += TableLine(FiguresOf(check));
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

}  // namespace

void Forecast::Add(const ForecastCheck& check) {
  const bool first = std::ranges::find(checks, check.way, &ForecastCheck::way) == checks.end();
  if (first) not_predicted.erase(check.way);
  checks.push_back(check);
  if (std::abs(check.SpeedupError()) <= kMostError) return;
  not_predicted.try_emplace(
      check.way, fmt::format("with {} {} here the speed-up was predicted {:+.0f} % off", check.workers,
                             check.workers == 1 ? "worker" : "workers", 100 * check.SpeedupError()));
}

Forecast MakeForecast(const PlanConstants& constants, const ForecastQuestion& question) {
  Forecast forecast{.env = constants.env, .algo = constants.algo, .question = question};
  const Scenario& asked = question.scenario;
  forecast.one_worker_steps_per_s =
      Simulate(constants, {.cores = asked.cores, .seed = asked.seed}).steps_per_s;
  for (const PlanWay* const way : kPlanWays) {
    if (!constants.Knows(*way)) continue;
    if (!way->not_predicted.empty()) forecast.not_predicted[way] = way->not_predicted;
    const bool one_process = !way->in_step && !way->on_servers;
    for (int workers = 1; workers <= question.workers_up_to; workers *= 2) {
      if (one_process && asked.hosts != 1 && workers > asked.cores) break;
      Scenario scenario = asked;
      scenario.way = way;
      scenario.workers = workers;
      ForecastRow row{.way = way, .workers = workers, .outcome = Simulate(constants, scenario)};
      row.speedup = row.outcome.steps_per_s / forecast.one_worker_steps_per_s;
      row.beyond_shards = way->in_step && asked.split && workers > kMostShards;
      row.beyond_processors = workers > row.outcome.hosts * asked.cores;
      forecast.rows.push_back(row);
    }
  }
  return forecast;
}

LinePlot ForecastPlot(const Forecast& forecast) {
  LinePlot plot;
  plot.title = fmt::format("Predicted speed-up of {} on {}", forecast.algo, forecast.env);
  plot.x_label = "workers, as a power of two (10: 1024)";
  plot.y_label = "speed-up, as a power of two";
  plot.height = 460;
  const auto add = [](PlotSeries& series, double workers, double speedup) {
    series.x.push_back(std::log2(workers));
    series.y.push_back(std::log2(speedup));
  };
  for (const bool real : {false, true}) {
    for (const PlanWay* const way : kPlanWays) {
      PlotSeries series{.name = fmt::format("{}, {}", way->name, real ? "measured" : "simulated"),
                        .x = {},
                        .y = {},
                        .markers = real};
      for (const ForecastRow& row : forecast.rows) {
        const bool shown = !real && row.way == way && !forecast.not_predicted.contains(way);
        if (shown) add(series, row.workers, row.speedup);
      }
      for (const ForecastCheck& check : forecast.checks) {
        if (real && check.way == way) add(series, check.workers, check.measured_speedup);
      }
      if (!series.x.empty()) plot.series.push_back(std::move(series));
    }
  }
  PlotSeries ideal{.name = "ideal", .x = {}, .y = {}, .faint = true};
  for (int m = 1; m <= forecast.question.workers_up_to; m *= 2) add(ideal, m, m);
  plot.series.push_back(std::move(ideal));
  return plot;
}

std::string ForecastTable(const Forecast& forecast, const ConstantTable& constants) {
  const Scenario& asked = forecast.question.scenario;
  std::string text = fmt::format("{} on {}: predicted by simulation, seed {}\nconstants\n{}", forecast.algo,
                                 forecast.env, asked.seed, constants.ToText());
  text += fmt::format("{} {} per host, {}\n", asked.cores, asked.cores == 1 ? "processor" : "processors",
                      asked.hosts == 0 ? "as many hosts as there must be"
                                       : fmt::format("at most {} for workers", asked.hosts));
  text += SlownessText(asked.slow);
  text += fmt::format("speed-up is relative to one worker with its own parameters: {} steps/s\n",
                      FormatCount(forecast.one_worker_steps_per_s));
  for (const PlanWay* const way : kPlanWays) text += WayTable(forecast, *way);
  if (std::ranges::any_of(forecast.rows, &ForecastRow::beyond_shards)) {
    text += "*  a run has 64 shards at most: as if it could have more; see also --batch grow\n";
  }
  if (std::ranges::any_of(forecast.rows, &ForecastRow::beyond_processors)) {
    text += "+  workers share processors\n";
  }
  text += CheckTable(forecast.checks);
  for (const std::string& note : forecast.notes) text += fmt::format("{}\n", note);
  return text;
}

std::string ForecastJson(const Forecast& forecast, const ConstantTable& constants) {
  const Scenario& asked = forecast.question.scenario;
  const Slowness& slow = asked.slow;
  Json json = {{"env", forecast.env},
               {"algo", forecast.algo},
               {"seed", asked.seed},
               {"hosts", asked.hosts},
               {"cores", asked.cores},
               {"servers", asked.servers},
               {"servers_on", asked.servers_on_workers ? "workers" : "own"},
               {"overlap", asked.overlap},
               {"ssp", asked.bound},
               {"batch", asked.split ? "split" : "grow"},
               {"straggler",
                {{"worker", slow.worker},
                 {"factor", slow.factor},
                 {"chance", slow.chance},
                 {"slowdown", slow.slowdown}}},
               {"one_worker_steps_per_s", Number(forecast.one_worker_steps_per_s)}};
  for (const ConstantTable::Row& row : constants.Rows()) {
    // A number or a list of numbers is written alike in TOML and JSON.
    json["constants"][row.name] = {{"value", Json::parse(row.exact)}, {"origin", row.origin}};
  }
  json["rows"] = json["validation"] = Json::array();
  for (const ForecastRow& row : forecast.rows) {
    json["rows"].push_back(JsonOf(FiguresOf(row, !forecast.not_predicted.contains(row.way))));
  }
  for (const ForecastCheck& check : forecast.checks) json["validation"].push_back(JsonOf(FiguresOf(check)));
  json["notes"] = forecast.notes;
  json["not_predicted"] = Json::object();
  for (const auto& [way, why] : forecast.not_predicted) json["not_predicted"][std::string(way->name)] = why;
  return json.dump();
}

}  // namespace trireme
