// `trireme bench speedup`: the same training with 1, 2, 4, ... workers, and what the others bring against 1.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/base/file.h"
#include "trireme/base/parse.h"
#include "trireme/base/system.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/json_output.h"
#include "trireme/cli/run_flags.h"
#include "trireme/plan/runs.h"
#include "trireme/plan/speedup.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

struct SpeedupFlags : RunFlags {  // `workers` is a list here
  std::optional<std::string> repeats;
  std::string straggler, out;
  bool json = false;
};

struct SpeedupConfig {
  std::vector<int> workers;
  int repeats = 3;

  void Fields(ConfigFields& field) {
    field("workers", workers, "numbers of workers to measure", Between(1, 64));
    field("repeats", repeats, "runs for each number of workers", Between(1, 1000));
  }
};

std::unique_ptr<RunSettings> UnresolvedSettings(const SpeedupFlags& flags, int workers) {
  RunFlags run_flags = flags;
  run_flags.workers = fmt::format("{}", workers);
  return SettingsOfNewRun(run_flags);
}

std::unique_ptr<RunSettings> SettingsOfRuns(const SpeedupFlags& flags, int workers) {
  auto settings = UnresolvedSettings(flags, workers);
  settings->Resolve();
  LeaveOutAllButTraining(settings->run);
  return settings;
}

SpeedupConfig ReadConfig(const SpeedupFlags& flags) {
  for (const std::string& assignment : flags.assignments) {
    if (Trim(std::string_view(assignment).substr(0, assignment.find('='))) == "workers") {
      Fail("--set {}: the numbers of workers are chosen by --workers, as in --workers 1,2,4", assignment);
    }
  }
  SpeedupConfig config;
  ConfigFields fields;
  fields.Add(config);
  if (flags.repeats) fields.Set("repeats", *flags.repeats, "--repeats");
  if (!flags.workers) {
    const RunConfig run = UnresolvedSettings(flags, 1)->run;
    const std::optional<int> most = run.asynchronous()             ? std::nullopt
                                    : run.store_entry().one_worker ? std::optional(1)
                                                                   : std::optional(run.shards);
    config.workers = DefaultWorkerCounts(UsableProcessors(), most);
    return config;
  }
  fields.Set("workers", *flags.workers, "--workers");
  if (config.workers.empty()) Fail("--workers {}: say how many, as in --workers 1,2,4", *flags.workers);
  std::ranges::sort(config.workers);
  if (std::ranges::adjacent_find(config.workers) != config.workers.end()) {
    Fail("--workers {}: give each number once", *flags.workers);
  }
  return config;
}

Straggler ReadStraggler(const SpeedupFlags& flags, const std::vector<int>& counts) {
  const Straggler straggler = ParseStraggler(flags.straggler, 64);
  if (straggler.worker >= counts.front()) {
    Fail(
        "--straggler {}: among {} {} there is no worker {} (they count from 0): choose larger --workers, "
        "{} for example, or worker=0",
        flags.straggler, counts.front(), counts.front() == 1 ? "worker" : "workers", straggler.worker,
        std::bit_ceil(static_cast<unsigned>(straggler.worker) + 1));
  }
  return straggler;
}

// The first run of a process pays for what later ones find ready (generated kernels, memory), so one
// iteration goes before all that is measured.
void WarmUp(const SpeedupFlags& flags, int workers, const std::atomic<bool>& stop) {
  const auto settings = SettingsOfRuns(flags, workers);
  settings->run.steps = 1;
  settings->run.eval_episodes = 1;
  RunOnce(*settings, {}, stop);
}

