#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/file.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/report_writer.h"
#include "train/run_state.h"
#include "train/worker.h"

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
  facts.algo = run.algo;
  facts.store = run.store;
  facts.workers = run.workers;
  facts.seed = run.seed;
  facts.steps = progress.steps;
  facts.wall_s = progress.wall_s;
  facts.cpu_s = progress.cpu_s;
  facts.steps_per_s = progress.wall_s > 0 ? static_cast<double>(progress.steps) / progress.wall_s : 0;
  facts.eval_return_mean = progress.eval_mean;
  facts.eval_return_std = progress.eval_std;
  facts.eval_episodes = progress.eval_steps < 0 ? 0 : run.eval_episodes;
  facts.target = run.target;
  facts.reached_target = progress.reached;
  if (progress.reached) {
    facts.time_to_target_s = progress.time_to_target_s;
    facts.steps_to_target = progress.steps_to_target;
  }
  facts.params_sha256 = std::move(params_sha256);
  facts.bytes_sent = progress.bytes;
  facts.messages_sent = progress.messages;
  facts.experience_bytes = settings.ExperienceBytes();
  return facts;
}

void AddAccounts(const WorkerGroup& group, RunFacts& facts) {
  Staleness staleness;
  for (const WorkerAccount& account : group.accounts) {
    facts.per_worker.push_back(account.facts);
    staleness += account.staleness;
  }
  if (!group.shared) return;
  const auto end = std::find_if(staleness.pushes.rbegin(), staleness.pushes.rend(),
                                [](std::uint64_t count) { return count > 0; });
  facts.staleness.assign(staleness.pushes.begin(), end.base());
  facts.staleness_mean = staleness.mean();
  facts.staleness_most = staleness.most;
}

}  // namespace

TrainResult Train(const RunSettings& settings, const RunFolder& folder, const TrainOptions& options) {
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  const FolderLock lock(folder);
  std::optional<StateReader> checkpoint = ReadNewestCheckpoint(folder.path());
  const std::vector<float> initial =
      checkpoint ? std::vector<float>(network.param_count()) : InitialParams(network, settings.run.seed);
  WorkerGroup group(settings.run, settings.algorithm->optimizer(), initial);
  std::vector<std::exception_ptr> errors(settings.run.workers);
  std::unique_ptr<Worker> first;

  // A worker that fails leaves its error and releases the others; the first error is the cause, the rest
  // follow from it.
  std::atomic<int> failed_rank{-1};
  // Each worker lets go of the checkpoint once it has loaded its part: it may hold a large replay.
  std::vector<std::optional<StateReader>> checkpoints(settings.run.workers, checkpoint);
  checkpoint.reset();
  const auto body = [&](int rank) {
    try {
      auto worker = std::make_unique<Worker>(settings, network, folder, options, group, rank, initial,
                                             std::exchange(checkpoints[rank], {}));
      worker->Run();
      if (rank == 0) first = std::move(worker);
    } catch (...) {
      errors[rank] = std::current_exception();
      int none = -1;
      failed_rank.compare_exchange_strong(none, rank);
      group.Abort();
    }
  };
  std::vector<std::thread> others;
  try {
    for (int rank = 1; rank < settings.run.workers; ++rank) others.emplace_back(body, rank);
    body(0);
  } catch (const std::system_error& error) {
    group.Abort();
    for (std::thread& thread : others) thread.join();
    Fail("cannot start {} workers: {}", settings.run.workers, error.code().message());
  }
  for (std::thread& thread : others) thread.join();
  if (failed_rank >= 0) std::rethrow_exception(errors[failed_rank]);

  TrainResult result{MakeFacts(settings, first->progress(), ParamsSha256(first->params())),
                     first->interrupted()};
  AddAccounts(group, result.facts);
  first.reset();  // ends the progress line
  if (!result.interrupted) WriteFileAtomically(folder.result(), ResultJson(result.facts) + "\n");
  WriteRunReport(folder, result.facts);
  return result;
}

RunFacts EvaluateRun(const RunSettings& settings, const RunFolder& folder, int episodes, std::uint64_t seed) {
  const std::optional<StateReader> checkpoint = ReadNewestCheckpoint(folder.path());
  if (!checkpoint) Fail("{} holds no checkpoint yet: nothing to evaluate", folder.path().string());
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  RunConfig run = settings.run;
  if (!run.asynchronous()) run.workers = 1;
  WorkerGroup group(run, settings.algorithm->optimizer(), std::vector<float>(network.param_count()));
  ThreadGroup alone(1);
  ThreadCommunicator comm(alone, 0);
  const auto store = group.shared ? MakeSharedStore(*group.shared, 0, nullptr)
                                  : MakeAllReduceStore(comm, settings.algorithm->optimizer(),
                                                       std::vector<float>(network.param_count()));
  const auto algorithm = settings.algorithm->Make({.env = settings.env(),
                                                   .network = network,
                                                   .store = *store,
                                                   .seed = run.seed,
                                                   .shards = run.shards,
                                                   .first_shard = 0,
                                                   .own_shards = run.shards});
  RunProgress progress;
  LoadRunState(*checkpoint, folder, run, network, 0, progress, *store, *algorithm);
  const Evaluator evaluator(settings.env(), seed, episodes, settings.run.shards);
  const Evaluation evaluation = evaluator.Run(*algorithm, comm, 0, settings.run.shards);
  progress.eval_mean = evaluation.mean;
  progress.eval_std = evaluation.std;
  RunFacts facts = MakeFacts(settings, progress, ParamsSha256(store->params()));
  facts.eval_episodes = episodes;
  return facts;
}

}  // namespace trireme
