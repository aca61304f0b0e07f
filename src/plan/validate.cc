#include "trireme/plan/validate.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/base/system.h"
#include "trireme/train/speedup.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

constexpr int kRepeats = 5;
constexpr double kShortShare = 0.2;  // length of the shorter run

// Nothing if it was interrupted.
std::optional<RunFacts> RunOnce(RunSettings& settings, double steps, const Straggler& straggler,
                                const std::atomic<bool>& stop) {
  RunConfig& run = settings.run;
  run.steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(steps));
  run.checkpoint_every_s = 1e9;
  run.stop_at_target = false;
  run.eval_every = 0;
  run.eval_episodes = 1;
  const ScratchFolder scratch;
  const RunFolder folder = RunFolder::Create(scratch.path() / "run", "", settings.fields.ToToml());
  TrainResult result = Train(settings, folder,
                             {.json = true,
                              .started_s = MonotonicSeconds(),
                              .started_cpu_s = CpuSeconds(),
                              .straggler = straggler,
                              .stop = &stop});
  if (result.interrupted) return std::nullopt;
  return std::move(result.facts);
}

struct Case {
  ForecastCheck check;
  std::unique_ptr<RunSettings> settings;
  Straggler straggler;
  // Of each pair of runs.
  std::vector<double> steps_per_s, processors, staleness;

  void Add(const RunFacts& brief, const RunFacts& full) {
    const double seconds = full.wall_s - brief.wall_s;
    if (seconds <= 0 || full.steps <= brief.steps) return;  // too short to tell
    steps_per_s.push_back(static_cast<double>(full.steps - brief.steps) / seconds);
    processors.push_back((full.cpu_s - brief.cpu_s) / seconds);
    staleness.push_back(full.staleness_mean);
  }
};

std::vector<Case> MakeCases(const PlanConstants& constants, const MakeSettings& make_settings,
                            Forecast& forecast) {
  std::vector<Case> cases;
  ForecastQuestion here = forecast.question;  // on this machine, whatever the hosts that were asked about
  here.hosts = 1;
  here.cores = UsableProcessors();
  here.split = true;
  here.servers = 1;
  here.servers_on_workers = true;
  for (const RunnableWay& runnable : kRunnableWays) {
    if (ThroughServers(runnable.way) && !constants.knows_trips()) continue;
    for (int workers = 1; workers <= here.cores; workers *= 2) {
      try {
        Case next;
        next.check.way = runnable.way;
        next.check.store = runnable.store;
        next.check.workers = workers;
        next.settings = make_settings(runnable, workers);
        here.overlap = next.settings->run.server.overlap;
        const Outcome predicted = Simulate(constants, ScenarioOf(here, runnable.way, workers));
        next.check.predicted_steps_per_s = predicted.steps_per_s;
        if (!InStep(runnable.way)) next.check.predicted_staleness = predicted.staleness.mean();
        if (here.slow.worker < workers) next.straggler = {here.slow.worker, here.slow.factor};
        cases.push_back(std::move(next));
      } catch (const Error& error) {
        forecast.notes.push_back(
            fmt::format("not validated: {}, {} workers: {}", WayName(runnable.way), workers, error.what()));
      }
    }
  }
  return cases;
}

}  // namespace

void Validate(const PlanConstants& constants, const MakeSettings& make_settings, double seconds,
              const std::atomic<bool>& stop, Forecast& forecast) {
  std::vector<Case> cases = MakeCases(constants, make_settings, forecast);
  for (Case& one : cases) {  // what a first run pays for, later ones find ready
    if (!stop) RunOnce(*one.settings, 1, {}, stop);
  }
  for (int i = 0; i < kRepeats * static_cast<int>(cases.size()); ++i) {
    if (stop) break;
    Case& one = cases[i % cases.size()];
    const double steps = seconds * one.check.predicted_steps_per_s;
    const auto brief = RunOnce(*one.settings, kShortShare * steps, one.straggler, stop);
    const auto full = RunOnce(*one.settings, steps, one.straggler, stop);
    if (brief && full) one.Add(*brief, *full);
  }
  // Speed-ups are relative to one worker with its own parameters: the first case.
  for (const Case& one : cases) {
    if (one.steps_per_s.empty() || cases.front().steps_per_s.empty()) continue;
    ForecastCheck check = one.check;
    check.measured_steps_per_s = Median(one.steps_per_s);
    check.processors_had = ThroughServers(check.way) ? std::numeric_limits<double>::quiet_NaN()
                                                     : Median(one.processors) / check.workers;
    if (!InStep(check.way)) check.measured_staleness = Median(one.staleness);
    check.predicted_speedup = check.predicted_steps_per_s / cases.front().check.predicted_steps_per_s;
    check.measured_speedup = check.measured_steps_per_s / Median(cases.front().steps_per_s);
    forecast.checks.push_back(check);
  }
  if (stop) forecast.notes.push_back("interrupted: some runs are missing");
}

}  // namespace trireme
