// What a run has learned, ready to act: parameters, and what its algorithm holds beside them (normalisers). No
// environments are made, and where the files say what the environment shows and takes, it is not even looked for.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/algo/algorithm.h"
#include "trireme/base/state.h"
#include "trireme/comm/group_of_one.h"
#include "trireme/nn/executor.h"
#include "trireme/store/parameter_store.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/run_state.h"

namespace trireme {

// Which policy of a run: that of its best evaluation, or that of its newest checkpoint.
enum class Which { kBest, kLast };

// The files of a policy, as read.
struct PolicyFiles {
  std::string origin;  // what errors call them
  // At least one is there. The best policy, if there is one, is the one that is meant.
  std::optional<StateReader> checkpoint, best;
};

// Of the run in a folder. Of a run that keeps no best policy, because it is older or was never evaluated, the last
// one. Throws Error.
PolicyFiles ReadPolicy(const RunFolder& folder, Which which);
// A checkpoint or a best policy on its own. Throws Error.
PolicyFiles ReadPolicyFile(const std::filesystem::path& file);

// Resolves the settings of the run that the files are of, without its environment if they describe it, and with it
// where they are too old for that. Throws Error.
void ResolveToAct(const PolicyFiles& files, RunSettings& settings);

// Thread safety: none.
class TrainedPolicy {
 public:
  // `settings` are resolved, and outlive the policy. Throws Error when the files do not fit them.
  TrainedPolicy(const RunSettings& settings, const PolicyFiles& files);
  TrainedPolicy(const TrainedPolicy&) = delete;
  TrainedPolicy& operator=(const TrainedPolicy&) = delete;

  // Only to act.
  Algorithm& algorithm() { return *algorithm_; }
  std::span<const float> params() const { return store_->params(); }
  Which which() const { return which_; }
  // What the checkpoint tells, with the steps after which the policy was as it is here.
  const RunProgress& progress() const { return progress_; }

 private:
  std::vector<float> LoadParams(const RunConfig& run, const PolicyFiles& files);

  Network network_;
  Which which_;
  RunProgress progress_;
  GroupOfOne alone_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Algorithm> algorithm_;
};

}  // namespace trireme
