// An array of floats that many threads read and write at once without a lock.
//
// Floats travel in pairs, as relaxed atomic words: no float is ever seen half-written and no access is a data
// race, but nothing orders one pair against another. On usual processors such an access is a plain move; two
// floats at a time, copying runs at a fair share of the speed of memcpy, and arithmetic stays in ordinary
// buffers where it can be vectorised.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"

namespace trireme {

class AtomicFloats {
 public:
  // All zero.
  explicit AtomicFloats(std::size_t size)
      : size_(size), words_(std::make_unique<std::atomic<std::uint64_t>[]>((size + 1) / 2)) {}

  std::size_t size() const { return size_; }

  // Copies from and to [begin, begin + values.size()). Requires an even `begin`.
  void Load(std::size_t begin, std::span<float> values) const {
    CHECK(begin % 2 == 0 && begin + values.size() <= size_);
    const std::atomic<std::uint64_t>* from = words_.get() + begin / 2;
    const std::size_t pairs = values.size() / 2;
    for (std::size_t i = 0; i < pairs; ++i) {
      const Pair pair = std::bit_cast<Pair>(from[i].load(std::memory_order_relaxed));
      values[2 * i] = pair[0];
      values[2 * i + 1] = pair[1];
    }
    if (values.size() % 2 != 0) {
      values[2 * pairs] = std::bit_cast<Pair>(from[pairs].load(std::memory_order_relaxed))[0];
    }
  }
  // An odd count may only end at the end of the array.
  void Store(std::size_t begin, std::span<const float> values) {
    CHECK(begin % 2 == 0 && begin + values.size() <= size_);
    std::atomic<std::uint64_t>* to = words_.get() + begin / 2;
    const std::size_t pairs = values.size() / 2;
    for (std::size_t i = 0; i < pairs; ++i) {
      to[i].store(std::bit_cast<std::uint64_t>(Pair{values[2 * i], values[2 * i + 1]}),
                  std::memory_order_relaxed);
    }
    if (values.size() % 2 != 0) {
      CHECK(begin + values.size() == size_);
      to[pairs].store(std::bit_cast<std::uint64_t>(Pair{values[2 * pairs], 0.0f}), std::memory_order_relaxed);
    }
  }

  // The same for two arrays that interlock: pair i is the floats 2i and 2i + 1, and first[i] and second[i]
  // are always of one and the same store. Here `begin` counts pairs.
  void LoadPairs(std::size_t begin, std::span<float> first, std::span<float> second) const {
    CHECK(first.size() == second.size() && begin + first.size() <= size_ / 2);
    const std::atomic<std::uint64_t>* from = words_.get() + begin;
    for (std::size_t i = 0; i < first.size(); ++i) {
      const Pair pair = std::bit_cast<Pair>(from[i].load(std::memory_order_relaxed));
      first[i] = pair[0];
      second[i] = pair[1];
    }
  }
  void StorePairs(std::size_t begin, std::span<const float> first, std::span<const float> second) {
    CHECK(first.size() == second.size() && begin + first.size() <= size_ / 2);
    std::atomic<std::uint64_t>* to = words_.get() + begin;
    for (std::size_t i = 0; i < first.size(); ++i) {
      to[i].store(std::bit_cast<std::uint64_t>(Pair{first[i], second[i]}), std::memory_order_relaxed);
    }
  }

 private:
  using Pair = std::array<float, 2>;
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  std::size_t size_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace trireme
