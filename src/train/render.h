// What a run has learned, in pictures: films of evaluation episodes, and the strip of its report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/metrics/report.h"
#include "trireme/train/run_config.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trained_policy.h"
#include "trireme/train/watch.h"

namespace trireme {

struct RenderPlan {
  std::filesystem::path out;  // picture/output.h
  Which which = Which::kBest;
  std::uint64_t seed = 0;
  int episodes = 1;
  std::function<bool()> stop = [] { return false; };
};

// Throws Error when the environment of these settings, which are resolved, has no pictures, or when none can be kept
// at `out`.
void CheckRenderable(const RunSettings& settings, const std::filesystem::path& out);

// Draws the first episodes of an evaluation with this seed, one after the other: the first state and the one after
// every step. Nothing when it was stopped; then, and when it fails, nothing is left. Throws Error.
std::optional<std::vector<WatchedEpisode>> RenderRun(const RunSettings& settings, const RunFolder& folder,
                                                     const RenderPlan& plan);

// Small pictures of the first evaluation episode of the policy that the run has kept of its best evaluation, after
// `steps` of training. Nothing where it has none, where there are no pictures, and when it was stopped. Throws Error.
std::vector<ReportPicture> RenderStrip(const RunSettings& settings, const RunFolder& folder,
                                       std::int64_t steps, const std::function<bool()>& stop);

}  // namespace trireme
