// The first pass of a step of many copies of an environment E (batch.h): advances them kLanes at a time, in blocks
// of kBlock, and turns their observations into rows.
//
// Whoever includes this compiles without floating-point contraction: see batch.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "trireme/env/vec.h"

namespace trireme {

struct StepResult {
  Vec reward;
  Mask terminated;
};

namespace batch_internal {

inline constexpr int kBlock = 8;

// Bytes of a mask: 0 where every choice is always allowed.
template <class E>
inline constexpr int kMaskSize = 0;
template <class E>
requires requires { E::kChoices; }
inline constexpr int kMaskSize<E> = E::kChoices;

template <class V, class T>
[[gnu::always_inline]] inline V LoadVector(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class V, class T>
[[gnu::always_inline]] inline void StoreVector(T* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// What the first pass reads and writes, starting at some block.
struct Lanes {
  const float* actions;  // [copies, kActionSize]
  double* state;         // [kStateSize, state_stride]
  std::size_t state_stride;
  float* obs;           // [copies, kObsSize]
  std::uint8_t* masks;  // [copies, kMaskSize]
  float* rewards;       // the rest: [copies]
  double* returns;
  double* elapsed;
  std::uint8_t* terminated;
  std::uint8_t* truncated;
};

// The first pass.
template <class E>
struct StepLanes {
  [[gnu::always_inline]] static inline void Run(const Lanes* lanes, std::size_t blocks, double limit) {
    static_assert(kBlock == 2 * kLanes && kBlock == sizeof(std::uint64_t));
    const Lanes l = *lanes;
    for (std::size_t first = 0; first < blocks * kBlock; first += kBlock) {
      const Ends low = StepVec(l, first, limit);
      const Ends high = StepVec(l, first + kLanes, limit);
      StoreVector(l.terminated + first, ToBytes(low.terminated, high.terminated));
      StoreVector(l.truncated + first, ToBytes(low.truncated, high.truncated));
    }
  }

 private:
  struct Ends {
    Mask terminated;
    Mask truncated;
  };

  // Eight masks to eight bytes of 0 or 1.
  [[gnu::always_inline]] static inline std::uint64_t ToBytes(Mask low, Mask high) {
    constexpr std::int64_t kOne = 1;
    const Bits bytes = (low & Bits{kOne, kOne << 8, kOne << 16, kOne << 24}) |
                       (high & Bits{kOne << 32, kOne << 40, kOne << 48, kOne << 56});
    return static_cast<std::uint64_t>((bytes[0] | bytes[1]) | (bytes[2] | bytes[3]));
  }

  // Columns, one number for each of kLanes copies, to rows: four columns at a time, the rest one by one.
  [[gnu::always_inline]] static inline void StoreRows(const Vec* columns, float* rows) {
    constexpr int kWhole = E::kObsSize / kLanes * kLanes;
    for (int k = 0; k < kWhole; k += kLanes) {
      const FloatVec a = ToFloat(columns[k]), b = ToFloat(columns[k + 1]), c = ToFloat(columns[k + 2]),
                     d = ToFloat(columns[k + 3]);
      const FloatVec ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                     ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7),
                     cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
                     cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      StoreVector(rows + 0 * E::kObsSize + k, __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5));
      StoreVector(rows + 1 * E::kObsSize + k, __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7));
      StoreVector(rows + 2 * E::kObsSize + k, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
      StoreVector(rows + 3 * E::kObsSize + k, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
    }
    for (int k = kWhole; k < E::kObsSize; ++k) {
      const FloatVec column = ToFloat(columns[k]);
      for (int lane = 0; lane < kLanes; ++lane) rows[lane * E::kObsSize + k] = column[lane];
    }
  }

  // Steps copies i ... i + kLanes - 1.
  [[gnu::always_inline]] static inline Ends StepVec(const Lanes& l, std::size_t i, double limit) {
    std::array<Vec, E::kActionSize> action;
    if constexpr (E::kActionSize == 1) {
      action[0] = ToDouble(LoadVector<FloatVec>(l.actions + i));
    } else {
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int k = 0; k < E::kActionSize; ++k) {
          action[k][lane] = l.actions[(i + lane) * E::kActionSize + k];
        }
      }
    }
    typename E::State s;
    for (int k = 0; k < E::kStateSize; ++k) s[k] = LoadVector<Vec>(l.state + k * l.state_stride + i);
    const StepResult result = E::Step(s, action.data());
    for (int k = 0; k < E::kStateSize; ++k) StoreVector(l.state + k * l.state_stride + i, s[k]);
    std::array<Vec, E::kObsSize> obs;
    E::Observe(s, obs.data());
    StoreRows(obs.data(), l.obs + i * E::kObsSize);
    if constexpr (kMaskSize < E >> 0) {
      std::array<Mask, kMaskSize<E>> allowed;
      E::Allow(s, allowed.data());
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int a = 0; a < kMaskSize<E>; ++a) {
          l.masks[(i + lane) * kMaskSize<E> + a] = static_cast<std::uint8_t>(allowed[a][lane] & 1);
        }
      }
    }
    StoreVector(l.rewards + i, ToFloat(result.reward));
    StoreVector(l.returns + i, LoadVector<Vec>(l.returns + i) + result.reward);
    const Vec elapsed = LoadVector<Vec>(l.elapsed + i) + 1.0;
    StoreVector(l.elapsed + i, elapsed);
    return {.terminated = result.terminated, .truncated = (elapsed >= limit) & ~result.terminated};
  }
};

}  // namespace batch_internal

}  // namespace trireme