int RunSpeedup(const SpeedupFlags& flags) {
  const JsonOutput output(flags.json);
  const SpeedupConfig config = ReadConfig(flags);
  const Straggler straggler = ReadStraggler(flags, config.workers);
  std::vector<std::unique_ptr<RunSettings>> settings;  // of each number of workers
  for (const int workers : config.workers) settings.push_back(SettingsOfRuns(flags, workers));
  const RunConfig run = settings.front()->run;
  const SpeedupQuestion question{
      .run = run, .repeats = config.repeats, .processors = UsableProcessors(), .straggler = straggler};

  // Claimed like the folder of a run, but it is none: nothing in it can be resumed.
  const RunFolder claimed =
      RunFolder::Create(flags.out, fmt::format("{}-{}-{}-speedup", run.env, run.algo, run.store),
                        settings.front()->fields.ToToml());
  const fs::path& out = claimed.path();
  std::error_code error;
  fs::rename(out / "config.toml", out / "settings.toml", error);
  if (error) Fail("cannot write {}: {}", (out / "settings.toml").string(), error.message());
  const std::atomic<bool>& stop = StopOnSignals();
  WarmUp(flags, config.workers.front(), stop);

  // Alternately, so that what changes on the machine meanwhile touches all numbers of workers alike.
  std::vector<RunFacts> runs;
  const std::size_t wanted = settings.size() * static_cast<std::size_t>(config.repeats);
  while (runs.size() < wanted && !stop) {
    RunSettings& next = *settings[runs.size() % settings.size()];
    if (run.stop_at_target) next.run.seed = run.seed + runs.size() / settings.size();
    TrainResult result = RunOnce(next, straggler, stop);
    if (result.interrupted) break;
    runs.push_back(std::move(result.facts));
    if (!flags.json) {
      fmt::print(stderr, "run {} of {}: {} {}, {:.2f} s\n", runs.size(), wanted, next.run.workers,
                 next.run.workers == 1 ? "worker" : "workers", runs.back().wall_s);
    }
  }

  const bool interrupted = runs.size() < wanted;
  const CommandReport report = MakeReport(question, runs, interrupted);
  const std::string json = report.ToJson();
  WriteFileAtomically(out / "speedup.json", fmt::format("{}\n", json));
  WriteFileAtomically(out / "speedup.svg", report.plot.ToSvg());
  if (flags.json) {
    output.Print(json);
  } else {
    fmt::print("{}picture: {}\n", report.ToText(), (out / "speedup.svg").string());
  }
  return interrupted ? InterruptedCode() : 0;
}

}  // namespace

Command AddBenchCommand(CommandLine& program) {
  CommandLine& bench = program.AddCommand("bench", "Measure what parallelism brings");
  bench.RequireCommand();
  CommandLine& command = bench.AddCommand("speedup", "Train with 1, 2, 4, ... workers and compare");
  auto flags = std::make_shared<SpeedupFlags>();
  AddEnvOptions(command, *flags);
  command.Option("--algo", flags->algo, "algorithm (ppo unless said); `trireme algos` lists them");
  command.Option("--store", flags->store, StoresHelp());
  command.Option("--workers", flags->workers,
                 "numbers of workers, as in 1,2,4 (1, 2, 4, ... up to twice the processors)");
  command.Option("--steps", flags->steps, "environment steps of each run; with --target, at most");
  command.Option("--target", flags->target,
                 "measure the time to this mean return, over seeds SEED, SEED+1, ...");
  command.Option("--seed", flags->seed, "seed of the runs, or of the first with --target");
  command.Option("--repeats", flags->repeats, "runs for each number of workers (3)");
  command.Option("--straggler", flags->straggler,
                 "slow one worker down to see the effect: worker=0,factor=5");
  command.Option("--config", flags->config, "settings from a TOML file, over the preset's");
  command.Option("--set", flags->assignments, "key=value, any setting; may be repeated");
  command.Option("--out", flags->out, "folder for table and picture (a fresh one below runs/)");
  command.Flag("--json", flags->json, "print the result as one line of JSON and nothing else");
  command.Footer("docs/plan.md says what the columns mean.");
  return [flags] { return RunSpeedup(*flags); };
}

}  // namespace trireme
