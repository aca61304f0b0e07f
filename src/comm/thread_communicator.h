// The in-process communicator: workers are threads, messages are reads of each other's buffers.
#pragma once

#include <memory>
#include <vector>

#include "comm/barrier.h"
#include "comm/communicator.h"

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
  void Broadcast(std::span<double> values, int root) override;
  void ReduceSum(std::span<double> values, int root) override;
  void AllReduceSum(std::span<float> values) override { ReduceSlices(values); }
  void AllReduceSum(std::span<double> values) override { ReduceSlices(values); }
  Traffic traffic() const override { return traffic_; }
  void Abort() override { group_.barrier_.Abort(); }

 private:
  template <class T>
  void ReduceSlices(std::span<T> values);

  ThreadGroup& group_;
  int rank_;
  Traffic traffic_;
};

}  // namespace trireme
