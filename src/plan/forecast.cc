#include "trireme/plan/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

constexpr int kMostShards = 64;  // of a run
constexpr EnumName<ServersOn> kServersOnNames[] = {{"own", ServersOn::kOwn},
                                                   {"workers", ServersOn::kWorkers}};

bool BeyondShards(const ForecastRow& row) { return row.way->in_step && row.workers > kMostShards; }

Row FiguresOf(const ForecastRow& row) {
  const Outcome& o = row.outcome;
  const Staleness& s = o.staleness;
  const Json staleness = {{"mean", s.mean()}, {"most", s.most}, {"histogram", s.pushes}};
  return {{"way", "", row.way->name},
          {"workers", "workers", row.workers * row.members,
           fmt::format("{}{}", BeyondShards(row) ? "*" : "", row.workers * row.members)},
          {"hosts", "hosts", o.hosts},
          {"beyond_shards", "", BeyondShards(row)},
          Count("steps_per_s", "steps/s", o.steps_per_s),
          Decimal("speedup", "speed-up", row.speedup, 2),
          Decimal("efficiency", "efficiency", row.speedup / row.workers, 3),
          Decimal("idle", "idle %", o.idle(), 1, 100),
          Duration("round_s", "round", o.round_s),
          Duration("compute_s", "compute", o.compute_s),
          Duration("communication_s", "network", o.communication_s),
          Duration("waiting_s", "waiting", o.waiting_s),
          Decimal("server_busy", "server busy %", row.way->on_servers ? o.server_busy : kUnknown, 1, 100),
          row.way->in_step ? Figure{"staleness", "staleness", nullptr, "-"}
                           : Figure{"staleness", "staleness", staleness, fmt::format("{:.2f}", s.mean())}};
}

double SpeedupError(const ForecastRow& check) { return check.speedup / check.measured.speedup - 1; }

// Processor time per worker and second of the measured runs: well below 1 when others used the machine, and
// then the measured rate is too low to judge by. Not known where workers also wait for servers.
double ProcessorsHad(const ForecastRow& check) {
  return check.way->on_servers
             ? kUnknown
             : check.measured.cpu_s / check.measured.wall_s / (check.workers * check.members);
}

Row CheckFigures(const ForecastRow& check) {
  const auto error = [](const char* key, double share) {
    return Figure{key, "error", share, fmt::format("{:+.1f} %", 100 * share)};
  };
  const double predicted = check.outcome.steps_per_s, measured = 1 / check.measured.wall_s;
  const bool in_step = check.way->in_step;
  return {
      {"way", "way", check.way->name},
      {"store", "", check.way->store},
      {"workers", "workers", check.workers * check.members},
      Count("predicted_steps_per_s", "predicted/s", predicted),
      Count("measured_steps_per_s", "measured/s", measured),
      error("steps_per_s_error", predicted / measured - 1),
      Decimal("predicted_speedup", "predicted x", check.speedup, 2),
      Decimal("measured_speedup", "measured x", check.measured.speedup, 2),
      error("speedup_error", SpeedupError(check)),
      Decimal("processors_had", "had", ProcessorsHad(check), 0, 100, " %"),
      Decimal("predicted_staleness", "pred. stale", in_step ? kUnknown : check.outcome.staleness.mean(), 2),
      Decimal("measured_staleness", "meas. stale", in_step ? kUnknown : check.measured.staleness_mean, 2)};
}

void AddChecks(const std::vector<ForecastRow>& checks, CommandReport& report) {
  const char* const title = checks.empty() ? "" : "validation: real runs on this machine";
  report.sections.push_back({title, "validation", {}});
  for (const ForecastRow& check : checks) report.sections.back().rows.push_back(CheckFigures(check));
  if (std::ranges::any_of(checks, [](const ForecastRow& check) { return ProcessorsHad(check) < 0.9; })) {
    report.notes.emplace_back(
        "had: runs did not have their processors to themselves, so this validates little; repeat it when"
        " nothing else runs");
  }
}

void AddPlot(const Forecast& forecast, CommandReport& report) {
  report.plot.x_label = "workers, as a power of two (10: 1024)";
  report.plot.y_label = "speed-up, as a power of two";
  report.plot.height = 460;
  const auto add = [&](const std::string& name, double workers, double speedup) -> PlotSeries& {
    return report.Plot(name, std::log2(workers), std::log2(speedup));
  };
  for (const ForecastRow& row : forecast.rows) {
    add(fmt::format("{}, simulated", row.way->name), row.workers * row.members, row.speedup);
  }
  for (const ForecastRow& check : forecast.checks) {
    add(fmt::format("{}, measured", check.way->name), check.workers * check.members, check.measured.speedup)
        .markers = true;
  }
  for (int m = 1; m <= forecast.question.workers_up_to; m *= 2) add("ideal", m, m).faint = true;
}

}  // namespace

