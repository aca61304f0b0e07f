// Generalised advantage estimation (Schulman et al. 2016) over a rollout of T steps of B environments.
//
//   delta_t = r_t + gamma * next_t - V(s_t)
//   A_t     = delta_t + gamma * lambda * A_{t+1}      (the chain stops where an episode ends)
//   return  = A_t + V(s_t)
//
// next_t is V(s_{t+1}) inside an episode, 0 where it terminated, and the value of the episode's own last
// observation where it was cut off by the time limit: a truncated episode has a future, a terminated one has
// none.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

struct GaeInput {
  int steps = 0, envs = 0;
  std::span<const float> rewards;  // [T, B]
  std::span<const float> values;   // [T + 1, B]; the last row belongs to the state after the rollout
  std::span<const std::uint8_t> terminated;  // [T, B]
  std::span<const std::uint8_t> truncated;   // [T, B]
  std::span<const float> final_values;       // [T, B], read only where truncated
  float gamma = 0, lambda = 0;
};

// Writes advantages and returns, both [T, B].
void ComputeGae(const GaeInput& in, std::span<float> advantages, std::span<float> returns);

}  // namespace trireme
