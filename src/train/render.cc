#include "trireme/train/render.h"

#include "trireme/base/error.h"
#include "trireme/picture/output.h"
#include "trireme/train/best_policy.h"

namespace trireme {

void CheckRenderable(const RunSettings& settings, const std::filesystem::path& out) {
  const EnvEntry& env = settings.env();
  if (!env.make_drawn) Fail("{} has no pictures: nothing says how to draw it", env.spec.name);
  CheckPictureOutput(out);
}

std::optional<std::vector<WatchedEpisode>> RenderRun(const RunSettings& settings, const RunFolder& folder,
                                                     const RenderPlan& plan) {
  CheckRenderable(settings, plan.out);
  const EnvStopScope env_stop(settings.env().processes, plan.stop);
  TrainedPolicy policy(settings, ReadPolicy(folder, plan.which));
  EpisodeWatcher watcher(settings.env(), settings.run.EvaluationOf(plan.seed, plan.episodes));
  const std::unique_ptr<PictureOutput> output = MakePictureOutput(plan.out, watcher.per_second());
  std::vector<WatchedEpisode> episodes;
  for (int episode = 0; episode < plan.episodes; ++episode) {
    const auto watched = watcher.Watch(policy.algorithm(), episode, plan.stop,
                                       [&](int, bool, const auto& draw) { output->Add(draw()); });
    if (!watched) return std::nullopt;
    episodes.push_back(*watched);
  }
  output->Finish();
  return episodes;
}

std::vector<ReportPicture> RenderStrip(const RunSettings& settings, const RunFolder& folder,
                                       std::int64_t steps, const std::function<bool()>& stop) {
  constexpr int kPictures = 6, kWidth = 200;
  const std::filesystem::path best = BestPolicyPath(folder, steps);
  std::error_code error;
  if (!settings.env().make_drawn || !std::filesystem::exists(best, error)) return {};
  TrainedPolicy policy(settings, ReadPolicyFile(best));
  EpisodeWatcher watcher(settings.env(), settings.run.EvaluationOf(settings.run.seed, 1));
  std::vector<ReportPicture> strip;
  for (const auto& [step, picture] : WatchStrip(watcher, policy.algorithm(), 0, kPictures, stop)) {
    strip.push_back({Shrink(picture, kWidth), fmt::format("after {} steps", step)});
  }
  return strip;
}

}  // namespace trireme
