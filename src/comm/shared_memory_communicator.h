// The processes of one host: messages are copies through memory that all of them map.
//
// Every rank has a seat in that memory: a counter and a ring of slots. A group moves in steps. In each, a
// rank fills its slot, publishes it by raising its counter to the number of the step, and reads the slots of
// others whose counters have come that far. Large operands go through in chunks, one after the other.
//
// Why nobody overwrites what another still reads:
//   1. A rank has read all it wants of step s before it publishes step s + 2.
//   2. A rank fills its slot of step s only when every counter has reached s - 2, so all have done with
//      s - 4.
//   3. Steps s and s - 4 are the nearest that share a slot.
//
// Traffic is counted as in thread_communicator.h, except that an all-reduction of up to kSmall bytes is m - 1
// messages of n bytes: everyone adds everything.
//
// Abort() makes the calls of this rank fail. A wait of more than `timeout_s` does so too, and says who waited
// for whom.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

class SharedMemoryCommunicator final : public Communicator {
 public:
  static constexpr std::size_t kChunk = 64 * 1024;  // bytes of an operand in one step
  static constexpr std::size_t kSmall = 32 * 1024;
  static constexpr int kMostRanks = 64;

  // What a rank has in the shared memory, all zero before the first call of anybody.
  struct alignas(64) Seat {
    static constexpr int kSlots = 4;
    struct alignas(64) Slot {
      std::byte in[kChunk];   // an operand
      std::byte out[kChunk];  // a sum
    };
    std::atomic<std::uint64_t> published;
    Slot slots[kSlots];
  };

  // `seats`: of all ranks. `names`: what messages call them; `processors`: of the host. `meanwhile`: called now and
  // then while this rank waits for others, if there is such a function.
  SharedMemoryCommunicator(Seat* seats, int rank, std::vector<std::string> names, int processors,
                           double timeout_s, std::function<void()> meanwhile = {});

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Barrier() override;
  void Broadcast(std::span<float> values) override;
  void Broadcast(std::span<double> values) override;
  void Broadcast(std::string& bytes) override;
  void ReduceSum(std::span<float> values) override { Reduce(values, false); }
  void ReduceSum(std::span<double> values) override { Reduce(values, false); }
  void AllReduceSum(std::span<float> values) override { Reduce(values, true); }
  void AllReduceSum(std::span<double> values) override { Reduce(values, true); }
  std::vector<std::string> Gather(std::string bytes) override;
  Traffic traffic() const override { return traffic_; }
  void Abort() override { aborted_.store(true); }

 private:
  Seat::Slot& Begin();
  void Publish();
  const Seat::Slot& Read(int rank, std::uint64_t step);
  void WaitFor(int rank, std::uint64_t step);
  void SendBytes(std::span<std::byte> bytes);
  template <class T>
  void Reduce(std::span<T> values, bool to_all);
  template <class T>
  void ReduceSmall(std::span<T> values, bool to_all);
  template <class T>
  void ReduceLarge(std::span<T> values, bool to_all);
  void Count(std::uint64_t messages, std::uint64_t bytes);

  Seat* const seats_;
  const int rank_, size_;
  const std::vector<std::string> names_;
  const int spins_;
  const double timeout_s_;
  const std::function<void()> meanwhile_;
  std::uint64_t step_ = 0;      // the current one; each begins with Begin()
  const char* operation_ = "";  // for messages
  std::atomic<bool> aborted_{false};
  Traffic traffic_;
};

}  // namespace trireme
