// Collecting as actors do: for learners elsewhere, or in the worker that learns.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/algo/blocks.h"
#include "trireme/experience/source.h"

namespace trireme {

// A shard's environments, and what chooses for them, which outlives it.
class Collector {
 public:
  Collector(const EnvEntry& env, const ShardSpec& spec, int steps, Acting& acting)
      : acting_(acting), rollout_(env, spec, steps) {}

  // to <- one trajectory by the policy of `params`; the memory that `to` had is used for the next. Throws Error.
  void Collect(std::span<const float> params, Trajectory& to) {
    acting_.SetParams(params);
    rollout_.Collect(nullptr, [this](const ActionRequest& request) { acting_.Choose(request); });
    rollout_.Exchange(to);
    if (acting_.notes()) acting_.Note(to);
  }

 private:
  Acting& acting_;
  Rollout rollout_;
};

// Nobody chooses any longer: thrown through a rollout, which can then only be destroyed.
struct ChoicesEnd {};

// Choices that are made elsewhere, with parameters that are as new as those it is given, or newer.
class ElsewhereActing final : public Acting {
 public:
  // `ask` writes what Choose does, or throws ChoicesEnd.
  explicit ElsewhereActing(std::function<void(const ActionRequest&)> ask) : ask_(std::move(ask)) {}

  void SetParams(std::span<const float> /*params*/) override {}
  void Choose(const ActionRequest& request) override { ask_(request); }

 private:
  std::function<void(const ActionRequest&)> ask_;
};

// A worker that collects for itself: what it learns from next was collected with the parameters it has.
class OwnRollouts final : public ExperienceSource {
 public:
  // `acting` outlives it.
  OwnRollouts(const WorkerContext& context, int envs, int horizon, Acting& acting)
      : acting_(acting), shards_(MakeShards<Shard>(context, envs, horizon)) {
    for (Shard& shard : shards_) views_.push_back(&shard.collected);
  }

  std::span<const Trajectory* const> Next(std::span<const float> params) override {
    acting_.SetParams(params);
    CollectAll(
        shards_, nullptr, [this](const ActionRequest& request) { acting_.Choose(request); },
        [this](Shard& shard) {
          shard.rollout.Exchange(shard.collected);
          if (acting_.notes()) acting_.Note(shard.collected);
        });
    return views_;
  }

  void Save(StateWriter& out) const { SaveAll(shards_, out); }
  // What actors have collected before was not saved: new episodes then.
  void Load(const StateReader& in) {
    if (in.Has(fmt::format("shard/{}/step_number", shards_[0].rollout.shard().index))) LoadAll(shards_, in);
  }

 private:
  struct Shard {
    Shard(const EnvEntry& env, const ShardSpec& spec, int horizon) : rollout(env, spec, horizon) {}
    void Save(StateWriter& out) const { rollout.Save(out); }
    void Load(const StateReader& in) { rollout.Load(in); }
    Rollout rollout;
    Trajectory collected;
  };

  Acting& acting_;
  std::vector<Shard> shards_;
  std::vector<const Trajectory*> views_;
};

}  // namespace trireme
