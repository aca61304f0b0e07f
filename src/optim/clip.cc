#include "trireme/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

using Floats = float __attribute__((vector_size(16)));
using Doubles = double __attribute__((vector_size(32)));

// Element i goes to lane i % 16. A square of floats is exact in double, so only the sixteen running sums
// round, each in the order of its elements, and a fused multiply-add gives the same bits.
struct SquaredNormKernel {
  static constexpr std::size_t kLanes = 16;

  [[gnu::always_inline]] static inline void Add(Doubles* sums, const float* x) {
    for (int k = 0; k < 4; ++k) {
      Floats f;
      std::memcpy(&f, x + 4 * k, sizeof f);
      const Doubles d = __builtin_convertvector(f, Doubles);
      sums[k] += d * d;
    }
  }

  [[gnu::always_inline]] static inline double Run(const float* x, std::size_t n) {
    Doubles sums[4] = {};
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) Add(sums, x + i);
    if (i < n) {
      float rest[kLanes] = {};
      std::memcpy(rest, x + i, (n - i) * sizeof(float));
      Add(sums, rest);
    }
    const Doubles total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return (total[0] + total[1]) + (total[2] + total[3]);
  }
};

struct ScaleKernel {
  [[gnu::always_inline]] static inline void Run(float* x, std::size_t n, float factor) {
    for (std::size_t i = 0; i < n; ++i) x[i] *= factor;
  }
};

}  // namespace

double SquaredNorm(std::span<const float> values) {
  double sum = 0;
  for (std::size_t begin = 0; begin < values.size(); begin += kNormBlock) {
    const std::size_t size = std::min(kNormBlock, values.size() - begin);
    sum += SimdCall<SquaredNormKernel>(values.data() + begin, size);
  }
  return sum;
}

void SquaredNorms(std::span<const float> values, std::span<double> sums) {
  TRIREME_CHECK(sums.size() == NormBlocks(values.size()));
  for (std::size_t b = 0; b < sums.size(); ++b) {
    const std::size_t begin = b * kNormBlock;
    sums[b] = SquaredNorm(values.subspan(begin, std::min(kNormBlock, values.size() - begin)));
  }
}

float ClipScale(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

double ClipByGlobalNorm(std::span<float> gradient, double max_norm) {
  TRIREME_CHECK(max_norm > 0);
  const double norm = std::sqrt(SquaredNorm(gradient));
  if (std::isfinite(norm) && norm > max_norm) {
    SimdCall<ScaleKernel>(gradient.data(), gradient.size(), ClipScale(norm, max_norm));
  }
  return norm;
}

}  // namespace trireme
