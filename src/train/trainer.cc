#include "trireme/train/trainer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/comm/group_of_one.h"
#include "trireme/nn/bf16_products.h"
#include "trireme/nn/make_executor.h"
#include "trireme/server/client/server_link.h"
#include "trireme/train/actors.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/evaluator.h"
#include "trireme/train/render.h"
#include "trireme/train/report_writer.h"
#include "trireme/train/run_state.h"
#include "trireme/train/trained_policy.h"
#include "trireme/train/worker.h"

namespace trireme {
namespace {

std::vector<float> InitialParams(const Network& network, std::uint64_t seed) {
  std::vector<float> params(network.param_count());
  network.Initialise(seed, params);
  return params;
}

std::string ParamsSha256(std::span<const float> params) {
  const auto bytes = std::as_bytes(params);
  return Sha256Hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

RunFacts MakeFacts(const RunSettings& settings, const RunProgress& progress, std::string params_sha256) {
  const RunConfig& run = settings.run;
  RunFacts facts;
  facts.env = run.env;
  facts.env_options = run.env_options;
  facts.env_note = settings.env().spec.note;
  facts.algo = run.algo;
  facts.store = run.store;
  facts.device = run.device;
  facts.precision = NameOf(run.precision);
  facts.products = run.ProductsFor(settings.algorithm->MakeNetwork(settings.env().spec));
  if (run.gradient_codec() != kNoCodec) facts.compress = run.gradient_codec();
  facts.workers = run.total_workers();
  facts.actors = run.processes * run.actors;
  facts.model_parallel = run.model_parallel;
  facts.seed = run.seed;
  facts.steps = progress.steps;
  facts.wall_s = progress.wall_s;
  facts.cpu_s = progress.cpu_s;
  facts.steps_per_s = progress.wall_s > 0 ? static_cast<double>(progress.steps) / progress.wall_s : 0;
  facts.eval_return_mean = progress.eval_mean;
  facts.eval_return_std = progress.eval_std;
  facts.eval_episodes = progress.eval_steps < 0 ? 0 : run.eval_episodes;
  facts.eval_cut_off = progress.eval_cut_off;
  facts.best_return_mean = progress.best.mean;
  facts.best_return_std = progress.best.std;
  if (progress.best.exists()) facts.best_steps = progress.best.steps;
  facts.target = run.target;
  facts.reached_target = progress.reached;
  if (progress.reached) {
    facts.time_to_target_s = progress.time_to_target_s;
    facts.steps_to_target = progress.steps_to_target;
  }
  facts.params_sha256 = std::move(params_sha256);
  facts.bytes_sent = progress.bytes;
  facts.messages_sent = progress.messages;
  facts.rounds = progress.rounds;
  facts.experience_bytes = settings.ExperienceBytes();
  return facts;
}

// Gives every process the checkpoint that the first one has read.
std::optional<StateReader> ShareCheckpoint(const std::optional<StateReader>& read, Communicator& processes) {
  std::string bytes = read ? read->Encode() : "";
  processes.Broadcast(bytes);
  if (bytes.empty()) return std::nullopt;
  return read ? read : StateReader(bytes);
}

// The name under which replay servers know a run, the same in all its processes and whenever it goes on. Processes that only parameter
// servers connect have no folder in common, and these serve one run at a time.
std::string RunIdOf(const RunConfig& run, const RunFolder* folder, Communicator* processes) {
  if (!run.on_replay_servers()) return "";
  if (run.store_entry().on_servers && run.server.local() == 0)
    return Sha256Hex(fmt::format("{} {}", run.server.addresses, run.seed)).substr(0, 16);
  const bool first = processes == nullptr || processes->rank() == 0;
  std::string id = !first ? "" : folder != nullptr ? folder->Id() : NewRunId();
  if (processes != nullptr) processes->Broadcast(id);
  return id;
}

bool IsServerLost(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const ServerLost&) {
    return true;
  } catch (...) {
  }
  return false;
}

// How the workers of a process ended; in other processes than the first it means nothing.
struct Ended {
  RunProgress progress;
  std::vector<WorkerAccount> accounts;
  std::vector<float> params;
  bool interrupted = false;
  bool nothing_to_do = false;
};

Ended RunWorkers(const RunSettings& settings, const RunFolder* folder, const TrainOptions& options,
                 std::optional<StateReader> checkpoint) {
  RequireDevices(ParseDevices(settings.run.device), settings.run.precision);
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  const std::vector<float> initial =
      checkpoint ? std::vector<float>(network.param_count()) : InitialParams(network, settings.run.seed);
  RunContext context{settings, network, options,
                     folder,   initial, RunIdOf(settings.run, folder, options.processes)};
  Actors actors(context);
  if (settings.run.has_actors()) context.actors = &actors;
  const std::unique_ptr<Topology> topology = settings.run.store_entry().make(context);
  const EnvStopScope env_stop(settings.env().processes, [&] {
    return topology->failed() || actors.ending() || (options.stop != nullptr && options.stop->load());
  });
  std::vector<std::exception_ptr> errors(settings.run.workers);
  std::unique_ptr<Worker> first;
  bool nothing_to_do = false;

  // A worker that fails leaves its error and releases the others; the first error is the cause, the rest
  // follow from it.
  std::atomic<int> failed_thread{-1};
  // Each worker lets go of the checkpoint once it has loaded its part: it may hold a large replay.
  std::vector<std::optional<StateReader>> checkpoints(settings.run.workers, checkpoint);
  checkpoint.reset();
  const auto body = [&](int thread) {
    try {
      auto worker =
          std::make_unique<Worker>(context, *topology, thread, std::exchange(checkpoints[thread], {}));
      if (thread == 0) nothing_to_do = worker->Done();
      worker->Run();
      if (thread == 0) first = std::move(worker);
    } catch (...) {
      // One that was stopped while it waited for a server has not failed; the first one says what was kept.
      const bool stopped = options.stop != nullptr && options.stop->load();
      if (thread == 0 || !stopped || !IsServerLost(std::current_exception())) {
        errors[thread] = std::current_exception();
        int none = -1;
        failed_thread.compare_exchange_strong(none, thread);
      }
      topology->Abort();
      actors.WorkerFailed();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int thread = 1; thread < settings.run.workers; ++thread) others.emplace_back(body, thread);
    body(0);
  } catch (const std::system_error& error) {
    topology->Abort();
    for (std::thread& thread : others) thread.join();
    Fail("cannot start {} workers: {}", settings.run.workers, error.code().message());
  }
  for (std::thread& thread : others) thread.join();
  const bool stopped = options.stop != nullptr && options.stop->load();
  actors.End(/*over=*/failed_thread < 0 && !stopped);  // while what they wait for can still be told
  // Where servers are lost the first thread says what it has kept.
  if (failed_thread >= 0 && IsServerLost(errors[failed_thread]) && errors[0])
    std::rethrow_exception(errors[0]);
  if (failed_thread >= 0) std::rethrow_exception(errors[failed_thread]);
  return {first->progress(),
          first->accounts(),
          {first->params().begin(), first->params().end()},
          first->interrupted(),
          nothing_to_do};
}

// Steps/s of all workers, in the time that they trained or waited for each other.
double RateOf(const std::vector<WorkerFacts>& workers) {
  double rate = 0;
  for (const WorkerFacts& worker : workers)
    rate += static_cast<double>(worker.steps) / (worker.busy_s + worker.idle_s);
  return rate;
}

TrainResult ResultOf(const RunSettings& settings, Ended ended) {
  TrainResult result{MakeFacts(settings, ended.progress, ParamsSha256(ended.params)), ended.interrupted,
                     std::move(ended.params), ended.nothing_to_do};
  AddAccounts(ended.accounts, settings.run.asynchronous(), result.facts);
  if (settings.run.predicted_steps_per_s > 0) {
    result.facts.predicted_steps_per_s = settings.run.predicted_steps_per_s;
    result.facts.training_steps_per_s = RateOf(result.facts.per_worker) / settings.run.split().members;
  }
  return result;
}

// What goes wrong with pictures is no reason for a run to fail.
ReportStrip StripOf(const RunSettings& settings, const RunFolder& folder, const TrainResult& result,
                    const TrainOptions& options) {
  if (result.interrupted || !result.facts.best_steps) return {};
  const auto stop = [&] { return options.stop != nullptr && options.stop->load(); };
  const EnvStopScope env_stop(settings.env().processes, stop);
  try {
    return {.pictures = RenderStrip(settings, folder, *result.facts.best_steps, stop)};
  } catch (const Error& error) {
    return {.note = fmt::format("There are no pictures: {}", error.what())};
  }
}

}  // namespace

TrainResult Train(const RunSettings& settings, const RunFolder& folder, const TrainOptions& options) {
  std::optional<StateReader> checkpoint = ReadNewestCheckpoint(folder.path());
  if (settings.env().processes != nullptr) settings.env().processes->LogTo(folder.path() / "env.log");
  if (options.processes != nullptr) ShareCheckpoint(checkpoint, *options.processes);
  TrainResult result = ResultOf(settings, RunWorkers(settings, &folder, options, std::move(checkpoint)));
  if (!result.interrupted) WriteFileAtomically(folder.result(), ResultJson(result.facts) + "\n");
  WriteRunReport(folder, result.facts, StripOf(settings, folder, result, options));
  if (options.observer != nullptr) options.observer->OnEnd(result);
  return result;
}

TrainResult Train(const RunSettings& settings, TrainObserver& observer) {
  return Train(settings, observer, TrainOptions());
}

TrainResult Train(const RunSettings& settings, TrainObserver& observer, const TrainOptions& chosen) {
  TrainOptions options = chosen;
  options.observer = &observer;
  if (options.processes != nullptr) ShareCheckpoint(std::nullopt, *options.processes);
  TrainResult result = ResultOf(settings, RunWorkers(settings, nullptr, options, std::nullopt));
  observer.OnEnd(result);
  return result;
}

void TrainAlong(const RunSettings& settings, const TrainOptions& options) {
  RunWorkers(settings, nullptr, options, ShareCheckpoint(std::nullopt, *options.processes));
}

std::optional<RunFacts> EvaluateRun(const RunSettings& settings, const RunFolder& folder, Which which,
                                    int episodes, std::uint64_t seed, const std::atomic<bool>* stop) {
  const auto stop_requested = [&] { return stop != nullptr && stop->load(); };
  const EnvStopScope env_stop(settings.env().processes, stop_requested);
  TrainedPolicy policy(settings, ReadPolicy(folder, which));
  const RunConfig& run = settings.run;
  GroupOfOne alone;
  Evaluator evaluator(settings.env(), run.EvaluationOf(seed, episodes));
  const std::optional<Evaluation> evaluation =
      evaluator.Run(policy.algorithm(), alone.comm(), 0, run.shards, {.requested = stop_requested});
  if (!evaluation) return std::nullopt;
  RunProgress progress = policy.progress();
  progress.eval_mean = evaluation->mean;
  progress.eval_std = evaluation->std;
  progress.eval_cut_off = evaluation->cut_off;
  RunFacts facts = MakeFacts(settings, progress, ParamsSha256(policy.params()));
  if (const auto& processes = settings.env().processes; processes != nullptr) {
    const EnvFailures failures = processes->failures();
    facts.env_failures = failures.count;
    facts.env_last_failure = failures.last;
    facts.env_warning = failures.warning;
  }
  facts.device = Device().name();  // of TrainedPolicy, which computes in 32 bits
  facts.precision = NameOf(Precision::kFp32);
  facts.products = NameOf(Products::kFp32);
  facts.eval_episodes = episodes;
  facts.which = policy.which() == Which::kBest ? "best" : "last";
  return facts;
}

}  // namespace trireme
