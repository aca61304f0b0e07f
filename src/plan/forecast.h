// A prediction for 1, 2, 4, ... workers and every way to place the parameters, as a table, a picture and
// JSON.
//
// Speed-up is steps/s relative to one worker that keeps the parameters itself, for all ways alike: so they
// can be compared, and one worker with a distant server shows what the distance costs.
//
// Pure functions; the same question and constants give the same text.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "trireme/metrics/plot.h"
#include "trireme/plan/constants.h"
#include "trireme/plan/simulate.h"

namespace trireme {

struct ForecastQuestion {
  int workers_up_to = 1024;
  int hosts = 0;  // as in Scenario
  int cores = 1;
  int servers = 1;
  bool servers_on_workers = false;
  bool overlap = false;
  int bound = 3;
  bool split = true;
  Slowness slow = {};
  std::uint64_t seed = 1;
};

struct ForecastRow {
  Way way = Way::kAllReduce;
  int workers = 0;
  Outcome outcome = {};
  double speedup = 0;
  double efficiency = 0;           // speedup / workers
  bool beyond_shards = false;      // a run cannot be split among so many workers
  bool beyond_processors = false;  // several workers share a processor
};

// One prediction beside what a real run did.
struct ForecastCheck {
  Way way = Way::kAllReduce;
  std::string store;  // that ran
  int workers = 0;
  double predicted_steps_per_s = 0, measured_steps_per_s = 0;
  double predicted_speedup = 0, measured_speedup = 0;
  // Processor time per worker and second of the measured runs: well below 1 when others used the machine, and
  // then the measured rate is too low to judge by.
  // Not known of ways through servers: their workers also wait, and servers run beside them.
  double processors_had = 1;
  // Of workers on their own; both NaN for others.
  double predicted_staleness = std::numeric_limits<double>::quiet_NaN();
  double measured_staleness = std::numeric_limits<double>::quiet_NaN();

  double SpeedupError() const { return predicted_speedup / measured_speedup - 1; }
  double RateError() const { return predicted_steps_per_s / measured_steps_per_s - 1; }
};

struct Forecast {
  std::string env, algo;
  ForecastQuestion question;
  double one_worker_steps_per_s = 0;       // the reference of speed-ups
  std::vector<ForecastRow> rows = {};      // by way, then ascending by workers
  std::vector<ForecastCheck> checks = {};  // with --validate
  std::vector<std::string> notes = {};
};

// The scenario of one row.
Scenario ScenarioOf(const ForecastQuestion& question, Way way, int workers);

Forecast MakeForecast(const PlanConstants& constants, const ForecastQuestion& question);

// Tables with a heading each; every line ends in a newline.
std::string ForecastTable(const Forecast& forecast, const ConstantTable& constants);

// Speed-up over workers, both as powers of two, with the ideal line; measured points are series of their own.
LinePlot ForecastPlot(const Forecast& forecast);

// One JSON object on one line. docs/plan.md describes it.
std::string ForecastJson(const Forecast& forecast, const ConstantTable& constants);

}  // namespace trireme
