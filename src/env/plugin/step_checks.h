// What is done with the results of a step of many copies, in a few passes: rewards are added up, clocks go on, episodes are
// cut off at the limit, and what may not be there is found. Looking for the culprit is left to others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "trireme/base/simd.h"

namespace trireme {

struct StepResults {
  const float* obs;       // [obs_count]
  std::size_t obs_count;  // 0 where observations are bytes
  const float* rewards;   // the rest: [copies]
  double* returns;
  std::int32_t* elapsed;
  const std::uint8_t* terminated;
  std::uint8_t* truncated;
};

struct StepFindings {
  bool not_finite;  // an observation or a reward
  bool bad_flags;   // neither 0 nor 1, or both set
  bool ended;       // some episode
};

struct FinishStep {
  TRIREME_INLINE bool NotFinite(const float* values, std::size_t n) {
    using Bits = std::uint32_t __attribute__((may_alias));
    const auto* bits = reinterpret_cast<const Bits*>(values);
    std::uint32_t largest = 0;  // without the sign; infinity and whatever is no number come after all numbers
    for (std::size_t i = 0; i < n; ++i) largest = std::max<std::uint32_t>(largest, bits[i] & 0x7FFFFFFFu);
    return largest >= 0x7F800000u;
  }

  // limit: steps of an episode; 0: none.
  TRIREME_INLINE StepFindings Run(const StepResults* results, std::size_t n, std::int32_t limit) {
    const float* __restrict rewards = results->rewards;
    double* __restrict returns = results->returns;
    for (std::size_t i = 0; i < n; ++i) returns[i] += rewards[i];

    const std::uint8_t* __restrict terminated = results->terminated;
    std::uint8_t* __restrict truncated = results->truncated;
    std::uint8_t strange = 0, ended = 0;
    for (std::size_t i = 0; i < n; ++i) {
      strange |=
          static_cast<std::uint8_t>(((terminated[i] | truncated[i]) & 0xFE) | (terminated[i] & truncated[i]));
    }
    std::int32_t* __restrict elapsed = results->elapsed;
    constexpr std::int32_t kLongest = std::numeric_limits<std::int32_t>::max();
    std::int32_t longest = 0;
    for (std::size_t i = 0; i < n; ++i) {
      elapsed[i] += elapsed[i] < kLongest ? 1 : 0;
      longest = std::max(longest, elapsed[i]);
    }
    if (limit > 0 && longest >= limit) {
      for (std::size_t i = 0; i < n; ++i) {
        const bool over = elapsed[i] >= limit;
        truncated[i] |= static_cast<std::uint8_t>((over ? 1 : 0) & (terminated[i] ^ 1));
      }
    }
    for (std::size_t i = 0; i < n; ++i) ended |= static_cast<std::uint8_t>(terminated[i] | truncated[i]);
    return {.not_finite = NotFinite(results->obs, results->obs_count) || NotFinite(rewards, n),
            .bad_flags = strange != 0,
            .ended = ended != 0};
  }
};

}  // namespace trireme
