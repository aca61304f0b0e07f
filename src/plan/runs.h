// Real runs, for measuring: what this machine can run, it runs.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/plan/figures.h"
#include "trireme/plan/forecast.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {

// What is measured should be training: no checkpoints on the way and, unless the way to a target is the
// question, no evaluations but the one every run ends with, which is kept to one episode.
void LeaveOutAllButTraining(RunConfig& run);

// Trains in `folder`, which is new and is removed afterwards. Servers of its own are processes of this program,
// which must be `trireme` then. Throws Error.
TrainResult RunOnce(const RunSettings& settings, const std::filesystem::path& folder,
                    const Straggler& straggler, const std::atomic<bool>& stop);

// Per environment step, from two runs of different lengths, one after the other: (longer - shorter time) / (more
// - fewer steps), so that setting up, filling a replay and the last evaluation, which both have, do not count.
struct Rate {
  double wall_s = kUnknown;
  double cpu_s = kUnknown;          // of this process
  double servers_cpu_s = kUnknown;  // of the servers it started
  double staleness_mean = 0;
  std::vector<LinkFacts> links = {};
};
// The longer one has about `steps`. Nothing when it was interrupted, or too short to tell. Throws Error.
std::optional<Rate> MeasureRate(RunSettings& settings, double steps, const Straggler& straggler,
                                const std::atomic<bool>& stop);

// Settings of a run that way and with that number of workers, resolved. Throws Error when they do not go
// together.
using MakeSettings = std::function<std::unique_ptr<RunSettings>(const PlanWay& way, int workers)>;

// The scenario of a run on this machine, its server included, whatever the hosts that are asked about.
Scenario ScenarioHere(const PlanWay& way, int workers, const RunConfig& run);

// Runs 1, 2, 4, ... workers up to the processors of this machine in every way, each run about `seconds` long,
// five times in turns, and adds to the forecast's checks the medians; a way that these settings do not allow
// becomes a note. Ends early, with what there is, when `stop` is set. Throws Error.
void Validate(const PlanConstants& constants, const MakeSettings& make_settings, double seconds,
              const std::atomic<bool>& stop, Forecast& forecast);

}  // namespace trireme
