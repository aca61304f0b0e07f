// Environments: what one is, and how many copies are stepped at once.
//
// An EnvBatch holds `size` independent copies of one environment and steps them together. Every copy resets
// itself when its episode ends: the observation after a step that ended an episode is the first of the next
// one, and the last observation of the ended episode is in final_obs(), for bootstrapping. `terminated` (the
// task says so) and `truncated` (the time limit says so) are never merged.
//
// Randomness: the initial state of episode e of copy i is a pure function of (seed, purpose, first_id + i,
// e).
//
// Layouts: observations are structure-of-arrays, [obs_size, size], so that stepping vectorises; actions are
// [size, action_size]. A discrete action is its index stored as a float.
//
// Thread safety: none within a batch; different batches may be used from different threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/state.h"

namespace trireme {

struct ActionSpace {
  bool discrete = true;
  int choices = 0;               // discrete: number of actions
  std::vector<float> low, high;  // continuous: bounds of each dimension
  // Floats that one action takes.
  int size() const { return discrete ? 1 : static_cast<int>(low.size()); }
};

struct EnvSpec {
  std::string name;
  std::string help;  // one line for `trireme envs`
  int obs_size = 0;
  ActionSpace action;
  int max_episode_steps = 0;    // the time limit
  double reward_threshold = 0;  // return at which the task counts as solved
};

// An episode that ended in the last step.
struct EpisodeEnd {
  int env = 0;  // index within the batch
  int length = 0;
  double episode_return = 0;
  bool terminated = false;
};

class EnvBatch {
 public:
  virtual ~EnvBatch() = default;

  virtual const EnvSpec& spec() const = 0;
  virtual int size() const = 0;

  // Starts episode 0 of every copy. Copies are numbered first_id, first_id + 1, ... in the whole run.
  virtual void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) = 0;
  // Advances every copy by one step. actions: [size, action_size]. Actions outside the bounds are treated as
  // Gymnasium treats them (clipped where it clips). Allocates nothing.
  virtual void Step(std::span<const float> actions) = 0;
  // Replaces the state of copy i (the numbers that Save writes for it) and its observation, and leaves its
  // clock, return and episode number alone. For tests and for continuing from a known state.
  virtual void SetState(int i, std::span<const double> state) = 0;

  // Views of the last Reset or Step; valid until the next.
  virtual std::span<const float> obs() const = 0;                // [obs_size, size]
  virtual std::span<const float> final_obs() const = 0;          // [obs_size, size], meaningful where done
  virtual std::span<const float> rewards() const = 0;            // [size]
  virtual std::span<const std::uint8_t> terminated() const = 0;  // [size], 0 or 1
  virtual std::span<const std::uint8_t> truncated() const = 0;   // [size], 0 or 1; never both
  // Episodes that ended in the last step, in the order of their copies: `env` ascends.
  virtual std::span<const EpisodeEnd> finished() const = 0;

  // Everything needed to continue exactly: state, clocks, returns so far, episode numbers, seed.
  virtual void Save(StateWriter& out, const std::string& scope) const = 0;
  // Requires a snapshot of the same environment and size; throws Error otherwise. Restores obs() as well.
  virtual void Load(const StateReader& in, const std::string& scope) = 0;
};

// A row of the registry.
struct EnvEntry {
  EnvSpec spec;
  std::unique_ptr<EnvBatch> (*make)(int size);
};

// All environments, in the order `trireme envs` lists them.
std::span<const EnvEntry> AllEnvs();
// Throws Error with the nearest name when there is no such environment.
const EnvEntry& FindEnv(const std::string& name);

}  // namespace trireme
