// Sine and cosine of a Vec, without branches or library calls.
#pragma once

#include <numbers>

#include "trireme/env/vec.h"

namespace trireme {

struct SinCosPair {
  Vec sin;
  Vec cos;
};

// The polynomials S and C below, at z.
[[gnu::always_inline]] inline SinCosPair SinCosPolynomials(Vec z) {
  Vec s = z * 0x1.5e0333e3ccba1p-33 - 0x1.ae5ff4f957b14p-26;
  s = s * z + 0x1.71de3781495ffp-19;
  s = s * z - 0x1.a01a019e73325p-13;
  s = s * z + 0x1.1111111110b6cp-7;
  s = s * z - 0x1.5555555555555p-3;
  Vec c = z * -0x1.9075bb669682cp-37 + 0x1.1eeb5de1e2b95p-29;
  c = c * z - 0x1.27e4fa0d3726cp-22;
  c = c * z + 0x1.a01a019f4671dp-16;
  c = c * z - 0x1.6c16c16c16944p-10;
  c = c * z + 0x1.5555555555555p-5;
  return {s, c};
}

// For |x| <= pi/4. Near-minimax polynomials in z = x^2:
//   sin x = x + x z S(z),   cos x = 1 - z/2 + z^2 C(z).
// The leading terms are added last and, for the cosine, with their rounding error put back, so that results
// are correctly rounded almost always when |x| is small.
[[gnu::always_inline]] inline SinCosPair SinCosNearZero(Vec x) {
  const Vec z = x * x;
  const auto [s, c] = SinCosPolynomials(z);
  const Vec head = 1.0 - 0.5 * z;
  return {x + x * (z * s), head + (((1.0 - head) - 0.5 * z) + z * z * c)};
}

// For |x| < 10^6, within 1 ulp.
//
// Cody-Waite reduction: x = n pi/2 + r + tail with |r| <= pi/4, where pi/2 is the sum of three parts of which
// the first two have 33 bits, so that n times a part is exact; the tail is what r as a double cannot hold.
// Odd n swaps sine and cosine; bit 1 of n is the sign.
[[gnu::always_inline]] inline SinCosPair SinCos(Vec x) {
  const Vec shifted = x * (2 / std::numbers::pi) + kRoundingShift;
  const Vec n = shifted - kRoundingShift;
  const Bits quadrant = reinterpret_cast<Bits>(shifted);
  const Vec first = x - n * 0x1.921fb544p+0;
  const Vec second = first - n * 0x1.0b4611a6p-34;
  const Vec rest = n * 0x1.3198a2e037073p-69 - ((first - second) - n * 0x1.0b4611a6p-34);
  const Vec r = second - rest;
  const Vec tail = (second - r) - rest;

  const Vec z = r * r;
  const auto [s, c] = SinCosPolynomials(z);
  const Vec head = 1.0 - 0.5 * z;
  const Bits sin = reinterpret_cast<Bits>(r + (r * (z * s) + tail));
  const Bits cos = reinterpret_cast<Bits>(head + (((1.0 - head) - 0.5 * z) + (z * z * c - r * tail)));

  const Bits odd = -(quadrant & 1);
  const Bits exchange = (sin ^ cos) & odd;
  const Bits sin_sign = (quadrant & 2) << 62;
  const Bits cos_sign = ((quadrant + 1) & 2) << 62;
  return {reinterpret_cast<Vec>(sin ^ exchange ^ sin_sign), reinterpret_cast<Vec>(cos ^ exchange ^ cos_sign)};
}

}  // namespace trireme
