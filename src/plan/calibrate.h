// Measures the constants of a prediction on this machine: inside a worker, in short runs, and in memory.
//
// What the simulation cannot know from its parts is fitted: so that it has, for one worker and for a crowd, the
// rounds that real runs had.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "trireme/plan/constants.h"
#include "trireme/plan/runs.h"

namespace trireme {

// Two threads that sum `floats` floats in shared memory: half the time for one float (an allreduce meets
// twice), and the rate of the rest, at 2 (threads - 1) / threads of the bytes as for messages.
Link ProbeThreads(std::size_t floats);

// `constants` after `set` was called with the factor, within [0.001, 1000], with which the simulation of
// `scenario` has rounds of `round_s`. Requires that they get longer with it.
PlanConstants FitTo(const PlanConstants& constants, const Scenario& scenario, double round_s,
                    const std::function<void(PlanConstants&, double)>& set);

// Fills `table` in about `seconds`, with everything but the network, about which one machine knows nothing.
// Ways that cannot be run become a note, and are not known then. Starts processes of this program for servers,
// so the caller must be `trireme`. Throws Error, also when `stop` is set.
void Calibrate(const MakeSettings& make_settings, double seconds, const std::atomic<bool>& stop,
               ConstantTable& table, std::vector<std::string>& notes);

}  // namespace trireme
