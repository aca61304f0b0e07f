#include "trireme/comm/thread_communicator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/comm/tree_sum.h"

namespace trireme {

ThreadGroup::ThreadGroup(int size) : barrier_(size), published_(size) {
  TRIREME_CHECK(size > 0 && size <= TreeSum<float>::kMostRanks);
}

void ThreadCommunicator::Barrier() {
  if (size() == 1) return;
  const double arrived_s = MonotonicSeconds();
  group_.barrier_.Wait();
  traffic_.idle_s += MonotonicSeconds() - arrived_s;
}

void ThreadCommunicator::Count(std::uint64_t messages, std::uint64_t bytes) {
  traffic_.messages += messages;
  traffic_.bytes += bytes;
}

template <class T>
void ThreadCommunicator::CopyFirst(std::span<T> values) {
  if (size() == 1) return;
  group_.published_[rank_] = values.data();
  Barrier();
  if (rank_ != 0) std::copy_n(static_cast<const T*>(group_.published_[0]), values.size(), values.data());
  Barrier();
  if (rank_ == 0) Count(size() - 1, values.size_bytes() * (size() - 1));
}

void ThreadCommunicator::Broadcast(std::string& bytes) {
  if (size() == 1) return;
  group_.published_[rank_] = &bytes;
  Barrier();
  if (rank_ != 0) bytes = *static_cast<const std::string*>(group_.published_[0]);
  Barrier();
  if (rank_ == 0) Count(size() - 1, bytes.size() * (size() - 1));
}

// The part of `size` elements that belongs to this rank, added up and written to the first `copies` operands.
template <class T>
void ThreadCommunicator::SumSlice(std::size_t size, int copies) {
  constexpr std::size_t kPerLine = 64 / sizeof(T);  // slices start on cache lines: no two ranks share one
  const std::size_t lines = (size + kPerLine - 1) / kPerLine;
  const auto start = [&](int r) { return std::min(size, lines * r / this->size() * kPerLine); };
  const std::size_t begin = start(rank_), end = start(rank_ + 1);
  std::array<T*, TreeSum<T>::kMostRanks> slices;
  for (int r = 0; r < this->size(); ++r) slices[r] = static_cast<T*>(group_.published_[r]) + begin;
  const auto operands = const_cast<const T* const*>(slices.data());
  SimdCall<SumOperands<T>>(operands, this->size(), static_cast<T* const*>(slices.data()), copies,
                           end - begin);
}

template <class T>
void ThreadCommunicator::ReduceToFirst(std::span<T> values) {
  if (size() == 1) return;
  group_.published_[rank_] = values.data();
  Barrier();
  SumSlice<T>(values.size(), 1);
  Barrier();
  if (rank_ != 0) Count(1, values.size_bytes());
}

// Reduce-scatter and allgather in one: rank r adds slice r of everyone's operand and writes the sum back to
// everyone, so each element is added once in the group and nothing is copied. The first barrier says that all
// operands are ready, the second that all slices are done.
template <class T>
void ThreadCommunicator::ReduceToAll(std::span<T> values) {
  if (size() == 1) return;
  group_.published_[rank_] = values.data();
  Barrier();
  SumSlice<T>(values.size(), size());
  Barrier();
  // As messages: one slice to each other rank before the sum, one after it.
  const std::uint64_t others = size() - 1;
  Count(2 * others, 2 * others * values.size_bytes() / size());
}

std::vector<std::string> ThreadCommunicator::Gather(std::string bytes) {
  if (rank_ != 0) Count(1, bytes.size());
  group_.published_[rank_] = &bytes;
  Barrier();
  std::vector<std::string> all;
  if (rank_ == 0) {
    for (void* published : group_.published_) all.push_back(std::move(*static_cast<std::string*>(published)));
  }
  Barrier();
  return all;
}

template void ThreadCommunicator::CopyFirst(std::span<float>);
template void ThreadCommunicator::CopyFirst(std::span<double>);
template void ThreadCommunicator::ReduceToFirst(std::span<float>);
template void ThreadCommunicator::ReduceToFirst(std::span<double>);
template void ThreadCommunicator::ReduceToAll(std::span<float>);
template void ThreadCommunicator::ReduceToAll(std::span<double>);

}  // namespace trireme
