// One worker of a run: a thread with its links to others, its algorithm and its shards. Ranks count through the
// threads of all processes. One of them leads, rank 0 unless workers come and go: it also keeps the files of
// the run and the line a person watches.
//
// When and with whom a worker does what is the business of its loop (worker_loop.h); what it does is here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/metrics/metric_row.h"
#include "trireme/train/boundary.h"
#include "trireme/train/evaluator.h"
#include "trireme/train/ledger.h"
#include "trireme/train/run_keeper.h"
#include "trireme/train/run_state.h"
#include "trireme/train/stores.h"
#include "trireme/train/topology.h"
#include "trireme/train/trainer.h"

namespace trireme {

class Worker {
 public:
  // Thread `thread` of this process. Continues from `checkpoint`, if there is one. `context` and `topology`
  // outlive the worker. Throws Error.
  Worker(const RunContext& context, Topology& topology, int thread,
         const std::optional<StateReader>& checkpoint);

  // Blocks until the run ends. Throws Error.
  void Run();

  // These, and progress(), of rank 0 after Run.
  const std::vector<WorkerAccount>& accounts() const { return ledger_.accounts(); }
  bool interrupted() const { return interrupted_; }
  // Of the whole network.
  std::span<const float> params() const { return links_->share() ? whole_params_ : links_->store().params(); }

  // ---- For its loop ----

  const RunConfig& run() const { return run_; }
  RunProgress& progress() { return progress_; }
  Ledger& ledger() { return ledger_; }

  bool StepsDone() const { return progress_.steps >= run_.steps; }
  bool Done() const {
    return !progress_.eval_pending && (StepsDone() || (run_.stop_at_target && progress_.reached));
  }
  // By a signal, or because a worker of this process has failed.
  bool StopRequested() const {
    return topology_.failed() || (options_.stop != nullptr && options_.stop->load());
  }
  void SetInterrupted(bool interrupted) { interrupted_ = interrupted; }

  // Takes part, or takes part again. Where others have begun before, it goes on from what they hold in common,
  // with shards that nobody has; else all begin together, from the checkpoint if there is one. Returns what of the
  // experience of earlier processes goes on.
  Resumed Enter(const std::optional<StateReader>& checkpoint);
  // What was decided at the boundary where this worker has entered, once.
  std::optional<Decision> TakeEntry() { return std::exchange(entered_, {}); }
  // What all workers in step hold alike.
  std::string Common() const;
  void LoadCommon(const Boundary& boundary);

  // One iteration of the algorithm. Returns its steps.
  std::int64_t Iterate(MetricRow& row);
  // At the end, in the iteration that passes a multiple of eval_every, and when one was stopped. In step every
  // worker comes to the same answer.
  bool EvaluationDue();
  // Together with its gradient group: all of them call it. A request to stop ends it too; progress().eval_pending then
  // says so. Who goes on makes it up before the next iteration, for the row that was measured in the one before.
  void Evaluate(MetricRow& row);
  // What this worker would decide as the leader. To all that does not depend on clocks, signals and folders every
  // worker in step has the same answer, should it lead by the time that is heard.
  Decision Decide(bool checkpoints_by_time = true) const;
  // Of a worker whose leader makes up what was stopped.
  void DropPending() {
    progress_.eval_pending = false;
    progress_.pending_row = {};
  }
  // Later, with its evaluation, if that was stopped.
  void Report(const MetricRow& row);

  // All workers in step call it: the store then shows parameters that all of them share, until the next iteration or
  // ShowOwnParams. Training goes on as if nothing had been shown.
  void ShowCommonParams();
  void ShowOwnParams() { links_->store().Pull(); }

  // Every worker hands in what was decided; the leader keeps it. Returns whether this was the leader.
  bool Gather(HandIn what);
  // Of a leader that nobody hands anything to: parameters and the accounts that the ledger has, no experience.
  void WriteCheckpoint() { WriteCheckpointOf({}, Learned()); }
  bool has_led() const { return keeper_.opened(); }
  // Brings the accounts that the ledger has into the progress.
  void SumAccounts() { ledger_.SumInto(progress_, run_.asynchronous()); }

 private:
  std::string Origin() const;
  void Start(const std::optional<StateReader>& checkpoint);
  void MakeAlgorithm(int rank, std::uint64_t seed);
  void Record(const std::optional<Evaluation>& evaluation, MetricRow& row);
  std::string State();
  StateWriter Learned() const;
  StateWriter Policy() const;
  bool PartOfLeaders() const;
  StateReader Held(const StateReader& checkpoint) const;
  void ExpectSame(const MetricRow& row);
  void WriteCheckpointOf(std::vector<std::string> states, StateWriter&& learned);

  const RunSettings& settings_;
  const RunConfig& run_;
  const Network& network_;
  const RunFolder* folder_;
  const TrainOptions& options_;
  const Topology& topology_;
  Actors* actors_;
  std::unique_ptr<WorkerLinks> links_;
  std::unique_ptr<Executor> executor_;
  Ledger ledger_;
  std::unique_ptr<Algorithm> algorithm_;
  int rank_ = -1;  // that the algorithm's shards are of
  Evaluator evaluator_;
  RunProgress progress_;
  std::int64_t evaluations_passed_ = 0;  // multiples of eval_every that have gone by
  bool interrupted_ = false;
  std::optional<Decision> entered_;
  bool said_too_large_ = false;
  std::vector<float> whole_params_;  // where it holds a part of them: after Run, of the first rank
  RunKeeper keeper_;
};

}  // namespace trireme
