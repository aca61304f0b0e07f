#include "trireme/plan/runs.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/base/system.h"

namespace trireme {
namespace {

constexpr int kRepeats = 5;
constexpr double kShortShare = 0.2;  // length of the shorter run

// Of child processes that have ended.
double ChildrenSeconds() {
  rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One prediction and the runs that check it.
struct Case {
  ForecastCheck check;
  std::unique_ptr<RunSettings> settings;
  Straggler straggler = {};
  std::vector<double> steps_per_s = {}, processors = {}, staleness = {};  // of each pair of runs

  void Add(const Rate& rate) {
    steps_per_s.push_back(1 / rate.wall_s);
    processors.push_back(rate.cpu_s / rate.wall_s);
    staleness.push_back(rate.staleness_mean);
  }
};

std::vector<Case> MakeCases(const PlanConstants& constants, const MakeSettings& make_settings,
                            Forecast& forecast) {
  std::vector<Case> cases;
  const Slowness& slow = forecast.question.scenario.slow;
  for (const PlanWay* const way : kPlanWays) {
    if (!constants.Knows(*way)) continue;
    for (int workers = 1; workers <= UsableProcessors(); workers *= 2) {
      try {
        Case next{.check = {.way = way, .workers = workers}, .settings = make_settings(*way, workers)};
        Scenario here = ScenarioHere(*way, workers, next.settings->run);
        here.bound = forecast.question.scenario.bound;
        here.slow = slow;
        const Outcome predicted = Simulate(constants, here);
        next.check.predicted_steps_per_s = predicted.steps_per_s;
        if (!way->in_step) next.check.predicted_staleness = predicted.staleness.mean();
        if (slow.worker < workers) next.straggler = {slow.worker, slow.factor};
        cases.push_back(std::move(next));
      } catch (const Error& error) {
        forecast.notes.push_back(
            fmt::format("not validated: {}, {} workers: {}", way->name, workers, error.what()));
      }
    }
  }
  return cases;
}

}  // namespace

void LeaveOutAllButTraining(RunConfig& run) {
  run.checkpoint_every_s = 1e9;
  if (run.stop_at_target) return;
  run.eval_every = 0;
  run.eval_episodes = 1;
}

TrainResult RunOnce(const RunSettings& settings, const std::filesystem::path& folder,
                    const Straggler& straggler, const std::atomic<bool>& stop) {
  const ScratchFolder scratch(folder);
  const RunFolder run = RunFolder::Create(folder, "", settings.fields.ToToml());
  return Train(settings, run,
               {.json = true,
                .started_s = MonotonicSeconds(),
                .started_cpu_s = CpuSeconds(),
                .straggler = straggler,
                .stop = &stop,
                .server_program = "/proc/self/exe"});
}

std::optional<Rate> MeasureRate(RunSettings& settings, double steps, const Straggler& straggler,
                                const std::atomic<bool>& stop) {
  settings.run.stop_at_target = false;
  LeaveOutAllButTraining(settings.run);
  RunFacts facts[2];
  double children_s[2];
  for (const int i : {0, 1}) {
    const ScratchFolder folder;
    settings.run.steps =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(i == 0 ? kShortShare * steps : steps));
    const double begun_s = ChildrenSeconds();
    TrainResult result = RunOnce(settings, folder.path() / "run", straggler, stop);
    if (result.interrupted) return std::nullopt;
    facts[i] = std::move(result.facts);
    children_s[i] = ChildrenSeconds() - begun_s;
  }
  const auto more = static_cast<double>(facts[1].steps - facts[0].steps);
  if (more <= 0 || facts[1].wall_s <= facts[0].wall_s) return std::nullopt;
  return Rate{.wall_s = (facts[1].wall_s - facts[0].wall_s) / more,
              .cpu_s = (facts[1].cpu_s - facts[0].cpu_s) / more,
              .servers_cpu_s = (children_s[1] - children_s[0]) / more,
              .staleness_mean = facts[1].staleness_mean,
              .links = facts[1].links};
}

Scenario ScenarioHere(const PlanWay& way, int workers, const RunConfig& run) {
  return {.way = &way,
          .workers = workers,
          .servers_on_workers = true,
          .overlap = run.server.overlap,
          .hosts = 1,
          .cores = UsableProcessors()};
}

void Validate(const PlanConstants& constants, const MakeSettings& make_settings, double seconds,
              const std::atomic<bool>& stop, Forecast& forecast) {
  std::vector<Case> cases = MakeCases(constants, make_settings, forecast);
  for (int i = 0; i < kRepeats * static_cast<int>(cases.size()) && !stop; ++i) {
    Case& one = cases[i % cases.size()];
    const double steps = seconds * one.check.predicted_steps_per_s;
    if (const auto rate = MeasureRate(*one.settings, steps, one.straggler, stop)) one.Add(*rate);
  }
  // Speed-ups are relative to one worker with its own parameters: the first case.
  for (const Case& one : cases) {
    if (one.steps_per_s.empty() || cases.front().steps_per_s.empty()) continue;
    ForecastCheck check = one.check;
    check.measured_steps_per_s = Median(one.steps_per_s);
    if (!check.way->on_servers) check.processors_had = Median(one.processors) / check.workers;
    if (!check.way->in_step) check.measured_staleness = Median(one.staleness);
    check.predicted_speedup = check.predicted_steps_per_s / cases.front().check.predicted_steps_per_s;
    check.measured_speedup = check.measured_steps_per_s / Median(cases.front().steps_per_s);
    forecast.Add(check);
  }
  if (stop) forecast.notes.emplace_back("interrupted: some runs are missing");
}

}  // namespace trireme
