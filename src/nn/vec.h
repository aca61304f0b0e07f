// Eight floats at once, in GCC's vector notation: arithmetic reads like scalar code and compiles to whatever
// the surrounding SimdCall copy targets. Kernels are written once over T = Vec8 for full blocks and T = float
// for the features that remain.
#pragma once

#include <cstring>

namespace trireme {

typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec4 __attribute__((vector_size(16)));

// How many floats T is: 1 for float itself.
template <class T>
constexpr int LanesOf() {
  return sizeof(T) / sizeof(float);  // NOLINT(bugprone-sizeof-expression)
}

template <class T>
[[gnu::always_inline]] inline T LoadAs(const float* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <class T>
[[gnu::always_inline]] inline void Store(float* p, const T& value) {
  std::memcpy(p, &value, sizeof(T));
}

// {sum of a's lanes, of b's, of c's, of d's}.
[[gnu::always_inline]] inline Vec4 SumLanes(const Vec8& a, const Vec8& b, const Vec8& c, const Vec8& d) {
  const Vec8 ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) +
                  __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  const Vec8 cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13) +
                  __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
  const Vec8 abcd = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) +
                    __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  return __builtin_shufflevector(abcd, abcd, 0, 1, 2, 3) + __builtin_shufflevector(abcd, abcd, 4, 5, 6, 7);
}

}  // namespace trireme
