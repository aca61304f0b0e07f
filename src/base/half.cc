#include "trireme/base/half.h"

#include <cstring>

#include "trireme/base/error.h"

namespace trireme {
namespace {

template <class Format>
struct ToKernel {
  TRIREME_INLINE void Run(const float* from, std::size_t n, std::byte* to) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint16_t half = Format::To(from[i]);
      std::memcpy(to + 2 * i, &half, 2);
    }
  }
};

template <class Format>
struct FromKernel {
  TRIREME_INLINE void Run(const std::byte* from, std::size_t n, float* to) {
    for (std::size_t i = 0; i < n; ++i) {
      std::uint16_t half;
      std::memcpy(&half, from + 2 * i, 2);
      to[i] = Format::From(half);
    }
  }
};

}  // namespace

void ToHalf(Precision precision, const float* from, std::size_t n, std::byte* to) {
  TRIREME_CHECK(precision != Precision::kFp32);
  if (precision == Precision::kFp16) return SimdCall<ToKernel<Fp16>>(from, n, to);
  SimdCall<ToKernel<Bf16>>(from, n, to);
}

void FromHalf(Precision precision, const std::byte* from, std::size_t n, float* to) {
  TRIREME_CHECK(precision != Precision::kFp32);
  if (precision == Precision::kFp16) return SimdCall<FromKernel<Fp16>>(from, n, to);
  SimdCall<FromKernel<Bf16>>(from, n, to);
}

}  // namespace trireme
