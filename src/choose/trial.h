// How fast settings would train: the real thing, for a moment.
//
// A trial has the workers, links, stores, codecs and executors that a run with these settings has, and leaves out
// evaluations, files and checkpoints. It times rounds, from one push to the next, and ends in the middle of an
// iteration, so that it is short where iterations are long:
//
//   iteration = first round, which collecting is a part of + (rounds of an iteration - 1) * another round.
#pragma once

#include <functional>
#include <span>

#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {

// One push after the last.
struct TimedRound {
  int iteration = 0;  // of those in which something was pushed
  double seconds = 0;
};

// What an iteration takes that has so many updates (0: not known), or as many as there really were where one is over.
// Rounds are in their order. The first iteration also makes memory and kernels: where a later one is over, only such
// count. NaN where nothing can be told yet.
double IterationSeconds(std::span<const TimedRound> rounds, std::int64_t updates_per_iteration);

// Environment steps per second, of all workers in step, or of those of this process. Takes about `seconds`, and at least two pushes.
// `settings` are resolved; all processes of `options` call it with the same ones, and the first knows the answer. Of the
// options it takes processes, stop, security and the program of servers. Throws Error, also when it was stopped.
double TrySettings(const RunSettings& settings, const TrainOptions& options, double seconds);

}  // namespace trireme
