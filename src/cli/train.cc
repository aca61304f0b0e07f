#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/run_flags.h"
#include "metrics/progress.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace trireme {
namespace {

struct TrainFlags : RunFlags {
  std::string out, resume, straggler;
  bool json = false;
};

std::unique_ptr<RunSettings> SettingsOfOldRun(const TrainFlags& flags, const RunFolder& folder) {
  if (!flags.env.empty() || !flags.algo.empty() || !flags.config.empty() || !flags.out.empty()) {
    Fail(
        "--resume takes its environment, algorithm and settings from the run: leave out --env, --algo, "
        "--config and --out");
  }
  auto settings = ReadRunSettings(folder);
  ApplyFlags(flags, *settings);
  return settings;
}

void PrintWorkers(const RunFacts& facts) {
  for (std::size_t i = 0; i < facts.per_worker.size(); ++i) {
    const WorkerFacts& worker = facts.per_worker[i];
    const double total_s = worker.busy_s + worker.idle_s;
    fmt::print("worker {}: {} steps, busy {:.2f} s, idle {:.2f} s ({:.0f} %)\n", i,
               FormatCount(static_cast<double>(worker.steps)), worker.busy_s, worker.idle_s,
               total_s > 0 ? 100 * worker.idle_s / total_s : 0.0);
  }
  if (facts.messages_sent > 0) {
    fmt::print("sent: {} in {} messages\n", FormatBytes(facts.bytes_sent),
               FormatCount(static_cast<double>(facts.messages_sent)));
  }
  if (!facts.staleness.empty()) {
    fmt::print("staleness of gradients: mean {:.2f}, most {} versions\n", facts.staleness_mean,
               facts.staleness_most);
  }
}

void PrintReport(const TrainResult& result, const RunFolder& folder) {
  const RunFacts& facts = result.facts;
  fmt::print("{} on {}: {} steps in {} ({} steps/s, {} of processor time, {} workers, seed {})\n", facts.algo,
             facts.env, FormatCount(static_cast<double>(facts.steps)), FormatDuration(facts.wall_s),
             FormatCount(facts.steps_per_s), FormatDuration(facts.cpu_s), facts.workers, facts.seed);
  if (facts.eval_episodes > 0) {
    fmt::print("evaluation: {:.1f} +- {:.1f} over {} episodes on seeds never trained on\n",
               facts.eval_return_mean, facts.eval_return_std, facts.eval_episodes);
  }
  if (facts.reached_target) {
    fmt::print("target {:g} reached after {} steps, {:.2f} s\n", facts.target.value_or(0),
               FormatCount(static_cast<double>(*facts.steps_to_target)), *facts.time_to_target_s);
  }
  PrintWorkers(facts);
  fmt::print("parameters: sha256 {}\n", facts.params_sha256);
  fmt::print("report: {}\n", (folder.path() / "report.html").string());
}

int RunTrain(const TrainFlags& flags, double started_s) {
  std::unique_ptr<RunSettings> settings;
  std::optional<RunFolder> folder;
  Straggler straggler;
  if (flags.resume.empty()) {
    settings = SettingsOfNewRun(flags);
    settings->Resolve();
    straggler = ParseStraggler(flags.straggler, settings->run.workers);
    const RunConfig& run = settings->run;
    folder = RunFolder::Create(flags.out, fmt::format("{}-{}-seed{}", run.env, run.algo, run.seed),
                               settings->fields.ToToml());
  } else {
    folder = RunFolder::Open(flags.resume);
    settings = SettingsOfOldRun(flags, *folder);
    settings->Resolve();
    straggler = ParseStraggler(flags.straggler, settings->run.workers);
  }
  const std::atomic<bool>& stop = StopOnSignals();
  const TrainResult result =
      Train(*settings, *folder,
            {.json = flags.json, .started_s = started_s, .straggler = straggler, .stop = &stop});
  if (flags.json) {
    fmt::print("{}\n", ResultJson(result.facts));
  } else {
    PrintReport(result, *folder);
  }
  if (result.interrupted) {
    fmt::print(stderr, "interrupted; a checkpoint was written. Continue with: trireme train --resume {}\n",
               folder->path().string());
  }
  return 0;
}

}  // namespace

Command AddTrainCommand(CLI::App& app, double started_s) {
  CLI::App* command = app.add_subcommand("train", "Train an agent, or continue a run");
  auto flags = std::make_shared<TrainFlags>();
  command->add_option("--env", flags->env, "environment; `trireme envs` lists them");
  command->add_option("--algo", flags->algo, "algorithm (ppo unless said); `trireme algos` lists them");
  command->add_option("--workers", flags->workers,
                      "threads that train; in step the result does not depend on it");
  command->add_option("--store", flags->store,
                      "where parameters live: local, allreduce, or shared (asynchronous)");
  command->add_option("--steps", flags->steps, "environment steps to train for");
  command->add_option("--target", flags->target, "stop at the first evaluation with this mean return");
  command->add_option("--seed", flags->seed, "what all randomness follows from");
  command->add_option("--straggler", flags->straggler,
                      "slow one worker down to see the effect: worker=1,factor=5");
  command->add_option("--config", flags->config, "settings from a TOML file, over the preset's");
  command->add_option("--out", flags->out, "folder for the run (a fresh one below runs/)");
  command->add_option("--resume", flags->resume, "continue the run in this folder");
  command->add_option("--set", flags->assignments, "key=value, any setting; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--json", flags->json, "print the result as one line of JSON and nothing else");
  command->footer(
      "Settings come from defaults < preset of the environment < --config < flags < --set.\n"
      "`trireme algos ppo` lists all keys of --set.");
  return [flags, started_s] { return RunTrain(*flags, started_s); };
}

}  // namespace trireme
