// Samples through a tape in passes, one after the other: Tape::AddGradient for executors that have nothing to gain
// from another order.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/nn/executor.h"
#include "trireme/nn/tower.h"

namespace trireme {

// How many samples a pass has: whole chunks whose activations stay in the second-level cache.
inline int SamplesInCache(const NetworkSpec& spec) {
  constexpr std::size_t kFloatsInCache = 32 << 10;
  std::size_t per_sample = 0;
  for (const TowerSpec& tower : spec.towers) {
    for (const int width : tower.hidden) per_sample += static_cast<std::size_t>(width);
  }
  const std::size_t chunks = kFloatsInCache / (std::max<std::size_t>(per_sample, 1) * Tower::kChunk);
  return Tower::kChunk * static_cast<int>(std::clamp<std::size_t>(chunks, 1, 16));
}

// Outputs of one pass and the gradients at them, of all towers.
class PassBuffers {
 public:
  PassBuffers(const NetworkSpec& spec, int capacity) : outputs_(spec.towers.size()) {
    for (const TowerSpec& tower : spec.towers) {
      d_outputs_.push_back(
          gradients_.emplace_back(static_cast<std::size_t>(capacity) * tower.outputs).data());
    }
  }
  PassBuffers(const PassBuffers&) = delete;
  PassBuffers& operator=(const PassBuffers&) = delete;

  // Where the outputs are: set by whoever has computed them.
  std::span<const float*> outputs() { return outputs_; }
  std::span<float* const> d_outputs() { return d_outputs_; }

 private:
  std::vector<const float*> outputs_;
  std::vector<AlignedBuffer<float>> gradients_;
  std::vector<float*> d_outputs_;
};

// Passes of up to `pass_size` samples, for which `buffers` have room.
inline void AddGradientInPasses(Tape& tape, int pass_size, PassBuffers& buffers, LossSamples& samples,
                                std::span<float> gradient) {
  const std::span<const float*> outputs = buffers.outputs();
  for (int first = 0; first < samples.size(); first += pass_size) {
    const int n = std::min(pass_size, samples.size() - first);
    const float* x = samples.Inputs(first, n);
    for (std::size_t t = 0; t < outputs.size(); ++t) outputs[t] = tape.Forward(t, x, n).data();
    samples.Loss(first, n, outputs, buffers.d_outputs());
    for (std::size_t t = outputs.size(); t-- > 0;) tape.Backward(t, buffers.d_outputs()[t], gradient);
  }
}

}  // namespace trireme
