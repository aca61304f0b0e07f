// An executor that computes on copies, as a device would. For tests: who forgets to say that parameters have
// changed, or reads outputs that are no longer there, gets other results than from the executor it wraps.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "trireme/nn/executor.h"
#include "trireme/nn/passes.h"

namespace trireme {

class CopyingTape final : public Tape {
 public:
  CopyingTape(const Network& network, std::unique_ptr<Tape> inner, int pass_size)
      : network_(network),
        inner_(std::move(inner)),
        pass_size_(pass_size),
        buffers_(network.spec(), pass_size),
        tracks_(network.spec().towers.size()) {}

  void SetParams(std::span<const float> params) override {
    params_ = params;
    copy_.assign(params.begin(), params.end());
    inner_->SetParams(copy_);
    for (Track& track : tracks_) std::ranges::fill(track.outputs, std::numeric_limits<float>::quiet_NaN());
  }
  std::span<const float> params() const override { return params_; }
  void SetLossScale(float scale) override { inner_->SetLossScale(scale); }

  std::span<const float> Forward(std::size_t tower, const float* x, int n) override {
    Track& track = tracks_[tower];
    track.x.assign(x, x + static_cast<std::ptrdiff_t>(n) * network_.spec().towers[tower].inputs);
    const std::span<const float> outputs = inner_->Forward(tower, track.x.data(), n);
    track.outputs.assign(outputs.begin(), outputs.end());
    return track.outputs;
  }

  void Backward(std::size_t tower, const float* d_outputs, std::span<float> gradient, float* d_x) override {
    inner_->Backward(tower, d_outputs, gradient, d_x);
  }

  void AddGradient(LossSamples& samples, std::span<float> gradient) override {
    AddGradientInPasses(*this, pass_size_, buffers_, samples, gradient);
  }

 private:
  struct Track {
    std::vector<float> x, outputs;
  };

  const Network& network_;
  std::unique_ptr<Tape> inner_;
  int pass_size_;
  PassBuffers buffers_;
  std::span<const float> params_;
  std::vector<float> copy_;
  std::vector<Track> tracks_;
};

class CopyingExecutor final : public Executor {
 public:
  // `inner` outlives it.
  explicit CopyingExecutor(const Executor& inner) : inner_(inner) {}

  const Network& network() const override { return inner_.network(); }
  int pass_size() const override { return inner_.pass_size(); }
  bool loss_scaled() const override { return inner_.loss_scaled(); }
  std::unique_ptr<Tape> MakeTape(int capacity) const override {
    return std::make_unique<CopyingTape>(inner_.network(), inner_.MakeTape(capacity),
                                         std::min(capacity, inner_.pass_size()));
  }

 private:
  const Executor& inner_;
};

}  // namespace trireme
