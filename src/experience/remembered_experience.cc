#include "trireme/experience/remembered_experience.h"

#include <fmt/format.h>

#include "trireme/base/rng.h"

namespace trireme {

RememberedExperience::RememberedExperience(ExperienceSource& source, const Shards& shards,
                                           const ReplayRules& rules, const EnvSpec& env, int envs,
                                           std::size_t part)
    : source_(source),
      shards_(shards),
      episodes_(static_cast<std::size_t>(shards.own)),
      draw_(part, RowLayout(env), env.action.size()) {
  parts_.reserve(episodes_.size());
  for (int i = 0; i < shards.own; ++i) parts_.emplace_back(rules, env, envs);
}

void RememberedExperience::Begin(std::span<const float> params) {
  const std::span<const Trajectory* const> trajectories = source_.Next(params);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Trajectory& trajectory = *trajectories[i];
    parts_[i].Insert(trajectory);
    episodes_[i] += trajectory.episodes;
  }
}

const ReplayDraw& RememberedExperience::Draw(int shard, std::uint64_t number, double beta) {
  RandomStream random(shards_.seed, Purpose::kReplay, static_cast<std::uint32_t>(shards_.first + shard),
                      number);
  parts_[shard].Sample(random, beta, draw_);
  return draw_;
}

std::string RememberedExperience::Scope(std::size_t shard) const {
  return fmt::format("shard/{}", shards_.first + static_cast<int>(shard));
}

void RememberedExperience::Save(StateWriter& out) const {
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].Save(out, Scope(i));
}

void RememberedExperience::Load(const StateReader& in) {
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].Load(in, Scope(i));
}

}  // namespace trireme
