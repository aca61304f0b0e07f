// Steps per second of every environment on one core: random actions (drawn inside the timed loop) and
// auto-reset.
//
//   env_bench [seconds per figure, default 0.5]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/rng.h"
#include "trireme/base/simd.h"
#include "trireme/env/registry.h"

namespace trireme {
namespace {

constexpr int kRepetitions = 7;

// Two choices take one bit of a draw each; others take 16 bits of one.
struct DrawBits {
  [[gnu::always_inline]] static inline void Run(float* actions, std::size_t n, std::uint64_t step) {
    for (std::size_t first = 0; first < n; first += 128) {
      const auto block = Philox(1, StreamCounter(Purpose::kTest, 0, step, static_cast<std::uint32_t>(first)));
      for (std::size_t word = 0; word < 4; ++word) {
        float* out = actions + first + word * 32;
        for (std::uint32_t bit = 0; bit < 32; ++bit) {
          out[bit] = static_cast<float>(static_cast<std::int32_t>((block[word] >> bit) & 1));
        }
      }
    }
  }
};

struct DrawScaled {
  // choices > 0: an index below it; otherwise uniform on [low, high).
  [[gnu::always_inline]] static inline void Run(float* actions, std::size_t n, std::uint64_t step,
                                                int choices, float low, float high) {
    for (std::size_t first = 0; first < n; first += 8) {
      const auto block = Philox(1, StreamCounter(Purpose::kTest, 0, step, static_cast<std::uint32_t>(first)));
      for (std::size_t word = 0; word < 4; ++word) {
        for (std::uint32_t half = 0; half < 2; ++half) {
          const auto draw = static_cast<std::int32_t>((block[word] >> (16 * half)) & 0xFFFF);
          actions[first + 2 * word + half] = choices > 0
                                                 ? static_cast<float>((draw * choices) >> 16)
                                                 : low + (high - low) * 0x1p-16f * static_cast<float>(draw);
        }
      }
    }
  }
};

void DrawActions(const ActionSpace& space, float* actions, std::size_t n, std::uint64_t step) {
  if (space.discrete() && space.choices() == 2) {
    SimdCall<DrawBits>(actions, n, step);
  } else if (space.discrete()) {
    SimdCall<DrawScaled>(actions, n, step, space.choices(), 0.0f, 0.0f);
  } else {
    SimdCall<DrawScaled>(actions, n, step, 0, space.low[0], space.high[0]);
  }
}

double StepsPerSecond(const EnvEntry& entry, int size, double seconds) {
  const std::unique_ptr<EnvBatch> batch = entry.make(size);
  batch->Reset(1, Purpose::kTest, 0);
  const std::size_t count = static_cast<std::size_t>(size * entry.spec.action.size());
  AlignedBuffer<float> actions((count + 127) / 128 * 128);
  std::uint64_t step = 0;
  std::vector<double> rates;
  for (int repetition = 0; repetition <= kRepetitions; ++repetition) {
    const auto start = std::chrono::steady_clock::now();
    std::uint64_t done = 0;
    double elapsed = 0;
    while (elapsed < seconds / kRepetitions) {
      for (int i = 0; i < 64; ++i, ++step) {
        DrawActions(entry.spec.action, actions.data(), count, step);
        batch->Step({actions.data(), count});
      }
      done += 64 * static_cast<std::uint64_t>(size);
      elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    if (repetition > 0) rates.push_back(static_cast<double>(done) / elapsed);
  }
  std::nth_element(rates.begin(), rates.begin() + kRepetitions / 2, rates.end());
  return rates[kRepetitions / 2];
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.5;
  constexpr int kSizes[] = {8, 64, 1024, 4096};
  fmt::print("million steps/s, one core, {}, median of {}\n{:<26}", IsaName(CurrentIsa()), kRepetitions,
             "copies");
  for (const int size : kSizes) fmt::print("{:>9}", size);
  fmt::print("\n");
  for (const EnvEntry& entry : AllEnvs()) {
    fmt::print("{:<26}", entry.spec.name);
    for (const int size : kSizes) fmt::print("{:>9.1f}", StepsPerSecond(entry, size, seconds) * 1e-6);
    fmt::print("\n");
  }
}
