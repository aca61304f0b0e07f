// One worker of a run: a thread with its communicator, its replica of the parameters and its shards. Rank 0
// also keeps the files of the run and the line a person watches.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algo/algorithm.h"
#include "base/system.h"
#include "comm/thread_communicator.h"
#include "metrics/metric_row.h"
#include "train/evaluator.h"
#include "train/run_state.h"
#include "train/trainer.h"

namespace trireme {

// What the workers of a run share. Each slot belongs to one worker; rank 0 reads the others' only after a
// barrier.
struct WorkerGroup {
  explicit WorkerGroup(int workers) : threads(workers), saved(workers), traffic(workers) {}
  ThreadGroup threads;
  std::vector<StateWriter> saved;
  std::vector<Traffic> traffic;
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
  std::span<const float> params() { return store_->Pull(); }

 private:
  // What rank 0 decided after an iteration.
  struct Decision {
    bool checkpoint = false, stop = false;
  };

  bool leader() const { return comm_.rank() == 0; }
  double WallSeconds() const { return earlier_wall_s_ + MonotonicSeconds() - options_.started_s; }
  bool Done() const { return progress_.steps >= run_.steps || (run_.stop_at_target && progress_.reached); }
  bool EvaluationDue() const;
  Decision Decide();
  Decision Announce(Decision decision);
  void Evaluate(MetricRow& row);
  void Checkpoint();
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
  double earlier_wall_s_ = 0, earlier_cpu_s_ = 0;
  Traffic earlier_traffic_;
  std::int64_t first_step_ = 0;  // of this process
  double last_checkpoint_s_ = 0;
  bool interrupted_ = false;
  double best_eval_ = -std::numeric_limits<double>::infinity();  // of this process, for the reader
  std::unique_ptr<Chronicle> chronicle_;                         // rank 0 only
};

}  // namespace trireme
