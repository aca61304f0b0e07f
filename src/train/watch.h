// An evaluation episode to look at: episode e is the one that Evaluator runs under this number, as far as the
// environment is reproducible, drawn while it goes on.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/env/env.h"
#include "trireme/train/evaluator.h"

namespace trireme {

struct WatchedEpisode {
  int steps = 0;
  double episode_return = 0;
};

// Thread safety: none.
class EpisodeWatcher {
 public:
  // Throws Error when the environment has no pictures. `env` outlives the watcher.
  EpisodeWatcher(const EnvEntry& env, const EvaluationPlan& plan);

  double per_second() const { return batch_->pictures()->per_second(); }

  // What is called before the first step and after each. `step`: how many there were; `last`: there are no more.
  // `draw` gives the picture, if it is wanted; it is used again.
  using See = std::function<void(int step, bool last, const std::function<const Picture&()>& draw)>;
  // Nothing when `stop` has ended it, between two steps. Throws Error.
  std::optional<WatchedEpisode> Watch(Algorithm& algorithm, int episode, const std::function<bool()>& stop,
                                      const See& see);

 private:
  const EnvEntry& env_;
  EvaluationPlan plan_;
  std::unique_ptr<EnvBatch> batch_;  // one copy
  Picture picture_;
};

// A picture of an episode after `step` steps.
struct Glimpse {
  int step = 0;
  Picture picture = {};
};

// `count` pictures of an episode, at least two, spread evenly from its first to its last state, or fewer of one with
// fewer steps; nothing when it was stopped. How long the episode is turns out in the end; until then two
// or three times as many are kept.
std::vector<Glimpse> WatchStrip(EpisodeWatcher& watcher, Algorithm& algorithm, int episode, int count,
                                const std::function<bool()>& stop);

}  // namespace trireme
