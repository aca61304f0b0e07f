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
#include "trireme/nn/bf16_products.h"
#include "trireme/nn/gemm.h"
#include "trireme/nn/layout.h"
#include "trireme/nn/precision.h"
#include "trireme/nn/spec.h"

namespace trireme {

class Tower;

// Some of a tower's hidden layers, [first, end): a stage, for towers whose layers are computed in different places.
// The last layer of all, the head, belongs to the stage with the last hidden one.
struct LayerRange {
  std::size_t first = 0, end = 0;
};

// Scratch memory of one thread for one tower, for up to `capacity` samples.
class TowerWorkspace {
 public:
  TowerWorkspace(const Tower& tower, int capacity, Precision precision = Precision::kFp32);

  int capacity() const { return capacity_; }
  // What gradients between layers are multiplied with while they are rounded: a power of two.
  void SetLossScale(float scale) { loss_scale_ = scale; }
  // [n, outputs] of the last Forward.
  std::span<const float> out() const { return out_.span(); }
  // Of a stage without the head, in 32 bits: the activations of its last layer, [n, top_stride()].
  float* top(int at = 0) { return y_.back().Write(at); }
  int top_stride() const { return top_stride_; }

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
  // The weights of a hidden layer whose products are of bf16 numbers.
  struct Pairs {
    AlignedBuffer<std::uint32_t> weights, transposed;
    bool used() const { return weights.size() > 0; }
  };
  // Plans of the usual chunk size, and of the last other size seen (the end of a batch).
  template <class Plan>
  struct PlanCache {
    Plan usual, other;
  };

  void RoundGradient(Rows rows, float* dz) const {
    if (precision_ != Precision::kFp32) trireme::RoundGradient(precision_, rows, loss_scale_, dz);
  }

  int capacity_, top_stride_ = 0;
  Precision precision_;
  float loss_scale_ = 1;
  std::vector<KeptRows> y_, slope_;               // per hidden layer; slopes only where they are needed
  std::vector<AlignedBuffer<float>> transposed_;  // per hidden layer, [outputs, inputs]
  AlignedBuffer<float> dz_[2];                    // [kChunk, widest ld]
  std::vector<Pairs> pairs_;                      // per hidden layer
  AlignedBuffer<std::uint32_t> words_[2];         // what such products are made of, one chunk
  AlignedBuffer<float> out_;                      // [capacity, outputs]
  PlanCache<ForwardPlan> forward_;
  PlanCache<BackwardPlan> backward_;
};

class Tower {
 public:
  // Samples that pass through the layers together.
  static constexpr int kChunk = 64;

  // Floats from one sample's activations to the next, for a layer of this width.
  static int RowStride(int width);

  // Appends the tower's tensors to `layout`.
  Tower(const TowerSpec& spec, ParamLayout& layout) : Tower(spec, layout, {0, spec.hidden.size()}) {}
  // A stage of it. Its tensors are named as in the whole tower.
  Tower(const TowerSpec& spec, ParamLayout& layout, LayerRange layers);

  const TowerSpec& spec() const { return spec_; }
  bool has_head() const { return layers_.end == spec_.hidden.size(); }
  // Floats from one sample's inputs to the next: of a stage that begins later, the stride of the layer before.
  int input_stride() const { return InputStride(0); }
  // Where its parameters lie: [begin, end) of the flat buffer.
  std::size_t begin() const { return hidden_.front().weight; }
  std::size_t end() const { return end_; }

  // x: [n, input_stride()], n <= capacity. The result is workspace.out(), or top() of a stage without the head;
  // activations stay for Backward. The precision is the workspace's, but for the parameters, which are used as they
  // are. `at`: where in the workspace, which holds several batches side by side.
  void Forward(const float* params, const float* x, int n, TowerWorkspace& workspace, int at = 0) const;

  // Of 16 bits: makes the parameters that Forward and Backward take, laid out as `params`. Call after the parameters
  // change, before Forward.
  void Round(const float* params, float* rounded, TowerWorkspace& workspace) const;

  // Makes the transposed weights Backward needs. Call after the parameters change, before Backward.
  void PrepareBackward(const float* params, TowerWorkspace& workspace) const;

  // Requires Forward with the same x, n and place before. dout: [n, outputs], the gradient of the loss with
  // respect to the outputs; of a stage without the head with respect to top(), [n, top_stride()]. Adds to `gradient`
  // (laid out as the parameters); dx, if not null, receives [n, input_stride()].
  void Backward(const float* params, const float* x, const float* dout, int n, TowerWorkspace& workspace,
                float* gradient, float* dx = nullptr, int at = 0) const;

 private:
  friend class TowerWorkspace;
  struct Layer {
    int inputs = 0, outputs = 0;
    int ld = 0;  // floats from one sample's activations to the next
    std::size_t weight = 0, bias = 0;
  };

  int InputStride(std::size_t layer) const { return layer == 0 ? input_stride_ : hidden_[layer - 1].ld; }
  // The products of layer l > 0 for `n` samples, of bf16 numbers.
  void MultiplyPairs(std::size_t l, int n, const float* in, TowerWorkspace& workspace, float* y) const;
  void MultiplyPairsBack(std::size_t l, int n, const float* in, const float* dz, TowerWorkspace& workspace,
                         float* dw, float* dx) const;
  void MakePlan(int n, TowerWorkspace::ForwardPlan& plan) const;
  void MakePlan(int n, TowerWorkspace::BackwardPlan& plan) const;
  template <class Plan>
  const Plan& PlanFor(int n, TowerWorkspace::PlanCache<Plan>& cache) const {
    Plan& plan = n == kChunk ? cache.usual : cache.other;
    if (plan.n != n) MakePlan(n, plan);
    return plan;
  }

  TowerSpec spec_;
  LayerRange layers_;
  int input_stride_;
  std::vector<Layer> hidden_;  // of the stage
  Layer head_;
  std::size_t end_;
};

}  // namespace trireme
