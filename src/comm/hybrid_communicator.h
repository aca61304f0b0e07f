// Groups of workers within groups of workers: threads inside a process and MPI between processes, or
// processes inside a host and messages between hosts.
//
// Rank r of the whole is rank r % m of group r / m, for groups of m. Rank 0 of each group, its leader, speaks
// for it: a sum is taken inside, then between the leaders, then handed out inside. With groups of a power of
// two this is the tree of one flat group, bit for bit.
//
// What it costs is what the operations inside and between cost; the latter count for the leaders.
#pragma once

#include "trireme/comm/communicator.h"

namespace trireme {

class HybridCommunicator final : public Communicator {
 public:
  // `inside`: this worker's end inside its group, all of which have the same size. `between`: the leader's
  // end between the groups; others do not use it, and may have none. Both must outlive this object.
  HybridCommunicator(Communicator& inside, Communicator* between, int group, int groups);

  int rank() const override { return group_ * inside_.size() + inside_.rank(); }
  int size() const override { return groups_ * inside_.size(); }
  void Barrier() override;
  void Broadcast(std::span<float> values) override { BroadcastAny(values); }
  void Broadcast(std::span<double> values) override { BroadcastAny(values); }
  void Broadcast(std::string& bytes) override { BroadcastAny(bytes); }
  void ReduceSum(std::span<float> values) override { ReduceAny(values); }
  void ReduceSum(std::span<double> values) override { ReduceAny(values); }
  void AllReduceSum(std::span<float> values) override { AllReduceAny(values); }
  void AllReduceSum(std::span<double> values) override { AllReduceAny(values); }
  std::vector<std::string> Gather(std::string bytes) override;
  std::vector<std::string> AllGather(std::string bytes) override;
  Traffic traffic() const override;
  std::vector<ProcessLink> links() const override;
  void Abort() override;

 private:
  bool leader() const { return inside_.rank() == 0; }
  template <class Values>
  void BroadcastAny(Values& values);
  template <class T>
  void ReduceAny(std::span<T> values);
  template <class T>
  void AllReduceAny(std::span<T> values);

  Communicator& inside_;
  Communicator* between_;
  const int group_, groups_;
  Traffic before_;  // of `between`, when this began
};

}  // namespace trireme
