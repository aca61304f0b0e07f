// The in-process communicator: workers are threads, messages are reads of each other's buffers.
//
// Counted as if they were messages, per rank of m, for n bytes: a broadcast is m - 1 messages of rank 0 with
// n bytes each; a reduction to rank 0, and a gathering, one message of every other rank; an all-reduction 2
// (m - 1) messages with 2 n (m - 1) / m bytes together.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/barrier.h"
#include "trireme/comm/communicator.h"

namespace trireme {

// What the threads of a group share. Create one, then one ThreadCommunicator per thread. Must outlive them.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size);

  int size() const { return static_cast<int>(published_.size()); }

 private:
  friend class ThreadCommunicator;
  ThreadBarrier barrier_;
  // Where each rank's operand lies. A rank writes its own slot before a barrier; others read it after.
  std::vector<void*> published_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  void Barrier() override;
  void Broadcast(std::span<float> values) override { CopyFirst(values); }
  void Broadcast(std::span<double> values) override { CopyFirst(values); }
  void Broadcast(std::string& bytes) override;
  void ReduceSum(std::span<float> values) override { ReduceToFirst(values); }
  void ReduceSum(std::span<double> values) override { ReduceToFirst(values); }
  void AllReduceSum(std::span<float> values) override { ReduceToAll(values); }
  void AllReduceSum(std::span<double> values) override { ReduceToAll(values); }
  std::vector<std::string> Gather(std::string bytes) override;
  Traffic traffic() const override { return traffic_; }
  void Abort() override { group_.barrier_.Abort(); }

 private:
  template <class T>
  void CopyFirst(std::span<T> values);
  template <class T>
  void ReduceToFirst(std::span<T> values);
  template <class T>
  void ReduceToAll(std::span<T> values);
  template <class T>
  void SumSlice(std::size_t size, int copies);
  void Count(std::uint64_t messages, std::uint64_t bytes);

  ThreadGroup& group_;
  int rank_;
  Traffic traffic_;
};

}  // namespace trireme
