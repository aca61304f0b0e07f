#include "trireme/optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

std::vector<float> Normal(std::size_t size) {
  RandomStream stream(1, Purpose::kTest, 0, size);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(stream.NextNormal());
  return values;
}

TEST(SquaredNorm, MatchesASimpleSum) {
  for (const std::size_t size : {0u, 1u, 3u, 15u, 16u, 17u, 100u, 9001u}) {
    const std::vector<float> values = Normal(size);
    double expected = 0;
    for (const float value : values) expected += double{value} * value;
    EXPECT_NEAR(SquaredNorm(values), expected, 1e-12 * (1 + expected)) << size;
  }
}

TEST(SquaredNorm, SameBitsOnEveryInstructionSetAndAlignment) {
  const Isa best = CurrentIsa();
  const std::vector<float> values = Normal(1003);
  std::vector<float> shifted(1);
  shifted.insert(shifted.end(), values.begin(), values.end());
  const double expected = SquaredNorm(values);
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    OverrideIsa(isa);
    EXPECT_EQ(SquaredNorm(values), expected) << IsaName(isa);
    EXPECT_EQ(SquaredNorm(std::span(shifted).subspan(1)), expected) << IsaName(isa);
  }
  OverrideIsa(best);
}

TEST(SquaredNorm, LargeFiniteValuesDoNotOverflow) {
  const std::vector<float> values(40, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(SquaredNorm(values)));
}

TEST(ClipByGlobalNorm, ShortensOnlyWhatIsTooLong) {
  std::vector<float> gradient = {3, 0, -4};
  EXPECT_EQ(ClipByGlobalNorm(gradient, 5), 5);
  EXPECT_EQ(gradient, (std::vector<float>{3, 0, -4}));
  EXPECT_EQ(ClipByGlobalNorm(gradient, 1), 5);
  EXPECT_FLOAT_EQ(gradient[0], 0.6f);
  EXPECT_FLOAT_EQ(gradient[2], -0.8f);
  std::vector<float> zero(5);
  EXPECT_EQ(ClipByGlobalNorm(zero, 0.5), 0);
  EXPECT_EQ(zero, std::vector<float>(5));
}

TEST(ClipByGlobalNorm, LongGradientEndsAtTheGivenNorm) {
  std::vector<float> gradient = Normal(9001);
  EXPECT_GT(ClipByGlobalNorm(gradient, 0.5), 80);
  EXPECT_NEAR(std::sqrt(SquaredNorm(gradient)), 0.5, 1e-6);
}

TEST(ClipByGlobalNorm, NonFiniteNormsAreReturnedAndTheGradientIsKept) {
  for (const std::size_t bad : {0u, 16u, 36u}) {
    std::vector<float> gradient(37, 2.0f);
    gradient[bad] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(ClipByGlobalNorm(gradient, 0.5)));
    EXPECT_EQ(gradient[1], 2.0f);
    gradient[bad] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(ClipByGlobalNorm(gradient, 0.5), std::numeric_limits<double>::infinity());
    EXPECT_EQ(gradient[1], 2.0f);
  }
}

}  // namespace
}  // namespace trireme
