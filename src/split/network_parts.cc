#include "trireme/split/network_parts.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/split/tensor_tower.h"

namespace trireme {
namespace {

// Multiply-adds of hidden layer `l` per sample, in units of one product; the first one has no gradient to hand down.
double Cost(const TowerSpec& tower, std::size_t l) {
  const double inputs = l == 0 ? tower.inputs : tower.hidden[l - 1];
  const double head = l + 1 == tower.hidden.size() ? 3.0 * tower.outputs : 0;
  return (inputs * (l == 0 ? 2 : 3) + head) * tower.hidden[l];
}

std::size_t FindTensor(const ParamLayout& layout, const std::string& name) {
  const auto& tensors = layout.tensors();
  const auto found = std::ranges::find(tensors, name, &TensorInfo::name);
  TRIREME_CHECK(found != tensors.end());
  return static_cast<std::size_t>(found - tensors.begin());
}

}  // namespace

// Every way to cut is tried from the back: most[s][l] is what the slowest of the last s stages has to do if they begin
// at layer l.
std::vector<LayerRange> StagesOf(const TowerSpec& tower, int stages) {
  const std::size_t layers = tower.hidden.size();
  const auto count = static_cast<std::size_t>(stages);
  if (count > layers) {
    Fail(
        "pipeline={} has more stages than tower {} has hidden layers, {}: choose fewer workers or more "
        "layers",
        stages, tower.name, layers);
  }
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> most(count + 1, std::vector<double>(layers + 1, kNever));
  std::vector<std::vector<std::size_t>> next(count + 1, std::vector<std::size_t>(layers + 1));
  most[0][layers] = 0;
  for (std::size_t s = 1; s <= count; ++s) {
    for (std::size_t l = 0; l < layers; ++l) {
      double own = 0;
      for (std::size_t end = l + 1; end <= layers; ++end) {
        own += Cost(tower, end - 1);
        const double slowest = std::max(own, most[s - 1][end]);
        if (slowest >= most[s][l]) continue;
        most[s][l] = slowest;
        next[s][l] = end;
      }
    }
  }
  std::vector<LayerRange> ranges;
  for (std::size_t s = count, l = 0; s > 0; --s) {
    ranges.push_back({l, next[s][l]});
    l = next[s][l];
  }
  return ranges;
}

NetworkParts::NetworkParts(const Network& whole, const ModelSplit& split) : whole_(whole), split_(split) {
  for (int member = 0; member < split.members; ++member) {
    Part part{MakePart(member), {}};
    for (const TensorInfo& held : part.network->layout().tensors()) {
      const std::size_t index = FindTensor(whole.layout(), held.name);
      const TensorInfo& all = whole.layout().tensors()[index];
      const bool complete = held.shape == all.shape;
      const bool seen = std::ranges::any_of(parts_, [&](const Part& other) {
        return std::ranges::any_of(other.tensors,
                                   [&](const Tensor& tensor) { return tensor.whole == index; });
      });
      const auto first = [&](std::size_t d) {
        if (held.shape.size() <= d || held.shape[d] == all.shape[d]) return 0;
        return member * held.shape[d];
      };
      const bool vector = held.shape.size() == 1;
      part.tensors.push_back(
          {index, vector ? 0 : first(0), vector ? first(0) : first(1), complete, !complete || !seen});
    }
    parts_.push_back(std::move(part));
  }
}

std::unique_ptr<Network> NetworkParts::MakePart(int member) const {
  const NetworkSpec& spec = whole_.spec();
  ParamLayout layout;
  std::vector<ParamRange> towers;
  for (const TowerSpec& tower : spec.towers) {
    const std::size_t begin = layout.size();
    if (split_.kind == ModelSplit::Kind::kPipeline) {
      Tower(tower, layout, StagesOf(tower, split_.members)[member]);
    } else {
      TensorTower(tower, split_.members, layout);
    }
    towers.push_back({begin, layout.size()});
  }
  std::vector<std::size_t> free_offsets;
  for (const NetworkSpec::FreeVector& vector : spec.free_vectors) {
    free_offsets.push_back(layout.Add(vector.name, {vector.size}));
  }
  return std::make_unique<Network>(spec, std::move(layout), std::move(towers), std::move(free_offsets));
}

// Calls copy(offset in the part, offset in the whole, floats) for what lies together in both.
template <class Copy>
void NetworkParts::ForEachRun(int member, Copy&& copy) const {
  const Part& part = parts_[member];
  for (std::size_t i = 0; i < part.tensors.size(); ++i) {
    const Tensor& tensor = part.tensors[i];
    const TensorInfo& held = part.network->layout().tensors()[i];
    const TensorInfo& all = whole_.layout().tensors()[tensor.whole];
    if (tensor.complete || held.shape.size() == 1) {
      copy(held.offset, all.offset + tensor.first_column, held.size);
      continue;
    }
    const int columns = held.shape[1];
    for (int row = 0; row < held.shape[0]; ++row) {
      // Columns lie together up to the end of a block, here or there.
      for (int column = 0, run = 0; column < columns; column += run) {
        const int there = tensor.first_column + column;
        run = std::min({columns - column, held.block - column % held.block, all.block - there % all.block});
        copy(held.offset + ElementIndex(held, row, column),
             all.offset + ElementIndex(all, tensor.first_row + row, there), static_cast<std::size_t>(run));
      }
    }
  }
}

void NetworkParts::Take(int member, std::span<const float> whole, std::span<float> part) const {
  TRIREME_CHECK(whole.size() >= whole_.param_count() && part.size() >= held(member).param_count());
  ForEachRun(member, [&](std::size_t here, std::size_t there, std::size_t count) {
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(there), count,
                part.begin() + static_cast<std::ptrdiff_t>(here));
  });
}

void NetworkParts::Put(int member, std::span<const float> part, std::span<float> whole) const {
  TRIREME_CHECK(whole.size() >= whole_.param_count() && part.size() >= held(member).param_count());
  ForEachRun(member, [&](std::size_t here, std::size_t there, std::size_t count) {
    std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(here), count,
                whole.begin() + static_cast<std::ptrdiff_t>(there));
  });
}

std::vector<float> NetworkShare::Whole(std::span<const float> part) const {
  const auto bytes = std::as_bytes(part.first(network().param_count()));
  const std::vector<std::string> all =
      group_.Gather(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (member() != 0) return {};
  std::vector<float> whole(whole_size()), floats;
  for (int m = 0; m < parts_.members(); ++m) {
    floats.resize(all[m].size() / sizeof(float));
    std::memcpy(floats.data(), all[m].data(), all[m].size());
    parts_.Put(m, floats, whole);
  }
  return whole;
}

void NetworkShare::MakeWhole(StateWriter& state) const {
  for (const std::string& name : state.like_params()) {
    std::vector<std::byte>& section = state.Section(name);
    std::vector<float> part(section.size() / sizeof(float));
    std::memcpy(part.data(), section.data(), section.size());
    const std::vector<float> whole = Whole(part);
    const auto bytes = std::as_bytes(std::span(whole));
    section.assign(bytes.begin(), bytes.end());
  }
}

}  // namespace trireme
