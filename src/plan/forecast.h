// A prediction for 1, 2, 4, ... workers and every way to place the parameters, as a table, a picture and
// JSON.
//
// Speed-up is steps/s relative to one worker that keeps the parameters itself, for all ways alike: so they
// can be compared, and one worker with a distant server shows what the distance costs.
//
// Pure functions; the same question and constants give the same text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/metrics/plot.h"
#include "trireme/plan/constants.h"
#include "trireme/plan/figures.h"
#include "trireme/plan/simulate.h"

namespace trireme {

// Where real runs differ more from their prediction, there is none.
inline constexpr double kMostError = 0.15;

struct ForecastQuestion {
  int workers_up_to = 1024;
  Scenario scenario = {};  // of all rows, but for way and workers
};

struct ForecastRow {
  const PlanWay* way = nullptr;
  int workers = 0;
  Outcome outcome = {};
  double speedup = 0;
  bool beyond_shards = false;      // a run cannot be split among so many workers
  bool beyond_processors = false;  // several workers share a processor
};

// One prediction beside what a real run did.
struct ForecastCheck {
  const PlanWay* way = nullptr;
  int workers = 0;
  double predicted_steps_per_s = 0, measured_steps_per_s = 0;
  double predicted_speedup = 0, measured_speedup = 0;
  // Processor time per worker and second of the measured runs: well below 1 when others used the machine, and
  // then the measured rate is too low to judge by. Not known where workers also wait for servers.
  double processors_had = kUnknown;
  // Of workers on their own.
  double predicted_staleness = kUnknown, measured_staleness = kUnknown;

  double SpeedupError() const { return predicted_speedup / measured_speedup - 1; }
  double RateError() const { return predicted_steps_per_s / measured_steps_per_s - 1; }
};

struct Forecast {
  std::string env, algo;
  ForecastQuestion question;
  double one_worker_steps_per_s = 0;                         // the reference of speed-ups
  std::vector<ForecastRow> rows = {};                        // by way, then ascending by workers
  std::vector<ForecastCheck> checks = {};                    // with --validate
  std::map<const PlanWay*, std::string> not_predicted = {};  // why
  std::vector<std::string> notes = {};

  // Adds a check. Of a way that has some, they alone say whether it is predicted: none had too large an error.
  void Add(const ForecastCheck& check);
};

Forecast MakeForecast(const PlanConstants& constants, const ForecastQuestion& question);

// Tables with a heading each; every line ends in a newline.
std::string ForecastTable(const Forecast& forecast, const ConstantTable& constants);

// Speed-up over workers, both as powers of two, with the ideal line; measured points are series of their own.
LinePlot ForecastPlot(const Forecast& forecast);

// One JSON object on one line. docs/plan.md describes it.
std::string ForecastJson(const Forecast& forecast, const ConstantTable& constants);

}  // namespace trireme
