#include "trireme/plan/forecast.h"

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

constexpr Way kForecastWays[] = {Way::kAllReduce, Way::kServerSync, Way::kAsync, Way::kSsp, Way::kShared};
constexpr int kMostShards = 64;  // of a run

}  // namespace

Scenario ScenarioOf(const ForecastQuestion& question, Way way, int workers) {
  return {.way = way,
          .workers = workers,
          .bound = question.bound,
          .servers = question.servers,
          .servers_on_workers = question.servers_on_workers,
          .overlap = question.overlap,
          .hosts = question.hosts,
          .cores = question.cores,
          .split = question.split,
          .slow = question.slow,
          .seed = question.seed};
}

Forecast MakeForecast(const PlanConstants& constants, const ForecastQuestion& question) {
  Forecast forecast{.env = constants.env, .algo = constants.algo, .question = question};
  forecast.one_worker_steps_per_s =
      Simulate(constants, {.cores = question.cores, .seed = question.seed}).steps_per_s;
  for (const Way way : kForecastWays) {
    if (ThroughServers(way) && !constants.knows_trips()) continue;
    for (int workers = 1; workers <= question.workers_up_to; workers *= 2) {
      // Threads of one process cannot be on two hosts.
      if (way == Way::kShared && question.hosts != 1 && workers > question.cores) break;
      ForecastRow row{.way = way, .workers = workers};
      row.outcome = Simulate(constants, ScenarioOf(question, way, workers));
      row.speedup = row.outcome.steps_per_s / forecast.one_worker_steps_per_s;
      row.efficiency = row.speedup / workers;
      row.beyond_shards = InStep(way) && question.split && workers > kMostShards;
      row.beyond_processors = workers > row.outcome.hosts * question.cores;
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
  const auto add = [&](PlotSeries& series, double workers, double speedup) {
    series.x.push_back(std::log2(workers));
    series.y.push_back(std::log2(speedup));
  };
  for (const Way way : kForecastWays) {
    PlotSeries series{.name = WayName(way) + ", simulated", .x = {}, .y = {}};
    for (const ForecastRow& row : forecast.rows) {
      if (row.way == way) add(series, row.workers, row.speedup);
    }
    if (!series.x.empty()) plot.series.push_back(std::move(series));
  }
  for (const Way way : kForecastWays) {
    PlotSeries series{.name = WayName(way) + ", measured", .x = {}, .y = {}, .markers = true};
    for (const ForecastCheck& check : forecast.checks) {
      if (check.way == way) add(series, check.workers, check.measured_speedup);
    }
    if (!series.x.empty()) plot.series.push_back(std::move(series));
  }
  PlotSeries ideal{.name = "ideal", .x = {}, .y = {}, .faint = true};
  for (int workers = 1; workers <= forecast.question.workers_up_to; workers *= 2)
    add(ideal, workers, workers);
  plot.series.push_back(std::move(ideal));
  return plot;
}

}  // namespace trireme
