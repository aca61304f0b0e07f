#include "plan/validate.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/scratch_folder.h"
#include "base/system.h"
#include "train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int kRepeats = 5;
constexpr double kShortShare = 0.2;  // length of the shorter run

fs::path MakeTemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "trireme-plan-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) Fail("cannot make a folder in {}", fs::temp_directory_path().string());
  return name;
}

// Nothing if it was interrupted.
std::optional<RunFacts> RunOnce(RunSettings& settings, double steps, const Straggler& straggler,
                                const std::atomic<bool>& stop) {
  RunConfig& run = settings.run;
  run.steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(steps));
  run.checkpoint_every_s = 1e9;
  run.stop_at_target = false;
  run.eval_every = 0;
  run.eval_episodes = 1;
  const ScratchFolder scratch(MakeTemporaryFolder());
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

// The quickest of some runs of about the same length.
struct Best {
  double steps = 0, cpu_s = 0, wall_s = std::numeric_limits<double>::infinity();

  void Add(const RunFacts& run) {
    if (run.wall_s < wall_s) *this = {static_cast<double>(run.steps), run.cpu_s, run.wall_s};
  }
};

struct Case {
  ForecastCheck check;
  std::unique_ptr<RunSettings> settings;
  Straggler straggler;
  Best brief, full;

  // Infinite or not above 0 when there is too little to tell.
  double StepsPerSecond() const { return (full.steps - brief.steps) / (full.wall_s - brief.wall_s); }
};

std::vector<Case> MakeCases(const PlanConstants& constants, const MakeSettings& make_settings,
                            Forecast& forecast) {
  std::vector<Case> cases;
  ForecastQuestion here = forecast.question;  // on this machine, whatever the hosts that were asked about
  here.hosts = 1;
  here.cores = UsableProcessors();
  here.split = true;
  for (const RunnableWay& runnable : kRunnableWays) {
    for (int workers = 1; workers <= here.cores; workers *= 2) {
      try {
        Case next;
        next.check.way = runnable.way;
        next.check.store = runnable.store;
        next.check.workers = workers;
        next.settings = make_settings(runnable.store, workers);
        next.check.predicted_steps_per_s =
            Simulate(constants, ScenarioOf(here, runnable.way, workers)).steps_per_s;
        if (here.slow.worker < workers) next.straggler = {here.slow.worker, here.slow.factor};
        cases.push_back(std::move(next));
      } catch (const Error& error) {
        forecast.notes.push_back(
            fmt::format("not validated: store {}, {} workers: {}", runnable.store, workers, error.what()));
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
  for (int i = 0; i < kRepeats * 2 * static_cast<int>(cases.size()); ++i) {
    if (stop) break;
    Case& one = cases[i / 2 % cases.size()];
    const bool full = i % 2 == 1;
    const double steps = seconds * one.check.predicted_steps_per_s * (full ? 1 : kShortShare);
    const auto run = RunOnce(*one.settings, steps, one.straggler, stop);
    if (run) (full ? one.full : one.brief).Add(*run);
  }
  // Speed-ups are relative to one worker with its own parameters: the first case.
  const auto known = [](const Case& one) { return one.StepsPerSecond() > 0; };
  for (const Case& one : cases) {
    if (!known(one) || !known(cases.front())) continue;
    ForecastCheck check = one.check;
    check.measured_steps_per_s = one.StepsPerSecond();
    check.processors_had =
        (one.full.cpu_s - one.brief.cpu_s) / (one.full.wall_s - one.brief.wall_s) / check.workers;
    check.predicted_speedup = check.predicted_steps_per_s / cases.front().check.predicted_steps_per_s;
    check.measured_speedup = check.measured_steps_per_s / cases.front().StepsPerSecond();
    forecast.checks.push_back(check);
  }
  if (stop) forecast.notes.push_back("interrupted: some runs are missing");
}

}  // namespace trireme
