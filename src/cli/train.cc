#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>

#include "trireme/base/config.h"
#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/base/version.h"
#include "trireme/choose/choice.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/json_output.h"
#include "trireme/cli/run_flags.h"
#include "trireme/cli/security_flags.h"
#include "trireme/comm/processes.h"
#include "trireme/metrics/progress.h"
#include "trireme/train/agreement.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/standing.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

struct TrainFlags : RunFlags {
  std::string out, resume, straggler, parallel;
  bool json = false, audit = false;
  SecurityFlags security;
};

// More steps ask for more training, also of a run that had stopped at its target; who says a target means it.
bool AskedToGoPastTarget(const TrainFlags& flags, const RunFolder& folder, const RunConfig& run) {
  if (!run.stop_at_target || !IsGiven(flags, "steps")) return false;
  if (IsGiven(flags, "target") || IsGiven(flags, "stop_at_target")) return false;
  const std::optional<Standing> standing = ReadStanding(folder);
  if (!standing || !standing->reached || standing->steps >= run.steps) return false;
  if (!flags.json) {
    fmt::print(stderr, "target {:g} was reached after {} steps: training goes on to {} steps\n",
               standing->target, standing->steps_to_target, run.steps);
  }
  return true;
}

// Settings of the run in a folder that only the first process sees; the others learn them from it.
std::unique_ptr<RunSettings> SettingsOfOldRun(const TrainFlags& flags, const RunFolder* folder,
                                              Communicator* processes) {
  if (!flags.env.empty() || !flags.env_args.empty() || !flags.algo.empty() || !flags.config.empty() ||
      !flags.out.empty()) {
    Fail(
        "--resume takes its environment, algorithm and settings from the run: leave out --env, --env-arg, "
        "--algo, --config and --out");
  }
  std::string text = folder == nullptr ? "" : folder->ReadConfig();
  if (processes != nullptr) processes->Broadcast(text);
  auto settings = ParseRunSettings(text, flags.resume + "/config.toml");
  ApplyFlags(flags, *settings);
  double goes_past_target = folder != nullptr && AskedToGoPastTarget(flags, *folder, settings->run);
  if (processes != nullptr) processes->Broadcast(std::span<double>(&goes_past_target, 1));
  if (goes_past_target != 0) settings->run.stop_at_target = false;
  return settings;
}

// Says why a resume has trained nothing, and what would.
void ExplainNothingDone(const RunFacts& facts, const RunConfig& run) {
  const bool at_target = facts.reached_target && facts.steps < run.steps;
  if (at_target) {
    fmt::print(stderr, "nothing to do: target {:g} was reached after {} steps. ", facts.target.value_or(0),
               *facts.steps_to_target);
  } else {
    fmt::print(stderr, "nothing to do: all {} steps are done. ", facts.steps);
  }
  fmt::print(stderr, "To train on, say --steps with more than {}{}\n", facts.steps,
             at_target ? ", or another --target" : "");
}

// Refused before anything is started.
void CheckParallel(const TrainFlags& flags) {
  if (flags.parallel.empty()) return;
  if (flags.parallel != "auto")
    Fail(
        "--parallel {}: expected auto; say --workers, --store, --compress and --model-parallel for a choice "
        "of your own",
        flags.parallel);
  if (!flags.resume.empty())
    Fail(
        "--parallel auto is for new runs, and a resumed one goes on with what was chosen: leave it out, or "
        "say --workers, --compress or --model-parallel");
}

