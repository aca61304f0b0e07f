// One kernel source, several instruction sets, chosen once at run time.
//
// A kernel is a struct with an always-inlined static function `Run`, written as plain loops or with GCC
// vector types. SimdCall<Kernel>(args...) calls the copy compiled for the best instruction set this processor
// has:
//
//   struct Scale {
//     [[gnu::always_inline]] static inline void Run(float* x, std::size_t n, float a) {
//       for (std::size_t i = 0; i < n; ++i) x[i] *= a;
//     }
//   };
//   SimdCall<Scale>(x, n, 2.0f);
//
// The binary stays portable: nothing outside these copies uses more than the baseline instruction set.
// Results are bit-identical from run to run on one kind of processor; across kinds they may differ in the
// last bits, because fused multiply-add rounds once where separate operations round twice.
#pragma once

// How `Run` and what it calls are declared inside a kernel.
#define TRIREME_INLINE [[gnu::always_inline]] static inline

namespace trireme {

enum class Isa { kPortable, kAvx2, kAvx512 };

// The instruction set in use: the best the processor has, unless overridden.
Isa CurrentIsa();
const char* IsaName(Isa isa);
// For tests and benchmarks; not thread safe. Asking for more than the processor has is clamped.
void OverrideIsa(Isa isa);

namespace simd_internal {
template <class Kernel, class... Args>
inline auto RunPortable(Args... args) {
  return Kernel::Run(args...);
}
#if defined(__x86_64__)
template <class Kernel, class... Args>
[[gnu::target("avx2,fma")]] auto RunAvx2(Args... args) {
  return Kernel::Run(args...);
}
template <class Kernel, class... Args>
[[gnu::target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")]] auto RunAvx512(Args... args) {
  return Kernel::Run(args...);
}
#endif
}  // namespace simd_internal

template <class Kernel, class... Args>
auto SimdCall(Args... args) {
#if defined(__x86_64__)
  switch (CurrentIsa()) {
    case Isa::kAvx512:
      return simd_internal::RunAvx512<Kernel, Args...>(args...);
    case Isa::kAvx2:
      return simd_internal::RunAvx2<Kernel, Args...>(args...);
    case Isa::kPortable:
      break;
  }
#endif
  return simd_internal::RunPortable<Kernel, Args...>(args...);
}

}  // namespace trireme
