#include "trireme/nn/network.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/nn/init.h"
#include "trireme/nn/tower.h"

namespace trireme {

Network::Network(const NetworkSpec& spec) : spec_(spec) {
  for (const TowerSpec& tower_spec : spec.towers) {
    const Tower tower(tower_spec, layout_);
    towers_.push_back({tower.begin(), tower.end()});
  }
  for (const NetworkSpec::FreeVector& vector : spec.free_vectors) {
    free_offsets_.push_back(layout_.Add(vector.name, {vector.size}));
  }
}

Network::Network(const NetworkSpec& spec, ParamLayout layout, std::vector<ParamRange> towers,
                 std::vector<std::size_t> free_offsets)
    : spec_(spec),
      layout_(std::move(layout)),
      towers_(std::move(towers)),
      free_offsets_(std::move(free_offsets)),
      whole_(false) {
  TRIREME_CHECK(towers_.size() == spec.towers.size() && free_offsets_.size() == spec.free_vectors.size());
}

std::span<const float> Network::FreeVector(std::span<const float> params, std::size_t i) const {
  return params.subspan(free_offsets_[i], spec_.free_vectors[i].size);
}

std::span<float> Network::FreeVector(std::span<float> params, std::size_t i) const {
  return params.subspan(free_offsets_[i], spec_.free_vectors[i].size);
}

void Network::Initialise(std::uint64_t seed, std::span<float> params) const {
  TRIREME_CHECK(whole_);
  std::fill(params.begin(), params.end(), 0.0f);
  std::uint32_t tensor = 0;  // numbers the weight matrices: each has its own random stream
  std::size_t at = 0;
  const auto& tensors = layout_.tensors();
  for (const TowerSpec& tower : spec_.towers) {
    for (std::size_t l = 0; l <= tower.hidden.size(); ++l, at += 2) {
      const bool head = l == tower.hidden.size();
      const TensorInfo& weight = tensors[at];
      const double gain = head ? tower.head_gain : HiddenGain(tower.init, tower.activation);
      const int inputs = head ? weight.shape[1] : weight.shape[0];
      const int outputs = head ? weight.shape[0] : weight.shape[1];
      RandomStream random(seed, Purpose::kInitialise, tensor++, 0);
      std::vector<float> values(weight.size);
      InitialiseWeights(tower.init, gain, inputs, outputs, weight.shape[0], values, random);
      for (int r = 0; r < weight.shape[0]; ++r) {
        for (int c = 0; c < weight.shape[1]; ++c) {
          params[weight.offset + ElementIndex(weight, r, c)] =
              values[static_cast<std::size_t>(r) * weight.shape[1] + c];
        }
      }
    }
  }
  for (std::size_t i = 0; i < spec_.free_vectors.size(); ++i) {
    const auto values = FreeVector(params, i);
    std::fill(values.begin(), values.end(), spec_.free_vectors[i].initial);
  }
}

}  // namespace trireme
