// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011).
//
// A draw is a pure function of (seed, purpose, entity, step, index): there is no generator to share, to lock,
// or to save in a checkpoint. Whoever computes a draw, on whichever thread, in whatever order, gets the same
// bits. That is what makes a run independent of the number of workers and exactly resumable.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace trireme {

// What a draw is for. Two purposes never share a stream.
enum class Purpose : std::uint32_t {
  kInitialise = 1,  // network parameters
  kEnvReset = 2,    // initial states during training
  kAction = 3,      // sampled actions
  kShuffle = 4,     // order of samples in an update
  kEvalReset = 5,   // initial states of evaluation episodes: never shared with training
  kTest = 6,        // tests and benchmarks
  kReplay = 7,      // which transitions to learn from
  kPlan = 8,        // durations in simulated runs
  kLateStart = 9,   // seeds of shards that are begun when the run has made steps
  kCodec = 10,      // where compression by powersgd begins
  kTune = 11,       // proposals of a hyper-parameter search
};

using PhiloxBlock = std::array<std::uint32_t, 4>;

// The bijection itself: 128 random bits for a 64-bit key and a 128-bit counter.
[[gnu::always_inline]] inline PhiloxBlock Philox(std::uint64_t key, PhiloxBlock c) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

// The counter of block `index` of the stream (purpose, entity, step). Steps below 2^56 are distinct.
[[gnu::always_inline]] inline PhiloxBlock StreamCounter(Purpose purpose, std::uint32_t entity,
                                                        std::uint64_t step, std::uint32_t index) {
  return {index, static_cast<std::uint32_t>(step), entity,
          (static_cast<std::uint32_t>(purpose) << 24) ^ static_cast<std::uint32_t>(step >> 32)};
}

// Maps random bits to [0, 1), exactly representable in the result type.
[[gnu::always_inline]] inline float ToUniform(std::uint32_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 8)) * 0x1p-24f;
}
[[gnu::always_inline]] inline double ToUniform(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((std::uint64_t{high} << 21) ^ (low >> 11)) * 0x1p-53;
}

// One stream read in order. Cheap to construct: make one where it is needed instead of keeping it.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, Purpose purpose, std::uint32_t entity, std::uint64_t step)
      : seed_(seed), purpose_(purpose), entity_(entity), step_(step) {}

  std::uint32_t NextBits() {
    if (used_ == 4) {
      block_ = Philox(seed_, StreamCounter(purpose_, entity_, step_, index_++));
      used_ = 0;
    }
    return block_[used_++];
  }
  // Uniform on [0, 1) with 53 random bits.
  double NextUniform() {
    const std::uint32_t high = NextBits();
    return ToUniform(high, NextBits());
  }
  // Uniform on {0, ..., n-1}; requires 0 < n. Multiplication instead of modulo: bias below n / 2^32.
  std::uint32_t NextBelow(std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{NextBits()} * n) >> 32);
  }
  // Standard normal (Box-Muller, one of the pair).
  double NextNormal() {
    const double radius = std::sqrt(-2.0 * std::log1p(-NextUniform()));
    return radius * std::cos(2.0 * std::numbers::pi * NextUniform());
  }

 private:
  std::uint64_t seed_;
  Purpose purpose_;
  std::uint32_t entity_;
  std::uint64_t step_;
  std::uint32_t index_ = 0;
  PhiloxBlock block_{};
  int used_ = 4;
};

}  // namespace trireme
