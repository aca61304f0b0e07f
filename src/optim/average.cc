#include "trireme/optim/average.h"

#include <cstddef>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

struct AverageKernel {
  TRIREME_INLINE void Run(float* __restrict target, const float* __restrict source, std::size_t n,
                          float tau) {
    const float keep = 1 - tau;
    for (std::size_t i = 0; i < n; ++i) target[i] = tau * source[i] + keep * target[i];
  }
};

}  // namespace

void MoveTowards(std::span<float> target, std::span<const float> source, float tau) {
  TRIREME_CHECK(target.size() == source.size());
  SimdCall<AverageKernel>(target.data(), source.data(), source.size(), tau);
}

}  // namespace trireme
