// The clipped surrogate loss of PPO and its gradient with respect to the network's outputs, sample by sample.
//
// With r = pi(a|s) / pi_old(a|s), advantage A, entropy H, and everything divided by the size of the
// mini-batch:
//
//   L = -min(r A, clip(r, 1-c, 1+c) A) - c_H H + c_V 1/2 (V - R)^2
//
//   dL/dlog pi(a|s) = -r A where the first term of the min is the smaller one, else 0
//   dL/dV           = c_V (V - R)
//
// Value clipping (if on) takes the larger of (V - R)^2 and (V_old + clip(V - V_old, -v, v) - R)^2; the
// gradient of the second is zero wherever it differs from the first.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

// One shard's part of a mini-batch, gathered.
struct PpoBatch {
  int n = 0;
  const float* actions = nullptr;        // [n, action_size]
  const float* old_log_probs = nullptr;  // [n]
  const float* advantages = nullptr;     // [n], before normalisation
  const float* returns = nullptr;        // [n]
  const float* old_values = nullptr;     // [n], read only with value clipping
  float advantage_mean = 0;              // A = (advantage - mean) * scale
  float advantage_scale = 1;
};

struct PpoLossRule {
  float clip = 0.2f;
  float value_clip = 0;  // 0: off
  float value_coef = 0.5f;
  float entropy_coef = 0;
  float per_sample = 1;  // 1 / size of the mini-batch over all shards
};

// Sums over samples, in the order they travel behind the gradient.
enum PpoStat { kPolicyLoss, kValueLoss, kEntropy, kApproxKl, kClipped, kPpoStats };

// Categorical policy over `choices` logits. Sample b's logits are logits[b * stride ...]; d_logits has the
// same stride. Adds to `stats`.
void CategoricalPolicyLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* logits, int choices,
                           int stride, float* d_logits, std::span<float> stats);

// The same for actions of several parts, whose logits follow each other, and for masks: [n, all choices], or
// null where everything is allowed.
void PartsPolicyLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* logits,
                     std::span<const int> parts, const std::uint8_t* masks, int stride, float* d_logits,
                     std::span<float> stats);

// Gaussian policy over `size` means, with the given log standard deviations. Adds to d_log_std and `stats`.
void GaussianPolicyLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* means, int size,
                        int stride, std::span<const float> log_std, float* d_means,
                        std::span<float> d_log_std, std::span<float> stats);

// values and d_values have sample b at b * stride.
void ValueLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* values, int stride,
               float* d_values, std::span<float> stats);

}  // namespace trireme
