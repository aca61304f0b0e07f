// A fully connected tower: forward and backward on the processor, fused around libxsmm products.
//
// Samples are processed in chunks: a chunk passes through all layers while its activations are near the
// processor, and weights stay in the second-level cache. Hidden weights are stored [inputs, outputs], in
// blocks of columns where they are wide (Gemm), and the last layer's [outputs, inputs]; both have the
// contiguous dimension the kernels want.
//
// Thread safety: a Tower is immutable; any number of threads may use it at once, each with its own workspace.
#pragma once

#include <span>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/nn/gemm.h"
#include "trireme/nn/layout.h"
#include "trireme/nn/precision.h"
#include "trireme/nn/spec.h"

namespace trireme {

class Tower;

// Scratch memory of one thread for one tower, for up to `capacity` samples.
class TowerWorkspace {
 public:
  TowerWorkspace(const Tower& tower, int capacity, Precision precision = Precision::kFp32);

  int capacity() const { return capacity_; }
  // What gradients between layers are multiplied with while they are rounded: a power of two.
  void SetLossScale(float scale) { loss_scale_ = scale; }
  // [n, outputs] of the last Forward.
  std::span<const float> out() const { return out_.span(); }

 private:
  friend class Tower;
  // The products of one direction and chunk size, per hidden layer.
  struct ForwardPlan {
    int n = 0;
    std::vector<Gemm> y;
  };
  struct BackwardPlan {
    int n = 0;
    std::vector<Gemm> dw, dx;
  };
  // Plans of the usual chunk size, and of the last other size seen (the end of a batch).
  template <class Plan>
  struct PlanCache {
    Plan usual, other;
  };

  void RoundGradient(Rows rows, float* dz) const {
    if (precision_ != Precision::kFp32) trireme::RoundGradient(precision_, rows, loss_scale_, dz);
  }

  int capacity_;
  Precision precision_;
  float loss_scale_ = 1;
  std::vector<KeptRows> y_, slope_;               // per hidden layer; slopes only where they are needed
  std::vector<AlignedBuffer<float>> transposed_;  // per hidden layer, [outputs, inputs]
  AlignedBuffer<float> dz_[2];                    // [kChunk, widest ld]
  AlignedBuffer<float> out_;                      // [capacity, outputs]
  PlanCache<ForwardPlan> forward_;
  PlanCache<BackwardPlan> backward_;
};

class Tower {
 public:
  // Samples that pass through the layers together.
  static constexpr int kChunk = 64;

  // Appends the tower's tensors to `layout`.
  Tower(const TowerSpec& spec, ParamLayout& layout);

  const TowerSpec& spec() const { return spec_; }
  // Where its parameters lie: [begin, end) of the flat buffer.
  std::size_t begin() const { return hidden_.front().weight; }
  std::size_t end() const { return end_; }

  // x: [n, inputs], n <= capacity. The result is workspace.out(); activations stay for Backward. The precision is
  // the workspace's, but for the parameters, which are used as they are.
  void Forward(const float* params, const float* x, int n, TowerWorkspace& workspace) const;

  // Makes the transposed weights Backward needs. Call after the parameters change, before Backward.
  void PrepareBackward(const float* params, TowerWorkspace& workspace) const;

  // Requires Forward with the same x and n just before. dout: [n, outputs], the gradient of the loss with
  // respect to the outputs. Adds to `gradient` (laid out as the parameters); dx, if not null, receives [n,
  // inputs].
  void Backward(const float* params, const float* x, const float* dout, int n, TowerWorkspace& workspace,
                float* gradient, float* dx = nullptr) const;

 private:
  friend class TowerWorkspace;
  struct Layer {
    int inputs = 0, outputs = 0;
    int ld = 0;  // floats from one sample's activations to the next
    std::size_t weight = 0, bias = 0;
  };

  int InputStride(std::size_t layer) const { return layer == 0 ? spec_.inputs : hidden_[layer - 1].ld; }
  void MakePlan(int n, TowerWorkspace::ForwardPlan& plan) const;
  void MakePlan(int n, TowerWorkspace::BackwardPlan& plan) const;
  template <class Plan>
  const Plan& PlanFor(int n, TowerWorkspace::PlanCache<Plan>& cache) const {
    Plan& plan = n == kChunk ? cache.usual : cache.other;
    if (plan.n != n) MakePlan(n, plan);
    return plan;
  }

  TowerSpec spec_;
  std::vector<Layer> hidden_;
  Layer head_;
  std::size_t end_;
};

}  // namespace trireme
