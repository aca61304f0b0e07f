#include "trireme/train/watch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/env/checked_batch.h"

namespace trireme {

EpisodeWatcher::EpisodeWatcher(const EnvEntry& env, const EvaluationPlan& plan)
    : env_(env), plan_(plan), batch_(MakeDrawnBatch(env, 1, plan.seed, Purpose::kEvalReset, 0)) {}

std::optional<WatchedEpisode> EpisodeWatcher::Watch(Algorithm& algorithm, int episode,
                                                    const std::function<bool()>& stop, const See& see) {
  batch_->Reset(plan_.seed, Purpose::kEvalReset, static_cast<std::uint32_t>(episode));
  const std::function<const Picture&()> draw = [this]() -> const Picture& {
    batch_->pictures()->Draw(0, picture_);
    CheckPicture(picture_, env_.spec.name.c_str());
    return picture_;
  };
  std::vector<float> obs(env_.spec.obs.size()), action(env_.spec.action.size());
  const bool endless = env_.spec.max_episode_steps == 0;
  WatchedEpisode watched;
  see(0, false, draw);
  for (bool last = false; !last;) {
    if (stop()) return std::nullopt;
    ObsToFloat(env_.spec.obs, batch_->obs().data(), 1, obs.data());
    algorithm.Act(obs, env_.spec.masks ? batch_->masks().data() : nullptr, 1, action);
    batch_->Step(action);
    const std::span<const EpisodeEnd> finished = batch_->finished();
    if (!finished.empty()) CheckFinished(*batch_, finished);
    ++watched.steps;
    watched.episode_return += batch_->rewards()[0];
    last = !finished.empty() || (endless && watched.steps == plan_.max_steps);
    see(watched.steps, last, draw);
  }
  if (!batch_->finished().empty()) watched.episode_return = batch_->finished()[0].episode_return;
  return watched;
}

// Keeps the pictures of every `stride`-th step; when there are too many, every second of them goes.
std::vector<Glimpse> WatchStrip(EpisodeWatcher& watcher, Algorithm& algorithm, int episode, int count,
                                const std::function<bool()>& stop) {
  TRIREME_CHECK(count >= 2);
  std::vector<Glimpse> kept;
  int stride = 1;
  const auto watched = watcher.Watch(algorithm, episode, stop, [&](int step, bool last, const auto& draw) {
    if (!last && step % stride != 0) return;
    kept.push_back({step, draw()});
    if (last || kept.size() < 3 * static_cast<std::size_t>(count)) return;
    for (std::size_t i = 0; 2 * i < kept.size(); ++i) std::swap(kept[i], kept[2 * i]);
    kept.resize((kept.size() + 1) / 2);
    stride *= 2;
  });
  if (!watched) return {};
  std::vector<Glimpse> strip;
  const std::size_t most = std::min(kept.size(), static_cast<std::size_t>(count));  // two or more
  for (std::size_t i = 0; i < most; ++i) {
    // The last is the end of the episode, whatever lies between it and the one before.
    const double step =
        static_cast<double>(watched->steps) * static_cast<double>(i) / static_cast<double>(most - 1);
    const auto nearest = std::ranges::min_element(
        kept, {}, [&](const Glimpse& glimpse) { return std::abs(glimpse.step - step); });
    strip.push_back(std::move(*nearest));
    kept.erase(nearest);
  }
  return strip;
}

}  // namespace trireme
