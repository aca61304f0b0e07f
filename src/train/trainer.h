// Runs a training run from its settings to its result: the only place where algorithms meet communication.
//
// One thread per worker. All workers go through the same loop: iterate; then rank 0 decides (evaluate?
// checkpoint? stop?) and tells the others; then all do what was decided. Decisions that influence the result
// depend only on steps and returns, never on time, so runs are reproducible; checkpoints, which do not
// influence it, go by time.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>

#include "metrics/report.h"
#include "train/run_config.h"
#include "train/run_folder.h"

namespace trireme {

struct TrainOptions {
  bool json = false;     // no progress for people
  double started_s = 0;  // MonotonicSeconds() when the process started: what wall times count from
  const std::atomic<bool>* stop =
      nullptr;  // set by a signal: write a checkpoint and stop at the next iteration
};

struct TrainResult {
  RunFacts facts;
  bool interrupted = false;
};

// Trains; continues from the newest checkpoint in `folder` if there is one. Blocks until done. Throws Error;
// what was written before stays usable for a resume.
TrainResult Train(const RunSettings& settings, const RunFolder& folder, const TrainOptions& options);

// One JSON object on one line: the contract of --json.
std::string ResultJson(const RunFacts& facts);

// Evaluates the newest checkpoint of a run.
RunFacts EvaluateRun(const RunSettings& settings, const RunFolder& folder, int episodes, std::uint64_t seed);

}  // namespace trireme
