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

#include <optional>
#include <vector>

#include "trireme/metrics/figures.h"
#include "trireme/metrics/report.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {

// What was asked.
struct SpeedupQuestion {
  RunConfig run;  // of all runs, but for workers; with stop_at_target each repeat has a seed of its own
  int repeats = 3;
  int processors = 1;  // that the process may use
  Straggler straggler = {};
};

// 1, 2, 4, ... up to twice the processors; when `most` is given, at most that many.
std::vector<int> DefaultWorkerCounts(int processors, std::optional<int> most);

// A row for each number of workers in `runs`, and the runs, in the order they were made. The plot has speed-up over
// workers against the ideal line; what was measured with more workers than processors is a series of its own.
// docs/plan.md describes the JSON. `interrupted`: some runs are missing.
CommandReport MakeReport(const SpeedupQuestion& question, const std::vector<RunFacts>& runs,
                         bool interrupted);

}  // namespace trireme
