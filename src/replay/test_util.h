// What the tests of this folder share.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/replay/transition.h"

namespace trireme {

// A transition that owns its numbers.
struct StoredTransition {
  std::vector<float> obs, next_obs, actions;
  float ret = 0, discount = 0;

  Transition View() const {
    return {.obs = obs.data(),
            .next_obs = next_obs.data(),
            .actions = actions.data(),
            .ret = ret,
            .discount = discount};
  }
  bool operator==(const StoredTransition&) const = default;
};

inline StoredTransition Stored(const Transition& t, int obs_size, int action_size) {
  return {{t.obs, t.obs + obs_size},
          {t.next_obs, t.next_obs + obs_size},
          {t.actions, t.actions + action_size},
          t.ret,
          t.discount};
}

inline StoredTransition RowOf(const TransitionBatch& batch, std::size_t row, int obs_size, int action_size) {
  return Stored({.obs = batch.obs.data() + row * obs_size,
                 .next_obs = batch.next_obs.data() + row * obs_size,
                 .actions = batch.actions.data() + row * action_size,
                 .ret = batch.returns[row],
                 .discount = batch.discounts[row]},
                obs_size, action_size);
}

inline std::vector<float> RandomFloats(int n, RandomStream& random) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = static_cast<float>(random.NextNormal());
  return values;
}

inline StoredTransition RandomTransition(int obs_size, int action_size, RandomStream& random) {
  StoredTransition t{RandomFloats(obs_size, random), RandomFloats(obs_size, random),
                     RandomFloats(action_size, random), 0, 0};
  t.ret = static_cast<float>(random.NextNormal());
  t.discount = static_cast<float>(random.NextUniform());
  return t;
}

// Bytes asked for by aligned allocations since the program started.
std::uint64_t AllocatedBytes();

}  // namespace trireme
