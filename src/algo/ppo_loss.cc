#include "algo/ppo_loss.h"

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "base/simd.h"
#include "nn/fast_math.h"
#include "nn/vec.h"

namespace trireme {
namespace {

template <class T>
constexpr int kLanes = sizeof(T) / sizeof(float);

// Element b of the result is p[b * stride].
template <class T>
[[gnu::always_inline]] inline T LoadStrided(const float* p, std::ptrdiff_t stride) {
  if constexpr (kLanes<T> == 1) {
    return *p;
  } else {
    return Vec8{p[0],          p[stride],     p[2 * stride], p[3 * stride],
                p[4 * stride], p[5 * stride], p[6 * stride], p[7 * stride]};
  }
}

template <class T>
[[gnu::always_inline]] inline void StoreStrided(float* p, std::ptrdiff_t stride, const T& value) {
  if constexpr (kLanes<T> == 1) {
    *p = value;
  } else {
    for (int i = 0; i < 8; ++i) p[i * stride] = value[i];
  }
}

template <class T>
[[gnu::always_inline]] inline float SumOf(const T& value) {
  if constexpr (kLanes<T> == 1) {
    return value;
  } else {
    return SumLanes(value, T{}, T{}, T{})[0];
  }
}

template <class T>
[[gnu::always_inline]] inline T Min(const T& a, const T& b) {
  return a < b ? a : b;
}
template <class T>
[[gnu::always_inline]] inline T Max(const T& a, const T& b) {
  return a < b ? b : a;
}

// The part that does not depend on the distribution: dL/dlog pi, and the statistics of the ratio.
template <class T>
[[gnu::always_inline]] inline T SurrogateGradient(const PpoBatch& batch, const PpoLossRule& rule, int b,
                                                  const T& log_prob, float* stats) {
  const T advantage = (LoadAs<T>(batch.advantages + b) - batch.advantage_mean) * batch.advantage_scale;
  const T log_ratio = log_prob - LoadAs<T>(batch.old_log_probs + b);
  const T ratio = FastExp(log_ratio);
  const T low = T{} + (1.0f - rule.clip), high = T{} + (1.0f + rule.clip);
  const T clipped = Min(Max(ratio, low), high);
  const T plain_term = ratio * advantage;
  const T clipped_term = clipped * advantage;
  stats[kPolicyLoss] -= SumOf(Min(plain_term, clipped_term));
  stats[kApproxKl] += SumOf(ratio - 1.0f - log_ratio);  // unbiased and never negative (Schulman 2020)
  stats[kClipped] += SumOf((ratio < low) | (ratio > high) ? T{} + 1.0f : T{});
  return plain_term <= clipped_term ? -plain_term * rule.per_sample : T{};
}

struct CategoricalKernel {
  template <class T>
  TRIREME_INLINE void Samples(const PpoBatch& batch, const PpoLossRule& rule, const float* logits,
                              int choices, int stride, int b, float* d_logits, float* stats) {
    const float* in = logits + static_cast<std::ptrdiff_t>(b) * stride;
    float* out = d_logits + static_cast<std::ptrdiff_t>(b) * stride;
    const T action = LoadAs<T>(batch.actions + b);

    T highest = LoadStrided<T>(in, stride);
    for (int a = 1; a < choices; ++a) highest = Max(highest, LoadStrided<T>(in + a, stride));
    T sum = T{}, weighted = T{}, chosen = T{};
    for (int a = 0; a < choices; ++a) {
      const T shifted = LoadStrided<T>(in + a, stride) - highest;
      const T weight = FastExp(shifted);
      sum += weight;
      weighted += weight * shifted;
      chosen = action == static_cast<float>(a) ? shifted : chosen;
    }
    const T log_sum = FastLog(sum);
    const T entropy = log_sum - weighted / sum;
    const T g = SurrogateGradient<T>(batch, rule, b, chosen - log_sum, stats);
    stats[kEntropy] += SumOf(entropy);

    // dL/dlogit_a = g (1[a chosen] - p_a) + c_H p_a (log p_a + H) / N
    const float entropy_weight = rule.entropy_coef * rule.per_sample;
    for (int a = 0; a < choices; ++a) {
      const T log_p = LoadStrided<T>(in + a, stride) - highest - log_sum;
      const T p = FastExp(log_p);
      const T is_chosen = action == static_cast<float>(a) ? T{} + 1.0f : T{};
      StoreStrided<T>(out + a, stride, g * (is_chosen - p) + entropy_weight * p * (log_p + entropy));
    }
  }

