// Vec: one double for each of kLanes copies of an environment. Dynamics are written on it as if it were a
// number.
//
// It is a GCC vector type, so the operators and `mask ? a : b` work elementwise and compile to whatever the
// instruction set has (one AVX2 register, two SSE2 registers). Everything is elementwise: a copy's result
// never depends on the lane it is in. The environment library is compiled without floating-point contraction
// (see CMakeLists.txt), so results are the same bits on every instruction set, too.
#pragma once

#include <cstdint>
#include <numbers>

namespace trireme {

inline constexpr int kLanes = 4;
using Vec = double __attribute__((vector_size(kLanes * sizeof(double))));
using Bits = std::int64_t __attribute__((vector_size(kLanes * sizeof(std::int64_t))));
using Mask = Bits;  // what comparing two Vecs gives: all ones where true, zero where false
using FloatVec = float __attribute__((vector_size(kLanes * sizeof(float))));

[[gnu::always_inline]] inline Vec Broadcast(double x) { return Vec{} + x; }
[[gnu::always_inline]] inline FloatVec ToFloat(Vec x) { return __builtin_convertvector(x, FloatVec); }
[[gnu::always_inline]] inline Vec ToDouble(FloatVec x) { return __builtin_convertvector(x, Vec); }

// What float32 arithmetic would hold. A sum or product of two floats computed in double and rounded with this
// equals the float operation exactly, because 53 >= 2 * 24 + 2.
[[gnu::always_inline]] inline Vec RoundToFloat(Vec x) { return ToDouble(ToFloat(x)); }

// Nearest integer, ties to even, for |x| < 2^51. Adding 1.5 * 2^52 leaves no bits for a fraction; the low
// bits of the sum are then the integer itself.
inline constexpr double kRoundingShift = 0x1.8p52;
[[gnu::always_inline]] inline Vec RoundNearest(Vec x) { return (x + kRoundingShift) - kRoundingShift; }

// x limited to [low, high]; NaN becomes low.
[[gnu::always_inline]] inline Vec Clamp(Vec x, Vec low, Vec high) {
  const Vec above = x > low ? x : low;
  return above < high ? above : high;
}
[[gnu::always_inline]] inline Vec Clamp(Vec x, double low, double high) {
  return Clamp(x, Broadcast(low), Broadcast(high));
}

// The same angle in [-pi, pi].
[[gnu::always_inline]] inline Vec WrapAngle(Vec x) {
  constexpr double kTurn = 2 * std::numbers::pi;
  return x - kTurn * RoundNearest(x * (1 / kTurn));
}

}  // namespace trireme
