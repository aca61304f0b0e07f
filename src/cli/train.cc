#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/parse.h"
#include "cli/commands.h"
#include "metrics/progress.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace trireme {
namespace {

std::atomic<bool> stop_requested{false};

// The first SIGINT, SIGTERM or SIGHUP asks for a clean end; a second one ends the process at once.
extern "C" void RequestStop(int signal) {
  stop_requested.store(true);
  std::signal(signal, SIG_DFL);
}

struct TrainFlags {
  std::string env, algo, config, out, resume;
  std::optional<std::string> workers, store, steps, target, seed;
  std::string straggler;
  std::vector<std::string> assignments;
  bool json = false;
};

// Flags and --set, over what the settings hold already.
void ApplyFlags(const TrainFlags& flags, RunSettings& settings) {
  const auto apply = [&](const char* name, const std::optional<std::string>& value) {
    if (value) settings.fields.Set(name, *value, fmt::format("--{}", name));
  };
  apply("workers", flags.workers);
  apply("store", flags.store);
  apply("steps", flags.steps);
  apply("seed", flags.seed);
  if (flags.target) {
    apply("target", flags.target);
    settings.run.stop_at_target = true;
  }
  std::set<std::string_view> keys;
  for (const std::string& assignment : flags.assignments) {
    const std::string_view key = Trim(std::string_view(assignment).substr(0, assignment.find('=')));
    if (key == "env" || key == "algo") Fail("--set {}: {} is chosen by --{}", assignment, key, key);
    if (!keys.insert(key).second) Fail("--set {}: {} was set before: give each key once", assignment, key);
    settings.fields.ApplyAssignment(assignment, "--set");
  }
}

// The store decides which preset applies, so it is looked for before the rest; empty: not chosen.
std::string ChosenStore(const TrainFlags& flags, const std::string& config) {
  std::string store = flags.store.value_or(ReadTomlText(config, "store", flags.config));
  for (const std::string& assignment : flags.assignments) {
    const std::size_t equals = assignment.find('=');
    if (equals != std::string::npos && Trim(std::string_view(assignment).substr(0, equals)) == "store") {
      store = Trim(std::string_view(assignment).substr(equals + 1));
    }
  }
  return store;
}

std::unique_ptr<RunSettings> SettingsOfNewRun(const TrainFlags& flags) {
  const std::string text = flags.config.empty() ? "" : ReadFile(flags.config);
  std::string env = flags.env.empty() ? ReadTomlText(text, "env", flags.config) : flags.env;
  std::string algo = flags.algo.empty() ? ReadTomlText(text, "algo", flags.config) : flags.algo;
  if (env.empty()) Fail("say which environment: --env NAME (`trireme envs` lists them)");
  if (algo.empty()) algo = "ppo";
  std::string store = ChosenStore(flags, text);
  for (const System& system : kSystems) {
    if (system.name != algo) continue;
    if (!store.empty() && store != system.store) {
      Fail("--algo {} is {} with --store {}: leave out --store, or say --algo {}", algo, system.algo,
           system.store, system.algo);
    }
    algo = system.algo;
    store = system.store;
  }
  if (store.empty()) store = RunConfig().store;
  auto settings = std::make_unique<RunSettings>(env, algo, store);
  settings->fields.ApplyToml(text, flags.config);
  settings->run.env = env;
  settings->run.algo = algo;
  settings->run.store = store;
  ApplyFlags(flags, *settings);
  return settings;
}

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

// "worker=3,factor=5"
Straggler ParseStraggler(const std::string& text, int workers) {
  Straggler straggler;
  if (text.empty()) return straggler;
  ConfigFields fields;
  fields("worker", straggler.worker, "which one", Between(-1, workers - 1));
  fields("factor", straggler.factor, "how many times slower", Between(1, 1e6));
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    fields.ApplyAssignment(rest.substr(0, comma), "--straggler");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (straggler.worker < 0) Fail("--straggler {}: say which worker, as in worker=1,factor=5", text);
  return straggler;
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
  std::signal(SIGINT, RequestStop);
  std::signal(SIGTERM, RequestStop);
  std::signal(SIGHUP, RequestStop);
  const TrainResult result =
      Train(*settings, *folder,
            {.json = flags.json, .started_s = started_s, .straggler = straggler, .stop = &stop_requested});
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
