// Real runs beside the prediction: what this machine can run, it runs.
//
// A rate is taken from two runs of different lengths, (more steps - fewer steps) / (longer - shorter time),
// so that setting up, filling a replay, the last evaluation and the checkpoint at the end, which both have,
// do not count. Such pairs are repeated in turns and the median of their rates is taken: the two runs of a
// pair follow each other, so what else the machine does touches both alike.
//
// Workers are threads of one process, as in the model those of a host are, and servers are processes beside
// it: what `trireme train --workers m` and `--store server --servers 1` start.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "trireme/plan/forecast.h"
#include "trireme/train/run_config.h"

namespace trireme {

// A way of the simulation that can be run here, and how.
struct RunnableWay {
  Way way;
  const char* store;
  Pace pace = Pace::kSync;  // of store server
};
inline constexpr RunnableWay kRunnableWays[] = {
    {Way::kAllReduce, "allreduce"},
    {Way::kServerSync, "server", Pace::kSync},
    {Way::kAsync, "server", Pace::kAsync},
    {Way::kSsp, "server", Pace::kSsp},
    {Way::kShared, "shared"},
};

// Settings of a run that way and with that number of workers, resolved. Throws Error when they do not go
// together.
using MakeSettings = std::function<std::unique_ptr<RunSettings>(const RunnableWay& way, int workers)>;

// Runs 1, 2, 4, ... workers up to the processors of this machine in every way above, each run about
// `seconds`, and adds to the forecast's checks; a way that these settings do not allow becomes a note. Ends
// early, with what there is, when `stop` is set. Throws Error.
void Validate(const PlanConstants& constants, const MakeSettings& make_settings, double seconds,
              const std::atomic<bool>& stop, Forecast& forecast);

}  // namespace trireme
