#include "train/trainer.h"

#include <time.h>

#include <cmath>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "base/file.h"
#include "comm/thread_communicator.h"
#include "metrics/jsonl.h"
#include "metrics/progress.h"
#include "metrics/tensorboard.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/report_writer.h"

namespace trireme {
namespace {

double ClockSeconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double CpuSeconds() { return ClockSeconds(CLOCK_PROCESS_CPUTIME_ID); }

// What happened so far in the whole run, interruptions included. Part of every checkpoint. Every worker holds
// the same counts; times are rank 0's.
struct RunProgress {
  std::int64_t steps = 0;
  std::int64_t next_eval = 0;
  double wall_s = 0, cpu_s = 0;           // of earlier processes of this run
  std::uint64_t bytes = 0, messages = 0;  // of earlier processes of this run, over all workers
  double eval_mean = std::numeric_limits<double>::quiet_NaN();
  double eval_std = std::numeric_limits<double>::quiet_NaN();
  std::int64_t eval_steps = -1;  // when the last evaluation was
  double target = 0;             // what `reached` is about
  bool reached = false;
  double time_to_target_s = 0;
  std::int64_t steps_to_target = 0;
  std::uint64_t metrics_offset = 0;

  // A resumed run may have been given another target: its last evaluation is then judged anew.
  void AimAt(double new_target) {
    if (new_target == target) return;
    target = new_target;
    reached = eval_steps >= 0 && eval_mean >= target;
    time_to_target_s = wall_s;
    steps_to_target = eval_steps;
  }

  template <class Visitor>
  void Visit(Visitor&& visit) {
    visit("progress/steps", steps);
    visit("progress/next_eval", next_eval);
    visit("progress/wall_s", wall_s);
    visit("progress/cpu_s", cpu_s);
    visit("progress/bytes", bytes);
    visit("progress/messages", messages);
    visit("progress/eval_mean", eval_mean);
    visit("progress/eval_std", eval_std);
    visit("progress/eval_steps", eval_steps);
    visit("progress/target", target);
    visit("progress/reached", reached);
    visit("progress/time_to_target_s", time_to_target_s);
    visit("progress/steps_to_target", steps_to_target);
    visit("progress/metrics_offset", metrics_offset);
  }
};

// What rank 0 decided after an iteration.
struct Decision {
  bool evaluate = false, checkpoint = false, stop = false;
};

// What the workers of a run share. Each slot belongs to one worker; rank 0 reads the others' only after a
// barrier.
struct Shared {
  Shared(int workers) : group(workers), saved(workers), traffic(workers), errors(workers) {}
  ThreadGroup group;
  std::vector<StateWriter> saved;
  std::vector<Traffic> traffic;
  std::vector<std::exception_ptr> errors;
};

// What only rank 0 has: files and the line a person watches.
class Chronicle {
 public:
  Chronicle(const RunFolder& folder, const RunProgress& progress, bool resumed, bool json)
      : jsonl_(folder.metrics(), progress.metrics_offset),
        tensorboard_(folder.path(), resumed ? std::optional<std::int64_t>(progress.steps) : std::nullopt),
        printer_(2, ChooseProgressStyle(2, json)) {}

  void Append(const MetricRow& row) {
    jsonl_.Append(row);
    tensorboard_.Append(row);
  }
  std::uint64_t offset() const { return jsonl_.Offset(); }
  ProgressPrinter& printer() { return printer_; }

 private:
  JsonlWriter jsonl_;
  TensorBoardWriter tensorboard_;
  ProgressPrinter printer_;
};

class Worker {
 public:
  Worker(const RunSettings& settings, const Network& network, const RunFolder& folder,
         const TrainOptions& options, Shared& shared, int rank, const std::optional<StateReader>& checkpoint);

  // Blocks until the run ends. Throws Error.
  void Run();

