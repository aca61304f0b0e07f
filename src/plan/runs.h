// What is measured on this machine: the constants of the simulation, and whether what it says is so.
//
// What a round is made of is measured inside one worker (rounds.cc): the algorithm runs really, against a store that
// watches. A worker with all of the work and one with a single shard of it, whose store answers as if the others had
// sent the same, give the two terms of a round's time. How rounds vary is taken from the whole worker: each round
// relative to the median of its position in the iteration (the first push of an iteration may come after a long
// collection, in every worker alike: that is no variation to wait for). Times are processor times: what else
// runs on this machine would not run on a cluster.
//
// The rest is seen in real runs: measured, or fitted so that the simulation has the rounds that runs had. Servers of
// runs are processes of this program, which must be `trireme` then.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/plan/constants.h"
#include "trireme/plan/forecast.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {

// How times vary: the mean of each hundredth of the sorted `ratios`, in thousandths. Fewer ratios than that
// give fewer numbers.
std::vector<int> Hundredths(std::vector<double> ratios);

// Fills in everything about rounds and notices, and applying. Takes about `seconds`. `settings` must be
// resolved; no other thread may compute meanwhile. Throws Error, also when `stop` is set.
void MeasureRounds(const RunSettings& settings, double seconds, const std::atomic<bool>& stop,
                   PlanConstants& constants);

// What is measured should be training: no checkpoints and, unless the way to a target is the question, no
// evaluations but the one every run ends with, which is kept to one episode.
void LeaveOutAllButTraining(RunConfig& run);

// Trains without files. Throws Error.
TrainResult RunOnce(const RunSettings& settings, const Straggler& straggler, const std::atomic<bool>& stop);

// A run that is to be measured, beside its prediction if there is one.
struct RunCase : ForecastRow {
  std::unique_ptr<RunSettings> settings = {};  // resolved
  double steps = 0;                            // about, of the longer run of a pair
  Straggler straggler = {};

  // The same on this machine, its server included.
  Scenario ToSimulate() const;
};

// Measures so many pairs of runs of each case, in turns, so that what changes on the machine meanwhile touches all
// alike; `measured` is the medians over the pairs. Runs that are too short to tell are made longer; after some
// attempts, or when `stop` is set, it is what there is, perhaps unknown. Throws Error.
void RunInTurns(std::span<RunCase> cases, int pairs, const std::atomic<bool>& stop);

// Settings that change what rounds or exchanges take, as far as they are not the defaults: "precision=bf16 compress=int8".
std::string VariantOf(const RunConfig& run);

// What is exchanged between hosts, and what a codec takes for it: measured on the real one. After MeasureRounds.
void MeasureExchange(const RunSettings& settings, PlanConstants& constants);

// Two threads that sum `floats` floats in shared memory: half the time for one float (an allreduce meets
// twice), and the rate of the rest, at 2 (threads - 1) / threads of the bytes as for messages.
Link ProbeThreads(std::size_t floats);

// Calls `set`, which changes `constants`, with factors within [0.001, 1000], and last with the one with which the
// simulation of `scenario` has rounds of `round_s`. Requires that they get longer with it.
void Fit(const PlanConstants& constants, Scenario scenario, double round_s,
         const std::function<void(double)>& set);

// Settings of a run that way and with that number of workers, or groups of them, resolved. Throws Error when they do not go
// together.
using MakeSettings = std::function<std::unique_ptr<RunSettings>(const PlanWay& way, int workers)>;

// Fills `constants` in about `seconds`, with everything but the network, about which one machine knows nothing.
// Ways that cannot be run become a note, and are not known then. Throws Error, also when `stop` is set.
void Calibrate(const MakeSettings& make_settings, double seconds, const std::atomic<bool>& stop,
               PlanConstants& constants, std::vector<std::string>& notes);

// Runs 1, 2, 4, ... workers up to the processors of this machine in every way that is predicted, each run about
// `seconds` long, and adds checks to the forecast; a way that these settings do not allow becomes a note. Ends
// early, with what there is, when `stop` is set. Throws Error.
void Validate(const PlanConstants& constants, const MakeSettings& make_settings, double seconds,
              const std::atomic<bool>& stop, Forecast& forecast);

}  // namespace trireme
