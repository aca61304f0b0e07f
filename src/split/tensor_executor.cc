#include "trireme/split/tensor_executor.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/nn/passes.h"

namespace trireme {
namespace {

// As many samples as keep their activations near the processor, but enough for one product of wide layers, and for the
// members to meet seldom.
int PassSize(const NetworkSpec& spec, int members) {
  constexpr std::size_t kFloatsInCache = 32 << 10;
  std::size_t per_sample = 0;
  for (const TowerSpec& tower : spec.towers) {
    for (std::size_t l = 0; l < tower.hidden.size(); ++l) {
      per_sample += static_cast<std::size_t>(tower.hidden[l] / (l % 2 == 0 ? members : 1));
    }
  }
  const std::size_t chunks = kFloatsInCache / (std::max<std::size_t>(per_sample, 1) * TensorTower::kChunk);
  return TensorTower::kChunk * static_cast<int>(std::clamp<std::size_t>(chunks, 1, 4));
}

class TensorTape final : public Tape {
 public:
  TensorTape(const NetworkSpec& spec, const std::vector<TensorTower>& towers, Communicator& group,
             int pass_size, int capacity)
      : group_(group), pass_size_(std::min(pass_size, capacity)), buffers_(spec, pass_size_) {
    for (const TensorTower& tower : towers)
      tracks_.push_back({.tower = tower, .workspace = {tower, capacity}});
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
    track.tower.Forward(params_.data(), x, n, group_, track.workspace);
    return track.workspace.out().first(static_cast<std::size_t>(n) * track.tower.spec().outputs);
  }

  void Backward(std::size_t tower, const float* d_outputs, std::span<float> gradient, float* d_x) override {
    Track& track = tracks_[tower];
    TRIREME_CHECK(track.n > 0);
    if (!track.prepared) track.tower.PrepareBackward(params_.data(), track.workspace);
    track.prepared = true;
    track.tower.Backward(params_.data(), track.x, d_outputs, track.n, group_, track.workspace,
                         gradient.data(), d_x);
  }

  void AddGradient(LossSamples& samples, std::span<float> gradient) override {
    AddGradientInPasses(*this, pass_size_, buffers_, samples, gradient);
  }

 private:
  struct Track {
    const TensorTower& tower;
    TensorWorkspace workspace;
    const float* x = nullptr;
    int n = 0;
    bool prepared = false;  // for Backward with these parameters
  };

  Communicator& group_;
  int pass_size_;
  PassBuffers buffers_;
  std::span<const float> params_;
  std::vector<Track> tracks_;
};

}  // namespace

TensorExecutor::TensorExecutor(const NetworkShare& share)
    : share_(share), pass_size_(PassSize(share.network().spec(), share.parts().members())) {
  TRIREME_CHECK(share.parts().split().kind == ModelSplit::Kind::kTensor);
  ParamLayout layout;
  for (const TowerSpec& spec : network().spec().towers) {
    towers_.emplace_back(spec, share.parts().members(), layout);
  }
}

std::unique_ptr<Tape> TensorExecutor::MakeTape(int capacity) const {
  return std::make_unique<TensorTape>(network().spec(), towers_, share_.group(), pass_size_, capacity);
}

}  // namespace trireme
