// A prediction for 1, 2, 4, ... workers and every way to place the parameters, as a table, a picture and
// JSON.
//
// Speed-up is steps/s relative to one worker that keeps the parameters itself, for all ways alike: so they
// can be compared, and one worker with a distant server shows what the distance costs.
//
// Pure functions; the same question and constants give the same text.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/metrics/figures.h"
#include "trireme/plan/constants.h"
#include "trireme/plan/simulate.h"

namespace trireme {

// Where real runs differ more from their prediction, there is none.
inline constexpr double kMostError = 0.15;

struct ForecastQuestion {
  int workers_up_to = 1024;
  Scenario scenario = {};  // of all rows, but for way and workers
  std::string straggler;   // as given

  void Fields(ConfigFields& field);
};

// What a real run takes per environment step, from two runs of different lengths, one after the other: (longer -
// shorter time) / (more - fewer steps), so that setting up, filling a replay and the last evaluation, which both
// have, do not count.
struct Rate {
  double wall_s = kUnknown;
  double cpu_s = kUnknown;          // of this process
  double servers_cpu_s = kUnknown;  // of the servers it started
  double staleness_mean = kUnknown;
  double speedup = kUnknown;
  Link link = {};  // to a server, as the run has found it
};

struct ForecastRow {
  const PlanWay* way = nullptr;
  int workers = 0;  // or groups of them, of this many members
  int members = 1;
  Outcome outcome = {};
  double speedup = kUnknown;  // of a check: relative to the first one, really as well
  Rate measured = {};         // of a check: the same, really
};

struct Forecast {
  ForecastQuestion question;
  double one_worker_steps_per_s = 0;                         // the reference of speed-ups
  std::vector<ForecastRow> rows = {};                        // by way, then ascending by workers
  std::vector<ForecastRow> checks = {};                      // with --validate; the first is one worker alone
  std::map<const PlanWay*, std::string> not_predicted = {};  // why there are no rows
  std::vector<std::string> notes = {};

  // Adds a check. A way of which it finds the speed-up too far off is not predicted.
  void Add(ForecastRow check);
};

Forecast MakeForecast(const PlanConstants& constants, const ForecastQuestion& question);

// The plot has speed-up over workers, both as powers of two, with the ideal line; measured points are series of
// their own. docs/plan.md describes the JSON.
CommandReport MakeReport(const Forecast& forecast, const PlanConstants& constants);

}  // namespace trireme
