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

#include "trireme/base/error.h"

namespace trireme {

class AtomicFloats {
 public:
  // All zero.
  explicit AtomicFloats(std::size_t size) : size_(size), words_(std::make_unique<Word[]>((size + 1) / 2)) {}

  std::size_t size() const { return size_; }

  // Copies from [begin, begin + values.size()). Requires an even `begin`.
  void Load(std::size_t begin, std::span<float> values) const {
    TRIREME_CHECK(begin % 2 == 0 && begin + values.size() <= size_);
    const std::size_t pairs = values.size() / 2;
    LoadWords(begin / 2, pairs, values.data());
    if (values.size() % 2 != 0) {
      float last[2];
      LoadWords(begin / 2 + pairs, 1, last);
      values[2 * pairs] = last[0];
    }
  }
  // Copies to the same. Half a pair at either end is exchanged, so that the other half stays what others make it;
  // there is no other half at the end of the array.
  void Store(std::size_t begin, std::span<const float> values) {
    TRIREME_CHECK(begin + values.size() <= size_);
    if (begin % 2 != 0 && !values.empty()) {
      StoreHalf(begin, values[0]);
      ++begin;
      values = values.subspan(1);
    }
    const std::size_t pairs = values.size() / 2;
    StoreWords(begin / 2, pairs, values.data());
    if (values.size() % 2 == 0) return;
    const std::size_t last = begin + 2 * pairs;
    if (last + 1 < size_) return StoreHalf(last, values[2 * pairs]);
    const float alone[2] = {values[2 * pairs], 0.0f};
    StoreWords(last / 2, 1, alone);
  }

  // The same for two arrays that interlock: pair i is the floats 2i and 2i + 1, and first[i] and second[i]
  // are always of one and the same store. Here `begin` counts pairs.
  void LoadPairs(std::size_t begin, std::span<float> first, std::span<float> second) const {
    TRIREME_CHECK(first.size() == second.size() && begin + first.size() <= size_ / 2);
    const Word* from = words_.get() + begin;
    std::size_t i = 0;
    for (; i + 4 <= first.size(); i += 4) {
      const Quad low = AsFloats(Read(from[i]), Read(from[i + 1]));
      const Quad high = AsFloats(Read(from[i + 2]), Read(from[i + 3]));
      PutQuad(&first[i], __builtin_shufflevector(low, high, 0, 2, 4, 6));
      PutQuad(&second[i], __builtin_shufflevector(low, high, 1, 3, 5, 7));
    }
    for (; i < first.size(); ++i) {
      float pair[2];
      LoadWords(begin + i, 1, pair);
      first[i] = pair[0];
      second[i] = pair[1];
    }
  }
  void StorePairs(std::size_t begin, std::span<const float> first, std::span<const float> second) {
    TRIREME_CHECK(first.size() == second.size() && begin + first.size() <= size_ / 2);
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
  static constexpr std::size_t kBlock = 256;
  using Quad [[gnu::vector_size(16)]] = float;
  using TwoWords [[gnu::vector_size(16)]] = std::uint64_t;

  static Quad AsFloats(std::uint64_t low, std::uint64_t high) {
    return reinterpret_cast<Quad>(TwoWords{low, high});
  }
  static void PutQuad(float* to, Quad value) { std::memcpy(to, &value, sizeof value); }

#ifdef TRIREME_PLAIN_COPIES
  // For measuring what the atomics cost, and wrong for anything else: a data race.
  using Word = std::uint64_t;
  static bool Exchange(Word& word, std::uint64_t&, std::uint64_t value) {
    word = value;
    return true;
  }
  static std::uint64_t Read(const Word& word) { return word; }
  static void Write(Word& word, std::uint64_t value) { word = value; }
#else
  using Word = std::atomic<std::uint64_t>;
  static_assert(Word::is_always_lock_free);
  static std::uint64_t Read(const Word& word) { return word.load(std::memory_order_relaxed); }
  static void Write(Word& word, std::uint64_t value) { word.store(value, std::memory_order_relaxed); }
  static bool Exchange(Word& word, std::uint64_t& expected, std::uint64_t value) {
    return word.compare_exchange_weak(expected, value, std::memory_order_relaxed);
  }
#endif

  void StoreHalf(std::size_t at, float value) {
    Word& word = words_[at / 2];
    std::uint64_t before = Read(word), after;
    do {
      float pair[2];
      std::memcpy(pair, &before, sizeof pair);
      pair[at % 2] = value;
      std::memcpy(&after, pair, sizeof after);
    } while (!Exchange(word, before, after));
  }

  // `count` words, two floats each. Unrolled: one move after the other, without a loop's bookkeeping between.
  void LoadWords(std::size_t begin, std::size_t count, float* to) const {
    const Word* from = words_.get() + begin;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t word = Read(from[i]);
      std::memcpy(to + 2 * i, &word, sizeof word);
    }
  }
  void StoreWords(std::size_t begin, std::size_t count, const float* from) {
    Word* to = words_.get() + begin;
#pragma GCC unroll 8
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t word;
      std::memcpy(&word, from + 2 * i, sizeof word);
      Write(to[i], word);
    }
  }

  std::size_t size_;
  std::unique_ptr<Word[]> words_;
};

}  // namespace trireme
