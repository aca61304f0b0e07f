// Turns the single steps of B environments into transitions over n steps (Sutton, 1988; for value learning
// with replay see Hessel et al., "Rainbow", 2018).
//
// A window per environment holds its last steps. Once it holds n, each further step completes the oldest:
//
//   ret = r_0 + gamma r_1 + ... + gamma^(n-1) r_(n-1),   next_obs = the observation after n steps,
//   discount = gamma^n.
//
// When an episode ends, everything pending is completed with the k < n or k = n steps there are: discount 0
// if it terminated, gamma^k if it was truncated, and next_obs is the episode's own last observation. No
// transition ever spans two episodes, and every step becomes the start of exactly one transition.
//
// Bits: ret is computed from its end, R_i = r_i + gamma * R_(i+1), in double, and rounded to float once;
// gamma^k is gamma multiplied k times in double, and rounded to float once.
//
// Thread safety: none. Append allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/state.h"
#include "trireme/replay/transition.h"

namespace trireme {

class NStep {
 public:
  // Requires positive sizes and 0 <= gamma <= 1. obs_width: floats of a row (env/row.h).
  NStep(int envs, int n, double gamma, int obs_width, int action_size);

  // Takes one step of environment `env`: what was observed, done and received, and what was observed next
  // (where an episode is truncated its last observation, not the first of the next one; where it terminated,
  // anything). Calls sink(const Transition&) for each transition this completes, oldest first; what the transition
  // points to is valid during the call only. If both flags are set, the episode counts as terminated.
  template <class Sink>
  void Append(int env, const float* obs, const float* action, float reward, const float* next_obs,
              bool terminated, bool truncated, Sink&& sink) {
    if (n_ == 1) {
      sink(Transition{.obs = obs,
                      .next_obs = next_obs,
                      .actions = action,
                      .ret = reward,
                      .discount = terminated ? 0.0f : discounts_[1]});
      return;
    }
    Window& window = windows_[static_cast<std::size_t>(env)];
    Push(env, window, obs, action, reward);
    if (!terminated && !truncated && window.count < n_) return;
    const bool ended = terminated || truncated;
    do {
      const std::size_t at = Row(env, window.first);
      sink(Transition{.obs = obs_.data() + at * obs_width_,
                      .next_obs = next_obs,
                      .actions = actions_.data() + at * action_size_,
                      .ret = Return(env, window),
                      .discount = terminated ? 0.0f : discounts_[static_cast<std::size_t>(window.count)]});
      window.first = window.first + 1 == n_ ? 0 : window.first + 1;
      --window.count;
    } while (ended && window.count > 0);
  }

  int n() const { return n_; }
  // Steps of `env` that wait for their transition; below n() between calls of Append.
  int pending(int env) const { return windows_[static_cast<std::size_t>(env)].count; }

  // Everything pending. A loaded object continues bit for bit.
  void Save(StateWriter& out, const std::string& scope) const;
  // Throws Error when the saved state has another shape or is damaged.
  void Load(const StateReader& in, const std::string& scope);

 private:
  // Steps first, first + 1, ..., first + count - 1 (modulo n) of an environment are pending.
  struct Window {
    std::int32_t first = 0, count = 0;
  };

  // Where step i (below n) of an environment's window is stored.
  std::size_t Row(int env, int i) const { return static_cast<std::size_t>(env) * n_ + i; }
  void Push(int env, Window& window, const float* obs, const float* action, float reward) {
    const int last = window.first + window.count;
    const std::size_t at = Row(env, last < n_ ? last : last - n_);
    std::copy_n(obs, obs_width_, obs_.data() + at * obs_width_);
    std::copy_n(action, action_size_, actions_.data() + at * action_size_);
    rewards_[at] = reward;
    ++window.count;
  }
  // The discounted sum of all pending rewards.
  float Return(int env, const Window& window) const;

  int n_;
  double gamma_;
  std::size_t obs_width_, action_size_;
  std::vector<float> discounts_;  // [n + 1], gamma^k
  std::vector<Window> windows_;   // [B]
  AlignedBuffer<float> obs_;      // [B, n, obs_width]; empty for n = 1, as the next two
  AlignedBuffer<float> actions_;  // [B, n, action_size]
  AlignedBuffer<float> rewards_;  // [B, n]
};

}  // namespace trireme
