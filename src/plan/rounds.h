// What a round is made of, measured inside one worker: the algorithm runs really, against a store that watches.
//
// A worker with all of the work and one with a single shard of it, whose store answers as if the others had sent
// the same, give the two terms of a round's time. How rounds vary is taken from the whole worker: each round
// relative to the median of its position in the iteration (the first push of an iteration may come after a long
// collection, in every worker alike: that is no variation to wait for). Times are processor times: what else
// runs on this machine would not run on a cluster.
#pragma once

#include <atomic>
#include <vector>

#include "trireme/plan/constants.h"
#include "trireme/train/run_config.h"

namespace trireme {

// How times vary: the mean of each hundredth of the sorted `ratios`, in thousandths. Fewer ratios than that
// give fewer numbers.
std::vector<int> Hundredths(std::vector<double> ratios);

// Fills in everything about rounds and notices, and applying. Takes about `seconds`. `settings` must be
// resolved; no other thread may compute meanwhile. Throws Error, also when `stop` is set.
void MeasureRounds(const RunSettings& settings, double seconds, const std::atomic<bool>& stop,
                   PlanConstants& constants);

}  // namespace trireme
