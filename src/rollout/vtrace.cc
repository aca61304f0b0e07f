#include "trireme/rollout/vtrace.h"

#include "trireme/base/error.h"
#include "trireme/base/simd.h"
#include "trireme/nn/fast_math.h"

namespace trireme {
namespace {

// One time step of all environments; [B] each. `later` holds v_{t+1}, and `next_value` V(s_{t+1}).
struct VtraceStep {
  TRIREME_INLINE void Run(int envs, float gamma, float lambda, float rho_bar, float c_bar,
                          const float* __restrict log_ratio, const float* __restrict reward,
                          const float* __restrict value, const float* __restrict next_value,
                          const std::uint8_t* __restrict terminated, const std::uint8_t* __restrict truncated,
                          const float* __restrict final_value, const float* later, float* __restrict target,
                          float* __restrict advantage, float* __restrict weight) {
    for (int b = 0; b < envs; ++b) {
      const float ratio = FastExp(log_ratio[b]);
      const float rho = ratio < rho_bar ? ratio : rho_bar;
      const float c = lambda * (ratio < c_bar ? ratio : c_bar);
      const bool ends = (terminated[b] | truncated[b]) != 0;
      const float end_value = terminated[b] != 0 ? 0.0f : final_value[b];
      const float next = ends ? end_value : next_value[b];
      const float follows = ends ? end_value : later[b];
      const float delta = rho * (reward[b] + gamma * next - value[b]);
      target[b] = value[b] + delta + gamma * c * (follows - next);
      advantage[b] = reward[b] + gamma * follows - value[b];
      weight[b] = rho;
    }
  }
};

}  // namespace

void ComputeVtrace(const VtraceInput& in, std::span<float> targets, std::span<float> advantages,
                   std::span<float> weights) {
  const std::size_t envs = in.envs, samples = envs * in.steps;
  TRIREME_CHECK(in.steps > 0 && in.values.size() >= samples + envs && in.log_ratios.size() >= samples &&
                targets.size() >= samples && advantages.size() >= samples && weights.size() >= samples);
  for (int t = in.steps - 1; t >= 0; --t) {
    const std::size_t at = t * envs;
    // Beyond the last step V stands for the rest.
    const float* later = t == in.steps - 1 ? in.values.data() + at + envs : targets.data() + at + envs;
    SimdCall<VtraceStep>(in.envs, in.gamma, in.lambda, in.rho_bar, in.c_bar, in.log_ratios.data() + at,
                         in.rewards.data() + at, in.values.data() + at, in.values.data() + at + envs,
                         in.terminated.data() + at, in.truncated.data() + at, in.final_values.data() + at,
                         later, targets.data() + at, advantages.data() + at, weights.data() + at);
  }
}

}  // namespace trireme
