// Measures the constants of a prediction on this machine: runs the algorithm really, with one worker, for a
// few seconds.
//
// A worker that has 1/k of the work is measured as such, for k = 1, 2, 4, ... shards: an algorithm with so
// many of the shards, against a store that answers as if the others were there. The two terms of a round's
// time are fitted to these. How rounds vary is taken from the whole worker: each round relative to the median
// of its position in the iteration (the first push of an iteration may come after a long collection, in every
// worker alike: that is no variation to wait for). Times of computing are processor times: what else runs on
// this machine would not run on a cluster.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/plan/constants.h"
#include "trireme/train/run_config.h"

namespace trireme {

// Mean time to compute 1/parts of a round.
struct PartTime {
  int parts;
  double seconds;
};

// The fixed and the split seconds, neither negative, that come nearest to the times (relative squares).
struct RoundFit {
  double fixed_s, split_s;
};
RoundFit FitRounds(std::span<const PartTime> times);

// How times vary: the mean of each hundredth of the sorted `ratios`, in thousandths. Fewer ratios than that
// give fewer numbers.
std::vector<int> Hundredths(std::vector<double> ratios);

// Fills `table` with everything but trips to servers and the network, about which one machine knows nothing:
// the loopback stands in. Takes about `seconds`. `settings` must be resolved. Throws Error.
void Calibrate(const RunSettings& settings, double seconds, ConstantTable& table);

// How many times as long trips take in a crowd: with this factor the simulation of `workers` that compute for
// `think_s` and push on their own, with a server on the same processors, one for each worker, has rounds of
// `round_s`. Within [0.1, 100].
double FitTripCrowding(const PlanConstants& constants, int workers, double think_s, double round_s);

// Adds what trips to a server cost, in about `seconds`. Requires what Calibrate measures. Starts processes of
// this program, so the caller must be `trireme`. Throws Error.
void CalibrateTrips(const RunSettings& settings, double seconds, ConstantTable& table);

}  // namespace trireme
