// The losses of a2c_loss.h and ppo_loss.h over samples of a shard's trajectory: their gradients with respect to the
// parameters. A shard has a trajectory() of rows of a layout(), advantages, returns and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/algo/a2c_loss.h"
#include "trireme/algo/actor_critic.h"
#include "trireme/algo/on_policy.h"
#include "trireme/algo/ppo_loss.h"

namespace trireme {

// Observations and masks of one pass, where they must be unpacked.
struct RowScratch {
  std::vector<float> obs;
  std::vector<std::uint8_t> masks;
};

// Of all samples, in the order they were collected, where they lie. Adds to `gradient` and `stats` (A2cStat).
template <class Shard>
void AddA2cGradient(const ActorCritic& model, Tape& tape, const Shard& shard, const A2cLossRule& rule,
                    const Standardisation& scale, RowScratch& scratch, std::span<float> gradient,
                    std::span<float> stats) {
  const Trajectory& trajectory = shard.trajectory();
  const RowLayout& layout = shard.layout();
  const std::size_t action_size = trajectory.actions.size() / trajectory.samples();
  const auto rows = [&](int first) { return trajectory.obs.data() + first * layout.width(); };
  const auto inputs = [&](int first, int n) {
    return layout.ReadObs(rows(first), static_cast<std::size_t>(n), scratch.obs);
  };
  const auto loss = [&](int first, int n, const OutputsAndGradients& o) {
    const A2cBatch batch{.n = n,
                         .actions = trajectory.actions.data() + first * action_size,
                         .advantages = shard.advantages.data() + first,
                         .returns = shard.returns.data() + first,
                         .advantage_mean = scale.mean,
                         .advantage_scale = scale.scale};
    const auto& [outputs, stride] = o.policy;
    const int size = model.policy_size();
    switch (model.head()) {
      case ActorCritic::Head::kCategorical:
        A2cCategoricalLoss(batch, rule, outputs, size, stride, o.d_policy, stats);
        break;
      case ActorCritic::Head::kParts: {
        const std::uint8_t* masks = layout.ReadMasks(rows(first), static_cast<std::size_t>(n), scratch.masks);
        A2cPartsLoss(batch, rule, outputs, model.parts(), masks, stride, o.d_policy, stats);
        break;
      }
      case ActorCritic::Head::kGaussian:
        A2cGaussianLoss(batch, rule, outputs, size, stride, model.LogStd(tape.params()), o.d_policy,
                        model.LogStd(gradient), stats);
        break;
    }
    A2cValueLoss(batch, rule, o.value.data, o.value.stride, o.d_value, stats);
  };
  model.AddGradient(trajectory.samples(), tape, gradient, inputs, loss);
}

// Of some samples, gathered in `batch`, which has room for a pass. Adds to `gradient` and `stats` (PpoStat).
template <class Shard>
void AddPpoGradient(const ActorCritic& model, Tape& tape, const Shard& shard, std::span<const int> samples,
                    const PpoLossRule& rule, const Standardisation& scale, OnPolicyBatch& batch,
                    std::span<float> gradient, std::span<float> stats) {
  const int size = model.policy_size();
  const auto inputs = [&](int first, int n) {
    batch.GatherObs(shard, samples.subspan(first, n));
    return batch.obs.data();
  };
  const auto loss = [&](int first, int n, const OutputsAndGradients& o) {
    batch.GatherRest(shard, samples.subspan(first, n), rule.value_clip > 0);
    const PpoBatch gathered{.n = n,
                            .actions = batch.actions.data(),
                            .old_log_probs = batch.log_probs.data(),
                            .advantages = batch.advantages.data(),
                            .returns = batch.returns.data(),
                            .old_values = batch.values.data(),
                            .advantage_mean = scale.mean,
                            .advantage_scale = scale.scale};
    const auto& [outputs, stride] = o.policy;
    switch (model.head()) {
      case ActorCritic::Head::kCategorical:
        CategoricalPolicyLoss(gathered, rule, outputs, size, stride, o.d_policy, stats);
        break;
      case ActorCritic::Head::kParts:
        PartsPolicyLoss(gathered, rule, outputs, model.parts(), batch.masks, stride, o.d_policy, stats);
        break;
      case ActorCritic::Head::kGaussian:
        GaussianPolicyLoss(gathered, rule, outputs, size, stride, model.LogStd(tape.params()), o.d_policy,
                           model.LogStd(gradient), stats);
        break;
    }
    ValueLoss(gathered, rule, o.value.data, o.value.stride, o.d_value, stats);
  };
  model.AddGradient(static_cast<int>(samples.size()), tape, gradient, inputs, loss);
}

}  // namespace trireme
