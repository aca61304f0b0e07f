#include "trireme/algo/off_policy.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme {

void ReplayConfig::SizeField(ConfigFields& field) {
  field("replay", replay, "transitions that are remembered, over all shards", Between(1, 2e9))
      .Tune(Search::PowersOfTwo(8192, 131'072).Shapes());
}

void ReplayConfig::NStepField(ConfigFields& field) {
  field("n_step", n_step, "rewards summed up before the value of a later state takes over", Between(1, 1000))
      .Tune(Search::Linear(1, 5).Shapes());
}

void ReplayConfig::PriorityFields(ConfigFields& field) {
  field("prioritised", prioritised, "draw transitions with large errors more often")
      .Tune(Search::TrueOrFalse().Shapes());
  field("priority_alpha", priority_alpha, "prioritised: how much errors count; 0: not at all", UnitInterval())
      .Tune(Search::Linear(0.2, 1).When("prioritised", {"true"}));
  field("priority_beta", priority_beta,
        "prioritised: how far the bias is taken out at the start; 1 at the end", UnitInterval())
      .Tune(Search::Linear(0.2, 1).When("prioritised", {"true"}));
  field("priority_eps", priority_eps, "prioritised: added to every error", UnitInterval());
}

void ReplayConfig::RuleFields(ConfigFields& field) {
  field("priority_alpha", priority_alpha, "how much errors count when transitions are drawn; 0: not at all",
        UnitInterval())
      .Tune(Search::Linear(0.2, 1));
  field("priority_beta", priority_beta, "how far the bias of that is taken out at the start; 1 at the end",
        UnitInterval())
      .Tune(Search::Linear(0.2, 1));
  field("priority_eps", priority_eps, "added to every error", UnitInterval());
}

double ReplayConfig::Beta(double progress) const {
  return priority_beta + (1 - priority_beta) * std::min(1.0, progress);
}

// Beside the replay: one rollout of steps, and steps that wait for their n-step transition.
std::uint64_t ReplayConfig::Bytes(const EnvSpec& env, int envs, int horizon) const {
  const RowLayout layout(env);
  const std::uint64_t step = layout.width() + env.action.size() + 3;
  const std::uint64_t steps = std::uint64_t(horizon) + 1 + (n_step > 1 ? n_step : 0);
  return ReplayBuffer::Bytes(replay, layout, env.action.size()) +
         (prioritised ? PrioritisedSampler::Bytes(replay) : 0) + envs * steps * step * sizeof(float);
}

OffPolicyShard::OffPolicyShard(const EnvEntry& env, const ShardSpec& spec, int horizon,
                               const ReplayConfig& config, double gamma, int shards)
    : rollout(env, spec, horizon),
      n_step(spec.envs, config.n_step, gamma, static_cast<int>(rollout.layout().width()),
             env.spec.action.size()),
      replay(config.replay / shards, rollout.layout(), env.spec.action.size()) {
  if (config.prioritised) {
    priorities.emplace(config.replay / shards, config.priority_alpha, config.priority_eps);
  }
}

// A truncated episode has its own last observation.
void OffPolicyShard::Remember() {
  const std::size_t width = rollout.layout().width(), action_size = rollout.env_spec().action.size();
  const auto store = [&](const Transition& transition) {
    const std::size_t slot = replay.Add(transition);
    if (priorities) priorities->Added(slot);
  };
  std::size_t cut_off = 0;  // into the list of truncated episodes
  for (int i = 0; i < rollout.samples(); ++i) {
    const bool truncated = rollout.truncated()[i] != 0;
    TRIREME_CHECK(!truncated || rollout.truncated_samples()[cut_off] == i);
    const float* next_obs = truncated ? rollout.truncated_obs().data() + cut_off++ * width
                                      : rollout.obs().data() + (i + rollout.envs()) * width;
    n_step.Append(i % rollout.envs(), rollout.obs().data() + i * width,
                  rollout.actions().data() + i * action_size, rollout.rewards()[i], next_obs,
                  rollout.terminated()[i] != 0, truncated, store);
  }
}

void OffPolicyShard::Sample(std::uint64_t number, double beta, ReplayBatch& batch) {
  RandomStream random(rollout.shard().seed, Purpose::kReplay,
                      static_cast<std::uint32_t>(rollout.shard().index), number);
  if (priorities) {
    priorities->Sample(random, beta, batch.slots, batch.weights);
  } else {
    SampleUniform(random, replay.size(), batch.slots);
  }
  replay.Gather(batch.slots, batch.transitions);
}

void OffPolicyShard::Save(StateWriter& out) const {
  rollout.Save(out);
  n_step.Save(out, Scope() + "/n_step");
  replay.Save(out, Scope() + "/replay");
  if (priorities) priorities->Save(out, Scope() + "/priorities");
}

void OffPolicyShard::Load(const StateReader& in) {
  if (rollout.Load(in)) n_step.Load(in, Scope() + "/n_step");
  replay.Load(in, Scope() + "/replay");
  if (priorities) priorities->Load(in, Scope() + "/priorities");
}

}  // namespace trireme
