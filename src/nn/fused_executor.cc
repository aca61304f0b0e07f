#include "trireme/nn/fused_executor.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/nn/passes.h"

namespace trireme {
namespace {

class FusedTape final : public Tape {
 public:
  FusedTape(const NetworkSpec& spec, const std::vector<Tower>& towers, Precision precision, int pass_size,
            int capacity)
      : precision_(precision),
        pass_size_(std::min(pass_size, capacity)),
        buffers_(spec, pass_size_),
        rounded_(precision == Precision::kFp32 ? 0 : towers.back().end()) {
    for (const Tower& tower : towers) {
      tracks_.push_back({.tower = tower, .workspace = {tower, capacity, precision}});
    }
  }

  void SetParams(std::span<const float> params) override {
    params_ = params;
    weights_ = precision_ == Precision::kFp32 ? params.data() : rounded_.data();
    for (Track& track : tracks_) {
      track.n = 0;
      track.rounded = precision_ == Precision::kFp32;
      track.prepared = false;
    }
  }
  std::span<const float> params() const override { return params_; }
  void SetLossScale(float scale) override {
    for (Track& track : tracks_) track.workspace.SetLossScale(scale);
  }

  std::span<const float> Forward(std::size_t tower, const float* x, int n) override {
    Track& track = tracks_[tower];
    track.x = x;
    track.n = n;
    if (!track.rounded) track.tower.Round(params_.data(), rounded_.data(), track.workspace);
    track.rounded = true;
    track.tower.Forward(weights_, x, n, track.workspace);
    return track.workspace.out().first(static_cast<std::size_t>(n) * track.tower.spec().outputs);
  }

  void Backward(std::size_t tower, const float* d_outputs, std::span<float> gradient, float* d_x) override {
    Track& track = tracks_[tower];
    TRIREME_CHECK(track.n > 0);
    if (!track.prepared) track.tower.PrepareBackward(weights_, track.workspace);
    track.prepared = true;
    track.tower.Backward(weights_, track.x, d_outputs, track.n, track.workspace, gradient.data(), d_x);
  }

  void AddGradient(LossSamples& samples, std::span<float> gradient) override {
    AddGradientInPasses(*this, pass_size_, buffers_, samples, gradient);
  }

 private:
  // One tower's: the last pass, and what is derived from the parameters.
  struct Track {
    const Tower& tower;
    TowerWorkspace workspace;
    const float* x = nullptr;
    int n = 0;
    bool rounded = false, prepared = false;  // for Forward and for Backward with these parameters
  };

  Precision precision_;
  int pass_size_;
  PassBuffers buffers_;
  std::span<const float> params_;
  AlignedBuffer<float> rounded_;    // the towers' weights in use, with 16 bits
  const float* weights_ = nullptr;  // those in use
  std::vector<Track> tracks_;
};

}  // namespace

// Towers come first in a network's layout, in order, so their tensors lie where the network has them.
FusedExecutor::FusedExecutor(const Network& network, Precision precision)
    : network_(network), precision_(precision), pass_size_(SamplesInCache(network.spec())) {
  ParamLayout layout;
  for (const TowerSpec& spec : network.spec().towers) towers_.emplace_back(spec, layout);
  TRIREME_CHECK(layout.size() <= network.param_count());
}

std::unique_ptr<Tape> FusedExecutor::MakeTape(int capacity) const {
  return std::make_unique<FusedTape>(network_.spec(), towers_, precision_, pass_size_, capacity);
}

}  // namespace trireme