void ForecastQuestion::Fields(ConfigFields& field) {
  field("workers_up_to", workers_up_to, "predict 1, 2, 4, ... workers up to this (1024)", Between(1, 65'536));
  field("cores", scenario.cores, "processors of a host (as this machine)", Between(1, 1024));
  field("servers", scenario.servers, "parameter servers (1)", Between(1, 1024));
  field("servers_on", scenario.servers_on,
        "where servers run, on hosts of their own or on the workers': own, workers (own)", kServersOnNames);
  field("ssp", scenario.bound, "rounds a worker may be ahead of the slowest (3)", Between(0, 1e6));
  field("straggler", straggler, "slow workers: worker=1,factor=5 and/or chance=0.01,slowdown=10");
}

void Forecast::Add(ForecastRow check) {
  const ForecastRow& one = checks.empty() ? check : checks.front();
  check.speedup = check.outcome.steps_per_s / one.outcome.steps_per_s;
  check.measured.speedup = one.measured.wall_s / check.measured.wall_s;
  checks.push_back(check);
  const double error = SpeedupError(check);
  if (std::abs(error) <= kMostError) return;
  not_predicted.try_emplace(
      check.way, fmt::format("with {} {} here the speed-up was predicted {:+.0f} % off", check.workers,
                             check.workers == 1 ? "worker" : "workers", 100 * error));
  std::erase_if(rows, [&](const ForecastRow& row) { return row.way == check.way; });
}

Forecast MakeForecast(const PlanConstants& constants, const ForecastQuestion& question) {
  Forecast forecast{.question = question};
  const Scenario& asked = question.scenario;
  forecast.one_worker_steps_per_s =
      Simulate(constants, {.cores = asked.cores, .seed = asked.seed}).steps_per_s;
  for (const PlanWay* const way : kPlanWays) {
    if (!way->not_predicted.empty()) forecast.not_predicted[way] = way->not_predicted;
    if (!constants.Knows(*way)) continue;
    for (int workers = 1; workers * constants.members <= question.workers_up_to; workers *= 2) {
      if (way->one_process() && workers > asked.cores) break;
      Scenario scenario = asked;
      scenario.way = way;
      scenario.workers = workers;
      const Outcome outcome = Simulate(constants, scenario);
      forecast.rows.push_back(
          {way, workers, constants.members, outcome, outcome.steps_per_s / forecast.one_worker_steps_per_s});
    }
  }
  return forecast;
}

CommandReport MakeReport(const Forecast& forecast, const PlanConstants& constants) {
  ForecastQuestion question = forecast.question;
  ConfigFields fields;
  fields.Add(question);
  CommandReport report;
  report.facts = {{"env", constants.env}, {"algo", constants.algo}, {"variant", constants.variant}};
  for (const ConfigFields::Field& field : fields.fields()) {
    report.facts[field.name] = Json::parse(field.get());  // written alike in TOML and JSON
  }
  report.facts["overlap"] = question.scenario.overlap;
  report.facts["seed"] = question.scenario.seed;
  std::string asked;
  for (const auto& [name, value] : report.facts.items()) {
    const std::string text = TextOf({"", "", value});
    if (!text.empty()) asked += fmt::format("{}{} {}", asked.empty() ? "" : ", ", name, text);
  }
  report.heading = fmt::format(
      "predicted by simulation: {}\nspeed-up is relative to one {} with its own parameters: {} steps/s",
      asked, constants.members == 1 ? "worker" : "group of workers",
      FormatCount(forecast.one_worker_steps_per_s));
  report.facts["one_worker_steps_per_s"] = forecast.one_worker_steps_per_s;
  for (const Row& row : constants.Rows()) report.facts["constants"][row[0].value] = JsonOf(row);
  report.facts["not_predicted"] = Json::object();
  report.sections.push_back({"constants", "", constants.Rows()});
  for (const PlanWay* const way : kPlanWays) {
    std::vector<Row> rows;
    for (const ForecastRow& row : forecast.rows) {
      if (row.way == way) rows.push_back(FiguresOf(row));
    }
    std::string title = fmt::format("{}: {}", way->name, way->round);
    if (const auto why = forecast.not_predicted.find(way); why != forecast.not_predicted.end()) {
      title += fmt::format("\nnot predicted: {}", why->second);
      report.facts["not_predicted"][std::string(way->name)] = why->second;
    } else if (rows.empty()) {
      continue;
    }
    report.sections.push_back({title, "rows", std::move(rows)});
  }
  if (std::ranges::any_of(forecast.rows, BeyondShards)) {
    report.notes.emplace_back("*  a run has 64 shards at most: as if it could have more");
  }
  AddChecks(forecast.checks, report);
  report.notes.insert(report.notes.end(), forecast.notes.begin(), forecast.notes.end());
  report.plot.title = fmt::format("Predicted speed-up of {} on {}", constants.algo, constants.env);
  AddPlot(forecast, report);
  return report;
}

}  // namespace trireme
