#include "trireme/algo/ppo_loss.h"

#include <cstddef>
#include <numeric>

#include "trireme/algo/policy_kernels.h"
#include "trireme/base/simd.h"
#include "trireme/nn/fast_math.h"
#include "trireme/nn/vec.h"

namespace trireme {
namespace {

// dL/dlog pi of the surrogate, and the statistics of the ratio.
struct SurrogateGradient {
  const PpoBatch& batch;
  const PpoLossRule& rule;
  float* stats;

  template <class T>
  [[gnu::always_inline]] T operator()(int b, const T& log_prob) const {
    const T advantage = (LoadAs<T>(batch.advantages + b) - batch.advantage_mean) * batch.advantage_scale;
    const T log_ratio = log_prob - LoadAs<T>(batch.old_log_probs + b);
    const T ratio = FastExp(log_ratio);
    const T low = T{} + (1.0f - rule.clip), high = T{} + (1.0f + rule.clip);
    const T clipped = Min(Max(ratio, low), high);
    const T plain_term = ratio * advantage;
    const T clipped_term = clipped * advantage;
    stats[kPolicyLoss] -= SumOf(Min(plain_term, clipped_term));
    stats[kApproxKl] += SumOf(ratio - 1.0f - log_ratio);  // unbiased and never negative (Schulman 2020)
    stats[kClipped] += SumOf(((ratio < low) | (ratio > high)) ? T{} + 1.0f : T{});
    return plain_term <= clipped_term ? -plain_term * rule.per_sample : T{};
  }
};

PolicyPass MakePass(const PpoBatch& batch, const PpoLossRule& rule, const float* outputs, int size,
                    int stride, float* d_outputs, std::span<float> stats) {
  return {.n = batch.n,
          .size = size,
          .stride = stride,
          .actions = batch.actions,
          .outputs = outputs,
          .d_outputs = d_outputs,
          .entropy_coef = rule.entropy_coef,
          .per_sample = rule.per_sample,
          .entropy_sum = &stats[kEntropy]};
}

struct ValueKernel {
  template <class T>
  TRIREME_INLINE void Samples(const PpoBatch& batch, const PpoLossRule& rule, const float* values, int stride,
                              int b, float* d_values, float* stats) {
    const T value = LoadStrided<T>(values + static_cast<std::ptrdiff_t>(b) * stride, stride);
    const T target = LoadAs<T>(batch.returns + b);
    const T error = value - target;
    T loss = 0.5f * error * error;
    T d = error;
    if (rule.value_clip > 0) {
      const T old = LoadAs<T>(batch.old_values + b);
      const T limit = T{} + rule.value_clip;
      const T moved = value - old;
      const T near_error = old + Min(Max(moved, -limit), limit) - target;
      const T near_loss = 0.5f * near_error * near_error;
      // Within the limit the two differ by rounding only, and the gradient is that of the plain loss.
      const auto beyond = (moved > limit) | (moved < -limit);
      d = beyond ? (near_loss > loss ? T{} : d) : d;
      loss = Max(loss, near_loss);
    }
    stats[kValueLoss] += SumOf(loss);
    StoreStrided<T>(d_values + static_cast<std::ptrdiff_t>(b) * stride, stride,
                    rule.value_coef * rule.per_sample * d);
  }

  TRIREME_INLINE void Run(const PpoBatch* batch, const PpoLossRule* rule, const float* values, int stride,
                          float* d_values, float* stats) {
    int b = 0;
    for (; b + 8 <= batch->n; b += 8) Samples<Vec8>(*batch, *rule, values, stride, b, d_values, stats);
    for (; b < batch->n; ++b) Samples<float>(*batch, *rule, values, stride, b, d_values, stats);
  }
};

}  // namespace

void CategoricalPolicyLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* logits, int choices,
                           int stride, float* d_logits, std::span<float> stats) {
  CategoricalGradient(MakePass(batch, rule, logits, choices, stride, d_logits, stats),
                      SurrogateGradient{batch, rule, stats.data()});
}

void PartsPolicyLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* logits,
                     std::span<const int> parts, const std::uint8_t* masks, int stride, float* d_logits,
                     std::span<float> stats) {
  const int choices = std::accumulate(parts.begin(), parts.end(), 0);
  PartsGradient(MakePass(batch, rule, logits, choices, stride, d_logits, stats), parts, masks,
                SurrogateGradient{batch, rule, stats.data()});
}

void GaussianPolicyLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* means, int size,
                        int stride, std::span<const float> log_std, float* d_means,
                        std::span<float> d_log_std, std::span<float> stats) {
  GaussianGradient(MakePass(batch, rule, means, size, stride, d_means, stats), log_std, d_log_std,
                   SurrogateGradient{batch, rule, stats.data()});
}

void ValueLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* values, int stride,
               float* d_values, std::span<float> stats) {
  SimdCall<ValueKernel>(&batch, &rule, values, stride, d_values, stats.data());
}

}  // namespace trireme
