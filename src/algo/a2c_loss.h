// The loss of advantage actor-critic and its gradient with respect to the network's outputs, sample by
// sample.
//
// With advantage A (a constant: no gradient flows through it), entropy H, return R, and everything divided by
// the size of the batch:
//
//   L = -A log pi(a|s) - c_H H + c_V 1/2 (V - R)^2
//
//   dL/dlog pi(a|s) = -A
//   dL/dV           = c_V (V - R)
//
// It is the surrogate of PPO (ppo_loss.h) where the policy is still the one that acted. Pure functions: safe
// to call from several threads on different outputs.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

// One shard's part of a batch.
struct A2cBatch {
  int n = 0;
  const float* actions = nullptr;     // [n, action_size]
  const float* advantages = nullptr;  // [n], before normalisation
  const float* returns = nullptr;     // [n]
  float advantage_mean = 0;           // A = (advantage - mean) * scale
  float advantage_scale = 1;
};

struct A2cLossRule {
  float value_coef = 0.5f;
  float entropy_coef = 0;
  float per_sample = 1;  // 1 / size of the batch over all shards
};

// Sums over samples, before any coefficient, in the order they travel behind the gradient.
enum A2cStat { kA2cPolicyLoss, kA2cValueLoss, kA2cEntropy, kA2cStats };

// Categorical policy over `choices` logits. Sample b's logits are logits[b * stride ...]; d_logits has the
// same stride. Adds to `stats`.
void A2cCategoricalLoss(const A2cBatch& batch, const A2cLossRule& rule, const float* logits, int choices,
                        int stride, float* d_logits, std::span<float> stats);

// The same for actions of several parts, whose logits follow each other, and for masks: [n, all choices], or
// null where everything is allowed.
void A2cPartsLoss(const A2cBatch& batch, const A2cLossRule& rule, const float* logits,
                  std::span<const int> parts, const std::uint8_t* masks, int stride, float* d_logits,
                  std::span<float> stats);

// Gaussian policy over `size` means, with the given log standard deviations. Adds to d_log_std and `stats`.
void A2cGaussianLoss(const A2cBatch& batch, const A2cLossRule& rule, const float* means, int size, int stride,
                     std::span<const float> log_std, float* d_means, std::span<float> d_log_std,
                     std::span<float> stats);

// values and d_values have sample b at b * stride. Adds to `stats`.
void A2cValueLoss(const A2cBatch& batch, const A2cLossRule& rule, const float* values, int stride,
                  float* d_values, std::span<float> stats);

}  // namespace trireme
