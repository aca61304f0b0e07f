// Groups of threads that hold one network together, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/nn/executor_conformance.h"
#include "trireme/split/part_norms.h"
#include "trireme/split/pipeline_executor.h"
#include "trireme/split/tensor_executor.h"

namespace trireme {

inline ModelSplit Tensor(int members) { return {.kind = ModelSplit::Kind::kTensor, .members = members}; }
inline ModelSplit Pipeline(int members, int micro_batches = 8) {
  return {.kind = ModelSplit::Kind::kPipeline, .members = members, .micro_batches = micro_batches};
}

// Runs `body` as every member of a group. One that fails releases the others.
inline void RunMembers(int members, const std::function<void(ThreadCommunicator&)>& body) {
  ThreadGroup group(members);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < members; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator comm(group, rank);
      try {
        body(comm);
      } catch (const Error& error) {
        ADD_FAILURE() << "member " << rank << ": " << error.what();
      }
      if (testing::Test::HasFailure()) comm.Abort();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// One member of a group, with what computes its part.
struct Member {
  Member(const Network& whole, const ModelSplit& split, PeerCommunicator& group)
      : parts(whole, split), share(parts, group) {
    if (split.kind == ModelSplit::Kind::kTensor) {
      executor = std::make_unique<TensorExecutor>(share);
    } else {
      executor = std::make_unique<PipelineExecutor>(share, group, times);
    }
  }

  // What all members hold, whole, on every member.
  std::vector<float> Whole(std::span<const float> part) const {
    std::vector<float> whole = share.Whole(part);
    whole.resize(share.whole_size());
    share.group().Broadcast(std::span<float>(whole));
    return whole;
  }
  std::vector<float> Part(std::span<const float> whole) const {
    std::vector<float> part(share.network().param_count());
    share.Take(whole, part);
    return part;
  }

  NetworkParts parts;
  NetworkShare share;
  PipelineTimes times;
  std::unique_ptr<Executor> executor;
};

// What a group computes, in the layout of the whole network: what the conformance kit can look at, on every member.
class WholeTape final : public Tape {
 public:
  WholeTape(const Member& member, std::unique_ptr<Tape> inner) : member_(member), inner_(std::move(inner)) {}

  void SetParams(std::span<const float> params) override {
    params_ = params;
    part_ = member_.Part(params);
    inner_->SetParams(part_);
  }
  std::span<const float> params() const override { return params_; }
  std::span<const float> Forward(std::size_t tower, const float* x, int n) override {
    return inner_->Forward(tower, x, n);
  }
  void Backward(std::size_t tower, const float* d_outputs, std::span<float> gradient, float* d_x) override {
    Add(gradient, [&](std::span<float> part) { inner_->Backward(tower, d_outputs, part, d_x); });
  }
  void AddGradient(LossSamples& samples, std::span<float> gradient) override {
    Add(gradient, [&](std::span<float> part) { inner_->AddGradient(samples, part); });
  }

 private:
  template <class Compute>
  void Add(std::span<float> gradient, Compute&& compute) {
    std::vector<float> part = member_.Part(gradient);  // what it adds to
    compute(part);
    const std::vector<float> whole = member_.Whole(part);
    for (const TensorInfo& tensor : member_.parts.whole().layout().tensors()) {
      std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(tensor.offset), tensor.size,
                  gradient.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
    }
    for (const TensorInfo& tensor : member_.share.network().layout().tensors()) {
      std::fill_n(part.begin() + static_cast<std::ptrdiff_t>(tensor.offset), tensor.size, 0.0f);
    }
    EXPECT_EQ(std::ranges::count(part, 0.0f),
              static_cast<std::ptrdiff_t>(part.size()));  // nothing between tensors
  }

  const Member& member_;
  std::unique_ptr<Tape> inner_;
  std::span<const float> params_;
  std::vector<float> part_;
};

class WholeExecutor final : public Executor {
 public:
  WholeExecutor(const Network& whole, const ModelSplit& split, PeerCommunicator& group)
      : whole_(whole), member_(whole, split, group) {}
  const Network& network() const override { return whole_; }
  int pass_size() const override { return member_.executor->pass_size(); }
  std::unique_ptr<Tape> MakeTape(int capacity) const override {
    return std::make_unique<WholeTape>(member_, member_.executor->MakeTape(capacity));
  }

 private:
  const Network& whole_;
  Member member_;
};

}  // namespace trireme
