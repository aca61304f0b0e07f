// A network: one or more towers over the same input, plus free vectors, in one flat parameter buffer.
//
// The description is immutable and holds no numbers: parameters and gradients are the caller's, so any number
// of threads share one Network, and target copies or stale copies are just other buffers. An Executor
// computes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/nn/layout.h"
#include "trireme/nn/spec.h"

namespace trireme {

// A contiguous part of a parameter buffer: [begin, end).
struct ParamRange {
  std::size_t begin = 0, end = 0;
};

class Network {
 public:
  explicit Network(const NetworkSpec& spec);
  // What a worker holds of a network that several hold together: tensors of `layout`, of which those of tower i lie in
  // towers[i]; free vectors are whole. It has no initial values of its own.
  Network(const NetworkSpec& spec, ParamLayout layout, std::vector<ParamRange> towers,
          std::vector<std::size_t> free_offsets);

  const NetworkSpec& spec() const { return spec_; }
  const ParamLayout& layout() const { return layout_; }
  std::size_t param_count() const { return layout_.size(); }
  // Where the parameters of tower i lie.
  ParamRange TowerRange(std::size_t i) const { return towers_[i]; }
  // Where free vector i begins.
  std::size_t FreeOffset(std::size_t i) const { return free_offsets_[i]; }
  // Free vector i of a parameter buffer.
  std::span<const float> FreeVector(std::span<const float> params, std::size_t i) const;
  std::span<float> FreeVector(std::span<float> params, std::size_t i) const;

  // Fills `params` with the initial values that belong to `seed`. Of a whole network only.
  void Initialise(std::uint64_t seed, std::span<float> params) const;

 private:
  NetworkSpec spec_;
  ParamLayout layout_;
  std::vector<ParamRange> towers_;
  std::vector<std::size_t> free_offsets_;
  bool whole_ = true;
};

}  // namespace trireme
