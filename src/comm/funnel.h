// Groups of workers that span the same processes, with one thread of each process in each group, over the one
// communicator between the processes. All threads of a process make the same calls at the same time; the first makes
// them for all, one group after the other.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/thread_communicator.h"

namespace trireme {

// What the threads of a process share. Outlives their ends.
class Funnel {
 public:
  // `between`: of the processes; the first thread uses it.
  Funnel(Communicator& between, int threads)
      : between_(between), threads_(threads), calls_(threads), costs_(threads) {}

  void Abort() { threads_.Abort(); }

 private:
  friend class FunnelCommunicator;
  Communicator& between_;
  ThreadGroup threads_;
  // Of each thread. It writes its call before a barrier, the first thread makes it and writes its cost after.
  std::vector<std::function<void(Communicator&)>> calls_;
  std::vector<Traffic> costs_;
};

// The end of a thread, and so of its group.
class FunnelCommunicator final : public Communicator {
 public:
  FunnelCommunicator(Funnel& funnel, int thread) : funnel_(funnel), threads_(funnel.threads_, thread) {}

  int rank() const override { return funnel_.between_.rank(); }
  int size() const override { return funnel_.between_.size(); }
  void Barrier() override {
    Call([](Communicator& between) { between.Barrier(); });
  }
  void Broadcast(std::span<float> values) override {
    Call([=](Communicator& between) { between.Broadcast(values); });
  }
  void Broadcast(std::span<double> values) override {
    Call([=](Communicator& between) { between.Broadcast(values); });
  }
  void Broadcast(std::string& bytes) override {
    Call([&](Communicator& between) { between.Broadcast(bytes); });
  }
  void ReduceSum(std::span<float> values) override {
    Call([=](Communicator& between) { between.ReduceSum(values); });
  }
  void ReduceSum(std::span<double> values) override {
    Call([=](Communicator& between) { between.ReduceSum(values); });
  }
  void AllReduceSum(std::span<float> values) override {
    Call([=](Communicator& between) { between.AllReduceSum(values); });
  }
  void AllReduceSum(std::span<double> values) override {
    Call([=](Communicator& between) { between.AllReduceSum(values); });
  }
  std::vector<std::string> Gather(std::string bytes) override {
    std::vector<std::string> all;
    Call([&](Communicator& between) { all = between.Gather(std::move(bytes)); });
    return all;
  }
  Traffic traffic() const override {
    Traffic traffic = funnel_.costs_[threads_.rank()];
    traffic.idle_s += threads_.traffic().idle_s;
    return traffic;
  }
  void Abort() override {
    funnel_.Abort();
    funnel_.between_.Abort();
  }

 private:
  void Call(std::function<void(Communicator&)> call) {
    funnel_.calls_[threads_.rank()] = std::move(call);
    threads_.Barrier();
    for (std::size_t i = 0; threads_.rank() == 0 && i < funnel_.calls_.size(); ++i) {
      Traffic before = funnel_.between_.traffic();
      funnel_.calls_[i](funnel_.between_);
      Traffic cost = funnel_.between_.traffic();
      cost -= before;
      funnel_.costs_[i] += cost;
    }
    threads_.Barrier();
  }

  Funnel& funnel_;
  ThreadCommunicator threads_;
};

}  // namespace trireme
