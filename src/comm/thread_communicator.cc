#include "trireme/comm/thread_communicator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/comm/tree_sum.h"
#include "trireme/comm/wait.h"

namespace trireme {

ThreadGroup::ThreadGroup(int size)
    : barrier_(size), mailboxes_(static_cast<std::size_t>(size) * size), published_(size), slots_(size) {
  TRIREME_CHECK(size > 0 && size <= TreeSum<float>::kMostRanks);
}

void ThreadGroup::Abort() {
  aborted_.store(true, std::memory_order_release);
  barrier_.Abort();
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<ThreadGroup>& part : parts_) {
    if (const std::shared_ptr<ThreadGroup> there = part.lock()) there->Abort();
  }
}

ThreadCommunicator::ThreadCommunicator(ThreadGroup& group, int rank)
    : group_(group), rank_(rank), spins_(group.size() <= UsableProcessors() ? kUsualSpins : 0) {}

void ThreadCommunicator::Barrier() {
  if (size() > 1) traffic_.idle_s += group_.barrier_.Wait(rank_);
}

void ThreadCommunicator::Count(std::uint64_t messages, std::uint64_t bytes) {
  traffic_.messages += messages;
  traffic_.bytes += bytes;
}

// Others find a small operand in Shown(rank) until the next one is shown.
void ThreadCommunicator::Show(std::span<const std::byte> operand) {
  ThreadGroup::Slots& own = group_.slots_[rank_];
  AlignedBuffer<std::byte>& buffer = own.buffers[++own.operations % 2];
  if (buffer.size() == 0) buffer = AlignedBuffer<std::byte>(kSmall);
  std::ranges::copy(operand, buffer.begin());
  Barrier();
}

template <class T>
const T* ThreadCommunicator::Shown(int rank) const {
  return reinterpret_cast<const T*>(group_.slots_[rank].buffers[group_.slots_[rank_].operations % 2].data());
}

template <class T>
void ThreadCommunicator::CopyFirst(std::span<T> values) {
  if (size() == 1) return;
  if (Small(values.size_bytes())) {
    Show(std::as_bytes(values.first(rank_ == 0 ? values.size() : 0)));
    if (rank_ != 0) std::copy_n(Shown<T>(0), values.size(), values.data());
  } else {
    group_.published_[rank_] = values.data();
    Barrier();
    if (rank_ != 0) std::copy_n(static_cast<const T*>(group_.published_[0]), values.size(), values.data());
    Barrier();
  }
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

template <class T>
void ThreadCommunicator::Reduce(std::span<T> values, bool to_all) {
  if (size() == 1) return;
  const bool small = Small(values.size_bytes());
  small ? ReduceSmall(values, to_all) : ReduceLarge(values, to_all);
  const std::uint64_t others = size() - 1, bytes = values.size_bytes();
  if (!to_all) {
    if (rank_ != 0) Count(1, bytes);
  } else if (small) {
    Count(others, others * bytes);
  } else {
    Count(2 * others, 2 * others * bytes / size());
  }
}

// Everyone shows all it has and adds up all it sees.
template <class T>
void ThreadCommunicator::ReduceSmall(std::span<T> values, bool to_all) {
  Show(std::as_bytes(values));
  if (!to_all && rank_ != 0) return;
  std::array<const T*, TreeSum<T>::kMostRanks> operands;
  for (int r = 0; r < size(); ++r) operands[r] = r == rank_ ? values.data() : Shown<T>(r);
  T* const to[] = {values.data()};
  SimdCall<SumOperands<T>>(static_cast<const T* const*>(operands.data()), size(), static_cast<T* const*>(to),
                           1, values.size());
}

// Reduce-scatter and allgather in one: rank r adds slice r of everyone's operand and writes the sum back to
// everyone, so each element is added once in the group and nothing is copied. The first barrier says that all
// operands are ready, the second that all slices are done.
template <class T>
void ThreadCommunicator::ReduceLarge(std::span<T> values, bool to_all) {
  constexpr std::size_t kPerLine = 64 / sizeof(T);  // slices start on cache lines: no two ranks share one
  const std::size_t lines = (values.size() + kPerLine - 1) / kPerLine;
  const auto start = [&](int r) { return std::min(values.size(), lines * r / size() * kPerLine); };
  const std::size_t begin = start(rank_), end = start(rank_ + 1);
  group_.published_[rank_] = values.data();
  Barrier();
  std::array<T*, TreeSum<T>::kMostRanks> slices;
  for (int r = 0; r < size(); ++r) slices[r] = static_cast<T*>(group_.published_[r]) + begin;
  const auto operands = const_cast<const T* const*>(slices.data());
  SimdCall<SumOperands<T>>(operands, size(), static_cast<T* const*>(slices.data()), to_all ? size() : 1,
                           end - begin);
  Barrier();
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

void ThreadCommunicator::Send(int to, std::span<const float> values) {
  TRIREME_CHECK(to != rank_);
  if (group_.aborted_.load(std::memory_order_acquire)) throw Error("another worker failed");
  group_.mailbox(rank_, to).Put(values);
  Count(1, values.size_bytes());
}

void ThreadCommunicator::Receive(int from, std::span<float> values) {
  TRIREME_CHECK(from != rank_);
  traffic_.idle_s += group_.mailbox(from, rank_).Take(values, spins_, group_.aborted_);
}

// Each shows its colour; the first of each colour makes the group, and the others of it take a share in it.
std::unique_ptr<PeerCommunicator> ThreadCommunicator::Split(int colour) {
  TRIREME_CHECK(colour >= 0);
  struct Shown {
    int colour;
    std::shared_ptr<ThreadGroup> part;
  } own{colour, nullptr};
  group_.published_[rank_] = &own;
  Barrier();
  const auto shown = [&](int rank) -> Shown& { return *static_cast<Shown*>(group_.published_[rank]); };
  int first = -1, members = 0, own_rank = 0;
  for (int rank = 0; rank < size(); ++rank) {
    if (shown(rank).colour != colour) continue;
    if (first < 0) first = rank;
    if (rank < rank_) ++own_rank;
    ++members;
  }
  if (first == rank_) {
    own.part = std::make_shared<ThreadGroup>(members);
    const std::lock_guard lock(group_.mutex_);
    group_.parts_.push_back(own.part);
  }
  Barrier();
  const std::shared_ptr<ThreadGroup> part = shown(first).part;
  Barrier();
  auto comm = std::make_unique<ThreadCommunicator>(*part, own_rank);
  comm->own_ = part;
  return comm;
}

template void ThreadCommunicator::CopyFirst(std::span<float>);
template void ThreadCommunicator::CopyFirst(std::span<double>);
template void ThreadCommunicator::Reduce(std::span<float>, bool);
template void ThreadCommunicator::Reduce(std::span<double>, bool);

}  // namespace trireme
