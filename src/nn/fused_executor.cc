#include "trireme/nn/fused_executor.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

int PassSize(const NetworkSpec& spec) {
  constexpr std::size_t kFloatsInCache = 32 << 10;
  std::size_t per_sample = 0;
  for (const TowerSpec& tower : spec.towers) {
    for (const int width : tower.hidden) per_sample += width;
  }
  const std::size_t chunks = kFloatsInCache / (std::max<std::size_t>(per_sample, 1) * Tower::kChunk);
  return Tower::kChunk * static_cast<int>(std::clamp<std::size_t>(chunks, 1, 16));
}

class FusedTape final : public Tape {
 public:
  FusedTape(const std::vector<Tower>& towers, int capacity) {
    for (const Tower& tower : towers) tracks_.push_back({.tower = tower, .workspace = {tower, capacity}});
  }

  void SetParams(std::span<const float> params) override {
    params_ = params;
    for (Track& track : tracks_) {
      track.n = 0;
      track.prepared = false;
    }
  }
  std::span<const float> params() const override { return params_; }

  std::span<const float> Forward(std::size_t tower, const float* x, int n) override {
    Track& track = tracks_[tower];
    track.x = x;
    track.n = n;
    track.tower.Forward(params_.data(), x, n, track.workspace);
    return track.workspace.out().first(static_cast<std::size_t>(n) * track.tower.spec().outputs);
  }

  void Backward(std::size_t tower, const float* d_outputs, std::span<float> gradient, float* d_x) override {
    Track& track = tracks_[tower];
    TRIREME_CHECK(track.n > 0);
    if (!track.prepared) track.tower.PrepareBackward(params_.data(), track.workspace);
    track.prepared = true;
    track.tower.Backward(params_.data(), track.x, d_outputs, track.n, track.workspace, gradient.data(), d_x);
  }

 private:
  // One tower's: the last pass, and what is derived from the parameters.
  struct Track {
    const Tower& tower;
    TowerWorkspace workspace;
    const float* x = nullptr;
    int n = 0;
    bool prepared = false;  // for Backward with these parameters
  };

  std::span<const float> params_;
  std::vector<Track> tracks_;
};

}  // namespace

// Towers come first in a network's layout, in order, so their tensors lie where the network has them.
FusedExecutor::FusedExecutor(const Network& network)
    : network_(network), pass_size_(PassSize(network.spec())) {
  ParamLayout layout;
  for (const TowerSpec& spec : network.spec().towers) towers_.emplace_back(spec, layout);
  TRIREME_CHECK(layout.size() <= network.param_count());
}

std::unique_ptr<Tape> FusedExecutor::MakeTape(int capacity) const {
  return std::make_unique<FusedTape>(towers_, capacity);
}

}  // namespace trireme
