// Experience of a policy that is to learn from it, for algorithms with a policy and a value function: what one
// shard has collected, mini-batches of it, and what is known about all of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "trireme/algo/actor_critic.h"
#include "trireme/algo/episode_stats.h"
#include "trireme/base/aligned.h"
#include "trireme/rollout/gae.h"
#include "trireme/rollout/minibatch.h"
#include "trireme/rollout/rollout.h"

namespace trireme {

struct OnPolicyShard {
  OnPolicyShard(const EnvEntry& env, const ShardSpec& spec, int horizon)
      : rollout(env, spec, horizon),
        values((static_cast<std::size_t>(horizon) + 1) * spec.envs),
        final_values(rollout.samples()),
        advantages(rollout.samples()),
        returns(rollout.samples()) {}

  // values and final_values, with the parameters of the tape.
  void EstimateValues(const ActorCritic& model, Tape& tape) {
    model.Values(trajectory(), layout(), tape, values.span(), final_values.span());
  }
  // advantages and returns, from rewards and values (gae.h).
  void EstimateAdvantages(double gamma, double lambda) {
    ComputeGae({.steps = rollout.steps(),
                .envs = rollout.envs(),
                .rewards = rollout.rewards(),
                .values = values.span(),
                .terminated = rollout.terminated(),
                .truncated = rollout.truncated(),
                .final_values = final_values.span(),
                .gamma = static_cast<float>(gamma),
                .lambda = static_cast<float>(lambda)},
               advantages.span(), returns.span());
  }

  const Trajectory& trajectory() const { return rollout.trajectory(); }
  const RowLayout& layout() const { return rollout.layout(); }

  void Save(StateWriter& out) const { rollout.Save(out); }
  void Load(const StateReader& in) { rollout.Load(in); }

  // Of one sample: observation, action, log-probability, reward, value, value of a cut-off end, advantage,
  // return, and two flags.
  static std::uint64_t BytesPerSample(const EnvSpec& env) {
    return (RowLayout(env).width() + env.action.size() + std::uint64_t{6}) * sizeof(float) + 2;
  }

  Rollout rollout;
  AlignedBuffer<float> values;        // [T + 1, B]
  AlignedBuffer<float> final_values;  // [T, B], where an episode was cut off
  AlignedBuffer<float> advantages;    // [T, B]
  AlignedBuffer<float> returns;       // [T, B]
};

// Some samples of a shard, gathered: [n, ...] each. A shard has a trajectory() of rows of a layout(), advantages, returns
// and values.
struct OnPolicyBatch {
  OnPolicyBatch(const EnvSpec& env, std::size_t capacity)
      : action_size(env.action.size()),
        obs(capacity * env.obs.size()),
        actions(capacity * env.action.size()),
        log_probs(capacity),
        advantages(capacity),
        returns(capacity),
        values(capacity) {}

  template <class Shard>
  void GatherObs(const Shard& shard, std::span<const int> samples) {
    shard.layout().GatherObs(shard.trajectory().obs.data(), samples, obs);
  }
  // All but the observations; `values` only where they are wanted.
  template <class Shard>
  void GatherRest(const Shard& shard, std::span<const int> samples, bool with_values) {
    const Trajectory& trajectory = shard.trajectory();
    masks = shard.layout().GatherMasks(trajectory.obs.data(), samples, mask_bytes_);
    GatherRows(trajectory.actions.span(), action_size, samples, actions);
    GatherRows(trajectory.extra.span(), 1, samples, log_probs);
    GatherRows(shard.advantages.span(), 1, samples, advantages);
    GatherRows(shard.returns.span(), 1, samples, returns);
    if (with_values) GatherRows(shard.values.span(), 1, samples, values);
  }

  std::size_t action_size;
  std::vector<float> obs, actions, log_probs, advantages, returns, values;
  const std::uint8_t* masks = nullptr;  // null where everything is always allowed

 private:
  std::vector<std::uint8_t> mask_bytes_;
};

// Numbers as their sum and the sum of their squares: what shards add up to know mean and deviation over all.
inline void AddMoments(float x, std::span<double> sums) {
  sums[0] += x;
  sums[1] += double{x} * x;
}
inline double Variance(std::span<const double> sums, double n) {
  const double mean = sums[0] / n;
  return sums[1] / n - mean * mean;
}

// Brings numbers to zero mean and unit variance: (x - mean) * scale.
struct Standardisation {
  float mean = 0, scale = 1;

  static Standardisation Of(std::span<const double> sums, double n) {
    const double deviation = std::sqrt(std::max(0.0, Variance(sums, n)));
    return {static_cast<float>(sums[0] / n), static_cast<float>(1.0 / (deviation + 1e-8))};
  }
};

// Throws Error unless observations of this environment, as experience keeps them, can be scaled.
inline void CheckCanNormalise(const EnvSpec& env) {
  if (env.obs.type != ObsType::kFloat32) {
    Fail("normalise_obs is for observations of floats; those of {} are bytes, scaled to 0 ... 1", env.name);
  }
  if (env.kept != Precision::kFp32)
    Fail("normalise_obs scales observations of 32 bits: it needs experience=fp32");
}

// How well values predict returns, as moments that travel behind those of the episodes.
enum ValueStat {
  kErrorMoments = kEpisodeStats,
  kReturnMoments = kErrorMoments + 2,
  kOnPolicyStats = kReturnMoments + 2
};

inline void AddValueErrors(const OnPolicyShard& shard, std::span<double> sums) {
  for (int i = 0; i < shard.rollout.samples(); ++i) {
    AddMoments(shard.advantages[i],
               sums.subspan(kErrorMoments));  // return minus value: what it did not foresee
    AddMoments(shard.returns[i], sums.subspan(kReturnMoments));
  }
}

// NaN when all returns are the same.
inline double ExplainedVariance(std::span<const double> totals, double samples) {
  const double of_returns = Variance(totals.subspan(kReturnMoments), samples);
  if (!(of_returns > 0)) return std::numeric_limits<double>::quiet_NaN();
  return 1.0 - Variance(totals.subspan(kErrorMoments), samples) / of_returns;
}

}  // namespace trireme
