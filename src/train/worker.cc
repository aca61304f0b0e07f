#include "train/worker.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/system.h"
#include "metrics/jsonl.h"
#include "metrics/progress.h"
#include "metrics/tensorboard.h"
#include "train/checkpoint.h"

namespace trireme {
// What only rank 0 has: files and the line a person watches.
class Chronicle {
 public:
  Chronicle(const RunFolder& folder, const RunProgress& progress, bool json)
      : jsonl_(folder.metrics(), progress.metrics_offset),
        tensorboard_(folder.path(), progress.steps),
        printer_(2, ChooseProgressStyle(2, json)) {}

  void Append(const MetricRow& row) {
    jsonl_.Append(row);
    tensorboard_.Append(row);
  }
  // Bytes of metrics.jsonl, which are on disk when this returns.
  std::uint64_t Flush() {
    jsonl_.Flush();
    return jsonl_.Offset();
  }
  ProgressPrinter& printer() { return printer_; }

 private:
  JsonlWriter jsonl_;
  TensorBoardWriter tensorboard_;
  ProgressPrinter printer_;
};

WorkerGroup::WorkerGroup(const RunConfig& run, const OptimizerSettings& optimizer,
                         std::span<const float> initial)
    : threads(run.workers), saved(run.workers), accounts(run.workers) {
  if (!run.asynchronous()) return;
  shared.emplace(optimizer, run.share_moments, initial);
  if (!run.schedule.empty()) schedule.emplace(run.schedule, run.workers);
}

void WorkerGroup::Abort() {
  meeting.store(true);
  if (schedule) schedule->Abort();
  ThreadCommunicator(threads, 0).Abort();
}

namespace {

// What a person reads first.
std::string Opening(const RunSettings& settings, const Network& network) {
  const RunConfig& run = settings.run;
  return fmt::format("{} on {}: {} {} {} store {}, {} parameters, {} of memory for experience", run.algo,
                     run.env, run.workers, run.workers == 1 ? "worker," : "workers,",
                     run.asynchronous() ? "asynchronous," : "in step,", run.store,
                     FormatCount(static_cast<double>(network.param_count())),
                     FormatBytes(settings.ExperienceBytes()));
}

}  // namespace

Worker::Worker(const RunSettings& settings, const Network& network, const RunFolder& folder,
               const TrainOptions& options, WorkerGroup& group, int rank, std::span<const float> initial,
               const std::optional<StateReader>& checkpoint)
    : settings_(settings),
      run_(settings.run),
      network_(network),
      folder_(folder),
      options_(options),
      group_(group),
      comm_(group.threads, rank),
      store_(group.shared ? MakeSharedStore(*group.shared, rank, group.schedule ? &*group.schedule : nullptr)
                          : MakeAllReduceStore(comm_, settings.algorithm->optimizer(), initial)),
      evaluator_(settings.env(), run_.seed, run_.eval_episodes, run_.shards) {
  const int own = run_.asynchronous() ? run_.shards : run_.shards / run_.workers;
  algorithm_ = settings.algorithm->Make({.env = settings.env(),
                                         .network = network,
                                         .store = *store_,
                                         .seed = run_.seed,
                                         .shards = run_.shards,
                                         .first_shard = rank * own,
                                         .own_shards = own});
  if (checkpoint) {
    LoadRunState(*checkpoint, folder, run_, network, rank, progress_, *store_, *algorithm_);
    if (leader()) group_.steps.store(progress_.steps);
  }
  if (!progress_.per_worker.empty()) own_ = progress_.per_worker[rank];
  earlier_idle_s_ = own_.idle_s;
  LeaveAccount();
  progress_.AimAt(run_.target);
  earlier_wall_s_ = progress_.wall_s;
  earlier_cpu_s_ = progress_.cpu_s;
  earlier_traffic_ = {progress_.bytes, progress_.messages, 0};
  first_step_ = progress_.steps;
  evaluations_passed_ = run_.eval_every == 0 ? 0 : progress_.steps / run_.eval_every;
  last_checkpoint_s_ = MonotonicSeconds();
  if (!leader() || Done()) return;
  // The folder changes only once the checkpoint is known to fit: settings changed for a resume are recorded,
  // and the result of an earlier end of the run goes.
  std::filesystem::remove(folder.result());
  const std::string config = settings.fields.ToToml();
  if (folder.ReadConfig() != config) folder.WriteConfig(config);
  chronicle_ = std::make_unique<Chronicle>(folder, progress_, options.json);
  chronicle_->printer().Note(Opening(settings, network));
}

Worker::~Worker() = default;

void Worker::Run() {
  if (run_.asynchronous()) {
    RunOnItsOwn();
  } else {
    RunInStep();
  }
}

void Worker::RunInStep() {
  while (!Done()) {
    MetricRow row;
    Iterate(row);
    if (EvaluationDue()) EvaluateTogether(row);
    if (leader()) Report(row);
    const Decision decision = Announce(leader() ? Decide() : Decision());
    if (decision.checkpoint) Checkpoint();
    if (decision.stop) break;
  }
}

// Nobody waits for anybody, except in Meet().
void Worker::RunOnItsOwn() {
  comm_.Barrier();  // all have loaded their part of a checkpoint
  if (Done()) return;
  for (bool stop = false; !stop;) {
    MetricRow row;
    Iterate(row);
    if (leader() && !StepsDone()) {
      if (EvaluationDue()) EvaluateAlone(row);
      Report(row);
      row = {};
      const Decision wanted = Decide();
      if (wanted.checkpoint || wanted.stop) group_.meeting.store(true);
    }
    if (StepsDone() || group_.meeting.load()) stop = Meet(row);
  }
}

// All workers of an asynchronous run come together, after whichever iteration each of them is in: nobody
// pulls or pushes meanwhile. Returns whether the run ends here.
bool Worker::Meet(MetricRow& row) {
  if (group_.schedule) group_.schedule->Leave(comm_.rank());
  comm_.Barrier();
  progress_.steps = group_.steps.load();
  if (leader()) {
    group_.meeting.store(false);
    if (!reached_with_.empty()) {
      // Others have gone on since; what the run leaves is what was seen to reach the target.
      group_.shared->Assign(reached_with_);
    } else if (StepsDone()) {
      store_->Refresh();
      EvaluateAlone(row);
      Report(row);
    }
  }
  const Decision decision = Announce(leader() ? Decide() : Decision());
  store_->Refresh();
  if (decision.checkpoint) Checkpoint();
  return decision.stop;
}

void Worker::Iterate(MetricRow& row) {
  const double begun_s = MonotonicSeconds(), waited_s = TotalTraffic().idle_s;
  const auto busy_s = [&] { return MonotonicSeconds() - begun_s - (TotalTraffic().idle_s - waited_s); };
  algorithm_->Iterate(static_cast<double>(progress_.steps) / static_cast<double>(run_.steps), row);
  if (options_.straggler.worker == comm_.rank()) {
    std::this_thread::sleep_for(std::chrono::duration<double>((options_.straggler.factor - 1) * busy_s()));
  }
  own_.busy_s += busy_s();
  CountSteps();
}

void Worker::CountSteps() {
  const std::int64_t steps = algorithm_->steps_per_iteration();
  if (!run_.asynchronous()) {
    own_.steps += steps / run_.workers;
    progress_.steps += steps;
    return;
  }
  own_.steps += steps;
  const std::int64_t all = group_.steps.fetch_add(steps) + steps;
  // Under a schedule a worker counts as if the others kept pace with it: how far they really are depends on
  // time.
  progress_.steps = group_.schedule ? progress_.steps + steps * run_.workers : all;
}

// At the end, and in the iteration that passes a multiple of eval_every. In a synchronous run every worker
// comes to the same answer.
bool Worker::EvaluationDue() {
  if (StepsDone()) return true;
  if (run_.eval_every == 0) return false;
  const std::int64_t before = std::exchange(evaluations_passed_, progress_.steps / run_.eval_every);
  return evaluations_passed_ > before;
}

// Rank 0 decides for all, because clocks and signals differ between workers.
Worker::Decision Worker::Decide() {
  const bool done = Done();
  interrupted_ = !done && options_.stop != nullptr && options_.stop->load();
  const bool stop = done || interrupted_;
  // A meeting in the middle would change the order a schedule gives.
  const bool due = !group_.schedule && MonotonicSeconds() - last_checkpoint_s_ >= run_.checkpoint_every_s;
  return {.checkpoint = stop || due, .stop = stop};
}

Worker::Decision Worker::Announce(Decision decision) {
  double bits[] = {static_cast<double>(decision.checkpoint), static_cast<double>(decision.stop)};
  comm_.Broadcast(bits, 0);
  return {.checkpoint = bits[0] != 0, .stop = bits[1] != 0};
}

void Worker::EvaluateTogether(MetricRow& row) {
  const int own = run_.shards / run_.workers;
  Record(evaluator_.Run(*algorithm_, comm_, comm_.rank() * own, own), row);
}

// While the others go on. Under a schedule the newest parameters are a matter of time, the last seen are not.
void Worker::EvaluateAlone(MetricRow& row) {
  if (!group_.schedule) store_->Refresh();
  ThreadGroup alone(1);
  ThreadCommunicator comm(alone, 0);
  const bool reached_before = progress_.reached;
  Record(evaluator_.Run(*algorithm_, comm, 0, run_.shards), row);
  if (run_.stop_at_target && progress_.reached && !reached_before)
    reached_with_.assign(params().begin(), params().end());
}

void Worker::Record(const Evaluation& evaluation, MetricRow& row) {
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

// Every worker leaves its state and its account in its slots; rank 0 adds what is common and writes the file
// while the others wait, so that a failure to write reaches everyone.
void Worker::Checkpoint() {
  StateWriter& own = group_.saved[comm_.rank()];
  own = {};
  SaveWorkerState(run_, *store_, *algorithm_, own);
  LeaveAccount();
  comm_.Barrier();
  if (leader()) {
    StateWriter state;
    for (int rank = 0; rank < run_.workers; ++rank) {
      state.Merge(std::move(group_.saved[rank]), WorkerPrefix(run_, rank));
    }
    SumAccounts();
    progress_.metrics_offset = chronicle_->Flush();
    SaveRunState(run_, network_, progress_, *store_, *algorithm_, state);
    WriteCheckpoint(folder_.path(), progress_.steps, std::move(state));
    last_checkpoint_s_ = MonotonicSeconds();
  }
  comm_.Barrier();
}

void Worker::LeaveAccount() {
  own_.idle_s = earlier_idle_s_ + TotalTraffic().idle_s;
  group_.accounts[comm_.rank()] = {own_, TotalTraffic(), store_->staleness()};
}

Traffic Worker::TotalTraffic() const {
  Traffic traffic = comm_.traffic();
  traffic += store_->traffic();
  return traffic;
}

void Worker::SumAccounts() {
  progress_.wall_s = WallSeconds();
  progress_.cpu_s = earlier_cpu_s_ + CpuSeconds() - options_.started_cpu_s;
  Traffic total = earlier_traffic_;
  progress_.per_worker.clear();
  for (const WorkerAccount& account : group_.accounts) {
    total += account.traffic;
    progress_.per_worker.push_back(account.facts);
  }
  progress_.bytes = total.bytes;
  progress_.messages = total.messages;
}

void Worker::Report(const MetricRow& measured) {
  const double wall_s = WallSeconds();
  const double rate =
      static_cast<double>(progress_.steps - first_step_) / (MonotonicSeconds() - options_.started_s);
  MetricRow row(progress_.steps, wall_s);
  row.Set("steps_per_s", rate);
  for (const auto& [name, value] : measured.values()) row.Set(name, value);
  for (const char* name : {"eval_return_mean", "eval_return_std"})
    row.Set(name, measured.Get(name));  // NaN: none
  chronicle_->Append(row);
  chronicle_->printer().Update({.steps = progress_.steps,
                                .total_steps = run_.steps,
                                .wall_s = wall_s,
                                .steps_per_s = rate,
                                .episode_return = row.Get("episode_return_mean"),
                                .eval_return = progress_.eval_mean,
                                .target = run_.stop_at_target ? run_.target : Progress::kUnknown});
}

}  // namespace trireme
