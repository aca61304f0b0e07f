// The environments of one shard, and how a trajectory is collected from them.
//
// Environments that step elsewhere (EnvFacts) are two groups, each a batch of its own. A worker collects with all its
// shards together: one half of their groups is on its way while actions are chosen for the other; with a single shard,
// that is one group each. What is collected does not depend on it, where a policy chooses for an environment alike in
// any company: draws are keyed by environment, and everything is recorded step by step, in the order of the
// environments. Groups are the same for any number of workers, and so is what is saved.
//
// Thread safety: none; a shard belongs to one worker.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/env/env.h"
#include "trireme/env/row.h"
#include "trireme/rollout/normaliser.h"
#include "trireme/rollout/trajectory.h"

namespace trireme {

// Which environments of the run a shard owns.
struct ShardSpec {
  int index = 0;           // 0 ... shards - 1
  int envs = 0;            // environments per shard
  std::uint64_t seed = 0;  // of all its randomness
  std::uint32_t first_env() const { return static_cast<std::uint32_t>(index * envs); }
};

// What a policy is asked: actions for environments that lie one after the other.
struct ActionRequest {
  std::uint64_t seed = 0;       // of the shard
  std::uint64_t step = 0;       // number of the step in the run
  std::uint32_t first_env = 0;  // number of the first environment in the run
  int n = 0;
  const float* obs = nullptr;           // [n, obs]
  const std::uint8_t* masks = nullptr;  // [n, choices], of obs; null where everything is always allowed
  float* actions = nullptr;             // [n, action_size], to be written
  float* extra = nullptr;  // [n], to be written if wanted: log-probabilities, for most algorithms
  const float* rows =
      nullptr;  // [n, width]: obs and masks as trajectories keep them; null where there are none of these
};

class Rollout {
 public:
  // Throws Error when the environment is not what its entry says (env/checked_batch.h).
  Rollout(const EnvEntry& env, const ShardSpec& shard, int steps);

  // Collects `steps` steps. policy(const ActionRequest&) is asked for all environments, in every step, in their
  // order; for some of them at a time where they step elsewhere. `normaliser` may be null, and is for
  // observations of floats. Throws Error when flags and lists of ended episodes contradict each other, and whatever
  // the environments throw; after that a rollout can only be destroyed.
  template <class Policy>
  void Collect(const Normaliser* normaliser, Policy&& policy) {
    const Turn turns[] = {{this, &groups_.front()}, {this, &groups_.back()}};
    Begin(normaliser);
    CollectInTurns({turns, groups_.size()}, normaliser, policy);
    End();
  }
  // The same with several of as many steps, at least one: all of them are on their way at the same time.
  template <class Policy>
  static void CollectTogether(std::span<Rollout* const> rollouts, const Normaliser* normaliser,
                              Policy&& policy) {
    std::vector<Turn> turns;
    for (Rollout* const rollout : rollouts) {
      for (const Group& group : rollout->groups_) turns.push_back({rollout, &group});
      rollout->Begin(normaliser);
    }
    CollectInTurns(turns, normaliser, policy);
    for (Rollout* const rollout : rollouts) rollout->End();
  }

  bool steps_elsewhere() const { return steps_elsewhere_; }
  int steps() const { return now_.steps; }
  int envs() const { return shard_.envs; }
  int samples() const { return now_.samples(); }
  const ShardSpec& shard() const { return shard_; }
  const EnvSpec& env_spec() const { return groups_[0].batch->spec(); }
  const RowLayout& layout() const { return layout_; }

  // What was collected last; its episodes are those since TakeEpisodes.
  const Trajectory& trajectory() const { return now_; }
  std::span<const float> obs() const { return now_.obs.span(); }
  std::span<const float> actions() const { return now_.actions.span(); }
  std::span<const float> extra() const { return now_.extra.span(); }
  std::span<float> rewards() { return now_.rewards.span(); }
  std::span<const std::uint8_t> terminated() const { return now_.terminated.span(); }
  std::span<const std::uint8_t> truncated() const { return now_.truncated.span(); }
  std::span<const int> truncated_samples() const { return now_.truncated_samples; }
  std::span<const float> truncated_obs() const { return now_.truncated_obs; }
  // Hands it over, for the memory of another one of the same shape, or of none yet.
  void Exchange(Trajectory& other);

  // What the normaliser needs to learn from the raw observations of this rollout; empty if there was none.
  std::span<const double> raw_sums() const { return raw_sums_; }

  // Runs the discounted return G <- discount * G + r of every environment through the collected rewards,
  // restarting where an episode ends, and adds each G to `sums`: what rewards are scaled by.
  void AddReturnsTo(std::span<double> sums, float discount, const Normaliser& normaliser);

  // Episodes that ended since the last call.
  EpisodeTotals TakeEpisodes();

  // Steps that every environment has taken; it goes on counting where Load has begun new episodes.
  std::uint64_t step_number() const { return step_number_; }

  // Of an environment that cannot be saved (EnvFacts::snapshots) only the step number is.
  void Save(StateWriter& out) const;
  // Returns whether the saved episodes go on. If they were not saved, or cannot be loaded, those that this rollout has
  // begun with its own seed remain.
  bool Load(const StateReader& in);

 private:
  // Environments first, first + 1, ... of the shard.
  struct Group {
    int first;
    std::unique_ptr<EnvBatch> batch;
  };
  struct Turn {
    Rollout* rollout;
    const Group* group;
  };

  // The groups of a rollout come one after the other. A half is awaited as a whole, the last of it first: a worker that
  // sleeps until then finds the others there.
  template <class Policy>
  static void CollectInTurns(std::span<const Turn> turns, const Normaliser* normaliser, Policy&& policy) {
    const std::size_t half = turns.size() / 2;
    const int steps = turns[0].rollout->steps();
    for (int t = 0; t < steps; ++t) {
      for (const std::span<const Turn> some : {turns.first(half), turns.subspan(half)}) {
        if (t > 0) EndStep(some, t - 1, normaliser);
        for (const auto& [rollout, group] : some) {
          policy(rollout->Request(*group, t));
          rollout->BeginStep(*group, t);
        }
      }
    }
    EndStep(turns, steps - 1, normaliser);
  }

  void Begin(const Normaliser* normaliser);
  ActionRequest Request(const Group& group, int t);
  void BeginStep(const Group& group, int t);
  static void EndStep(std::span<const Turn> turns, int t, const Normaliser* normaliser);
  void Record(const Group& group, int t, const Normaliser* normaliser);
  void End();
  void CheckFlags() const;
  // The sample of a group's first environment in step t.
  std::size_t SampleOf(const Group& group, int t) const {
    return static_cast<std::size_t>(t) * envs() + group.first;
  }
  // Writes what a group has to see now to its rows of step t, and returns these.
  float* PackObs(const Group& group, int t);
  // Normalises `n` rows where they lie.
  void Normalise(const Normaliser* normaliser, int n, float* rows) const;
  std::string Scope() const;
  std::string EnvScope(const Group& group) const;

  ShardSpec shard_;
  bool can_be_saved_, steps_elsewhere_;
  std::vector<Group> groups_;
  RowLayout layout_;
  std::size_t action_size_;
  std::uint64_t step_number_ = 0;  // of the whole run: keys the random draws of a step
  Trajectory now_;
  AlignedBuffer<float> running_returns_;  // [B], see AddReturnsTo
  std::size_t ended_ = 0;                 // episodes, in this rollout
  std::vector<double> raw_sums_;
  std::vector<float> unpacked_;  // scratch
};

}  // namespace trireme
