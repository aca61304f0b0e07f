// Experience that outlives the policy it was collected with: what one shard collects and remembers, and the
// batches that are drawn from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/replay/n_step.h"
#include "trireme/replay/replay_buffer.h"
#include "trireme/replay/sampler.h"
#include "trireme/rollout/rollout.h"

namespace trireme {

struct ReplayConfig {
  int replay = 50'000;
  int n_step = 1;
  bool prioritised = false;
  double priority_alpha = 0.6;
  double priority_beta = 0.4;
  double priority_eps = 1e-2;

  void SizeField(ConfigFields& field);
  void NStepField(ConfigFields& field);
  // Whether to draw by priority, and how; how, where that is always done.
  void PriorityFields(ConfigFields& field);
  void RuleFields(ConfigFields& field);

  // How far the bias of prioritised sampling is taken out at `progress` of the run.
  double Beta(double progress) const;
  // Memory for what is remembered and for rollouts of `envs` environments, over all shards.
  std::uint64_t Bytes(const EnvSpec& env, int envs, int horizon) const;
};

// One shard's part of a batch.
struct ReplayBatch {
  ReplayBatch(std::size_t size, const EnvSpec& env)
      : slots(size), transitions(size, RowLayout(env), env.action.size()), weights(size) {}

  std::size_t size() const { return slots.size(); }

  std::vector<std::uint32_t> slots;
  TransitionBatch transitions;
  std::vector<float> weights;  // written by prioritised sampling
};

struct OffPolicyShard {
  // Remembers 1 / shards of config.replay.
  OffPolicyShard(const EnvEntry& env, const ShardSpec& spec, int horizon, const ReplayConfig& config,
                 double gamma, int shards);

  // Moves what was collected into the replay buffer.
  void Remember();
  // Draws batch number `number` of the run. Requires that something is remembered.
  void Sample(std::uint64_t number, double beta, ReplayBatch& batch);

  void Save(StateWriter& out) const;
  // Where new episodes begin (Rollout::Load), steps that waited for their n-step transition are forgotten.
  void Load(const StateReader& in);

  Rollout rollout;
  NStep n_step;
  ReplayBuffer replay;
  std::optional<PrioritisedSampler> priorities;

 private:
  std::string Scope() const { return fmt::format("shard/{}", rollout.shard().index); }
};

}  // namespace trireme
