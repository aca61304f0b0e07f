// T steps of B environments: what collecting makes and learning reads.
//
// Observations are rows (env/row.h), [T, B, width], one sample after the other: as the environment gives them,
// bytes as bytes, with their masks; or normalised if the algorithm normalises. The observation after the last
// step is row T, so that values are computed for T + 1 rows in one pass. The last observations of truncated
// episodes are kept in a list, for bootstrapping.
//
// Thread safety: none; a trajectory belongs to whoever holds it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/env/row.h"

namespace trireme {

// Returns and lengths of episodes that ended.
struct EpisodeTotals {
  double count = 0, return_sum = 0, length_sum = 0;

  EpisodeTotals& operator+=(const EpisodeTotals& other) {
    count += other.count;
    return_sum += other.return_sum;
    length_sum += other.length_sum;
    return *this;
  }
};

struct Trajectory {
  // Without memory: for whoever takes one over.
  Trajectory() = default;
  Trajectory(const RowLayout& layout, std::size_t action_size, int steps, int envs)
      : steps(steps),
        envs(envs),
        obs((static_cast<std::size_t>(steps) + 1) * envs * layout.width()),
        actions(samples() * action_size),
        extra(samples()),
        rewards(samples()),
        terminated(samples()),
        truncated(samples()) {}

  // Memory that one takes, as long as no episode is cut off.
  static std::uint64_t Bytes(const RowLayout& layout, std::size_t action_size, int steps, int envs) {
    const auto samples = static_cast<std::uint64_t>(steps) * envs;
    return (samples + envs) * layout.width() * sizeof(float) +
           samples * ((action_size + 2) * sizeof(float) + 2);
  }

  int samples() const { return steps * envs; }

  int steps = 0, envs = 0;
  AlignedBuffer<float> obs;                // [T + 1, B, width]
  AlignedBuffer<float> actions;            // [T, B, action_size]
  AlignedBuffer<float> extra;              // [T, B], by the policy: log-probabilities, for most algorithms
  AlignedBuffer<float> rewards;            // [T, B]
  AlignedBuffer<std::uint8_t> terminated;  // [T, B]
  AlignedBuffer<std::uint8_t> truncated;   // [T, B]

  // Truncated episodes: sample index t * B + b, ascending, and last observation, [n, width].
  std::vector<int> truncated_samples;
  std::vector<float> truncated_obs;

  EpisodeTotals episodes;    // that ended in it
  std::uint64_t policy = 0;  // where others collect: the version of the policy that it began with
};

}  // namespace trireme
