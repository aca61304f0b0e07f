// An array of floats that many threads read and write at once without a lock.
//
// Floats travel in pairs, as relaxed atomic words: no float is ever seen half-written and no access is a data
// race, but nothing orders one pair against another. On usual processors such an access is a plain move; two
// floats at a time, copying runs at a fair share of the speed of memcpy, and arithmetic stays in ordinary
// buffers where it can be vectorised.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
    const std::size_t pairs = values.size() / 2;
    LoadWords(begin / 2, pairs, values.data());
    if (values.size() % 2 != 0) {
      float last[2];
      LoadWords(begin / 2 + pairs, 1, last);
      values[2 * pairs] = last[0];
    }
  }
  // An odd count may only end at the end of the array.
  void Store(std::size_t begin, std::span<const float> values) {
    CHECK(begin % 2 == 0 && begin + values.size() <= size_);
    const std::size_t pairs = values.size() / 2;
    StoreWords(begin / 2, pairs, values.data());
    if (values.size() % 2 != 0) {
      CHECK(begin + values.size() == size_);
      const float last[2] = {values[2 * pairs], 0.0f};
      StoreWords(begin / 2 + pairs, 1, last);
    }
  }

  // The same for two arrays that interlock: pair i is the floats 2i and 2i + 1, and first[i] and second[i]
  // are always of one and the same store. Here `begin` counts pairs.
  void LoadPairs(std::size_t begin, std::span<float> first, std::span<float> second) const {
    CHECK(first.size() == second.size() && begin + first.size() <= size_ / 2);
    float block[2 * kBlock];
    for (std::size_t at = 0; at < first.size(); at += kBlock) {
      const std::size_t count = std::min(kBlock, first.size() - at);
      LoadWords(begin + at, count, block);
      for (std::size_t i = 0; i < count; ++i) {
        first[at + i] = block[2 * i];
        second[at + i] = block[2 * i + 1];
      }
    }
  }
  void StorePairs(std::size_t begin, std::span<const float> first, std::span<const float> second) {
    CHECK(first.size() == second.size() && begin + first.size() <= size_ / 2);
    float block[2 * kBlock];
    for (std::size_t at = 0; at < first.size(); at += kBlock) {
      const std::size_t count = std::min(kBlock, first.size() - at);
      for (std::size_t i = 0; i < count; ++i) {
        block[2 * i] = first[at + i];
        block[2 * i + 1] = second[at + i];
      }
      StoreWords(begin + at, count, block);
    }
  }

 private:
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  static constexpr std::size_t kBlock = 256;

  // `count` words, two floats each. Unrolled: one move after the other, without a loop's bookkeeping between.
  void LoadWords(std::size_t begin, std::size_t count, float* to) const {
    const std::atomic<std::uint64_t>* from = words_.get() + begin;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t word = from[i].load(std::memory_order_relaxed);
      std::memcpy(to + 2 * i, &word, sizeof word);
    }
  }
  void StoreWords(std::size_t begin, std::size_t count, const float* from) {
    std::atomic<std::uint64_t>* to = words_.get() + begin;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t word;
      std::memcpy(&word, from + 2 * i, sizeof word);
      to[i].store(word, std::memory_order_relaxed);
    }
  }

  std::size_t size_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;
};

}  // namespace trireme
