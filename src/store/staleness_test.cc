#include <gtest/gtest.h>

#include "trireme/store/parameter_store.h"

namespace trireme {
namespace {

TEST(Staleness, NothingCountedIsZero) {
  const Staleness none;
  EXPECT_EQ(none.count(), 0u);
  EXPECT_EQ(none.mean(), 0.0);
  EXPECT_EQ(none.most, 0u);
}

TEST(Staleness, CountsByVersionsBehind) {
  Staleness staleness;
  for (const std::uint64_t versions : {0, 2, 0, 1, 2, 2}) staleness.Add(versions);
  EXPECT_EQ(staleness.pushes[0], 2u);
  EXPECT_EQ(staleness.pushes[1], 1u);
  EXPECT_EQ(staleness.pushes[2], 3u);
  EXPECT_EQ(staleness.count(), 6u);
  EXPECT_EQ(staleness.most, 2u);
  EXPECT_DOUBLE_EQ(staleness.mean(), 7.0 / 6.0);
}

TEST(Staleness, TheLastBucketTakesTheRestButMeanAndMostStayExact) {
  Staleness staleness;
  for (const std::uint64_t versions : {30, 31, 32, 1000}) staleness.Add(versions);
  EXPECT_EQ(staleness.pushes[30], 1u);
  EXPECT_EQ(staleness.pushes[31], 3u);
  EXPECT_EQ(staleness.count(), 4u);
  EXPECT_EQ(staleness.most, 1000u);
  EXPECT_DOUBLE_EQ(staleness.mean(), 1093.0 / 4.0);
}

TEST(Staleness, AddsUpOverWorkers) {
  Staleness one, other;
  one.Add(1);
  one.Add(40);
  other.Add(1);
  other.Add(5);
  one += other;
  EXPECT_EQ(one.pushes[1], 2u);
  EXPECT_EQ(one.pushes[5], 1u);
  EXPECT_EQ(one.pushes[31], 1u);
  EXPECT_EQ(one.sum, 47u);
  EXPECT_EQ(one.most, 40u);
  other += one;
  EXPECT_EQ(other.most, 40u);
  EXPECT_EQ(other.count(), 6u);
}

}  // namespace
}  // namespace trireme
