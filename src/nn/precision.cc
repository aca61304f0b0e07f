#include "trireme/nn/precision.h"

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

// Calls Kernel<format> for a precision known only at run time.
template <template <class> class Kernel, class... Args>
void CallFor(Precision precision, Args... args) {
  TRIREME_CHECK(precision != Precision::kFp32);
  if (precision == Precision::kFp16) return SimdCall<Kernel<Fp16>>(args...);
  return SimdCall<Kernel<Bf16>>(args...);
}

template <class Format>
struct RoundKernel {
  TRIREME_INLINE void Run(const float* from, float* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = Format::From(Format::To(from[i]));
  }
};

template <class Format>
struct RoundGradientKernel {
  TRIREME_INLINE void Run(Rows rows, float scale, float* dz) {
    const float back = 1.0f / scale;
    for (int b = 0; b < rows.n; ++b, dz += rows.ld) {
      for (int i = 0; i < rows.width; ++i) dz[i] = Format::From(Format::To(dz[i] * scale)) * back;
    }
  }
};

template <class Format>
struct PackKernel {
  TRIREME_INLINE void Run(Rows rows, float* y, std::uint16_t* to) {
    for (int b = 0; b < rows.n; ++b, y += rows.ld, to += rows.ld) {
      for (int i = 0; i < rows.width; ++i) {
        to[i] = Format::To(y[i]);
        y[i] = Format::From(to[i]);
      }
    }
  }
};

template <class Format>
struct UnpackKernel {
  TRIREME_INLINE void Run(Rows rows, const std::uint16_t* from, float* y) {
    for (int b = 0; b < rows.n; ++b, y += rows.ld, from += rows.ld) {
      for (int i = 0; i < rows.width; ++i) y[i] = Format::From(from[i]);
    }
  }
};

}  // namespace

void RoundTo(Precision precision, const float* from, float* to, std::size_t n) {
  CallFor<RoundKernel>(precision, from, to, n);
}

void RoundGradient(Precision precision, Rows rows, float scale, float* dz) {
  CallFor<RoundGradientKernel>(precision, rows, scale, dz);
}

void KeptRows::Pack(Rows rows, std::uint16_t* to) {
  CallFor<PackKernel>(precision_, rows, floats_.data(), to);
}

void KeptRows::Unpack(Rows rows, const std::uint16_t* from) {
  CallFor<UnpackKernel>(precision_, rows, from, floats_.data());
}

}  // namespace trireme