// What --parallel auto is to leave as it is: flags, --set, and what the file of --config says.
GivenChoice GivenBy(const TrainFlags& flags, const RunSettings& settings) {
  const RunConfig& run = settings.run;
  const std::string config = flags.config.empty() ? "" : ReadFile(flags.config);
  const auto given = [&](const char* key) {
    return IsGiven(flags, key) || HasTomlKey(config, key, flags.config);
  };
  GivenChoice choice;
  if (given("workers") && run.workers > 0) choice.workers = run.workers;
  if (given("store") || run.store != RunConfig().store) choice.store = run.store;
  if (given("compress")) choice.compress = run.compress;
  if (given("model_parallel")) choice.model_parallel = run.model_parallel;
  if (choice.workers && choice.store && choice.compress && choice.model_parallel) {
    Fail("--parallel auto has nothing to choose: workers, store, compress and model_parallel are all given");
  }
  if (run.has_actors()) {
    Fail("--parallel auto tries workers that collect for themselves: it does not go together with actors");
  }
  if (!run.schedule.empty()) {
    Fail(
        "--parallel auto does not go together with schedule, which is an order of workers that are known: "
        "say --workers");
  }
  if (run.store_entry().on_servers && run.server.local() == 0) {
    Fail(
        "--parallel auto cannot try servers = {}: they take up the first run that comes. Say --compress and "
        "--workers, which `trireme plan` predicts",
        run.server.addresses);
  }
  return choice;
}

constexpr double kSecondsToChoose = 1;

constexpr std::size_t kMostLinks = 8;  // to be printed

void PrintWorkers(const RunFacts& facts) {
  for (std::size_t i = 0; i < facts.per_worker.size(); ++i) {
    const WorkerFacts& worker = facts.per_worker[i];
    const double total_s = worker.busy_s + worker.idle_s;
    fmt::print("worker {}: {} steps, busy {:.2f} s, idle {:.2f} s ({:.0f} %)", i,
               FormatCount(static_cast<double>(worker.steps)), worker.busy_s, worker.idle_s,
               total_s > 0 ? 100 * worker.idle_s / total_s : 0.0);
    if (!facts.compress.empty()) {
      fmt::print("; {} saved {}, took {:.2f} s to compress and {:.2f} s to decompress", facts.compress,
                 FormatBytes(static_cast<std::uint64_t>(std::max<std::int64_t>(0, worker.bytes_saved))),
                 worker.compress_s, worker.decompress_s);
    }
    fmt::print("\n");
  }
  if (facts.messages_sent > 0) {
    fmt::print("sent: {} in {} messages", FormatBytes(facts.bytes_sent),
               FormatCount(static_cast<double>(facts.messages_sent)));
    if (const auto rounds = static_cast<double>(facts.rounds); rounds > 0) {
      fmt::print("; for each of {} updates {:.0f} bytes in {:.2f}", FormatCount(rounds),
                 static_cast<double>(facts.bytes_sent) / rounds,
                 static_cast<double>(facts.messages_sent) / rounds);
    }
    fmt::print("\n");
  }
  for (std::size_t i = 0; i < facts.links.size(); ++i) {
    if (i == kMostLinks) {
      fmt::print("and {} more links: see result.json\n", facts.links.size() - i);
      break;
    }
    fmt::print("worker {} to {}: {}\n", facts.links[i].worker, facts.links[i].to, LinkText(facts.links[i]));
  }
  for (std::size_t i = 0; i < facts.model_bytes.size(); ++i) {
    fmt::print("worker {} holds {} of parameters and moments", i, FormatBytes(facts.model_bytes[i]));
    if (i < facts.bubbles.size()) {
      fmt::print("; idle {:.1f} % of its updates ({:.1f} % by the formula)", 100 * facts.bubbles[i],
                 100 * facts.expected_bubble);
    }
    fmt::print("\n");
  }
  if (!facts.lag.empty()) {
    fmt::print("policies of actors were {:.2f} versions behind, at most {}; {} trajectories too old\n",
               facts.lag_mean, facts.lag_most, facts.too_old);
  }
  if (!facts.inference_batches.empty()) {
    fmt::print("central inference: {:.1f} environments at a time, answered after {:.0f} us (means)\n",
               facts.inference_batch_mean, facts.inference_latency_us_mean);
  }
  if (!facts.staleness.empty()) {
    fmt::print("staleness of gradients: mean {:.2f}, most {} versions\n", facts.staleness_mean,
               facts.staleness_most);
  }
}

