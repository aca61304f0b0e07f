// A learner that remembers for itself: each round it takes what was collected, a trajectory for each shard, into the memory
// of that shard, and draws from it.
//
// Thread safety: belongs to the learner's thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/experience/replay_source.h"
#include "trireme/experience/source.h"

namespace trireme {

class RememberedExperience final : public ReplaySource {
 public:
  // What a worker has of the shards of a run.
  struct Shards {
    int first = 0, own = 1, all = 1;
    std::uint64_t seed = 0;
  };
  // Shard i remembers what source gives it: rules.capacity transitions, of trajectories of `envs` environments. `part` are
  // drawn at a time. `source` outlives it.
  RememberedExperience(ExperienceSource& source, const Shards& shards, const ReplayRules& rules,
                       const EnvSpec& env, int envs, std::size_t part);

  void Begin(std::span<const float> params) override;
  bool Holds(int shard, std::uint64_t steps) const override {
    return parts_[shard].inserted() * static_cast<std::uint64_t>(shards_.all) >= steps;
  }
  const ReplayDraw& Draw(int shard, std::uint64_t number, double beta) override;
  void Correct(int shard, std::span<const float> errors) override {
    parts_[shard].Update(draw_.numbers, errors);
  }
  EpisodeTotals TakeEpisodes(int shard) override { return std::exchange(episodes_[shard], {}); }
  void Save(StateWriter& out) const override;
  void Load(const StateReader& in) override;

 private:
  std::string Scope(std::size_t shard) const;

  ExperienceSource& source_;
  Shards shards_;
  std::vector<ReplayPart> parts_;
  std::vector<EpisodeTotals> episodes_;
  ReplayDraw draw_;
};

}  // namespace trireme
