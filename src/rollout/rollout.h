// T steps of experience from the environments of one shard, and how they are collected.
//
// Observations are stored as rows (env/row.h), [T, B, width], one sample after the other: as the environment
// gives them, bytes as bytes, with their masks; or normalised if the algorithm normalises. The observation
// after the last step is row T, so that values are computed for T + 1 rows in one pass. The last observations
// of truncated episodes are kept in a list, for bootstrapping.
//
// Thread safety: none; a shard belongs to one worker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/env/env.h"
#include "trireme/env/row.h"
#include "trireme/rollout/normaliser.h"

namespace trireme {

// Which environments of the run a shard owns.
struct ShardSpec {
  int index = 0;           // 0 ... shards - 1
  int envs = 0;            // environments per shard
  std::uint64_t seed = 0;  // of all its randomness
  std::uint32_t first_env() const { return static_cast<std::uint32_t>(index * envs); }
};

// Returns and lengths of episodes that ended, summed since the last reset of the counters.
struct EpisodeTotals {
  double count = 0, return_sum = 0, length_sum = 0;
};

class Rollout {
 public:
  Rollout(const EnvEntry& env, const ShardSpec& shard, int steps);

  // Collects `steps` steps. policy(step_number, obs [B, obs], actions [B, action_size], extra [B]) chooses
  // actions and leaves one float per environment with them (log-probabilities, for most algorithms).
  // `normaliser` may be null, and is for observations of floats; `raw_sums`, if not empty, receives the sums it
  // needs to learn from the raw observations.
  template <class Policy>
  void Collect(const Normaliser* normaliser, std::span<double> raw_sums, Policy&& policy) {
    Begin(normaliser);
    for (int t = 0; t < steps_; ++t) {
      policy(step_number_, layout_.ReadObs(ObsRow(t), envs(), unpacked_), ActionRow(t), ExtraRow(t));
      StepEnvs(t, normaliser, raw_sums);
      ++step_number_;
    }
  }

  int steps() const { return steps_; }
  int envs() const { return batch_->size(); }
  int samples() const { return steps_ * envs(); }
  const ShardSpec& shard() const { return shard_; }
  const EnvSpec& env_spec() const { return batch_->spec(); }
  const RowLayout& layout() const { return layout_; }
  // Of the observations that `policy` is given; null where everything is always allowed.
  const std::uint8_t* masks() const { return layout_.mask_size() == 0 ? nullptr : batch_->masks().data(); }

  float* ObsRow(int t) { return obs_.data() + static_cast<std::size_t>(t) * envs() * layout_.width(); }
  float* ActionRow(int t) { return actions_.data() + static_cast<std::size_t>(t) * envs() * action_size_; }
  float* ExtraRow(int t) { return extra_.data() + static_cast<std::size_t>(t) * envs(); }
  std::span<const float> obs() const { return obs_.span(); }                       // [T + 1, B, width]
  std::span<const float> actions() const { return actions_.span(); }               // [T, B, action_size]
  std::span<const float> extra() const { return extra_.span(); }                   // [T, B]
  std::span<float> rewards() { return rewards_.span(); }                           // [T, B]
  std::span<const std::uint8_t> terminated() const { return terminated_.span(); }  // [T, B]
  std::span<const std::uint8_t> truncated() const { return truncated_.span(); }    // [T, B]

  // Truncated episodes of this rollout: sample index t * B + b, ascending, and last observation, [n, width].
  std::span<const int> truncated_samples() const { return truncated_samples_; }
  std::span<const float> truncated_obs() const { return truncated_obs_; }

  // Runs the discounted return G <- discount * G + r of every environment through the collected rewards,
  // restarting where an episode ends, and adds each G to `sums`: what rewards are scaled by.
  void AddReturnsTo(std::span<double> sums, float discount, const Normaliser& normaliser);

  // Episodes that ended since the last call.
  EpisodeTotals TakeEpisodes();

  // Require an environment that can be saved (EnvFacts::snapshots).
  void Save(StateWriter& out) const;
  void Load(const StateReader& in);

 private:
  void Begin(const Normaliser* normaliser);
  void StepEnvs(int t, const Normaliser* normaliser, std::span<double> raw_sums);
  // Normalises `n` rows where they lie.
  void Normalise(const Normaliser* normaliser, int n, float* rows) const;
  std::string Scope() const;

  ShardSpec shard_;
  int steps_;
  std::unique_ptr<EnvBatch> batch_;
  RowLayout layout_;
  std::size_t action_size_;
  std::uint64_t step_number_ = 0;  // of the whole run: keys the random draws of a step
  AlignedBuffer<float> obs_, actions_, extra_, rewards_;
  AlignedBuffer<std::uint8_t> terminated_, truncated_;
  AlignedBuffer<float> running_returns_;  // [B], see AddReturnsTo
  std::vector<int> truncated_samples_;
  std::vector<float> truncated_obs_;
  std::vector<float> unpacked_;  // scratch
  EpisodeTotals episodes_;
};

}  // namespace trireme
