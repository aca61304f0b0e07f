// What more workers bring: from the results of runs with 1, 2, 4, ... workers to a table, a picture and JSON.
//
// Speed-up of m workers, T(m) and R(m) being medians over the runs with m workers:
//
//   fixed steps, in step        T(1) / T(m)   T: wall time; the same steps, the same result bit for bit
//   fixed steps, asynchronous   R(m) / R(1)   R: steps/s; workers end a little after the given steps
//   to a target, both           T(1) / T(m)   T: wall time to the target, infinite where it was not reached
//
// Efficiency is speed-up / m. "Kept" is the share of the sum of the workers' own rates that the run reached:
//
//   kept = sum over workers (steps / (busy + idle time)) / sum over workers (steps / busy time)
//
// Workers that wait for each other, for example for a slow one, lower it. Pure functions, no threads, no files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/metrics/plot.h"
#include "trireme/metrics/report.h"
#include "trireme/plan/figures.h"
#include "trireme/train/trainer.h"

namespace trireme {

// What was asked.
struct SpeedupQuestion {
  std::string env;
  std::string algo;
  std::string store;
  bool asynchronous = false;
  std::int64_t steps = 0;        // of each run; with a target, at most
  std::optional<double> target;  // measure the time to this return instead
  std::uint64_t seed = 1;        // of all runs; with a target, of the first, and one more for each repeat
  int repeats = 3;
  int processors = 1;  // that the process may use
  Straggler straggler = {};
};

// The runs with one number of workers.
struct SpeedupRow {
  int workers = 0;
  bool over_processors = false;      // more workers than processors
  bool all_reached = false;          // the target
  double basis_s = kUnknown;         // what speed-up is relative to: median T, or 1 / median R
  double speedup = kUnknown;         // unknown without runs of 1 worker
  std::vector<Figure> figures = {};  // medians of the runs, and the above
};

struct SpeedupReport {
  SpeedupQuestion question;
  std::vector<RunFacts> runs;    // in the order they were made
  std::vector<SpeedupRow> rows;  // ascending by workers
  bool interrupted = false;      // some runs are missing
};

// 1, 2, 4, ... up to twice the processors; when `most` is given, at most that many.
std::vector<int> DefaultWorkerCounts(int processors, std::optional<int> most);

// Groups the runs by their number of workers.
SpeedupReport MakeSpeedupReport(const SpeedupQuestion& question, std::vector<RunFacts> runs,
                                bool interrupted);

// A heading, one line per row and lines that say what there is to know about them; each ends in a newline.
std::string SpeedupTable(const SpeedupReport& report);

// Speed-up over workers against the ideal line; what was measured with more workers than processors is a
// series of its own.
LinePlot SpeedupPlot(const SpeedupReport& report);

// One JSON object on one line. docs/plan.md describes it.
std::string SpeedupJson(const SpeedupReport& report);

}  // namespace trireme
