// A network: one or more towers over the same input, plus free vectors, in one flat parameter buffer.
//
// The description is immutable and holds no numbers: parameters, gradients and scratch memory are the
// caller's, so any number of threads share one Network, and target copies or stale copies are just other
// buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/nn/layout.h"
#include "trireme/nn/spec.h"
#include "trireme/nn/tower.h"

namespace trireme {

class Network {
 public:
  explicit Network(const NetworkSpec& spec);

  const NetworkSpec& spec() const { return spec_; }
  const ParamLayout& layout() const { return layout_; }
  std::size_t param_count() const { return layout_.size(); }
  const std::vector<Tower>& towers() const { return towers_; }
  // Samples whose activations stay in the second-level cache from forward to backward: larger batches are
  // best done in passes of this many. A multiple of Tower::kChunk.
  int pass_size() const;
  // Where free vector i lies in a parameter buffer.
  std::span<const float> FreeVector(std::span<const float> params, std::size_t i) const;
  std::span<float> FreeVector(std::span<float> params, std::size_t i) const;

  // Fills `params` with the initial values that belong to `seed`.
  void Initialise(std::uint64_t seed, std::span<float> params) const;

 private:
  NetworkSpec spec_;
  ParamLayout layout_;
  std::vector<Tower> towers_;
  std::vector<std::size_t> free_offsets_;
};

// Scratch memory of one thread for a whole network.
class Workspace {
 public:
  Workspace(const Network& network, int capacity) {
    for (const Tower& tower : network.towers()) towers_.emplace_back(tower, capacity);
  }
  TowerWorkspace& tower(std::size_t i) { return towers_[i]; }

 private:
  std::vector<TowerWorkspace> towers_;
};

}  // namespace trireme
