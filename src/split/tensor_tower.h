// A tower of which every member of a group holds some columns and rows (Shoeybi et al. 2019, arXiv:1909.08053).
//
// Hidden layers come in pairs. Of the first of a pair, 0, 2, ..., a member holds the weights of some of its outputs, of
// the second those of the same units as inputs:
//
//   y0 = f(x W0[:, own] + b0[own])             no exchange: everybody has x
//   y1 = f(sum over members of y0 W1[own, :] + b1)   one sum; then everybody has y1
//
// and the gradient goes back the same way: dy0 = dz1 W1[own, :]^T without exchange, dx = sum over members of
// dz0 W0[:, own]^T where it is needed. The last layer follows a first of a pair like a second one; after a second one,
// every member computes it whole: it is narrow. So weights and their moments are held once in the group, apart from
// this last layer, the biases behind a sum, and free vectors, which all members hold and change alike.
//
// Sums follow the tree of communicator.h: the same bits on all members, and for a given number of them. The bits differ
// from those of a tower that is computed alone, because a sum over inputs is made of the members' sums.
//
// Thread safety: immutable; every member has its own workspace. Forward and Backward are made by all members together.
#pragma once

#include <span>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/comm/communicator.h"
#include "trireme/nn/gemm.h"
#include "trireme/nn/layout.h"
#include "trireme/nn/spec.h"

namespace trireme {

class TensorTower;

// Scratch memory of one member for one tower, for up to `capacity` samples.
class TensorWorkspace {
 public:
  TensorWorkspace(const TensorTower& tower, int capacity);

  int capacity() const { return capacity_; }
  std::span<const float> out() const { return out_.span(); }

 private:
  friend class TensorTower;
  // The products of a layer for one number of samples.
  struct Plan {
    int n = 0;
    std::vector<Gemm> y, dw, dx;
  };

  int capacity_;
  std::vector<AlignedBuffer<float>> y_, slope_;   // per hidden layer, [capacity, ld]
  std::vector<AlignedBuffer<float>> transposed_;  // per hidden layer, [outputs, inputs]
  AlignedBuffer<float> dz_[2];                    // [capacity, widest ld]
  AlignedBuffer<float> out_;                      // [capacity, outputs]
  AlignedBuffer<float> no_bias_;                  // [outputs], zero
  Plan usual_, other_;
};

class TensorTower {
 public:
  // Samples of one product: many, because the weights of wide layers pass by once for them.
  static constexpr int kChunk = 256;

  // Appends what a member holds to `layout`, under the names of the whole tower: the same for each. Throws Error when
  // `members` does not divide a layer whose outputs are split.
  TensorTower(const TowerSpec& spec, int members, ParamLayout& layout);

  const TowerSpec& spec() const { return spec_; }
  std::size_t begin() const { return layers_.front().weight; }
  std::size_t end() const { return end_; }

  // As those of Tower; x and dout are the same on all members, and so are the outputs.
  void Forward(const float* params, const float* x, int n, Communicator& group,
               TensorWorkspace& workspace) const;
  void PrepareBackward(const float* params, TensorWorkspace& workspace) const;
  void Backward(const float* params, const float* x, const float* dout, int n, Communicator& group,
                TensorWorkspace& workspace, float* gradient, float* dx = nullptr) const;

 private:
  friend class TensorWorkspace;
  struct Layer {
    int inputs = 0, outputs = 0;  // held
    bool summed = false;          // the second of a pair
    int ld = 0;
    std::size_t weight = 0, bias = 0;
  };

  int InputStride(std::size_t layer) const { return layer == 0 ? spec_.inputs : layers_[layer - 1].ld; }
  const TensorWorkspace::Plan& PlanFor(int n, TensorWorkspace& workspace) const;
  void MakePlan(int n, TensorWorkspace::Plan& plan) const;

  TowerSpec spec_;
  std::vector<Layer> layers_;
  Layer head_;
  std::size_t end_ = 0;
};

}  // namespace trireme
