// What a run has done so far and what its checkpoints must agree on.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/base/state.h"
#include "trireme/metrics/metric_row.h"
#include "trireme/metrics/report.h"
#include "trireme/train/run_config.h"

namespace trireme {

// "policy 4-64-64-2 tanh, value 4-64-64-1 tanh": the same parameters mean something else in another network,
// even where their number is the same.
std::string DescribeNetwork(const NetworkSpec& spec);

// The best evaluation so far; of equal ones the latest. Its policy is in a file of its own: best_policy.h.
struct BestEvaluation {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double std = std::numeric_limits<double>::quiet_NaN();
  std::int64_t steps = -1;  // when it was

  bool exists() const { return steps >= 0; }
  template <class Visitor>
  void Visit(Visitor&& visit) {
    visit("best/mean", mean);
    visit("best/std", std);
    visit("best/steps", steps);
  }
};

// What happened so far in the whole run, interruptions included. Part of every checkpoint. Every worker holds
// the same counts; times are rank 0's.
struct RunProgress {
  std::int64_t steps = 0;
  double wall_s = 0, cpu_s = 0;           // of earlier processes of this run
  std::uint64_t bytes = 0, messages = 0;  // of earlier processes of this run, over all workers
  std::uint64_t rounds = 0;               // updates of the parameters
  double eval_mean = std::numeric_limits<double>::quiet_NaN();
  double eval_std = std::numeric_limits<double>::quiet_NaN();
  std::int64_t eval_steps = -1;  // when the last evaluation was
  BestEvaluation best = {};      // of those that this worker took part in, or its checkpoint tells of
  int eval_cut_off = 0;          // episodes of it, by eval_max_steps
  bool eval_pending = false;     // an evaluation was stopped: it comes first when the run goes on
  MetricRow pending_row = {};    // of the leader: what was measured in the iteration before it
  double target = 0;             // what `reached` is about; NaN: there is none
  bool reached = false;
  double time_to_target_s = 0;
  std::int64_t steps_to_target = -1;
  std::uint64_t metrics_offset = 0;
  std::vector<WorkerFacts> per_worker = {};  // empty after a change of the number of workers

  // A resumed run may have been given another target: its last evaluation is then judged anew.
  void AimAt(std::optional<double> new_target) {
    if (new_target ? *new_target == target : std::isnan(target)) return;
    target = new_target.value_or(std::numeric_limits<double>::quiet_NaN());
    reached = eval_steps >= 0 && eval_mean >= target;
    time_to_target_s = wall_s;
    steps_to_target = eval_steps;
  }

  // What every worker of a run in step knows alike.
  template <class Visitor>
  void VisitCommon(Visitor&& visit) {
    visit("progress/steps", steps);
    visit("progress/eval_mean", eval_mean);
    visit("progress/eval_std", eval_std);
    visit("progress/eval_steps", eval_steps);
    visit("progress/target", target);
    visit("progress/reached", reached);
    visit("progress/time_to_target_s", time_to_target_s);
    visit("progress/steps_to_target", steps_to_target);
  }
  template <class Visitor>
  void Visit(Visitor&& visit) {
    VisitCommon(visit);
    visit("progress/wall_s", wall_s);
    visit("progress/cpu_s", cpu_s);
    visit("progress/bytes", bytes);
    visit("progress/messages", messages);
    visit("progress/rounds", rounds);
    visit("progress/metrics_offset", metrics_offset);
  }
};

// What of its experience a resumed run goes on with.
enum class Resumed {
  kExactly,       // everything
  kNewEpisodes,   // all but the episodes: the environment was not saved, or cannot be loaded
  kNoExperience,  // nothing: what was learned is all there is
};
// What begins anew in a run that goes on after `steps`: one line, or empty.
std::string DescribeResumed(Resumed resumed, const std::string& env, std::int64_t steps);

// RunConfig::Arithmetic of the run that has made a checkpoint.
std::string ArithmeticOf(const StateReader& checkpoint);
// What changes when a run goes on with another one than before: one line, or empty.
std::string DescribeOtherArithmetic(const std::string& before, const std::string& now);

// What a run gives up because its environment cannot be saved or reproduced: one line, or empty.
std::string DescribeLosses(const EnvEntry& env);

// Where the way workers exchange gradients is not what a reader would expect: one line, or empty.
std::string DescribeExchange(const RunConfig& run);

// What a run is, in a checkpoint; RequireIdentity throws Error when it is another one, and says in what.
void SaveIdentity(const RunConfig& run, const Network& network, StateWriter& out);
void RequireIdentity(const StateReader& checkpoint, const RunConfig& run, const Network& network);
// Whether this is a checkpoint, and not a policy alone.
bool HoldsProgress(const StateReader& state);

// The state of worker `rank`: its shards and what else only it holds, and with workers that move on their own also
// its store and what its algorithm holds. In a checkpoint its sections come behind WorkerPrefix().
void SaveWorkerState(const RunConfig& run, int rank, const ParameterStore& store, const Algorithm& algorithm,
                     StateWriter& out);
std::string WorkerPrefix(const RunConfig& run, int rank);

// What is written once for the run of what was learned: what workers that move in step hold alike, or the parameters.
StateWriter LearnedState(const RunConfig& run, const ParameterStore& store, const Algorithm& algorithm);
// Adds the rest: what the run is, its progress, and what was learned. `complete`: the states of all workers are there;
// without them a resumed run has Resumed::kNoExperience.
void SaveRunState(const RunConfig& run, const Network& network, RunProgress& progress, StateWriter&& learned,
                  bool complete, StateWriter& out);

// Restore a worker from a checkpoint; `origin` names it in errors. The first throws Error when it was made
// with another environment, algorithm, seed, number of shards, network or kind of store, and says which.
void LoadProgress(const StateReader& checkpoint, const std::string& origin, const RunConfig& run,
                  const Network& network, RunProgress& progress);
void LoadStore(const StateReader& checkpoint, const std::string& origin, const RunConfig& run, int rank,
               ParameterStore& store);
// Only the parameters, behind `prefix`, for whoever does not go on training.
void LoadParams(const StateReader& checkpoint, const std::string& origin, const std::string& prefix,
                std::span<float> params);
// What all workers hold alike, and the worker's shards if the checkpoint holds those of all workers. Alike on all
// workers.
Resumed LoadAlgorithm(const StateReader& checkpoint, const std::string& origin, const RunConfig& run,
                      int rank, Algorithm& algorithm);

// What only worker `rank` of those in step held of the store. Returns a line where that does not go on exactly; empty: it
// does.
std::string LoadOwn(const StateReader& checkpoint, const std::string& origin, const RunConfig& run,
                    ParameterStore& store);

// Whether a section of a checkpoint is experience, or for training alone, which whoever only acts does not need.
bool IsExperience(std::string_view section);

}  // namespace trireme
