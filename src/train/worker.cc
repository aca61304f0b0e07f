#include "train/worker.h"

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
      store_(MakeAllReduceStore(comm_, settings.algorithm->optimizer(), initial)),
      evaluator_(settings.env(), run_.seed, run_.eval_episodes, run_.shards) {
  const int own = run_.shards / run_.workers;
  algorithm_ = settings.algorithm->Make({.env = settings.env(),
                                         .network = network,
                                         .store = *store_,
                                         .seed = run_.seed,
                                         .shards = run_.shards,
                                         .first_shard = rank * own,
                                         .own_shards = own});
  if (checkpoint) LoadRunState(*checkpoint, folder, run_, network, progress_, *store_, *algorithm_);
  progress_.AimAt(run_.target);
  earlier_wall_s_ = progress_.wall_s;
  earlier_cpu_s_ = progress_.cpu_s;
  earlier_traffic_ = {progress_.bytes, progress_.messages};
  first_step_ = progress_.steps;
  last_checkpoint_s_ = MonotonicSeconds();
  if (!leader() || Done()) return;
  // The folder changes only once the checkpoint is known to fit: settings changed for a resume are recorded,
  // and the result of an earlier end of the run goes.
  std::filesystem::remove(folder.result());
  const std::string config = settings.fields.ToToml();
  if (folder.ReadConfig() != config) folder.WriteConfig(config);
  chronicle_ = std::make_unique<Chronicle>(folder, progress_, options.json);
}

Worker::~Worker() = default;

void Worker::Run() {
  while (!Done()) {
    MetricRow row;
    algorithm_->Iterate(static_cast<double>(progress_.steps) / static_cast<double>(run_.steps), row);
    progress_.steps += algorithm_->steps_per_iteration();
    if (EvaluationDue()) Evaluate(row);
    if (leader()) Report(row);
    const Decision decision = Announce(leader() ? Decide() : Decision());
    if (decision.checkpoint) Checkpoint();
    if (decision.stop) break;
  }
}

// At the end, and in the iteration that passes a multiple of eval_every. Every worker comes to the same
// answer.
bool Worker::EvaluationDue() const {
  if (progress_.steps >= run_.steps) return true;
  if (run_.eval_every == 0) return false;
  return progress_.steps / run_.eval_every >
         (progress_.steps - algorithm_->steps_per_iteration()) / run_.eval_every;
}

// Rank 0 decides for all, because clocks and signals differ between workers.
Worker::Decision Worker::Decide() {
  const bool done = Done();
  interrupted_ = !done && options_.stop != nullptr && options_.stop->load();
  const bool stop = done || interrupted_;
  return {.checkpoint = stop || MonotonicSeconds() - last_checkpoint_s_ >= run_.checkpoint_every_s,
          .stop = stop};
}

Worker::Decision Worker::Announce(Decision decision) {
  double bits[] = {static_cast<double>(decision.checkpoint), static_cast<double>(decision.stop)};
  comm_.Broadcast(bits, 0);
  return {.checkpoint = bits[0] != 0, .stop = bits[1] != 0};
}

void Worker::Evaluate(MetricRow& row) {
  const int own = run_.shards / run_.workers;
  const Evaluation evaluation = evaluator_.Run(*algorithm_, comm_, comm_.rank() * own, own);
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
  StateWriter& own = group_.saved[comm_.rank()];
  own = {};
  algorithm_->SaveShards(own);
  group_.traffic[comm_.rank()] = comm_.traffic();
  comm_.Barrier();
  if (leader()) {
    StateWriter state;
    for (StateWriter& part : group_.saved) state.Merge(std::move(part));
    progress_.wall_s = WallSeconds();
    progress_.cpu_s = earlier_cpu_s_ + CpuSeconds();
    progress_.bytes = earlier_traffic_.bytes;
    progress_.messages = earlier_traffic_.messages;
    for (const Traffic& traffic : group_.traffic) {
      progress_.bytes += traffic.bytes;
      progress_.messages += traffic.messages;
    }
    progress_.metrics_offset = chronicle_->Flush();
    SaveRunState(run_, network_, progress_, *store_, *algorithm_, state);
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
