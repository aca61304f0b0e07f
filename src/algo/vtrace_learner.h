// What algorithms have in common that learn, with V-trace, from what an older policy has collected: what is estimated of
// a trajectory.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "trireme/algo/actor_critic.h"
#include "trireme/algo/algorithm.h"
#include "trireme/algo/collecting.h"
#include "trireme/base/aligned.h"
#include "trireme/rollout/vtrace.h"

namespace trireme {

struct VtraceConfig {
  double gamma = 0.99;
  double vtrace_lambda = 1.0;
  double rho_bar = 1.0;
  double c_bar = 1.0;

  void Fields(ConfigFields& field) {
    field("gamma", gamma, "discount per step", UnitInterval()).Tune(Search::NearOne(0.9, 0.999));
    field("vtrace_lambda", vtrace_lambda, "mix of short and long estimates of values; 1: the longest",
          UnitInterval())
        .Tune(Search::NearOne(0.7, 0.99));
    field("rho_bar", rho_bar, "how much more probable an action may count than when it was taken",
          Positive());
    field("c_bar", c_bar, "the same, for how far later rewards reach back", Positive());
  }
};

// What a learner knows of one trajectory.
class VtraceShard {
 public:
  // For MakeShards.
  VtraceShard(const EnvEntry& env, const ShardSpec& spec, int horizon)
      : VtraceShard(env.spec, horizon, spec.envs) {}
  VtraceShard(const EnvSpec& env, int steps, int envs)
      : values((static_cast<std::size_t>(steps) + 1) * envs),
        returns(static_cast<std::size_t>(steps) * envs),
        advantages(returns.size()),
        weights(returns.size()),
        layout_(env),
        steps_(steps),
        envs_(envs),
        final_values_(returns.size()),
        log_ratios_(returns.size()) {}

  // From now on it is about this one, which stays as it is. Estimates what follows, with the parameters of the tape.
  void Take(const Trajectory& trajectory, const VtraceConfig& config, const ActorCritic& model, Tape& tape) {
    TRIREME_CHECK(trajectory.steps == steps_ && trajectory.envs == envs_);
    trajectory_ = &trajectory;
    episodes_ += trajectory.episodes;
    model.Values(trajectory, layout_, tape, values.span(), final_values_.span(), log_ratios_.span());
    for (int i = 0; i < samples(); ++i) log_ratios_[i] -= trajectory.extra[i];
    ComputeVtrace({.steps = steps_,
                   .envs = envs_,
                   .log_ratios = log_ratios_.span(),
                   .rewards = trajectory.rewards.span(),
                   .values = values.span(),
                   .terminated = trajectory.terminated.span(),
                   .truncated = trajectory.truncated.span(),
                   .final_values = final_values_.span(),
                   .gamma = static_cast<float>(config.gamma),
                   .lambda = static_cast<float>(config.vtrace_lambda),
                   .rho_bar = static_cast<float>(config.rho_bar),
                   .c_bar = static_cast<float>(config.c_bar)},
                  returns.span(), advantages.span(), weights.span());
  }

  int samples() const { return steps_ * envs_; }
  const Trajectory& trajectory() const { return *trajectory_; }
  const RowLayout& layout() const { return layout_; }
  // Of all trajectories since the last call.
  EpisodeTotals TakeEpisodes() { return std::exchange(episodes_, {}); }

  // Of one sample in the learner, and of what is on its way to it.
  static std::uint64_t BytesPerSample(const EnvSpec& env) {
    return (RowLayout(env).width() + env.action.size() + std::uint64_t{8}) * sizeof(float) + 2;
  }

  AlignedBuffer<float> values;      // [T + 1, B], V
  AlignedBuffer<float> returns;     // [T, B], what V is to become
  AlignedBuffer<float> advantages;  // [T, B], before any weight
  AlignedBuffer<float> weights;     // [T, B], rho

 private:
  RowLayout layout_;
  int steps_, envs_;
  const Trajectory* trajectory_ = nullptr;
  AlignedBuffer<float> final_values_;  // [T, B], where an episode was cut off
  AlignedBuffer<float> log_ratios_;    // [T, B]
  EpisodeTotals episodes_;
};

}  // namespace trireme
