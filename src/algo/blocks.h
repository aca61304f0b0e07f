// Small pieces that algorithms are put together from: making the shards of a worker, collecting with them, summing
// over the shards of all workers, and stepping along a gradient.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/comm/shard_sum.h"
#include "trireme/rollout/rollout.h"

namespace trireme {

// The shards of a worker: Shard(env, spec, args...), with an even part of `envs` environments each.
template <class Shard, class... Args>
std::vector<Shard> MakeShards(const WorkerContext& context, int envs, const Args&... args) {
  std::vector<Shard> shards;
  shards.reserve(context.own_shards);
  for (int s = 0; s < context.own_shards; ++s) {
    const ShardSpec spec{context.first_shard + s, envs / context.shards, context.seed};
    shards.emplace_back(context.env, spec, args...);
  }
  return shards;
}

// With room for a pass of learning, for a step of a shard's environments, and for Algorithm::Act.
inline std::unique_ptr<Tape> MakeWorkerTape(const WorkerContext& context, int envs) {
  return context.executor.MakeTape(
      std::max({context.executor.pass_size(), envs / context.shards, Algorithm::kMostActed}));
}

// Collects with all shards and hands each to then(shard). policy: see Rollout::Collect. One shard after the other, while
// what it has collected is in the cache; where environments step elsewhere, with all of them together.
template <class Shard, class Policy, class Then>
void CollectAll(std::vector<Shard>& shards, const Normaliser* normaliser, Policy&& policy, Then&& then) {
  if (!shards[0].rollout.steps_elsewhere()) {
    for (Shard& shard : shards) {
      shard.rollout.Collect(normaliser, policy);
      then(shard);
    }
    return;
  }
  std::vector<Rollout*> rollouts;
  for (Shard& shard : shards) rollouts.push_back(&shard.rollout);
  Rollout::CollectTogether(rollouts, normaliser, policy);
  for (Shard& shard : shards) then(shard);
}
template <class Shard, class Policy>
void CollectAll(std::vector<Shard>& shards, const Normaliser* normaliser, Policy&& policy) {
  CollectAll(shards, normaliser, policy, [](Shard&) {});
}

template <class Shard>
void SaveAll(const std::vector<Shard>& shards, StateWriter& out) {
  for (const Shard& shard : shards) shard.Save(out);
}
template <class Shard>
void LoadAll(std::vector<Shard>& shards, const StateReader& in) {
  for (Shard& shard : shards) shard.Load(in);
}

// The sum over all shards of all workers that move in step, where add(shard, sums) adds what a shard has to
// `sums`, zero at first. Valid until `sum` is used again.
template <class Shard, class Add>
std::span<const double> SumOverShards(std::vector<Shard>& shards, ParameterStore& store,
                                      ShardSum<double>& sum, Add&& add) {
  for (Shard& shard : shards) {
    add(shard, sum.Next());
    sum.Add();
  }
  const std::span<double> totals = sum.Total();
  store.Share(totals);
  return totals;
}

// The gradient steps of an iteration. Each sums the gradients of all shards and hands them to the store;
// statistics of the loss travel behind the gradient and come back as sums over all workers that took part.
class GradientSteps {
 public:
  // `stats` is their number.
  GradientSteps(const WorkerContext& context, std::size_t stats)
      : store_(context.store),
        params_(context.executor.network().param_count()),
        sum_(params_ + stats),
        totals_(stats) {}

  // A new iteration: count and means begin anew.
  void Begin() {
    std::ranges::fill(totals_, 0.0);
    norm_sum_ = 0;
    count_ = 0;
  }

  // One step, where add(shard, gradient, stats) adds what a shard has to both, zero at first. Returns the
  // statistics, valid until the next step. Throws Error when the gradient is not finite.
  template <class Shard, class Add>
  std::span<const float> Step(std::vector<Shard>& shards, const UpdateRule& rule, Add&& add) {
    for (Shard& shard : shards) {
      const std::span<float> own = sum_.Next();
      add(shard, own.first(params_), own.subspan(params_));
      sum_.Add();
    }
    const std::span<float> total = sum_.Total();
    const double norm = store_.Push(total, rule);
    CheckFinite(norm, "the gradient");
    const std::span<const float> stats = total.subspan(params_);
    for (std::size_t i = 0; i < stats.size(); ++i) totals_[i] += stats[i];
    norm_sum_ += norm;
    ++count_;
    return stats;
  }

  // Over the steps of the iteration; the mean of none is NaN.
  int count() const { return count_; }
  double total(std::size_t stat) const { return totals_[stat]; }
  double norm_mean() const { return norm_sum_ / count_; }

 private:
  ParameterStore& store_;
  std::size_t params_;
  ShardSum<float> sum_;
  std::vector<double> totals_;
  double norm_sum_ = 0;
  int count_ = 0;
};

}  // namespace trireme
