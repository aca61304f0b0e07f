#include "trireme/algo/a2c_loss.h"

#include <cstddef>
#include <numeric>

#include "trireme/algo/policy_kernels.h"
#include "trireme/base/simd.h"
#include "trireme/nn/vec.h"

namespace trireme {
namespace {

struct AdvantageGradient {
  const A2cBatch& batch;
  const A2cLossRule& rule;
  float* stats;

  template <class T>
  [[gnu::always_inline]] T operator()(int b, const T& log_prob) const {
    const T advantage = (LoadAs<T>(batch.advantages + b) - batch.advantage_mean) * batch.advantage_scale;
    stats[kA2cPolicyLoss] -= SumOf(advantage * log_prob);
    return -advantage * rule.per_sample;
  }
};

PolicyPass MakePass(const A2cBatch& batch, const A2cLossRule& rule, const float* outputs, int size,
                    int stride, float* d_outputs, std::span<float> stats) {
  return {.n = batch.n,
          .size = size,
          .stride = stride,
          .actions = batch.actions,
          .outputs = outputs,
          .d_outputs = d_outputs,
          .entropy_coef = rule.entropy_coef,
          .per_sample = rule.per_sample,
          .entropy_sum = &stats[kA2cEntropy]};
}

struct SquaredErrorKernel {
  template <class T>
  TRIREME_INLINE void Samples(const A2cBatch& batch, const A2cLossRule& rule, const float* values, int stride,
                              int b, float* d_values, float* stats) {
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(b) * stride;
    const T error = LoadStrided<T>(values + at, stride) - LoadAs<T>(batch.returns + b);
    stats[kA2cValueLoss] += SumOf(0.5f * error * error);
    StoreStrided<T>(d_values + at, stride, rule.value_coef * rule.per_sample * error);
  }

  TRIREME_INLINE void Run(const A2cBatch* batch, const A2cLossRule* rule, const float* values, int stride,
                          float* d_values, float* stats) {
    int b = 0;
    for (; b + 8 <= batch->n; b += 8) Samples<Vec8>(*batch, *rule, values, stride, b, d_values, stats);
    for (; b < batch->n; ++b) Samples<float>(*batch, *rule, values, stride, b, d_values, stats);
  }
};

}  // namespace

void A2cCategoricalLoss(const A2cBatch& batch, const A2cLossRule& rule, const float* logits, int choices,
                        int stride, float* d_logits, std::span<float> stats) {
  CategoricalGradient(MakePass(batch, rule, logits, choices, stride, d_logits, stats),
                      AdvantageGradient{batch, rule, stats.data()});
}

void A2cPartsLoss(const A2cBatch& batch, const A2cLossRule& rule, const float* logits,
                  std::span<const int> parts, const std::uint8_t* masks, int stride, float* d_logits,
                  std::span<float> stats) {
  const int choices = std::accumulate(parts.begin(), parts.end(), 0);
  PartsGradient(MakePass(batch, rule, logits, choices, stride, d_logits, stats), parts, masks,
                AdvantageGradient{batch, rule, stats.data()});
}

void A2cGaussianLoss(const A2cBatch& batch, const A2cLossRule& rule, const float* means, int size, int stride,
                     std::span<const float> log_std, float* d_means, std::span<float> d_log_std,
                     std::span<float> stats) {
  GaussianGradient(MakePass(batch, rule, means, size, stride, d_means, stats), log_std, d_log_std,
                   AdvantageGradient{batch, rule, stats.data()});
}

void A2cValueLoss(const A2cBatch& batch, const A2cLossRule& rule, const float* values, int stride,
                  float* d_values, std::span<float> stats) {
  SimdCall<SquaredErrorKernel>(&batch, &rule, values, stride, d_values, stats.data());
}

}  // namespace trireme