  TRIREME_INLINE void Run(const PpoBatch* batch, const PpoLossRule* rule, const float* logits, int choices,
                          int stride, float* d_logits, float* stats) {
    int b = 0;
    for (; b + 8 <= batch->n; b += 8)
      Samples<Vec8>(*batch, *rule, logits, choices, stride, b, d_logits, stats);
    for (; b < batch->n; ++b) Samples<float>(*batch, *rule, logits, choices, stride, b, d_logits, stats);
  }
};

struct GaussianKernel {
  // log pi(a) = sum_d -((a - mean) / std)^2 / 2 - log std - log(2 pi) / 2
  template <class T>
  TRIREME_INLINE void Samples(const PpoBatch& batch, const PpoLossRule& rule, const float* means, int size,
                              int stride, const float* log_std, const float* inverse_std, float entropy,
                              int b, float* d_means, float* d_log_std, float* stats) {
    const float* mean = means + static_cast<std::ptrdiff_t>(b) * stride;
    const float* action = batch.actions + static_cast<std::ptrdiff_t>(b) * size;
    float* out = d_means + static_cast<std::ptrdiff_t>(b) * stride;
    constexpr float kHalfLogTwoPi = 0.918938533f;
    T log_prob = T{};
    for (int d = 0; d < size; ++d) {
      const T z = (LoadStrided<T>(action + d, size) - LoadStrided<T>(mean + d, stride)) * inverse_std[d];
      log_prob -= 0.5f * z * z + (log_std[d] + kHalfLogTwoPi);
    }
    const T g = SurrogateGradient<T>(batch, rule, b, log_prob, stats);
    stats[kEntropy] += entropy * kLanes<T>;
    // dlog pi/dmean = z / std;  dlog pi/dlog std = z^2 - 1;  dH/dlog std = 1
    for (int d = 0; d < size; ++d) {
      const T z = (LoadStrided<T>(action + d, size) - LoadStrided<T>(mean + d, stride)) * inverse_std[d];
      StoreStrided<T>(out + d, stride, g * z * inverse_std[d]);
      d_log_std[d] += SumOf(g * (z * z - 1.0f)) - rule.entropy_coef * rule.per_sample * kLanes<T>;
    }
  }

  TRIREME_INLINE void Run(const PpoBatch* batch, const PpoLossRule* rule, const float* means, int size,
                          int stride, const float* log_std, const float* inverse_std, float entropy,
                          float* d_means, float* d_log_std, float* stats) {
    int b = 0;
    for (; b + 8 <= batch->n; b += 8) {
      Samples<Vec8>(*batch, *rule, means, size, stride, log_std, inverse_std, entropy, b, d_means, d_log_std,
                    stats);
    }
    for (; b < batch->n; ++b) {
      Samples<float>(*batch, *rule, means, size, stride, log_std, inverse_std, entropy, b, d_means, d_log_std,
                     stats);
    }
  }
};

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
  SimdCall<CategoricalKernel>(&batch, &rule, logits, choices, stride, d_logits, stats.data());
}

void GaussianPolicyLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* means, int size,
                        int stride, std::span<const float> log_std, float* d_means,
                        std::span<float> d_log_std, std::span<float> stats) {
  // H = sum_d log std_d + (1 + log(2 pi)) / 2, the same for every sample.
  std::vector<float> inverse_std;
  float entropy = 0;
  for (const float value : log_std) {
    inverse_std.push_back(std::exp(-value));
    entropy += value + 0.5f + 0.5f * std::log(2.0f * std::numbers::pi_v<float>);
  }
  SimdCall<GaussianKernel>(&batch, &rule, means, size, stride, log_std.data(),
                           static_cast<const float*>(inverse_std.data()), entropy, d_means, d_log_std.data(),
                           stats.data());
}

void ValueLoss(const PpoBatch& batch, const PpoLossRule& rule, const float* values, int stride,
               float* d_values, std::span<float> stats) {
  SimdCall<ValueKernel>(&batch, &rule, values, stride, d_values, stats.data());
}

}  // namespace trireme
