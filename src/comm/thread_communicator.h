// The in-process communicator: workers are threads, messages are reads of each other's buffers.
//
// Small operands (up to kSmall bytes to read from others) are shown in memory of the group, where everyone
// reads them after one barrier; large ones are read and written where they lie, between two barriers.
//
// Counted as if they were messages, per rank of m, for n bytes: a broadcast is m - 1 messages of rank 0 with
// n bytes each; a reduction to rank 0, and a gathering, one message of every other rank; an all-reduction of
// small operands m - 1 messages of n bytes, of large ones 2 (m - 1) messages with 2 n (m - 1) / m bytes
// together; what is sent to one other is one message.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/comm/barrier.h"
#include "trireme/comm/mailbox.h"
#include "trireme/comm/peer_communicator.h"

namespace trireme {

// What the threads of a group share. Create one, then one ThreadCommunicator per thread. Must outlive them.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size);

  int size() const { return static_cast<int>(published_.size()); }
  // Releases all who wait, here and in the groups that this one was split into.
  void Abort();

 private:
  friend class ThreadCommunicator;
  // A rank's small operands lie in one of two buffers, in turn: who fills one again has passed the barrier of
  // the operation between, before which all had read what lay there.
  struct Slots {
    std::array<AlignedBuffer<std::byte>, 2> buffers;
    std::uint64_t operations = 0;  // the owner's
  };

  // From one rank to another.
  Mailbox& mailbox(int from, int to) { return mailboxes_[from * size() + to]; }

  ThreadBarrier barrier_;
  std::vector<Mailbox> mailboxes_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;                               // guards what follows
  std::vector<std::weak_ptr<ThreadGroup>> parts_;  // that it was split into
  // Where each rank's operand lies. A rank writes its own entry before a barrier; others read it after.
  std::vector<void*> published_;
  std::vector<Slots> slots_;
};

class ThreadCommunicator final : public PeerCommunicator {
 public:
  static constexpr std::size_t kSmall = 32 * 1024;

  ThreadCommunicator(ThreadGroup& group, int rank);

  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  void Barrier() override;
  void Broadcast(std::span<float> values) override { CopyFirst(values); }
  void Broadcast(std::span<double> values) override { CopyFirst(values); }
  void Broadcast(std::string& bytes) override;
  void ReduceSum(std::span<float> values) override { Reduce(values, false); }
  void ReduceSum(std::span<double> values) override { Reduce(values, false); }
  void AllReduceSum(std::span<float> values) override { Reduce(values, true); }
  void AllReduceSum(std::span<double> values) override { Reduce(values, true); }
  std::vector<std::string> Gather(std::string bytes) override;
  Traffic traffic() const override { return traffic_; }
  void Abort() override { group_.Abort(); }
  void Send(int to, std::span<const float> values) override;
  void Receive(int from, std::span<float> values) override;
  std::unique_ptr<PeerCommunicator> Split(int colour) override;

 private:
  bool Small(std::size_t bytes) const { return bytes * (size() - 1) <= kSmall; }
  void Show(std::span<const std::byte> operand);
  template <class T>
  const T* Shown(int rank) const;
  template <class T>
  void CopyFirst(std::span<T> values);
  template <class T>
  void Reduce(std::span<T> values, bool to_all);
  template <class T>
  void ReduceSmall(std::span<T> values, bool to_all);
  template <class T>
  void ReduceLarge(std::span<T> values, bool to_all);
  void Count(std::uint64_t messages, std::uint64_t bytes);

  std::shared_ptr<ThreadGroup> own_;  // of a part: its ranks hold it together
  ThreadGroup& group_;
  int rank_;
  int spins_;  // while it waits for a message
  Traffic traffic_;
};

}  // namespace trireme
