// The policy of a run's best evaluation, kept beside its checkpoints in best-<steps>.trireme: parameters and
// what the algorithm's workers hold alike, but no experience, and the evaluation itself. Of evaluations that
// are equally good the latest counts.
//
// A worker that may come to lead keeps that policy in memory. It goes to disk just before the next
// checkpoint, which names it by its steps. So the policy that a checkpoint names is there, whatever happens
// between evaluation and checkpoint: a run that goes on from an earlier checkpoint has that one's best policy
// and forgets evaluations that it has not made yet. The files that the two kept checkpoints name are kept.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "trireme/base/state.h"
#include "trireme/nn/network.h"
#include "trireme/train/evaluator.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/run_state.h"

namespace trireme {

// Makes what is kept of a policy: parameters, whole, and what the algorithm's workers hold alike.
using MakePolicy = std::function<StateWriter()>;

class BestPolicy {
 public:
  // Without `keep` it only notes which evaluation was the best, for a run that writes no files.
  explicit BestPolicy(bool keep) : keep_(keep) {}

  // policy() was evaluated after `progress.steps`. Keeps it, and notes that in `progress`, if none was better. Returns
  // whether all before were worse.
  bool Offer(const Evaluation& evaluation, const MakePolicy& policy, RunProgress& progress);

  // The run in `folder` goes on from `progress`, as its checkpoint has it: a best policy that is not there
  // any more is taken out of it. Throws Error when the file is damaged.
  void GoOn(const RunFolder& folder, RunProgress& progress);

  // Before and after a checkpoint of `progress` is written. Throw Error.
  void Write(const RunFolder& folder, const RunConfig& run, const Network& network,
             const RunProgress& progress);
  void RemoveOthers(const RunFolder& folder, const RunProgress& progress);

 private:
  bool keep_;
  std::string policy_;           // encoded; empty: none, or on disk
  std::int64_t last_kept_ = -1;  // steps of what the last checkpoint names
};

// Where it is kept if its evaluation was after so many steps.
std::filesystem::path BestPolicyPath(const RunFolder& folder, std::int64_t steps);

// What Write() has written for the best evaluation that `checkpoint` tells of; nothing when it tells of none. Throws
// Error when the file is missing or damaged.
std::optional<StateReader> ReadBestPolicy(const RunFolder& folder, const StateReader& checkpoint);
// Its parameters, and which evaluation it is of. Throws Error when it is of another run.
BestEvaluation LoadBestPolicy(const StateReader& policy, const RunConfig& run, const Network& network,
                              std::span<float> params);

}  // namespace trireme
