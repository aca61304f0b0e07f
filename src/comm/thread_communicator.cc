#include "comm/thread_communicator.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/error.h"
#include "base/simd.h"

namespace trireme {
namespace {

// Adds the operands of `size` ranks as a tree, element by element, and gives the result to all of them.
template <class T>
struct TreeSumKernel {
  [[gnu::always_inline]] static inline void Run(void* const* operands, int size, std::size_t begin,
                                                std::size_t end) {
    constexpr std::size_t kBlock = 64;
    T sums[kMostRanks / 2][kBlock];
    for (std::size_t first = begin; first < end; first += kBlock) {
      const std::size_t count = std::min(kBlock, end - first);
      for (int pair = 0; pair < size / 2; ++pair) {
        const T* a = static_cast<const T*>(operands[2 * pair]) + first;
        const T* b = static_cast<const T*>(operands[2 * pair + 1]) + first;
        for (std::size_t i = 0; i < count; ++i) sums[pair][i] = a[i] + b[i];
      }
      for (int stride = 1; stride < size / 2; stride *= 2) {
        for (int pair = 0; pair < size / 2; pair += 2 * stride) {
          for (std::size_t i = 0; i < count; ++i) sums[pair][i] += sums[pair + stride][i];
        }
      }
      for (int r = 0; r < size; ++r) std::copy_n(sums[0], count, static_cast<T*>(operands[r]) + first);
    }
  }
  static constexpr int kMostRanks = 64;
};

}  // namespace

ThreadGroup::ThreadGroup(int size) : barrier_(size), published_(size) {
  CHECK(size > 0 && size <= TreeSumKernel<float>::kMostRanks &&
        std::has_single_bit(static_cast<unsigned>(size)));
}

void ThreadCommunicator::Broadcast(std::span<double> values, int root) {
  if (size() == 1) return;
  group_.published_[rank_] = values.data();
  Barrier();
  if (rank_ != root)
    std::copy_n(static_cast<const double*>(group_.published_[root]), values.size(), values.data());
  Barrier();
  if (rank_ == root) {
    traffic_.bytes += values.size_bytes() * (size() - 1);
    traffic_.messages += size() - 1;
  }
}

// Reduce-scatter and allgather in one: rank r adds slice r of everyone's operand and writes the sum back to
// everyone, so each element is added once in the group and nothing is copied. The first barrier says that all
// operands are ready, the second that all slices are done.
template <class T>
void ThreadCommunicator::ReduceSlices(std::span<T> values) {
  if (size() == 1) return;
  const std::size_t per_line = 64 / sizeof(T);  // slices start on cache lines, so that no two ranks share one
  const std::size_t lines = (values.size() + per_line - 1) / per_line;
  const auto slice_start = [&](int r) { return std::min(values.size(), lines * r / size() * per_line); };
  group_.published_[rank_] = values.data();
  Barrier();
  SimdCall<TreeSumKernel<T>>(group_.published_.data(), size(), slice_start(rank_), slice_start(rank_ + 1));
  Barrier();
  // As messages: one slice to each other rank before the sum, one after it.
  const std::uint64_t others = size() - 1;
  traffic_.messages += 2 * others;
  traffic_.bytes += 2 * others * values.size_bytes() / size();
}

template void ThreadCommunicator::ReduceSlices(std::span<float>);
template void ThreadCommunicator::ReduceSlices(std::span<double>);

}  // namespace trireme
