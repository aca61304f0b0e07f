// One worker of a run: a thread with its communicator, its store and its shards. Ranks count through the
// threads of all processes. One of them leads, rank 0 unless workers come and go: it also keeps the files of
// the run and the line a person watches.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/base/system.h"
#include "trireme/metrics/metric_row.h"
#include "trireme/metrics/report.h"
#include "trireme/nn/fused_executor.h"
#include "trireme/train/best_policy.h"
#include "trireme/train/boundary.h"
#include "trireme/train/evaluator.h"
#include "trireme/train/ledger.h"
#include "trireme/train/links.h"
#include "trireme/train/run_state.h"
#include "trireme/train/trainer.h"

namespace trireme {

class RunLog;

class Worker {
 public:
  // Thread `thread` of this process. Continues from `checkpoint`, if there is one. `initial` are the
  // parameters a new run starts from. Of processes that MPI connects only the first has a folder. All
  // references outlive the worker. Throws Error.
  Worker(const RunSettings& settings, const Network& network, const RunFolder* folder,
         const TrainOptions& options, WorkerGroup& group, int thread, std::span<const float> initial,
         const std::optional<StateReader>& checkpoint);
  ~Worker();

  // Blocks until the run ends. Throws Error.
  void Run();

  // Of rank 0, after Run.
  const RunProgress& progress() const { return progress_; }
  const std::vector<WorkerAccount>& accounts() const { return ledger_.accounts(); }
  bool interrupted() const { return interrupted_; }
  std::span<const float> params() const { return links_.store().params(); }

 private:
  bool leader() const { return links_.leads(); }
  bool MayLead() { return folder_ != nullptr && links_.threads().rank() == 0; }
  bool StopRequested() const {
    return group_.failed.load() || (options_.stop != nullptr && options_.stop->load());
  }
  bool StepsDone() const { return progress_.steps >= run_.steps; }
  bool Done() const { return StepsDone() || (run_.stop_at_target && progress_.reached); }

  std::string Origin() const;
  void Start(const std::optional<StateReader>& checkpoint);
  void Enter(const std::optional<StateReader>& checkpoint);
  void MakeAlgorithm(int rank, std::uint64_t seed);
  void LoadCommon(const Boundary& boundary);
  void BecomeLeader();
  RunLog& log();
  void RunInStep();
  Decision Begin();
  Decision Step();
  bool Follow(const Decision& decision);
  void RunOnItsOwn();
  bool Meet(MetricRow& row);
  void RunElastic();
  bool Lead(MetricRow& row);
  void LeaveCheckpoint();

  void Iterate(MetricRow& row);
  void CountSteps();
  bool EvaluationDue();
  void EvaluateTogether(MetricRow& row);
  void EvaluateAlone(MetricRow& row);
  void Record(const Evaluation& evaluation, MetricRow& row);
  Decision Decide() const;
  Decision Announce(Decision decision);
  Boundary AnnounceTo(ServerCommunicator& boundaries, Decision decision);
  void Checkpoint();
  void WriteCheckpointOf(std::vector<std::string> states);
  void Report(const MetricRow& row);

  const RunSettings& settings_;
  const RunConfig& run_;
  const Network& network_;
  FusedExecutor executor_;
  const RunFolder* folder_;
  const TrainOptions& options_;
  WorkerGroup& group_;
  WorkerLinks links_;
  Communicator& comm_;     // of links_
  ParameterStore& store_;  // of links_
  Ledger ledger_;
  std::unique_ptr<Algorithm> algorithm_;
  int rank_ = -1;  // that the algorithm's shards are of
  Evaluator evaluator_;
  RunProgress progress_;
  std::int64_t first_step_ = 0;          // of this process
  std::int64_t evaluations_passed_ = 0;  // multiples of eval_every that have gone by
  double last_checkpoint_s_ = 0;
  bool interrupted_ = false;
  std::optional<Decision> entered_;  // in step: what was decided at the boundary where this worker came in
  std::vector<float> reached_with_;  // asynchronous, leader: the parameters that reached the target
  BestPolicy best_;                  // of who may lead
  std::unique_ptr<RunLog> log_;      // of who leads, or has led
};

}  // namespace trireme
