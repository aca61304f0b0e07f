// What each member of a group holds of a network that they compute together.
//
// A part has a flat buffer of its own, with tensors of the names they have in the whole network, each whole or some of
// its rows or columns. Free vectors, and in a tensor split some narrow tensors, are held by all members; the first of
// them counts them where something is added up over the members.
//
// Thread safety: immutable.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trireme/base/state.h"
#include "trireme/comm/communicator.h"
#include "trireme/nn/network.h"
#include "trireme/nn/tower.h"
#include "trireme/split/model_split.h"

namespace trireme {

// The layers of each stage, so that the slowest has as little to do as possible. Throws Error when there are more stages
// than hidden layers.
std::vector<LayerRange> StagesOf(const TowerSpec& tower, int stages);

class NetworkParts {
 public:
  // `whole` outlives it. Throws Error when it cannot be split like that.
  NetworkParts(const Network& whole, const ModelSplit& split);

  const Network& whole() const { return whole_; }
  const ModelSplit& split() const { return split_; }
  int members() const { return static_cast<int>(parts_.size()); }
  const Network& held(int member) const { return *parts_[member].network; }

  // One tensor of a part.
  struct Tensor {
    std::size_t whole;            // which one of the whole network
    int first_row, first_column;  // of that
    bool complete;                // all of it
    bool counts;                  // this member counts it
  };
  // In the order of the part's layout.
  const std::vector<Tensor>& tensors(int member) const { return parts_[member].tensors; }

  // part <- what is held of `whole`, and back; floats between tensors stay as they are.
  void Take(int member, std::span<const float> whole, std::span<float> part) const;
  void Put(int member, std::span<const float> part, std::span<float> whole) const;

 private:
  struct Part {
    std::unique_ptr<Network> network;
    std::vector<Tensor> tensors;
  };
  std::unique_ptr<Network> MakePart(int member) const;
  template <class Copy>
  void ForEachRun(int member, Copy&& copy) const;

  const Network& whole_;
  ModelSplit split_;
  std::vector<Part> parts_;
};

// One member's, with its end of the group.
class NetworkShare final : public HeldPart {
 public:
  // Both outlive it.
  NetworkShare(const NetworkParts& parts, Communicator& group) : parts_(parts), group_(group) {}

  const NetworkParts& parts() const { return parts_; }
  Communicator& group() const { return group_; }
  int member() const { return group_.rank(); }
  const Network& network() const { return parts_.held(member()); }

  std::size_t whole_size() const override { return parts_.whole().param_count(); }
  void Take(std::span<const float> whole, std::span<float> part) const override {
    parts_.Take(member(), whole, part);
  }

  // All members call these. The whole buffer, at the first member; elsewhere nothing.
  std::vector<float> Whole(std::span<const float> part) const;
  // The sections of `state` that are laid out as the parameters become whole at the first member.
  void MakeWhole(StateWriter& state) const;

 private:
  const NetworkParts& parts_;
  Communicator& group_;
};

}  // namespace trireme
