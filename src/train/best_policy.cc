#include "trireme/train/best_policy.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/train/checkpoint.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "best-";

}  // namespace

fs::path BestPolicyPath(const RunFolder& folder, std::int64_t steps) {
  return folder.path() / StateFileName(kPrefix, steps);
}

bool BestPolicy::Offer(const Evaluation& evaluation, const MakePolicy& policy, RunProgress& progress) {
  BestEvaluation& best = progress.best;
  if (std::isnan(evaluation.mean) || (best.exists() && evaluation.mean < best.mean)) return false;
  const bool better = !best.exists() || evaluation.mean > best.mean;
  best = {.mean = evaluation.mean, .std = evaluation.std, .steps = progress.steps};
  if (!keep_) return better;
  policy_ = policy().Encode();
  return better;
}

void BestPolicy::GoOn(const RunFolder& folder, RunProgress& progress) {
  if (!progress.best.exists()) return;
  last_kept_ = progress.best.steps;
  const fs::path file = BestPolicyPath(folder, progress.best.steps);
  std::error_code error;
  if (!fs::exists(file, error)) {
    progress.best = {};
    return;
  }
  try {
    ReadCheckpoint(file);
  } catch (const Error& damaged) {
    Fail("{}. To go on without it, remove it and resume again", damaged.what());
  }
}

void BestPolicy::Write(const RunFolder& folder, const RunConfig& run, const Network& network,
                       const RunProgress& progress) {
  if (policy_.empty()) return;
  StateWriter file;
  SaveIdentity(run, network, file);
  BestEvaluation best = progress.best;
  best.Visit([&](const char* name, auto& value) { file.PutValue(name, value); });
  file.Merge(policy_);
  WriteStateFile(BestPolicyPath(folder, best.steps), std::move(file));
  policy_.clear();
  policy_.shrink_to_fit();
}

void BestPolicy::RemoveOthers(const RunFolder& folder, const RunProgress& progress) {
  const std::int64_t last = std::exchange(last_kept_, progress.best.steps);
  for (const fs::path& path : ListFolder(folder.path())) {
    const auto steps = StepsInName(path, kPrefix);
    std::error_code ignored;
    if (steps && *steps != last && *steps != last_kept_) fs::remove(path, ignored);
  }
}

namespace {

template <class Use>
auto UsePolicy(Use&& use) {
  try {
    return use();
  } catch (const Error& error) {
    Fail("the best policy cannot be used: {}. The last one can: --which last", error.what());
  }
}

BestEvaluation LoadBestEvaluation(const StateReader& in) {
  BestEvaluation best;
  if (!in.Has("best/steps")) return best;  // so in early runs
  best.Visit(
      [&](const char* name, auto& value) { value = in.GetValue<std::decay_t<decltype(value)>>(name); });
  return best;
}

}  // namespace

std::optional<StateReader> ReadBestPolicy(const RunFolder& folder, const StateReader& checkpoint) {
  const BestEvaluation best = LoadBestEvaluation(checkpoint);
  if (!best.exists()) return std::nullopt;
  return UsePolicy([&] { return ReadCheckpoint(BestPolicyPath(folder, best.steps)); });
}

BestEvaluation LoadBestPolicy(const StateReader& policy, const RunConfig& run, const Network& network,
                              std::span<float> params) {
  return UsePolicy([&] {
    RequireIdentity(policy, run, network);
    policy.Get<float>("params", params);
    return LoadBestEvaluation(policy);
  });
}

}  // namespace trireme