void PrintReport(const TrainResult& result, const RunFolder& folder) {
  const RunFacts& facts = result.facts;
  fmt::print("{} on {}: {} steps in {} ({} steps/s, {} of processor time, {} workers, seed {})\n", facts.algo,
             facts.task(), FormatCount(static_cast<double>(facts.steps)), FormatDuration(facts.wall_s),
             FormatCount(facts.steps_per_s), FormatDuration(facts.cpu_s), facts.workers, facts.seed);
  if (std::isfinite(facts.predicted_steps_per_s))
    fmt::print("steps/s while training: {}\n", PredictionText(facts));
  if (facts.eval_episodes > 0) {
    fmt::print("evaluation: {:.1f} +- {:.1f} over {} episodes on seeds never trained on\n",
               facts.eval_return_mean, facts.eval_return_std, facts.eval_episodes);
  }
  if (facts.best_steps) {
    fmt::print("best evaluation: {:.1f} +- {:.1f} after {} steps; its policy is kept too\n",
               facts.best_return_mean, facts.best_return_std,
               FormatCount(static_cast<double>(*facts.best_steps)));
  }
  if (facts.reached_target) {
    fmt::print("target {:g} reached after {} steps, {:.2f} s\n", facts.target.value_or(0),
               FormatCount(static_cast<double>(*facts.steps_to_target)), *facts.time_to_target_s);
  }
  if (facts.env_failures > 0) {
    fmt::print("environments failed {} times and were made anew; the last time {}\n", facts.env_failures,
               facts.env_last_failure);
  }
  if (!facts.env_warning.empty()) fmt::print("rules that the environment breaks: {}\n", facts.env_warning);
  PrintWorkers(facts);
  fmt::print("parameters: sha256 {}\n", facts.params_sha256);
  fmt::print("report: {}\n", (folder.path() / "report.html").string());
}

int RunTrain(const TrainFlags& flags, double started_s) {
  const JsonOutput json(flags.json);
  CheckParallel(flags);
  Processes* processes = ConnectProcesses();
  const bool first = processes == nullptr || processes->rank() == 0;
  std::optional<RunFolder> folder;
  if (first && !flags.resume.empty()) folder = RunFolder::Resume(flags.resume);
  const std::unique_ptr<RunSettings> settings =
      flags.resume.empty() ? SettingsOfNewRun(flags)
                           : SettingsOfOldRun(flags, folder ? &*folder : nullptr, processes);
  TrainOptions options{.json = flags.json,
                       .started_s = started_s,
                       .started_cpu_s = 0,
                       .stop = &StopOnSignals(),
                       .processes = processes,
                       .security = flags.security.Read(),
                       .server_program = "/proc/self/exe",
                       .audit = flags.audit,
                       .say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); }};
  const int processors = processes == nullptr ? UsableProcessors() : processes->processors();
  if (!flags.parallel.empty()) {
    const GivenChoice given = GivenBy(flags, *settings);
    const std::string line = ChooseParallel(given, options, processors, kSecondsToChoose, *settings);
    if (first && !flags.json) fmt::print(stderr, "{}\n", line);
  } else {
    settings->Resolve(processes == nullptr ? 1 : processes->size(), processors);
  }
  if (processes != nullptr) AgreeOnSettings(*settings, Version(), *processes);
  const RunConfig& run = settings->run;
  options.straggler = ParseStraggler(flags.straggler, run.total_workers());
  if (!first) {
    TrainAlong(*settings, options);
    return 0;
  }
  if (!folder) {
    folder = RunFolder::Create(flags.out, run.Name(), settings->fields.ToToml());
  }
  const TrainResult result = [&] {
    try {
      return Train(*settings, *folder, options);
    } catch (const Error&) {
      folder->RemoveIfUnused();
      throw;
    }
  }();
  if (flags.json) {
    json.Print(ResultJson(result.facts));
  } else {
    PrintReport(result, *folder);
    std::fflush(stdout);  // before what follows on standard error
  }
  if (result.interrupted) {
    fmt::print(stderr, "interrupted; a checkpoint was written. Continue with: trireme train --resume {}\n",
               folder->path().string());
    return InterruptedCode();
  }
  if (!flags.json && result.nothing_to_do) ExplainNothingDone(result.facts, run);
  return 0;
}

}  // namespace

