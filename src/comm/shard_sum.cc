#include "trireme/comm/shard_sum.h"

#include <algorithm>
#include <bit>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

template <class T>
struct AddKernel {
  [[gnu::always_inline]] static inline void Run(T* __restrict to, const T* __restrict from, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] += from[i];
  }
};

}  // namespace

// The buffers form a stack: one for each set bit of added_, the largest partial sum at the bottom, and the
// buffer being filled on top.
template <class T>
std::span<T> ShardSum<T>::Next() {
  const auto depth = static_cast<std::size_t>(std::popcount(added_));
  if (levels_.size() == depth) levels_.emplace_back(size_);
  std::fill(levels_[depth].begin(), levels_[depth].end(), T{0});
  return levels_[depth].span();
}

template <class T>
void ShardSum<T>::Add() {
  auto top = static_cast<std::size_t>(std::popcount(added_));
  for (std::size_t bits = added_; (bits & 1) != 0; bits >>= 1, --top) {
    SimdCall<AddKernel<T>>(levels_[top - 1].data(), static_cast<const T*>(levels_[top].data()), size_);
  }
  ++added_;
}

template <class T>
std::span<T> ShardSum<T>::Total() {
  TRIREME_CHECK(std::has_single_bit(added_));
  added_ = 0;
  return levels_[0].span();
}

template class ShardSum<float>;
template class ShardSum<double>;

}  // namespace trireme
