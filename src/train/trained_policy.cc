#include "trireme/train/trained_policy.h"

#include "trireme/env/spec_state.h"
#include "trireme/nn/make_executor.h"
#include "trireme/train/best_policy.h"
#include "trireme/train/checkpoint.h"

namespace trireme {
namespace {

bool IsNeededToAct(std::string_view section) { return !IsExperience(section); }

}  // namespace

PolicyFiles ReadPolicy(const RunFolder& folder, Which which) {
  PolicyFiles files{folder.path().string(), ReadNewestCheckpoint(folder.path(), IsNeededToAct), std::nullopt};
  if (!files.checkpoint) Fail("{} holds no checkpoint yet: nothing was learned", files.origin);
  if (which == Which::kBest) files.best = ReadBestPolicy(folder, *files.checkpoint);
  return files;
}

PolicyFiles ReadPolicyFile(const std::filesystem::path& file) {
  StateReader state = ReadCheckpoint(file, IsNeededToAct);
  if (HoldsProgress(state)) return {file.string(), std::move(state), std::nullopt};
  return {file.string(), std::nullopt, std::move(state)};
}

void ResolveToAct(const PolicyFiles& files, RunSettings& settings) {
  settings.ForgetSplit();
  const std::optional<EnvSpec> spec = SavedSpec(files.best ? *files.best : *files.checkpoint);
  if (spec) {
    settings.ResolveWithout(*spec);
  } else {
    settings.Resolve();
  }
}

TrainedPolicy::TrainedPolicy(const RunSettings& settings, const PolicyFiles& files)
    : network_(settings.algorithm->MakeNetwork(settings.env().spec)),
      which_(files.best ? Which::kBest : Which::kLast),
      store_(MakeAllReduceStore(alone_.comm(), settings.algorithm->optimizer(),
                                LoadParams(settings.run, files))),
      executor_(MakeExecutor(network_)),
      algorithm_(settings.algorithm->Make({.env = settings.env(),
                                           .executor = *executor_,
                                           .store = *store_,
                                           .seed = settings.run.seed,
                                           .shards = settings.run.shards,
                                           .first_shard = 0,
                                           .own_shards = 0})) {
  if (files.best) {
    algorithm_->LoadCommon(*files.best);
  } else {
    LoadAlgorithm(*files.checkpoint, files.origin, settings.run, 0, *algorithm_);
  }
}

std::vector<float> TrainedPolicy::LoadParams(const RunConfig& run, const PolicyFiles& files) {
  if (files.checkpoint) LoadProgress(*files.checkpoint, files.origin, run, network_, progress_);
  std::vector<float> params(network_.param_count());
  if (files.best) {
    progress_.best = LoadBestPolicy(*files.best, run, network_, params);
    progress_.steps = progress_.best.steps;
  } else {
    trireme::LoadParams(*files.checkpoint, files.origin, WorkerPrefix(run, 0), params);
  }
  return params;
}

}  // namespace trireme
