// The most recent transitions, in a ring: the newest overwrites the oldest once the buffer is full.
//
// All of them live in one flat array [capacity, width] with the fields of a transition side by side,
//
//   obs | next_obs | actions | ret | discount
//
// so that fetching one at random touches one or two cache lines (for small observations) instead of five.
// Slot i holds the transition number added last among i, i + capacity, i + 2 * capacity, ...
//
// Invariants: size() == min(added(), capacity()); slots 0 ... size() - 1 are filled.
// Thread safety: none; a buffer belongs to one worker. Only the constructor, Save and Load allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/aligned.h"
#include "trireme/base/state.h"
#include "trireme/replay/transition.h"

namespace trireme {

class ReplayBuffer {
 public:
  // Requires 0 < capacity < 2^32 (slots are 32-bit numbers), 0 < action_size.
  ReplayBuffer(std::size_t capacity, const RowLayout& layout, int action_size);

  // Memory that a buffer of this shape takes.
  static std::uint64_t Bytes(std::size_t capacity, const RowLayout& layout, int action_size);

  // Copies `t` and returns its slot.
  std::size_t Add(const Transition& t);

  // out row i <- the transition in slots[i]; every slot must be below size(), and the batch must have been
  // made for the same layout and at least slots.size() rows. Several cache misses are in flight at once.
  void Gather(std::span<const std::uint32_t> slots, TransitionBatch& out) const;

  // The records of the slots, as they lie in memory, one after the other. Every slot must be below size().
  void GatherRecords(std::span<const std::uint32_t> slots, std::span<float> records) const;

  // The record of a slot below size(), as it lies in memory, and what a record is for these shapes, in floats.
  std::span<const float> record(std::size_t slot) const {
    return records_.span().subspan(slot * width_, width_);
  }
  static std::size_t RecordSize(const RowLayout& layout, int action_size) {
    return 2 * layout.width() + static_cast<std::size_t>(action_size) + 2;
  }
  // out row first + i <- the i-th of n records, which lie one after the other.
  static void Unpack(const RowLayout& layout, int action_size, std::span<const float> records,
                     std::size_t first, std::size_t n, TransitionBatch& out);
  // For a buffer that is found again: the record of slot i comes from fill(i, record), for all of those that a buffer has to
  // which so many were added.
  template <class Fill>
  void Restore(std::uint64_t added, Fill&& fill) {
    added_ = added;
    for (std::size_t i = 0; i < size(); ++i) fill(i, records_.span().subspan(i * width_, width_));
  }

  std::size_t capacity() const { return capacity_; }
  std::size_t size() const { return added_ < capacity_ ? static_cast<std::size_t>(added_) : capacity_; }
  // Transitions ever added.
  std::uint64_t added() const { return added_; }

  // Writes the filled records alone. A loaded buffer continues in the same slots.
  void Save(StateWriter& out, const std::string& scope) const;
  // Throws Error, and leaves the buffer as it was, when the saved one has another shape or is damaged.
  void Load(const StateReader& in, const std::string& scope);

 private:
  std::size_t capacity_;
  RowLayout layout_;
  std::size_t action_size_;
  std::size_t width_;  // floats of one record: two rows, the action, return and discount
  std::uint64_t added_ = 0;
  AlignedBuffer<float> records_;  // [capacity, width]
};

}  // namespace trireme
