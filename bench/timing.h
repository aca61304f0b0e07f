// What benchmarks share: a clock and the arithmetic peak of the core they run on.
//
// Clocks of shared virtual processors wander, so a speed is best given as a ratio of two measurements taken
// right after each other. FmaPeak() is short enough (tens of microseconds) to be taken again and again.
#pragma once

#include <chrono>

#include "trireme/base/median.h"
#include "trireme/base/simd.h"
#include "trireme/nn/vec.h"

namespace trireme {

// Seconds on a clock that never goes back.
inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

namespace timing_internal {

constexpr int kPeakLoops = 10000;
constexpr int kAccumulators = 12;  // enough to hide the latency of two units, few enough for 16 registers

#if defined(__x86_64__)
// Twelve multiply-adds on zeros that do not wait for one another, kPeakLoops times. Assembly, because a
// compiler would see through it.
#define TRIREME_PEAK_ZERO(r, n) "vpxor %%xmm" #n ",%%xmm" #n ",%%xmm" #n "\n"
#define TRIREME_PEAK_FMA(r, n) "vfmadd231ps %%" r "14,%%" r "15,%%" r #n "\n"
#define TRIREME_PEAK_TWELVE(f, r) \
  f(r, 0) f(r, 1) f(r, 2) f(r, 3) f(r, 4) f(r, 5) f(r, 6) f(r, 7) f(r, 8) f(r, 9) f(r, 10) f(r, 11)
#define TRIREME_PEAK_LOOP(r) \
  asm volatile(TRIREME_PEAK_TWELVE(TRIREME_PEAK_ZERO, r) TRIREME_PEAK_ZERO(r, 14) TRIREME_PEAK_ZERO(r, 15)  \
               "mov %0,%%ecx\n"                                                                             \
               "1:\n" TRIREME_PEAK_TWELVE(TRIREME_PEAK_FMA, r) "dec %%ecx\n"                                \
               "jnz 1b\n"                                                                                   \
               "vzeroupper\n" ::"i"(kPeakLoops)                                                             \
               : "ecx", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",       \
                 "xmm9", "xmm10", "xmm11", "xmm14", "xmm15")
inline void PeakLoopAvx2() { TRIREME_PEAK_LOOP("ymm"); }
inline void PeakLoopAvx512() { TRIREME_PEAK_LOOP("zmm"); }
#undef TRIREME_PEAK_LOOP
#undef TRIREME_PEAK_TWELVE
#undef TRIREME_PEAK_FMA
#undef TRIREME_PEAK_ZERO
#endif

// The same with a product and a sum of four lanes, in whatever the compiler's baseline offers.
inline void PeakLoopPortable() {
  static volatile float one = 1.0f, zero = 0.0f;
  [[maybe_unused]] static volatile float sink;
  const Vec4 factor = Vec4{} + one, term = Vec4{} + zero;
  Vec4 sum[kAccumulators] = {};
  for (int i = 0; i < kPeakLoops; ++i) {
    for (Vec4& s : sum) s = s * factor + term;
  }
  for (const Vec4& s : sum) sink = s[0] + s[1] + s[2] + s[3];
}

}  // namespace timing_internal

// GFLOP/s of one core at nothing but multiply-adds of floats, with the instruction set SimdCall uses.
inline double FmaPeak() {
  using namespace timing_internal;
  int lanes = 4;
  const double start = Now();
  switch (CurrentIsa()) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      PeakLoopAvx512();
      lanes = 16;
      break;
    case Isa::kAvx2:
      PeakLoopAvx2();
      lanes = 8;
      break;
#endif
    default:
      PeakLoopPortable();
  }
  return 2e-9 * kPeakLoops * kAccumulators * lanes / (Now() - start);
}

}  // namespace trireme
