#include "trireme/optim/clip.h"

#include <gtest/gtest.h>

#include <algorithm>
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

double NormOf(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

TEST(ClipGradient, EachGroupWithANormIsClippedByItsOwn) {
  const std::vector<float> before = Normal(5000);
  const ParameterGroups groups = {{100, 300, 0.1f, 0.5},   // too long
                                  {300, 2500, 0.1f, 1e6},  // short enough
                                  {3000, 3100, 0.1f},      // of the common norm
                                  {4000, 4100, 0, 0.25}};  // left untouched by updates, and too long
  for (const double max_norm : {0.0, 2.0, 1e6}) {
    std::vector<float> gradient = before;
    EXPECT_NEAR(ClipGradient(gradient, max_norm, groups), NormOf(before), 1e-9);
    const auto range = [](const std::vector<float>& of, std::size_t begin, std::size_t end) {
      return std::span(of).subspan(begin, end - begin);
    };
    EXPECT_NEAR(NormOf(range(gradient, 100, 300)), 0.5, 1e-6);
    EXPECT_TRUE(std::ranges::equal(range(gradient, 300, 2500), range(before, 300, 2500)));
    EXPECT_NEAR(NormOf(range(gradient, 4000, 4100)), 0.25, 1e-6);
    std::vector<float> common;
    for (const auto& [begin, end] : {std::pair(0, 100), {2500, 4000}, {4100, 5000}}) {
      common.insert(common.end(), before.begin() + begin, before.begin() + end);
    }
    const double scale = max_norm > 0 && NormOf(common) > max_norm ? max_norm / NormOf(common) : 1;
    EXPECT_EQ(scale < 1, max_norm == 2.0);
    for (const std::size_t i : {0u, 99u, 2500u, 3000u, 3099u, 3100u, 4999u}) {
      EXPECT_FLOAT_EQ(gradient[i], static_cast<float>(before[i] * scale)) << i;
    }
  }
}

TEST(ClipGradient, GroupsWithoutNormsChangeNoBit) {
  const ParameterGroups groups = {{100, 300, 0.1f}, {1000, 2500, 0}};
  for (const double max_norm : {0.0, 2.0}) {
    std::vector<float> ours = Normal(5000), theirs = ours;
    const double norm = ClipGradient(ours, max_norm, groups);
    EXPECT_EQ(norm, max_norm > 0 ? ClipByGlobalNorm(theirs, max_norm) : std::sqrt(SquaredNorm(theirs)));
    EXPECT_EQ(ours, theirs);
  }
}

TEST(ClipGradient, NonFiniteNormsAreReturnedAndTheGradientIsKept) {
  std::vector<float> gradient = Normal(3000);
  gradient[2100] = std::numeric_limits<float>::infinity();
  const std::vector<float> before = gradient;
  for (const ParameterGroups& groups :
       {ParameterGroups{{0, 100, 0.1f, 0.5}}, ParameterGroups{{2000, 2200, 0.1f, 0.5}}}) {
    EXPECT_FALSE(std::isfinite(ClipGradient(gradient, 0.5, groups)));
    EXPECT_EQ(gradient, before);
  }
}

// Groups across the cuts, at them and beyond them.
TEST(GroupNorms, PartsThatBeginAtBlocksGiveTheBitsOfTheWhole) {
  const std::vector<float> values = Normal(5000);
  const ParameterGroups groups = {{1000, 1030, 1, 0.1}, {2048, 3072, 1, 0.2}, {3072, 4500, 1, 0.3}};
  GroupNorms whole(groups);
  whole.Add(values);
  std::vector<float> clipped = values;
  EXPECT_EQ(ClipGradient(clipped, 0.4, groups), whole.norm());
  for (const std::vector<std::size_t>& cuts : {std::vector<std::size_t>{0, 5000},
                                               {0, 1024, 5000},
                                               {0, 2048, 4096, 5000},
                                               {0, 1024, 2048, 3072, 4096, 5000}}) {
    GroupNorms norms(groups);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      std::vector<double> sums(GroupNorms::Segments(groups, cuts[i], cuts[i + 1]));
      GroupNorms::SquaredNorms(groups, cuts[i], std::span(values).subspan(cuts[i], cuts[i + 1] - cuts[i]),
                               sums);
      norms.Add(cuts[i], cuts[i + 1], sums);
    }
    EXPECT_EQ(norms.norm(), whole.norm());
    EXPECT_TRUE(std::ranges::equal(norms.ScalesFor(0.4).all(), whole.ScalesFor(0.4).all()));
  }
}

}  // namespace
}  // namespace trireme
