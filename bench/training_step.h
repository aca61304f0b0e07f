// One training step of a network, as benchmarks of the step take it: forward, backward, Adam, on one core.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/nn/fused_executor.h"
#include "trireme/optim/optimizer.h"

namespace trireme {

// Everything one step touches.
class TrainingStep {
 public:
  TrainingStep(const std::vector<TowerSpec>& towers, int batch, Precision precision = Precision::kFp32)
      : network_({.towers = towers, .free_vectors = {}}),
        executor_(network_, precision),
        batch_(batch),
        tape_(executor_.MakeTape(executor_.pass_size())),
        optimizer_(std::make_unique<Optimizer>(OptimizerSettings(), network_.param_count())),
        params_(network_.param_count()),
        gradient_(network_.param_count()),
        x_(static_cast<std::size_t>(batch) * towers[0].inputs) {
    network_.Initialise(1, params_.span());
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = std::sin(static_cast<float>(i));
    for (const TowerSpec& tower : towers) {
      AlignedBuffer<float>& dout = dout_.emplace_back(static_cast<std::size_t>(batch_) * tower.outputs);
      for (std::size_t i = 0; i < dout.size(); ++i) {
        dout[i] = std::cos(static_cast<float>(i)) / static_cast<float>(batch_);
      }
    }
  }

  void operator()() {
    constexpr float kLearningRate = 1e-6f;  // the network stays as it starts, however long this runs
    const std::vector<TowerSpec>& towers = network_.spec().towers;
    std::fill(gradient_.begin(), gradient_.end(), 0.0f);
    tape_->SetParams(params_.span());
    // Large batches go through the network in passes that stay in the cache, as the algorithms do it.
    for (int first = 0; first < batch_; first += executor_.pass_size()) {
      const int n = std::min(executor_.pass_size(), batch_ - first);
      const float* x = x_.data() + static_cast<std::size_t>(first) * towers[0].inputs;
      for (std::size_t t = 0; t < towers.size(); ++t) tape_->Forward(t, x, n);
      for (std::size_t t = 0; t < towers.size(); ++t) {
        const float* dout = dout_[t].data() + static_cast<std::size_t>(first) * towers[t].outputs;
        tape_->Backward(t, dout, gradient_.span());
      }
    }
    optimizer_->Step(params_.span(), gradient_.span(), kLearningRate);
  }

 private:
  Network network_;
  FusedExecutor executor_;
  int batch_;
  std::unique_ptr<Tape> tape_;
  std::unique_ptr<Optimizer> optimizer_;
  AlignedBuffer<float> params_, gradient_, x_;
  std::vector<AlignedBuffer<float>> dout_;
};

}  // namespace trireme
