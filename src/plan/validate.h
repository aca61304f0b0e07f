// Real runs beside the prediction: what this machine can run, it runs.
//
// A rate is taken from two runs of different lengths, (more steps - fewer steps) / (longer - shorter time),
// so that setting up, filling a replay, the last evaluation and the checkpoint at the end, which both have,
// do not count. Runs are repeated in turns and their rates' median is taken.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "plan/forecast.h"
#include "train/run_config.h"

namespace trireme {

// A way of the simulation that can be run here, and how.
struct RunnableWay {
  Way way;
  const char* store;
};
// `server` joins with a row per mode, where runs can be started with it.
inline constexpr RunnableWay kRunnableWays[] = {
    {Way::kAllReduce, "allreduce"},
    {Way::kShared, "shared"},
};

// Settings of a run with that store and number of workers, resolved. Throws Error when they do not go
// together.
using MakeSettings = std::function<std::unique_ptr<RunSettings>(const std::string& store, int workers)>;

// Runs 1, 2, 4, ... workers up to the processors of this machine with every store above, each run about
// `seconds`, and adds to the forecast's checks; a way that these settings do not allow becomes a note. Ends
// early, with what there is, when `stop` is set. Throws Error.
void Validate(const PlanConstants& constants, const MakeSettings& make_settings, double seconds,
              const std::atomic<bool>& stop, Forecast& forecast);

}  // namespace trireme
