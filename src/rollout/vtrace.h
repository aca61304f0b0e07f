// V-trace (Espeholt et al. 2018, arXiv:1802.01561): values and advantages of a policy pi from experience that another
// policy mu has collected, over a trajectory of T steps of B environments.
//
//   rho_t = min(rho_bar, pi/mu)      c_t = lambda min(c_bar, pi/mu)      pi/mu = pi(a_t|s_t) / mu(a_t|s_t)
//   delta_t = rho_t (r_t + gamma next_t - V(s_t))
//   v_t     = V(s_t) + delta_t + gamma c_t (v_{t+1} - V(s_{t+1}))     (the chain stops where an episode ends)
//   A_t     = r_t + gamma v_{t+1} - V(s_t)
//
// next_t is V(s_{t+1}) inside an episode, 0 where it terminated, and the value of the episode's own last observation
// where it was cut off, as in gae.h; v_{t+1} in A_t is next_t where the chain stops and after the last step. The gradient
// of the policy has weight rho_t A_t. Where pi = mu, lambda = 1 and neither bar
// is below 1, v_t is the n-step return to the end of the trajectory.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

struct VtraceInput {
  int steps = 0, envs = 0;
  std::span<const float> log_ratios;  // [T, B], log pi/mu
  std::span<const float> rewards;     // [T, B]
  std::span<const float> values;      // [T + 1, B]; the last row belongs to the state after the trajectory
  std::span<const std::uint8_t> terminated;  // [T, B]
  std::span<const std::uint8_t> truncated;   // [T, B]
  std::span<const float> final_values;       // [T, B], read only where truncated
  float gamma = 0, lambda = 1, rho_bar = 1, c_bar = 1;
};

// Writes v_t, A_t and rho_t, [T, B] each.
void ComputeVtrace(const VtraceInput& in, std::span<float> targets, std::span<float> advantages,
                   std::span<float> weights);

}  // namespace trireme
