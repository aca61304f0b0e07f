#include "trireme/rollout/gae.h"

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

struct GaeStep {
  // One time step of all environments; `carry` [B] holds A_{t+1} and receives A_t.
  [[gnu::always_inline]] static inline void Run(
      int envs, float gamma, float lambda, const float* __restrict reward, const float* __restrict value,
      const float* __restrict next_value, const std::uint8_t* __restrict terminated,
      const std::uint8_t* __restrict truncated, const float* __restrict final_value,
      const float* __restrict carry, float* __restrict advantage, float* __restrict ret) {
    for (int b = 0; b < envs; ++b) {
      const float ended = terminated[b] != 0 ? 0.0f : next_value[b];
      const float next = truncated[b] != 0 ? final_value[b] : ended;
      const float chain = (terminated[b] | truncated[b]) != 0 ? 0.0f : carry[b];
      const float delta = reward[b] + gamma * next - value[b];
      advantage[b] = delta + gamma * lambda * chain;
      ret[b] = advantage[b] + value[b];
    }
  }
};

}  // namespace

void ComputeGae(const GaeInput& in, std::span<float> advantages, std::span<float> returns) {
  const std::size_t envs = in.envs;
  TRIREME_CHECK(in.values.size() >= envs * (in.steps + 1) && advantages.size() >= envs * in.steps &&
                in.steps > 0);
  for (int t = in.steps - 1; t >= 0; --t) {
    const std::size_t at = t * envs;
    // Beyond the last step nothing is carried: V of the state after the rollout stands for the rest, and
    // delta's own bootstrap already has it. Multiplying by lambda = 0 expresses that without a second kernel.
    const bool last = t == in.steps - 1;
    const float* carry = last ? in.values.data() : advantages.data() + at + envs;
    SimdCall<GaeStep>(in.envs, in.gamma, last ? 0.0f : in.lambda, in.rewards.data() + at,
                      in.values.data() + at, in.values.data() + at + envs, in.terminated.data() + at,
                      in.truncated.data() + at, in.final_values.data() + at, carry, advantages.data() + at,
                      returns.data() + at);
  }
}

}  // namespace trireme
