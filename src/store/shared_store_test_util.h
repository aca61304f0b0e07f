// What the tests of the shared store have in common.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/store/shared_store.h"

namespace trireme {

inline constexpr std::size_t kParams = 1061;  // more than a tile, and odd
inline constexpr std::size_t kStats = 3;
inline constexpr float kRate = 0.01f;
inline constexpr UpdateRule kPlain{.learning_rate = kRate, .max_grad_norm = 0};

inline std::vector<float> Draw(std::uint32_t entity, std::uint64_t step, std::size_t size) {
  RandomStream random(22, Purpose::kTest, entity, step);
  std::vector<float> values(size);
  for (float& v : values) v = static_cast<float>(random.NextNormal() * std::exp(random.NextNormal()));
  return values;
}
inline std::vector<float> Initial(std::size_t size = kParams) { return Draw(100, 0, size); }

inline std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline std::string Saved(const ParameterStore& store) {
  StateWriter out;
  store.Save(out);
  return out.Encode();
}

class SharedStoreAlone : public testing::TestWithParam<std::tuple<OptimizerKind, bool>> {
 protected:
  const OptimizerKind kind_ = std::get<0>(GetParam());
  const bool share_moments_ = std::get<1>(GetParam());
};
inline std::string KindAndSharing(const testing::TestParamInfo<std::tuple<OptimizerKind, bool>>& info) {
  return fmt::format("{}_{}", OptimizerName(std::get<0>(info.param)),
                     std::get<1>(info.param) ? "shared" : "own");
}

}  // namespace trireme
