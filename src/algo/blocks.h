// Small pieces that algorithms are put together from: making the shards of a worker, collecting with them, summing
// over the shards of all workers, and stepping along a gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/comm/shard_sum.h"
#include "trireme/optim/loss_scale.h"
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
//
// Where the executor is loss_scaled(), a step whose gradient is not finite is left out, and the tape goes on with a
// smaller scale.
class GradientSteps {
 public:
  // `tape` is what gradients are computed with, and outlives it; `stats` is the number of statistics.
  GradientSteps(const WorkerContext& context, Tape& tape, std::size_t stats)
      : store_(context.store),
        tape_(tape),
        params_(context.executor.network().param_count()),
        sum_(params_ + stats),
        totals_(stats) {
    if (!context.executor.loss_scaled()) return;
    SetScale(LossScale());
    store_.ExpectOverflow();
  }

  // A new iteration: counts and means begin anew.
  void Begin() {
    std::ranges::fill(totals_, 0.0);
    norm_sum_ = 0;
    count_ = skipped_ = 0;
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
    Count(store_.Push(total, rule));
    const std::span<const float> stats = total.subspan(params_);
    for (std::size_t i = 0; i < stats.size(); ++i) totals_[i] += stats[i];
    return stats;
  }

  // Over the steps of the iteration; the mean of none is NaN.
  int count() const { return count_; }
  double total(std::size_t stat) const { return totals_[stat]; }
  double norm_mean() const { return norm_sum_ / (count_ - skipped_); }
  // "grad_norm" and "updates"; where losses are scaled "skipped_updates" and "loss_scale", too.
  void Report(MetricRow& row) const {
    row.Set("grad_norm", norm_mean());
    row.Set("updates", count_);
    if (!scale_) return;
    row.Set("skipped_updates", skipped_);
    row.Set("loss_scale", scale_->scale());
  }

  // What goes on in the next iteration: nothing, unless losses are scaled.
  void Save(StateWriter& out, const std::string& scope) const {
    if (scale_) scale_->Save(out, scope);
  }
  // A run that has computed in 32 bits before begins with the first scale. Throws Error.
  void Load(const StateReader& in, const std::string& scope) {
    if (!scale_ || !in.Has(scope + "/scale")) return;
    LossScale loaded;
    loaded.Load(in, scope);
    SetScale(loaded);
  }

 private:
  void SetScale(const LossScale& scale) {
    scale_ = scale;
    tape_.SetLossScale(scale.scale());
  }
  void Count(double norm) {
    ++count_;
    const bool finite = std::isfinite(norm);
    if (!scale_ || !scale_->Update(finite)) CheckFinite(norm, "the gradient");
    if (scale_) tape_.SetLossScale(scale_->scale());
    if (finite) {
      norm_sum_ += norm;
    } else {
      ++skipped_;
    }
  }

  ParameterStore& store_;
  Tape& tape_;
  std::size_t params_;
  ShardSum<float> sum_;
  std::vector<double> totals_;
  std::optional<LossScale> scale_;
  double norm_sum_ = 0;
  int count_ = 0, skipped_ = 0;
};

}  // namespace trireme
