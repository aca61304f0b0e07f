// Which slots of a replay buffer to learn from next.
//
// Thread safety: none; a sampler belongs to one worker. Sampling and updating allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/aligned.h"
#include "trireme/base/rng.h"
#include "trireme/base/state.h"
#include "trireme/replay/sum_tree.h"

namespace trireme {

// slots <- independent draws from {0, ..., size - 1}. Requires 0 < size < 2^32.
void SampleUniform(RandomStream& random, std::size_t size, std::span<std::uint32_t> slots);

// Proportional prioritisation (Schaul et al., "Prioritized experience replay", 2016, arXiv:1511.05952).
//
// Slot i is drawn with probability P(i) = p_i / sum p, where p_i = (|error_i| + epsilon)^alpha and error_i is
// the temporal-difference error of its transition when last learned from. alpha = 0 is uniform. The bias this
// brings into expectations is taken out, fully for beta = 1, by the weight
//
//   w_i = (N P(i))^-beta / max_j (N P(j))^-beta = (min_j p_j / p_i)^beta,   i, j in the batch:
//
// the number N of transitions and the sum of priorities cancel. Weights lie in (0, 1].
//
// An error counts as at most 1e18, so that sums of priorities stay finite. One that is not finite gives the
// highest priority seen so far, as for a new transition. The same calls give the same bits on every
// instruction set.
class PrioritisedSampler {
 public:
  // Requires 0 < capacity < 2^32, 0 <= alpha <= 1, 0 <= epsilon <= 1.
  PrioritisedSampler(std::size_t capacity, double alpha, double epsilon);

  // Memory that a sampler takes.
  static std::uint64_t Bytes(std::size_t capacity);

  // A new transition is in `slot`: it takes the highest priority seen so far (1 at first), so that it is soon
  // learned from. Takes effect in the next call of another method; many slots added in a row cost one pass
  // through the tree.
  void Added(std::size_t slot);

  // Draws slots, one from each of slots.size() equal parts of the sum of priorities, in ascending order, and
  // their weights. At least one slot must have been added.
  void Sample(RandomStream& random, double beta, std::span<std::uint32_t> slots, std::span<float> weights);

  // New errors of sampled slots; where a slot occurs twice, the last one counts. No slot may have been given
  // to another transition since it was sampled.
  void Update(std::span<const std::uint32_t> slots, std::span<const float> errors);

  std::size_t capacity() const { return tree_.capacity(); }

  // A loaded sampler continues bit for bit.
  void Save(StateWriter& out, const std::string& scope) const;
  // Throws Error, and leaves the sampler as it was, when the saved one does not fit or is damaged.
  void Load(const StateReader& in, const std::string& scope);

 private:
  // Gives the slots added since the last call their priority.
  void Flush();

  float alpha_, epsilon_;
  float highest_ = 1;  // priority ever given
  SumTree tree_;       // of priorities; zero where nothing was added
  AlignedBuffer<std::uint32_t> new_slots_;
  std::size_t new_count_ = 0;  // of new_slots_ in use
};

}  // namespace trireme
