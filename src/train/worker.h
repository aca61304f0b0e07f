// One worker of a run: a thread with its communicator, its store and its shards. Rank 0 also keeps the files
// of the run and the line a person watches.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "base/system.h"
#include "comm/thread_communicator.h"
#include "metrics/metric_row.h"
#include "metrics/report.h"
#include "store/shared_store.h"
#include "train/evaluator.h"
#include "train/run_state.h"
#include "train/trainer.h"

namespace trireme {

// What a worker tells rank 0 about its part of the run.
struct WorkerAccount {
  WorkerFacts facts;
  Traffic traffic;
  Staleness staleness;
};

// What the workers of a run share. Slots belong to one worker each; rank 0 reads the others' only after a
// barrier.
struct WorkerGroup {
  WorkerGroup(const RunConfig& run, const OptimizerSettings& optimizer, std::span<const float> initial);

  // Ends every wait: of barriers, of turns, and of workers that move on their own.
  void Abort();

  ThreadGroup threads;
  std::vector<StateWriter> saved;
  std::vector<WorkerAccount> accounts;

  // Asynchronous runs only.
  std::optional<SharedParameters> shared;
  std::optional<Schedule> schedule;
  std::atomic<std::int64_t> steps{0};  // of all workers
  std::atomic<bool> meeting{false};    // all are to come together after their current iteration
};

class Chronicle;

class Worker {
 public:
  // Continues from `checkpoint`, if there is one. `initial` are the parameters a new run starts from. All
  // references outlive the worker. Throws Error.
  Worker(const RunSettings& settings, const Network& network, const RunFolder& folder,
         const TrainOptions& options, WorkerGroup& group, int rank, std::span<const float> initial,
         const std::optional<StateReader>& checkpoint);
  ~Worker();

  // Blocks until the run ends. Throws Error.
  void Run();

  // Of rank 0, after Run.
  const RunProgress& progress() const { return progress_; }
  bool interrupted() const { return interrupted_; }
  std::span<const float> params() { return store_->params(); }

 private:
  // What rank 0 decided.
  struct Decision {
    bool checkpoint = false, stop = false;
  };

  bool leader() const { return comm_.rank() == 0; }
  double WallSeconds() const { return earlier_wall_s_ + MonotonicSeconds() - options_.started_s; }
  bool StepsDone() const { return progress_.steps >= run_.steps; }
  bool Done() const { return StepsDone() || (run_.stop_at_target && progress_.reached); }

  void RunInStep();
  void RunOnItsOwn();
  bool Meet(MetricRow& row);

  void Iterate(MetricRow& row);
  void CountSteps();
  bool EvaluationDue();
  void EvaluateTogether(MetricRow& row);
  void EvaluateAlone(MetricRow& row);
  void Record(const Evaluation& evaluation, MetricRow& row);
  Decision Decide();
  Decision Announce(Decision decision);
  void Checkpoint();
  void LeaveAccount();
  Traffic TotalTraffic() const;
  void SumAccounts();
  void Report(const MetricRow& row);

  const RunSettings& settings_;
  const RunConfig& run_;
  const Network& network_;
  const RunFolder& folder_;
  const TrainOptions& options_;
  WorkerGroup& group_;
  ThreadCommunicator comm_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Algorithm> algorithm_;
  Evaluator evaluator_;
  RunProgress progress_;
  WorkerFacts own_;
  double earlier_wall_s_ = 0, earlier_cpu_s_ = 0, earlier_idle_s_ = 0;
  Traffic earlier_traffic_;
  std::int64_t first_step_ = 0;          // of this process
  std::int64_t evaluations_passed_ = 0;  // multiples of eval_every that have gone by
  double last_checkpoint_s_ = 0;
  bool interrupted_ = false;
  std::vector<float> reached_with_;  // asynchronous, rank 0: the parameters that reached the target
  double best_eval_ = -std::numeric_limits<double>::infinity();  // of this process, for the reader
  std::unique_ptr<Chronicle> chronicle_;                         // rank 0 only
};

}  // namespace trireme
