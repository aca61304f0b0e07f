#include "trireme/base/simd.h"

#include <algorithm>

namespace trireme {
namespace {

Isa DetectIsa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  if (avx2 && avx512) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

const Isa kDetected = DetectIsa();
Isa current_isa = kDetected;

}  // namespace

Isa CurrentIsa() { return current_isa; }

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

void OverrideIsa(Isa isa) { current_isa = std::min(isa, kDetected); }

}  // namespace trireme
