// Kernels that add the operands of several ranks as the tree of communicator.h: adjacent pairs first.
//
// Everybody who adds uses these, so that all communicators and servers round in the same places.
#pragma once

#include <algorithm>
#include <cstddef>

#include "trireme/base/simd.h"

namespace trireme {

// Sums of pairs are held on the stack, with room for kMost ranks.
template <class T, int kMost = 64>
struct TreeSum {
  static constexpr int kMostRanks = kMost;
  static constexpr std::size_t kBlock = 64;

  // Elements [0, n) of `size` operands; take(first, count, sums) receives the sums of each block.
  template <class Take>
  TRIREME_INLINE void Blocks(const T* const* operands, int size, std::size_t n, Take&& take) {
    std::size_t first = 0;
    for (; first + kBlock <= n; first += kBlock) Block(operands, size, first, kBlock, take);
    if (first < n) Block(operands, size, first, n - first, take);
  }

 private:
  template <class Take>
  TRIREME_INLINE void Block(const T* const* operands, int size, std::size_t first, std::size_t count,
                            Take&& take) {
    T sums[(kMostRanks + 1) / 2][kBlock];
    const int pairs = (size + 1) / 2;
    for (int pair = 0; pair < pairs; ++pair) {
      const T* a = operands[2 * pair] + first;
      if (2 * pair + 1 == size) {  // the last of an odd number
        for (std::size_t i = 0; i < count; ++i) sums[pair][i] = a[i];
        continue;
      }
      const T* b = operands[2 * pair + 1] + first;
      for (std::size_t i = 0; i < count; ++i) sums[pair][i] = a[i] + b[i];
    }
    for (int stride = 1; stride < pairs; stride *= 2) {
      for (int pair = 0; pair + stride < pairs; pair += 2 * stride) {
        for (std::size_t i = 0; i < count; ++i) sums[pair][i] += sums[pair + stride][i];
      }
    }
    take(first, count, sums[0]);
  }
};

// Every destination <- the sum. A destination may be one of the operands, but not overlap one otherwise.
template <class T, int kMost = TreeSum<T>::kMostRanks>
struct SumOperands {
  TRIREME_INLINE void Run(const T* const* operands, int size, T* const* to, int copies, std::size_t n) {
    if (size == 2 && copies <= 2) return SumTwo(operands[0], operands[1], to[0], to[copies - 1], n);
    TreeSum<T, kMost>::Blocks(operands, size, n, [&](std::size_t first, std::size_t count, const T* sums) {
      for (int copy = 0; copy < copies; ++copy) std::copy_n(sums, count, to[copy] + first);
    });
  }

 private:
  // Two ranks are the usual case, and need no block between.
  TRIREME_INLINE void SumTwo(const T* a, const T* b, T* one, T* other, std::size_t n) {
    if (one == other) {
#pragma GCC ivdep
      for (std::size_t i = 0; i < n; ++i) one[i] = a[i] + b[i];
      return;
    }
#pragma GCC ivdep
    for (std::size_t i = 0; i < n; ++i) {
      const T sum = a[i] + b[i];
      one[i] = sum;
      other[i] = sum;
    }
  }
};

}  // namespace trireme
