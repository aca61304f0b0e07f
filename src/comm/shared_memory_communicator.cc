#include "trireme/comm/shared_memory_communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/tree_sum.h"
#include "trireme/comm/wait.h"

namespace trireme {

using Slot = SharedMemoryCommunicator::Seat::Slot;

SharedMemoryCommunicator::SharedMemoryCommunicator(Seat* seats, int rank, std::vector<std::string> names,
                                                   int processors, double timeout_s,
                                                   std::function<void()> meanwhile)
    : seats_(seats),
      rank_(rank),
      size_(static_cast<int>(names.size())),
      names_(std::move(names)),
      spins_(size_ <= processors ? kUsualSpins : 0),
      timeout_s_(timeout_s),
      meanwhile_(std::move(meanwhile)) {
  TRIREME_CHECK(size_ <= kMostRanks);
}

// The slot to fill in the next step.
Slot& SharedMemoryCommunicator::Begin() {
  if (aborted_.load()) throw Error("another worker failed");
  ++step_;
  if (step_ > 2) {
    for (int r = 0; r < size_; ++r) WaitFor(r, step_ - 2);
  }
  return seats_[rank_].slots[step_ % Seat::kSlots];
}

void SharedMemoryCommunicator::Publish() { seats_[rank_].published.store(step_, std::memory_order_release); }

const Slot& SharedMemoryCommunicator::Read(int rank, std::uint64_t step) {
  WaitFor(rank, step);
  return seats_[rank].slots[step % Seat::kSlots];
}

void SharedMemoryCommunicator::WaitFor(int rank, std::uint64_t step) {
  const std::atomic<std::uint64_t>& published = seats_[rank].published;
  traffic_.idle_s += WaitUntil(
      spins_, [&] { return published.load(std::memory_order_acquire) >= step; },
      [&](double waited_s) {
        if (aborted_.load()) throw Error("another worker failed");
        if (meanwhile_) meanwhile_();
        if (waited_s < timeout_s_) return;
        Fail("{} waited {:.0f} s for {} in {}: it hangs, is stopped, or does something else", names_[rank_],
             waited_s, names_[rank], operation_);
      });
}

void SharedMemoryCommunicator::Count(std::uint64_t messages, std::uint64_t bytes) {
  traffic_.messages += messages;
  traffic_.bytes += bytes;
}

void SharedMemoryCommunicator::Barrier() {
  operation_ = "a barrier";
  Begin();
  Publish();
  for (int r = 0; r < size_; ++r) Read(r, step_);
}

// From rank 0 to all.
void SharedMemoryCommunicator::SendBytes(std::span<std::byte> bytes) {
  operation_ = "a broadcast";
  for (std::size_t first = 0; first < bytes.size(); first += kChunk) {
    const std::span<std::byte> chunk = bytes.subspan(first, std::min(kChunk, bytes.size() - first));
    Slot& own = Begin();
    if (rank_ == 0) std::memcpy(own.in, chunk.data(), chunk.size());
    Publish();
    if (rank_ != 0) std::memcpy(chunk.data(), Read(0, step_).in, chunk.size());
  }
}

void SharedMemoryCommunicator::Broadcast(std::span<float> values) {
  SendBytes(std::as_writable_bytes(values));
  if (rank_ == 0) Count(size_ - 1, values.size_bytes() * (size_ - 1));
}

void SharedMemoryCommunicator::Broadcast(std::span<double> values) {
  SendBytes(std::as_writable_bytes(values));
  if (rank_ == 0) Count(size_ - 1, values.size_bytes() * (size_ - 1));
}

void SharedMemoryCommunicator::Broadcast(std::string& bytes) {
  std::uint64_t length = bytes.size();
  SendBytes(std::as_writable_bytes(std::span(&length, 1)));
  bytes.resize(length);
  SendBytes(std::as_writable_bytes(std::span(bytes)));
  if (rank_ == 0) Count(size_ - 1, length * (size_ - 1));
}

template <class T>
void SharedMemoryCommunicator::Reduce(std::span<T> values, bool to_all) {
  if (size_ == 1 || values.empty()) return;
  operation_ = to_all ? "an all-reduction" : "a reduction";
  const bool small = values.size_bytes() <= kSmall;
  small ? ReduceSmall(values, to_all) : ReduceLarge(values, to_all);
  const std::uint64_t others = size_ - 1, bytes = values.size_bytes();
  if (!to_all) {
    if (rank_ != 0) Count(1, bytes);
  } else if (small) {
    Count(others, others * bytes);
  } else {
    Count(2 * others, 2 * others * bytes / size_);
  }
}

// Everyone shows all it has and adds up all it sees: one step.
template <class T>
void SharedMemoryCommunicator::ReduceSmall(std::span<T> values, bool to_all) {
  std::memcpy(Begin().in, values.data(), values.size_bytes());
  Publish();
  if (!to_all && rank_ != 0) return;
  std::array<const T*, kMostRanks> operands;
  for (int r = 0; r < size_; ++r) {
    operands[r] = r == rank_ ? values.data() : reinterpret_cast<const T*>(Read(r, step_).in);
  }
  T* const to[] = {values.data()};
  SimdCall<SumOperands<T>>(static_cast<const T* const*>(operands.data()), size_, static_cast<T* const*>(to),
                           1, values.size());
}

// Reduce-scatter and allgather, chunk by chunk: rank r adds slice r of a chunk, which the others have shown,
// to its own and shows the sum. Three things happen in a step, to three chunks, so that nobody waits for what
// was shown just now: chunk k is shown, the sum of chunk k - 1 is made and shown, that of chunk k - 2 is
// fetched.
template <class T>
void SharedMemoryCommunicator::ReduceLarge(std::span<T> values, bool to_all) {
  constexpr std::size_t kElements = kChunk / sizeof(T);
  constexpr std::size_t kPerLine = 64 / sizeof(T);  // slices start on cache lines
  const std::size_t chunks = (values.size() + kElements - 1) / kElements;
  const auto chunk = [&](std::size_t k) {
    return values.subspan(k * kElements, std::min(kElements, values.size() - k * kElements));
  };
  const auto slice = [&](int r, std::size_t elements) -> std::pair<std::size_t, std::size_t> {
    const std::size_t lines = (elements + kPerLine - 1) / kPerLine;
    return {std::min(elements, lines * r / size_ * kPerLine),
            std::min(elements, lines * (r + 1) / size_ * kPerLine)};
  };
  const auto copy = [](T* to, const T* from, std::size_t begin, std::size_t end) {
    std::memcpy(to + begin, from + begin, (end - begin) * sizeof(T));
  };

  for (std::size_t k = 0; k < chunks + 2; ++k) {
    const std::uint64_t before = step_;
    if (k <= chunks) {
      Slot& own = Begin();
      if (k < chunks) {
        const std::span<T> operand = chunk(k);
        const auto [begin, end] = slice(rank_, operand.size());
        copy(reinterpret_cast<T*>(own.in), operand.data(), 0, begin);
        copy(reinterpret_cast<T*>(own.in), operand.data(), end, operand.size());
      }
      if (k > 0) {
        const std::span<T> operand = chunk(k - 1);
        const auto [begin, end] = slice(rank_, operand.size());
        std::array<const T*, kMostRanks> operands;
        for (int r = 0; r < size_; ++r) {
          operands[r] =
              (r == rank_ ? operand.data() : reinterpret_cast<const T*>(Read(r, before).in)) + begin;
        }
        T* const to[] = {reinterpret_cast<T*>(own.out) + begin, operand.data() + begin};
        const int copies = to_all || rank_ == 0 ? 2 : 1;  // in a reduction the others keep their values
        SimdCall<SumOperands<T>>(static_cast<const T* const*>(operands.data()), size_,
                                 static_cast<T* const*>(to), copies, end - begin);
      }
      Publish();
    }
    if (k > 1 && (to_all || rank_ == 0)) {
      const std::span<T> operand = chunk(k - 2);
      for (int r = 0; r < size_; ++r) {
        if (r == rank_) continue;
        const auto [begin, end] = slice(r, operand.size());
        copy(operand.data(), reinterpret_cast<const T*>(Read(r, before).out), begin, end);
      }
    }
  }
}

// First everyone shows its length, then its bytes in as many steps as the longest needs.
std::vector<std::string> SharedMemoryCommunicator::Gather(std::string bytes) {
  operation_ = "a gathering";
  const std::uint64_t length = bytes.size();
  std::memcpy(Begin().in, &length, sizeof(length));
  Publish();
  std::vector<std::uint64_t> lengths(size_);
  for (int r = 0; r < size_; ++r) std::memcpy(&lengths[r], Read(r, step_).in, sizeof(length));
  std::vector<std::string> all(rank_ == 0 ? size_ : 0);
  for (std::size_t r = 0; r < all.size(); ++r) all[r].resize(lengths[r]);
  const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  for (std::uint64_t first = 0; first < longest; first += kChunk) {
    const auto part = [&](int r) {
      return lengths[r] <= first ? 0 : std::min<std::uint64_t>(kChunk, lengths[r] - first);
    };
    Slot& own = Begin();
    if (rank_ != 0 && part(rank_) > 0) std::memcpy(own.in, bytes.data() + first, part(rank_));
    Publish();
    for (std::size_t r = 1; r < all.size(); ++r) {
      if (part(static_cast<int>(r)) == 0) continue;
      std::memcpy(all[r].data() + first, Read(static_cast<int>(r), step_).in, part(static_cast<int>(r)));
    }
  }
  if (rank_ == 0) {
    all[0] = std::move(bytes);
  } else {
    Count(1, length);
  }
  return all;
}

template void SharedMemoryCommunicator::Reduce(std::span<float>, bool);
template void SharedMemoryCommunicator::Reduce(std::span<double>, bool);

}  // namespace trireme
