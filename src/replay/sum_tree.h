// Non-negative weights of `capacity` slots, with their sum kept up to date, and the search for the slot at a
// given position of the cumulative sum: drawing slots in proportion to their weights, in O(log capacity).
//
// A tree of floats in which a node is the sum of its 16 children, which share one cache line; five lines lead
// to one of a million slots, and all but the last usually are in the second-level cache. Calls take whole
// batches and walk level by level, so that cache misses of different slots overlap.
//
// Invariant: every node is exactly the sum of its children, added in one fixed order. Nothing drifts, the
// tree is a function of the weights alone, and as only additions and comparisons are made, of the same bits
// on every instruction set. The sum of weights must stay within the floats.
//
// Thread safety: none. Only the constructor allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/base/aligned.h"

namespace trireme {

class SumTree {
 public:
  // All weights are zero at first. Requires 0 < capacity < 2^32.
  explicit SumTree(std::size_t capacity);

  // Memory that a tree takes.
  static std::uint64_t Bytes(std::size_t capacity);

  // values[i] becomes the weight of slots[i]; where a slot occurs twice, the last one counts. Requires slots
  // below capacity and values that are finite and not negative.
  void Set(std::span<const std::uint32_t> slots, std::span<const float> values);
  // Slots 0 ... n - 1 take the given weights, all others zero.
  void Assign(std::span<const float> values);

  // slots[i] <- the slot s with  weight(0) + ... + weight(s-1) <= positions[i] < weight(0) + ... + weight(s),
  // up to the rounding of the sums. Positions belong into [0, total()); others are moved to its ends. A slot
  // of weight zero is never found, unless all are zero (then slot 0 is).
  void Find(std::span<const double> positions, std::span<std::uint32_t> slots) const;

  std::size_t capacity() const { return capacity_; }
  double total() const { return nodes_[levels_.back_offset()]; }
  float Get(std::size_t slot) const { return nodes_[slot]; }
  std::span<const float> values() const { return nodes_.span().first(capacity_); }

 private:
  static constexpr int kMaxLevels = 9;  // 16^8 = 2^32 slots, and the root
  // Level 0 is the slots, the last level the root alone. Each level is padded with zeros to whole lines.
  struct Levels {
    explicit Levels(std::size_t capacity);
    std::size_t back_offset() const { return offset[static_cast<std::size_t>(count) - 1]; }
    int count = 0;
    std::array<std::size_t, kMaxLevels> offset{}, size{};  // in floats; size without the padding
    std::size_t floats = 0;                                // of all levels
  };
  // Makes node i of `level` the sum of its children.
  void Sum(int level, std::size_t i);

  std::size_t capacity_;
  Levels levels_;
  AlignedBuffer<float> nodes_;
};

}  // namespace trireme