  // Of rank 0, after Run.
  const RunProgress& progress() const { return progress_; }
  bool interrupted() const { return interrupted_; }
  std::string ParamsSha256() {
    const auto bytes = std::as_bytes(store_->Pull());
    return Sha256Hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

 private:
  bool leader() const { return comm_.rank() == 0; }
  double WallSeconds() const { return earlier_wall_s_ + MonotonicSeconds() - options_.started_s; }
  Decision Decide(bool evaluated);
  Decision Announce(Decision decision);
  void Evaluate(MetricRow& row);
  void Checkpoint();
  void Report(const MetricRow& row);

  const RunSettings& settings_;
  const RunConfig& run_;
  const Network& network_;
  const RunFolder& folder_;
  const TrainOptions& options_;
  Shared& shared_;
  ThreadCommunicator comm_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Algorithm> algorithm_;
  Evaluator evaluator_;
  RunProgress progress_;
  double earlier_wall_s_ = 0, earlier_cpu_s_ = 0;
  Traffic earlier_traffic_;
  std::int64_t first_step_ = 0;  // of this process
  double last_checkpoint_s_ = 0;
  bool interrupted_ = false;
  double best_eval_ = -std::numeric_limits<double>::infinity();  // of this process, for the reader
  std::unique_ptr<Chronicle> chronicle_;                         // rank 0 only
};

std::vector<float> InitialParams(const Network& network, std::uint64_t seed) {
  std::vector<float> params(network.param_count());
  network.Initialise(seed, params);
  return params;
}

// "policy 4-64-64-2 tanh, value 4-64-64-1 tanh": the same parameters mean something else in another network,
// even where their number is the same.
std::string Describe(const NetworkSpec& spec) {
  constexpr const char* kActivations[] = {"tanh", "relu", "elu", "silu"};
  std::string text;
  for (const TowerSpec& tower : spec.towers) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", tower.name, tower.inputs);
    for (const int units : tower.hidden) text += fmt::format("-{}", units);
    text += fmt::format("-{} {}", tower.outputs, kActivations[static_cast<int>(tower.activation)]);
  }
  return text;
}

// What a checkpoint must have in common with the settings it is loaded into.
std::vector<std::pair<std::string, std::string>> Identity(const RunConfig& run, const Network& network) {
  return {{"env", run.env},
          {"algo", run.algo},
          {"seed", fmt::format("{}", run.seed)},
          {"shards", fmt::format("{}", run.shards)},
          {"network", Describe(network.spec())}};
}

void LoadState(const StateReader& checkpoint, const RunFolder& folder, const RunConfig& run,
               const Network& network, RunProgress& progress, ParameterStore& store, Algorithm& algorithm) {
  try {
    for (const auto& [name, value] : Identity(run, network)) {
      const std::string& saved = checkpoint.GetText("run/" + name);
      if (saved != value) Fail("it was made with {} {}, not {}", name, saved, value);
    }
    progress.Visit([&](const char* name, auto& value) {
      value = checkpoint.GetValue<std::decay_t<decltype(value)>>(name);
    });
    store.Load(checkpoint);
    algorithm.Load(checkpoint);
  } catch (const Error& error) {
    Fail("the checkpoint in {} does not fit the settings: {}", folder.path().string(), error.what());
  }
}

Worker::Worker(const RunSettings& settings, const Network& network, const RunFolder& folder,
               const TrainOptions& options, Shared& shared, int rank,
               const std::optional<StateReader>& checkpoint)
    : settings_(settings),
      run_(settings.run),
      network_(network),
      folder_(folder),
      options_(options),
      shared_(shared),
      comm_(shared.group, rank),
      store_(MakeAllReduceStore(comm_, settings.algorithm->optimizer(), InitialParams(network, run_.seed))),
      evaluator_(settings.env(), run_.seed, run_.eval_episodes, run_.shards) {
  const int own = run_.shards / run_.workers;
  algorithm_ = settings.algorithm->Make({.env = settings.env(),
                                         .network = network,
                                         .store = *store_,
                                         .seed = run_.seed,
                                         .shards = run_.shards,
                                         .first_shard = rank * own,
                                         .own_shards = own});
  progress_.next_eval = run_.eval_every;
  if (checkpoint) LoadState(*checkpoint, folder, run_, network, progress_, *store_, *algorithm_);
  progress_.AimAt(run_.target);
  earlier_wall_s_ = progress_.wall_s;
  earlier_cpu_s_ = progress_.cpu_s;
  earlier_traffic_ = {progress_.bytes, progress_.messages};
  first_step_ = progress_.steps;
  last_checkpoint_s_ = MonotonicSeconds();
  if (!leader()) return;
  // Settings changed for a resume are recorded once the checkpoint is known to fit them.
  const std::string config = settings.fields.ToToml();
  if (folder.ReadConfig() != config) folder.WriteConfig(config);
  chronicle_ = std::make_unique<Chronicle>(folder, progress_, checkpoint.has_value(), options.json);
}

void Worker::Run() {
  const bool done_before = progress_.steps >= run_.steps || (run_.stop_at_target && progress_.reached);
  while (!done_before) {
    MetricRow row(progress_.steps + algorithm_->steps_per_iteration(), 0);
    algorithm_->Iterate(static_cast<double>(progress_.steps) / static_cast<double>(run_.steps), row);
    progress_.steps += algorithm_->steps_per_iteration();
    Decision decision = Announce(Decide(false));
    if (decision.evaluate) {
      Evaluate(row);
      decision = Announce(Decide(true));
    }
    if (leader()) Report(row);
    if (decision.checkpoint) Checkpoint();
    if (decision.stop) break;
  }
}

// Rank 0 decides for all; before an evaluation whether one is due, after it (or without it) what follows.
Decision Worker::Decide(bool evaluated) {
  Decision decision;
  if (!leader()) return decision;
  const bool finished = progress_.steps >= run_.steps;
  const bool due = run_.eval_every > 0 && progress_.steps >= progress_.next_eval;
  decision.evaluate = !evaluated && (finished || due);
  if (decision.evaluate) return decision;
  const bool done = finished || (run_.stop_at_target && progress_.reached);
  interrupted_ = !done && options_.stop != nullptr && options_.stop->load();
  decision.stop = done || interrupted_;
  decision.checkpoint = decision.stop || MonotonicSeconds() - last_checkpoint_s_ >= run_.checkpoint_every_s;
  return decision;
}

Decision Worker::Announce(Decision decision) {
  double bits[] = {static_cast<double>(decision.evaluate), static_cast<double>(decision.checkpoint),
                   static_cast<double>(decision.stop)};
  comm_.Broadcast(bits, 0);
  return {bits[0] != 0, bits[1] != 0, bits[2] != 0};
}

void Worker::Evaluate(MetricRow& row) {
  const int own = run_.shards / run_.workers;
  const Evaluation evaluation = evaluator_.Run(*algorithm_, comm_, comm_.rank() * own, own);
  while (run_.eval_every > 0 && progress_.next_eval <= progress_.steps)
    progress_.next_eval += run_.eval_every;
  progress_.eval_mean = evaluation.mean;
  progress_.eval_std = evaluation.std;
  progress_.eval_steps = progress_.steps;
  row.Set("eval_return_mean", evaluation.mean);
  row.Set("eval_return_std", evaluation.std);
  if (leader() && !(evaluation.mean <= best_eval_)) {
    best_eval_ = evaluation.mean;
    chronicle_->printer().Note(fmt::format("{:>8} steps  {:>6.2f} s  best evaluation so far {:.1f} +- {:.1f}",
                                           FormatCount(static_cast<double>(progress_.steps)), WallSeconds(),
                                           evaluation.mean, evaluation.std));
  }
  if (!progress_.reached && evaluation.mean >= run_.target) {
    progress_.reached = true;
    progress_.time_to_target_s = WallSeconds();
    progress_.steps_to_target = progress_.steps;
  }
}

// Every worker leaves its shards' state in its slot; rank 0 adds what is common and writes the file while the
// others wait, so that a failure to write reaches everyone.
void Worker::Checkpoint() {
  StateWriter& own = shared_.saved[comm_.rank()];
  own = {};
  algorithm_->SaveShards(own);
  shared_.traffic[comm_.rank()] = comm_.traffic();
  comm_.Barrier();
  if (leader()) {
    StateWriter state;
    for (StateWriter& part : shared_.saved) state.Merge(std::move(part));
    algorithm_->SaveCommon(state);
    store_->Save(state);
    for (const auto& [name, value] : Identity(run_, network_)) state.PutText("run/" + name, value);
    progress_.wall_s = WallSeconds();
    progress_.cpu_s = earlier_cpu_s_ + CpuSeconds();
    progress_.bytes = earlier_traffic_.bytes;
    progress_.messages = earlier_traffic_.messages;
    for (const Traffic& traffic : shared_.traffic) {
      progress_.bytes += traffic.bytes;
      progress_.messages += traffic.messages;
    }
    progress_.metrics_offset = chronicle_->offset();
    progress_.Visit([&](const char* name, auto& value) { state.PutValue(name, value); });
    WriteCheckpoint(folder_.path(), progress_.steps, state);
    last_checkpoint_s_ = MonotonicSeconds();
  }
  comm_.Barrier();
}

void Worker::Report(const MetricRow& measured) {
  const double wall_s = WallSeconds();
  const double rate =
      static_cast<double>(progress_.steps - first_step_) / (MonotonicSeconds() - options_.started_s);
  MetricRow row(progress_.steps, wall_s);
  row.Set("steps_per_s", rate);
  for (const auto& [name, value] : measured.values()) row.Set(name, value);
  chronicle_->Append(row);
  chronicle_->printer().Update({.steps = progress_.steps,
                                .total_steps = run_.steps,
                                .wall_s = wall_s,
                                .steps_per_s = rate,
                                .episode_return = row.Get("episode_return_mean"),
                                .eval_return = progress_.eval_mean,
                                .target = run_.stop_at_target ? run_.target : Progress::kUnknown});
}

RunFacts MakeFacts(const RunConfig& run, const RunProgress& progress, std::string params_sha256) {
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
  return facts;
}

}  // namespace

double MonotonicSeconds() { return ClockSeconds(CLOCK_MONOTONIC); }

TrainResult Train(const RunSettings& settings, const RunFolder& folder, const TrainOptions& options) {
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  const FolderLock lock(folder);
  const std::optional<StateReader> checkpoint = ReadNewestCheckpoint(folder.path());
  Shared shared(settings.run.workers);
  std::unique_ptr<Worker> first;

  // A worker that fails leaves its error and releases the others; the first error is the cause, the rest
  // follow from it.
  std::atomic<int> failed_rank{-1};
  const auto body = [&](int rank) {
    try {
      auto worker = std::make_unique<Worker>(settings, network, folder, options, shared, rank, checkpoint);
      worker->Run();
      if (rank == 0) first = std::move(worker);
    } catch (...) {
      shared.errors[rank] = std::current_exception();
      int none = -1;
      failed_rank.compare_exchange_strong(none, rank);
      ThreadCommunicator(shared.group, rank).Abort();
    }
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < settings.run.workers; ++rank) others.emplace_back(body, rank);
  body(0);
  for (std::thread& thread : others) thread.join();
  if (failed_rank >= 0) std::rethrow_exception(shared.errors[failed_rank]);

  TrainResult result{MakeFacts(settings.run, first->progress(), first->ParamsSha256()), first->interrupted()};
  first.reset();  // ends the progress line
  WriteFileAtomically(folder.result(), ResultJson(result.facts) + "\n");
  WriteRunReport(folder, settings, result.facts);
  return result;
}

RunFacts EvaluateRun(const RunSettings& settings, const RunFolder& folder, int episodes, std::uint64_t seed) {
  const std::optional<StateReader> checkpoint = ReadNewestCheckpoint(folder.path());
  if (!checkpoint) Fail("{} holds no checkpoint yet: nothing to evaluate", folder.path().string());
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  const auto store =
      MakeAllReduceStore(comm, settings.algorithm->optimizer(), InitialParams(network, settings.run.seed));
  const auto algorithm = settings.algorithm->Make({.env = settings.env(),
                                                   .network = network,
                                                   .store = *store,
                                                   .seed = settings.run.seed,
                                                   .shards = settings.run.shards,
                                                   .first_shard = 0,
                                                   .own_shards = settings.run.shards});
  RunProgress progress;
  LoadState(*checkpoint, folder, settings.run, network, progress, *store, *algorithm);
  const Evaluator evaluator(settings.env(), seed, episodes, settings.run.shards);
  const Evaluation evaluation = evaluator.Run(*algorithm, comm, 0, settings.run.shards);
  progress.eval_mean = evaluation.mean;
  progress.eval_std = evaluation.std;
  const auto bytes = std::as_bytes(store->Pull());
  RunFacts facts = MakeFacts(settings.run, progress,
                             Sha256Hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  facts.eval_episodes = episodes;
  return facts;
}

}  // namespace trireme
