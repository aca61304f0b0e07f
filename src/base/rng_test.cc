#include "trireme/base/rng.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace trireme {
namespace {

// Known-answer vectors published with the Random123 library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox(0, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~0ull, {~0u, ~0u, ~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(ToUniform, EndsOfTheInterval) {
  EXPECT_EQ(ToUniform(0u), 0.0f);
  EXPECT_LT(ToUniform(~0u), 1.0f);
  EXPECT_EQ(ToUniform(~0u), 1.0f - 0x1p-24f);
  EXPECT_EQ(ToUniform(0x80000000u), 0.5f);
  EXPECT_EQ(ToUniform(0u, 0u), 0.0);
  EXPECT_EQ(ToUniform(~0u, ~0u), 1.0 - 0x1p-53);
  EXPECT_EQ(ToUniform(0x80000000u, 0u), 0.5);
}

TEST(RandomStream, ReadsTheBlocksOfItsCounterInOrder) {
  RandomStream stream(42, Purpose::kTest, 3, 5);
  for (std::uint32_t index = 0; index < 3; ++index) {
    for (const std::uint32_t bits : Philox(42, StreamCounter(Purpose::kTest, 3, 5, index))) {
      EXPECT_EQ(stream.NextBits(), bits);
    }
  }
}

TEST(RandomStream, EveryPartOfTheKeyGivesAnotherStream) {
  const std::uint64_t far_step = std::uint64_t{1} << 40;
  std::set<std::pair<std::uint32_t, std::uint32_t>> firsts;
  std::size_t streams = 0;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32}) {
    for (const Purpose purpose : {Purpose::kInitialise, Purpose::kEnvReset, Purpose::kAction,
                                  Purpose::kShuffle, Purpose::kEvalReset, Purpose::kTest}) {
      for (const std::uint32_t entity : {0u, 1u, 2u, ~0u}) {
        for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, far_step, far_step + 1}) {
          RandomStream stream(seed, purpose, entity, step);
          const std::uint32_t first = stream.NextBits();
          firsts.emplace(first, stream.NextBits());
          ++streams;
        }
      }
    }
  }
  EXPECT_EQ(firsts.size(), streams);
}

TEST(RandomStream, UniformMomentsAndBins) {
  RandomStream stream(7, Purpose::kTest, 0, 0);
  constexpr int kDraws = 200'000, kBins = 20;
  double sum = 0, squares = 0;
  std::vector<int> bins(kBins);
  for (int i = 0; i < kDraws; ++i) {
    const double u = stream.NextUniform();
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    squares += u * u;
    ++bins[static_cast<int>(u * kBins)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.003);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.003);
  double chi_square = 0;
  const double expected = double{kDraws} / kBins;
  for (const int count : bins) chi_square += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi_square, 43.8) << "99.9 % of uniform samples stay below, 19 degrees of freedom";
}

TEST(RandomStream, NormalMoments) {
  RandomStream stream(7, Purpose::kTest, 1, 0);
  constexpr int kDraws = 200'000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = stream.NextNormal();
    ASSERT_TRUE(std::isfinite(x));
    m1 += x / kDraws;
    m2 += x * x / kDraws;
    m3 += x * x * x / kDraws;
    m4 += x * x * x * x / kDraws;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  EXPECT_NEAR(m1, 0, 0.01);
  EXPECT_NEAR(m2, 1, 0.015);
  EXPECT_NEAR(m3, 0, 0.04);
  EXPECT_NEAR(m4, 3, 0.12);
  EXPECT_NEAR(double{1} * beyond_two / kDraws, 0.0455, 0.002);
}

TEST(RandomStream, NextBelowCoversItsRangeEvenly) {
  RandomStream stream(7, Purpose::kTest, 2, 0);
  constexpr int kDraws = 70'000;
  std::vector<int> counts(7);
  for (int i = 0; i < kDraws; ++i) {
    const std::uint32_t draw = stream.NextBelow(7);
    ASSERT_LT(draw, 7u);
    ++counts[draw];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 400);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(stream.NextBelow(1), 0u);
}

}  // namespace
}  // namespace trireme
