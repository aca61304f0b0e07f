#include "comm/thread_communicator.h"

#include <algorithm>
#include <cstddef>

#include "base/error.h"
#include "base/simd.h"
#include "base/system.h"

namespace trireme {
namespace {

// Elements [begin, end) of the operands of `size` ranks, added as a tree; take(first, count, sums) receives
// the sums of each block.
template <class T>
struct TreeSum {
  static constexpr int kMostRanks = 64;
  static constexpr std::size_t kBlock = 64;

  template <class Take>
  TRIREME_INLINE void Blocks(void* const* operands, int size, std::size_t begin, std::size_t end,
                             Take&& take) {
    T sums[(kMostRanks + 1) / 2][kBlock];
    const int pairs = (size + 1) / 2;
    for (std::size_t first = begin; first < end; first += kBlock) {
      const std::size_t count = std::min(kBlock, end - first);
      for (int pair = 0; pair < pairs; ++pair) {
        const T* a = static_cast<const T*>(operands[2 * pair]) + first;
        if (2 * pair + 1 == size) {  // the last of an odd number
          for (std::size_t i = 0; i < count; ++i) sums[pair][i] = a[i];
          continue;
        }
        const T* b = static_cast<const T*>(operands[2 * pair + 1]) + first;
        for (std::size_t i = 0; i < count; ++i) sums[pair][i] = a[i] + b[i];
      }
      for (int stride = 1; stride < pairs; stride *= 2) {
        for (int pair = 0; pair + stride < pairs; pair += 2 * stride) {
          for (std::size_t i = 0; i < count; ++i) sums[pair][i] += sums[pair + stride][i];
        }
      }
      take(first, count, sums[0]);
    }
  }
};

template <class T>
struct SumToAll {
  TRIREME_INLINE void Run(void* const* operands, int size, std::size_t begin, std::size_t end) {
    TreeSum<T>::Blocks(operands, size, begin, end, [&](std::size_t first, std::size_t count, const T* sums) {
      for (int r = 0; r < size; ++r) std::copy_n(sums, count, static_cast<T*>(operands[r]) + first);
    });
  }
};

struct SumToOne {
  TRIREME_INLINE void Run(void* const* operands, int size, double* to, std::size_t n) {
    TreeSum<double>::Blocks(operands, size, 0, n,
                            [&](std::size_t first, std::size_t count, const double* sums) {
                              std::copy_n(sums, count, to + first);
                            });
  }
};

}  // namespace

ThreadGroup::ThreadGroup(int size) : barrier_(size), published_(size) {
  CHECK(size > 0 && size <= TreeSum<float>::kMostRanks);
}

void ThreadCommunicator::Barrier() {
  if (size() == 1) return;
  const double arrived_s = MonotonicSeconds();
  group_.barrier_.Wait();
  traffic_.idle_s += MonotonicSeconds() - arrived_s;
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

// As messages: every other rank sends its operand to the root.
void ThreadCommunicator::ReduceSum(std::span<double> values, int root) {
  if (size() == 1) return;
  group_.published_[rank_] = values.data();
  Barrier();
  if (rank_ == root) SimdCall<SumToOne>(group_.published_.data(), size(), values.data(), values.size());
  Barrier();
  if (rank_ == root) return;
  traffic_.bytes += values.size_bytes();
  traffic_.messages += 1;
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
  SimdCall<SumToAll<T>>(group_.published_.data(), size(), slice_start(rank_), slice_start(rank_ + 1));
  Barrier();
  // As messages: one slice to each other rank before the sum, one after it.
  const std::uint64_t others = size() - 1;
  traffic_.messages += 2 * others;
  traffic_.bytes += 2 * others * values.size_bytes() / size();
}

template void ThreadCommunicator::ReduceSlices(std::span<float>);
template void ThreadCommunicator::ReduceSlices(std::span<double>);

}  // namespace trireme
