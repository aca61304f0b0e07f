// What the losses of policy-gradient algorithms share: helpers to treat eight samples as one, and the step
// from dL/dlog pi(a|s) to the gradient with respect to the network's outputs.
//
// With g = dL/dlog pi(a|s), entropy H and c_H / N the weight of the entropy of one sample:
//
//   categorical   log p = logits - log sum exp(logits);   H = -sum_a p_a log p_a
//                 dL/dlogit_a = g (1[a chosen] - p_a) + c_H / N p_a (log p_a + H)
//   several parts log pi(a|s) = sum_i log p_i,a_i;   H = sum_i H_i;   each part i as above, with its own H_i
//   masks         the sums run over allowed choices only: p_a = 0 and dL/dlogit_a = 0, exactly, for the others
//   Gaussian      z = (a - mean) / std;   log pi = sum_d -z_d^2 / 2 - log std_d - log(2 pi) / 2
//                 dL/dmean_d    = g z_d / std_d
//                 dL/dlog std_d = g (z_d^2 - 1) - c_H / N       H = sum_d log std_d + (1 + log(2 pi)) / 2
//
// An algorithm says what g is with a functor, called once per sample, or with a vector once per eight:
//
//   struct Gradient {
//     template <class T>  // float, or Vec8 for samples b ... b + 7
//     [[gnu::always_inline]] T operator()(int b, const T& log_prob) const;
//   };
//
// Everything here is inlined into SimdCall copies. Sums over samples run in a fixed order.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "trireme/base/simd.h"
#include "trireme/nn/fast_math.h"
#include "trireme/nn/vec.h"

