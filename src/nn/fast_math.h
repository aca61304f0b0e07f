// Elementary functions as straight-line arithmetic, for T = float and T = Vec8, to be inlined into SimdCall
// kernels. The stated errors are what fast_math_test.cc checks.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "trireme/nn/vec.h"

namespace trireme {

typedef std::int32_t Int8x32 __attribute__((vector_size(32)));
// 32-bit integers of the same shape as T.
template <class T>
using IntegersLike = std::conditional_t<std::is_same_v<T, float>, std::int32_t, Int8x32>;

template <class T>
[[gnu::always_inline]] inline T ToFloats(const IntegersLike<T>& n) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(n);
  } else {
    return __builtin_convertvector(n, T);
  }
}

// std::bit_cast, always inlined: called as a function of the baseline instruction set, it would return a
// vector elsewhere than an AVX2 caller looks for it.
template <class To, class From>
[[gnu::always_inline]] inline To BitsAs(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

// x * P(x^2) / Q(x^2), a minimax fit on |x| <= 7.9, where tanh is 1 up to float rounding. Relative error <
// 6e-7.
template <class T>
[[gnu::always_inline]] inline T FastTanh(T x) {
  const T limit = T{} + 7.9f;
  x = limit < x ? limit : x;
  x = x < -limit ? -limit : x;
  const T u = x * x;
  const T p = ((1.1480089785e-05f * u + 2.9557546370e-03f) * u + 1.2930049175e-01f) * u + 9.9999986199e-01f;
  const T q =
      (((2.4758402212e-07f * u + 2.3934089351e-04f) * u + 2.3834853464e-02f) * u + 4.6263270447e-01f) * u +
      1.0f;
  return x * p / q;
}

// 2^n * e^r with |r| <= ln(2)/2 and a Taylor polynomial for e^r. Relative error < 3e-7; saturates outside
// [-87, 88], where results would leave the normal floats.
template <class T>
[[gnu::always_inline]] inline T FastExp(T x) {
  using Int = IntegersLike<T>;
  const T high = T{} + 88.0f, low = T{} - 87.0f;
  x = high < x ? high : x;
  x = x < low ? low : x;
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits
  const T shifted = x * 1.44269504f + kRound;
  const T n = shifted - kRound;
  const T r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  T p = T{} + 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return BitsAs<T>(BitsAs<Int>(p) + (BitsAs<Int>(shifted) << 23));
}

// Natural logarithm of positive normal floats: x = m * 2^e with m near 1, log m = 2 atanh((m-1)/(m+1)).
// Absolute error < 1e-6 * max(1, |log x|).
template <class T>
[[gnu::always_inline]] inline T FastLog(T x) {
  using Int = IntegersLike<T>;
  const Int bits = BitsAs<Int>(x);
  const Int exponent = (bits - 0x3F3504F3) >> 23;  // sqrt(1/2): m falls into [sqrt(1/2), sqrt(2))
  const T m = BitsAs<T>(bits - (exponent << 23));
  const T s = (m - 1.0f) / (m + 1.0f);
  const T s2 = s * s;
  const T series = (((0.2222222222f * s2 + 0.2857142857f) * s2 + 0.4f) * s2 + 0.6666666667f) * s2 + 2.0f;
  return s * series + ToFloats<T>(exponent) * 0.69314718f;
}

}  // namespace trireme