Command AddTrainCommand(CommandLine& program, double started_s) {
  CommandLine& command = program.AddCommand("train", "Train an agent, or continue a run");
  auto flags = std::make_shared<TrainFlags>();
  AddEnvOptions(command, *flags);
  command.Option("--algo", flags->algo, "algorithm (ppo unless said); `trireme algos` lists them");
  command.Option("--workers", flags->workers,
                 "threads that train, in each process; in step the result does not depend on it");
  command.Option(
      "--actors", flags->actors,
      "impala, appo, apex: threads that only collect, for workers that then only learn (0: workers do both)");
  command.Option(
      "--listen", flags->listen,
      "impala, appo, apex: host:port, or shm:/path for this host, where actors of other processes may "
      "join (trireme actor --learner)");
  command.Option(
      "--replay", flags->replay,
      "apex: host:port,host:port of replay servers (trireme replay) that remember what actors collect");
  command.Option(
      "--inference", flags->inference,
      "actors: local (each evaluates the network for itself) or central (the learner's process does, "
      "for all together)");
  command.Option("--store", flags->store, StoresHelp());
  command.Option("--device", flags->device,
                 "what computes networks: fused (the default), or by libtorch cpu, cuda or cuda:0,cuda:1");
  command.Option(
      "--precision", flags->precision,
      "fp32, bf16 or fp16: bits of weights in use, activations, their gradients and gradients that are "
      "sent. Where the processor has products of bf16 (AVX512-BF16) they are used, else, and for fp16, "
      "products are of 32 bits");
  command.Option("--model-parallel", flags->model_parallel,
                 "workers that compute one network together: tensor=N, or pipeline=N,micro_batches=M (none)");
  command.Option("--parallel", flags->parallel,
                 "auto: tries for a second which workers, store, codec and split of the network are fastest "
                 "here and takes them; "
                 "what is given by other flags stays. It may take a lossy codec, or workers on their own, "
                 "for more than 10 % of speed, and says so");
  command.Option("--servers", flags->servers,
                 "store server: how many to start here, or where they are: host:port,unix:/path,shm:/path");
  command.Flag("--sync", flags->sync, "store server: workers in step");
  command.Flag("--async", flags->async, "store server: every worker on its own");
  command.Option("--ssp", flags->ssp, "store server: nobody more than this many pushes ahead of the slowest");
  command.Option("--backup-workers", flags->backup_workers,
                 "store server, in step: a round does not wait for this many slowest workers");
  command.Option(
      "--compress", flags->compress,
      "gradients and parameters between processes in fewer bytes: fp16, bf16, int8, onebit, topk=0.01, "
      "powersgd=4, none (auto: as --precision)");
  command.Option("--local-steps", flags->local_steps,
                 "store allreduce: workers average their parameters every so many updates instead of summing "
                 "gradients at each; the result then depends on the number of workers");
  command.Option("--steps", flags->steps, "environment steps to train for");
  command.Option("--target", flags->target, "stop at the first evaluation with this mean return");
  command.Option("--seed", flags->seed, "what all randomness follows from");
  command.Option("--straggler", flags->straggler,
                 "slow one worker down to see the effect: worker=1,factor=5");
  command.Option("--config", flags->config, "settings from a TOML file, over the preset's");
  command.Option("--out", flags->out, "folder for the run (a fresh one below runs/)");
  command.Option("--resume", flags->resume, "continue the run in this folder");
  command.Option("--set", flags->assignments, "key=value, any setting; may be repeated");
  command.Flag("--audit", flags->audit,
               "store server: list every acknowledged push in the folder of the run");
  flags->security.AddTo(command, "who signs the servers");
  command.Flag("--json", flags->json, "print the result as one line of JSON and nothing else");
  command.Footer(
      "Settings come from defaults < preset of the environment < --config < flags < --set.\n"
      "`trireme algos ppo` lists all keys of --set but those of the environment, which `trireme envs NAME` "
      "lists.");
  return [flags, started_s] { return RunTrain(*flags, started_s); };
}

}  // namespace trireme