namespace trireme {

// Samples in a T: 1 in a float, 8 in a Vec8.
template <class T>
inline constexpr int kSamplesIn = sizeof(T) / sizeof(float);

// Element b of the result is p[b * stride].
template <class T>
[[gnu::always_inline]] inline T LoadStrided(const float* p, std::ptrdiff_t stride) {
  if constexpr (kSamplesIn<T> == 1) {
    return *p;
  } else {
    return Vec8{p[0],          p[stride],     p[2 * stride], p[3 * stride],
                p[4 * stride], p[5 * stride], p[6 * stride], p[7 * stride]};
  }
}

template <class T>
[[gnu::always_inline]] inline void StoreStrided(float* p, std::ptrdiff_t stride, const T& value) {
  if constexpr (kSamplesIn<T> == 1) {
    *p = value;
  } else {
    for (int i = 0; i < 8; ++i) p[i * stride] = value[i];
  }
}

template <class T>
[[gnu::always_inline]] inline float SumOf(const T& value) {
  if constexpr (kSamplesIn<T> == 1) {
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

// One pass over the policy's outputs for n samples. Sample b's are outputs[b * stride ...]; what lies between
// them is left alone.
struct PolicyPass {
  int n = 0;
  int size = 0;  // choices, or dimensions of a continuous action
  int stride = 0;
  const float* actions = nullptr;  // [n], or [n, size], or [n, parts]
  const float* outputs = nullptr;  // logits, or means
  float* d_outputs = nullptr;      // same stride
  float entropy_coef = 0;          // c_H
  float per_sample = 1;            // 1 / N
  float* entropy_sum = nullptr;    // receives the sum of H over samples
};

template <class Gradient>
struct CategoricalKernel {
  template <class T>
  TRIREME_INLINE void Samples(const PolicyPass& pass, const Gradient& gradient, int b) {
    const int stride = pass.stride, choices = pass.size;
    const float* in = pass.outputs + static_cast<std::ptrdiff_t>(b) * stride;
    float* out = pass.d_outputs + static_cast<std::ptrdiff_t>(b) * stride;
    const T action = LoadAs<T>(pass.actions + b);

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
    const T g = gradient.template operator()<T>(b, chosen - log_sum);
    *pass.entropy_sum += SumOf(entropy);

    const float entropy_weight = pass.entropy_coef * pass.per_sample;
    for (int a = 0; a < choices; ++a) {
      const T log_p = LoadStrided<T>(in + a, stride) - highest - log_sum;
      const T p = FastExp(log_p);
      const T is_chosen = action == static_cast<float>(a) ? T{} + 1.0f : T{};
      StoreStrided<T>(out + a, stride, g * (is_chosen - p) + entropy_weight * p * (log_p + entropy));
    }
  }

  TRIREME_INLINE void Run(const PolicyPass* pass, const Gradient* gradient) {
    int b = 0;
    for (; b + 8 <= pass->n; b += 8) Samples<Vec8>(*pass, *gradient, b);
    for (; b < pass->n; ++b) Samples<float>(*pass, *gradient, b);
  }
};

// Choices in several parts, whose logits follow each other, and masks: masks [n, all choices]. Sample by sample;
// one part without masks is CategoricalKernel's.
template <class Gradient, bool kMasked>
struct PartsKernel {
  // log p of choice a of a part is logits[a] - log_sum.
  struct Part {
    float log_sum, entropy;
  };

  TRIREME_INLINE Part Normalise(const float* logits, const std::uint8_t* mask, int choices) {
    const auto allowed = [&](int a) { return !kMasked || mask[a] != 0; };
    float highest = -std::numeric_limits<float>::infinity();
    for (int a = 0; a < choices; ++a) highest = allowed(a) && logits[a] > highest ? logits[a] : highest;
    float sum = 0, weighted = 0;
    for (int a = 0; a < choices; ++a) {
      if (!allowed(a)) continue;
      const float shifted = logits[a] - highest;
      const float weight = FastExp(shifted);
      sum += weight;
      weighted += weight * shifted;
    }
    const float log_sum = FastLog(sum);
    return {highest + log_sum, log_sum - weighted / sum};
  }

  TRIREME_INLINE void Sample(const PolicyPass& pass, std::span<const int> parts, const std::uint8_t* masks,
                             const Gradient& gradient, int b, Part* scratch) {
    const float* const in = pass.outputs + static_cast<std::ptrdiff_t>(b) * pass.stride;
    float* const out = pass.d_outputs + static_cast<std::ptrdiff_t>(b) * pass.stride;
    const float* const action = pass.actions + static_cast<std::size_t>(b) * parts.size();
    const std::uint8_t* const mask = kMasked ? masks + static_cast<std::ptrdiff_t>(b) * pass.size : nullptr;
    float log_prob = 0;
    int first = 0;  // of the part, among all choices
    for (std::size_t i = 0; i < parts.size(); first += parts[i++]) {
      scratch[i] = Normalise(in + first, mask + (kMasked ? first : 0), parts[i]);
      log_prob += in[first + static_cast<int>(action[i])] - scratch[i].log_sum;
      *pass.entropy_sum += scratch[i].entropy;
    }
    const float g = gradient.template operator()<float>(b, log_prob);
    const float entropy_weight = pass.entropy_coef * pass.per_sample;
    first = 0;
    for (std::size_t i = 0; i < parts.size(); first += parts[i++]) {
      for (int a = first; a < first + parts[i]; ++a) {
        if (kMasked && mask[a] == 0) {
          out[a] = 0;
          continue;
        }
        const float log_p = in[a] - scratch[i].log_sum;
        const float p = FastExp(log_p);
        const float is_chosen = action[i] == static_cast<float>(a - first) ? 1.0f : 0.0f;
        out[a] = g * (is_chosen - p) + entropy_weight * p * (log_p + scratch[i].entropy);
      }
    }
  }

  TRIREME_INLINE void Run(const PolicyPass* pass, const std::span<const int>* parts,
                          const std::uint8_t* masks, const Gradient* gradient, Part* scratch) {
    for (int b = 0; b < pass->n; ++b) Sample(*pass, *parts, masks, *gradient, b, scratch);
  }
};

template <class Gradient>
struct GaussianKernel {
  template <class T>
  TRIREME_INLINE void Samples(const PolicyPass& pass, const Gradient& gradient, const float* log_std,
                              const float* inverse_std, float entropy, int b, float* d_log_std) {
    const int stride = pass.stride, size = pass.size;
    const float* mean = pass.outputs + static_cast<std::ptrdiff_t>(b) * stride;
    const float* action = pass.actions + static_cast<std::ptrdiff_t>(b) * size;
    float* out = pass.d_outputs + static_cast<std::ptrdiff_t>(b) * stride;
    constexpr float kHalfLogTwoPi = 0.918938533f;
    T log_prob = T{};
    for (int d = 0; d < size; ++d) {
      const T z = (LoadStrided<T>(action + d, size) - LoadStrided<T>(mean + d, stride)) * inverse_std[d];
      log_prob -= 0.5f * z * z + (log_std[d] + kHalfLogTwoPi);
    }
    const T g = gradient.template operator()<T>(b, log_prob);
    *pass.entropy_sum += entropy * kSamplesIn<T>;
    for (int d = 0; d < size; ++d) {
      const T z = (LoadStrided<T>(action + d, size) - LoadStrided<T>(mean + d, stride)) * inverse_std[d];
      StoreStrided<T>(out + d, stride, g * z * inverse_std[d]);
      d_log_std[d] += SumOf(g * (z * z - 1.0f)) - pass.entropy_coef * pass.per_sample * kSamplesIn<T>;
    }
  }

  TRIREME_INLINE void Run(const PolicyPass* pass, const Gradient* gradient, const float* log_std,
                          const float* inverse_std, float entropy, float* d_log_std) {
    int b = 0;
    for (; b + 8 <= pass->n; b += 8)
      Samples<Vec8>(*pass, *gradient, log_std, inverse_std, entropy, b, d_log_std);
    for (; b < pass->n; ++b) Samples<float>(*pass, *gradient, log_std, inverse_std, entropy, b, d_log_std);
  }
};

// Writes the gradient at the logits.
template <class Gradient>
void CategoricalGradient(const PolicyPass& pass, const Gradient& gradient) {
  SimdCall<CategoricalKernel<Gradient>>(&pass, &gradient);
}

// The same for choices in parts; pass.size is their number in all, masks [n, pass.size] or null.
template <class Gradient>
void PartsGradient(const PolicyPass& pass, std::span<const int> parts, const std::uint8_t* masks,
                   const Gradient& gradient) {
  const auto run = [&]<bool kMasked>() {
    using Kernel = PartsKernel<Gradient, kMasked>;
    thread_local std::vector<typename Kernel::Part> scratch;  // kept: no allocation but the first
    scratch.resize(parts.size());
    SimdCall<Kernel>(&pass, &parts, masks, &gradient, scratch.data());
  };
  if (masks != nullptr) {
    run.template operator()<true>();
  } else {
    run.template operator()<false>();
  }
}

// Writes the gradient at the means and adds to d_log_std.
template <class Gradient>
void GaussianGradient(const PolicyPass& pass, std::span<const float> log_std, std::span<float> d_log_std,
                      const Gradient& gradient) {
  // The same for every sample. The vector is kept from call to call: no allocation but the first.
  thread_local std::vector<float> inverse_std;
  inverse_std.clear();
  float entropy = 0;
  for (const float value : log_std) {
    inverse_std.push_back(std::exp(-value));
    entropy += value + 0.5f + 0.5f * std::log(2.0f * std::numbers::pi_v<float>);
  }
  SimdCall<GaussianKernel<Gradient>>(&pass, &gradient, log_std.data(),
                                     static_cast<const float*>(inverse_std.data()), entropy,
                                     d_log_std.data());
}

}  // namespace trireme
