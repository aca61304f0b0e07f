#include "trireme/metrics/axis.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

std::vector<std::string> Labels(double low, double high, int wanted = 5) {
  std::vector<std::string> labels;
  for (const Tick& tick : MakeAxis(low, high, 0, wanted).ticks) labels.push_back(tick.label);
  return labels;
}

TEST(Axis, RoundTicksWithSuffixes) {
  EXPECT_EQ(Labels(0, 500), (std::vector<std::string>{"0", "100", "200", "300", "400", "500"}));
  EXPECT_EQ(Labels(0, 100'000), (std::vector<std::string>{"0", "20k", "40k", "60k", "80k", "100k"}));
  EXPECT_EQ(Labels(0, 2'500'000), (std::vector<std::string>{"0", "500k", "1M", "1.5M", "2M", "2.5M"}));
  EXPECT_EQ(Labels(-1600, -100), (std::vector<std::string>{"-1.5k", "-1k", "-500"}));
  EXPECT_EQ(Labels(0, 4e9), (std::vector<std::string>{"0", "1G", "2G", "3G", "4G"}));
  EXPECT_EQ(Labels(-0.1, 0.1), (std::vector<std::string>{"-0.1", "-0.05", "0", "0.05", "0.1"}));
  EXPECT_EQ(Labels(0, 3e-4), (std::vector<std::string>{"0", "1e-4", "2e-4", "3e-4"}));
  EXPECT_EQ(Labels(1.5e-4, 2.5e-4),
            (std::vector<std::string>{"1.6e-4", "1.8e-4", "2e-4", "2.2e-4", "2.4e-4"}));
  EXPECT_EQ(Labels(1000.2, 1001),
            (std::vector<std::string>{"1.0002k", "1.0004k", "1.0006k", "1.0008k", "1.001k"}));
  EXPECT_EQ(Labels(0, 4e18), (std::vector<std::string>{"0", "1e18", "2e18", "3e18", "4e18"}));
}

TEST(Axis, MarginWidensBothEnds) {
  const Axis axis = MakeAxis(0, 10, 0.1, 5);
  EXPECT_DOUBLE_EQ(axis.low, -1);
  EXPECT_DOUBLE_EQ(axis.high, 11);
  EXPECT_DOUBLE_EQ(axis.Fraction(5), 0.5);
}

TEST(Axis, WithoutDataFromZeroToOne) {
  const Axis axis = MakeAxis(1, -1, 0.1, 5);
  EXPECT_EQ(axis.low, 0);
  EXPECT_EQ(axis.high, 1);
}

TEST(Axis, AnyRangeGivesFewDistinctAscendingTicksInside) {
  const std::pair<double, double> ranges[] = {
      {0, 0},          {500, 500},     {-3, -3},   {1e-320, 1e-320},  {1e15, 1e15 + 0.25},
      {-1e300, 1e300}, {1e300, 1e300}, {0, 1e300}, {-1e-280, 1e-280}, {0, 5e-324},
      {1, 1 + 1e-15},  {0.1, 0.3},     {7, 1e12},  {-200.0001, -200}, {1e-7, 1e7},
      {99999, 100001}, {-5, 1e-9}};
  for (const auto& [low, high] : ranges) {
    const Axis axis = MakeAxis(low, high, 0.05, 5);
    EXPECT_LT(axis.low, axis.high);
    EXPECT_LE(axis.low, low);
    EXPECT_GE(axis.high, high);
    ASSERT_GE(axis.ticks.size(), 2u) << low << " " << high;
    EXPECT_LE(axis.ticks.size(), 7u) << low << " " << high;
    for (std::size_t i = 0; i < axis.ticks.size(); ++i) {
      EXPECT_GE(axis.ticks[i].value, axis.low);
      EXPECT_LE(axis.ticks[i].value, axis.high);
      EXPECT_LE(axis.ticks[i].label.size(), 12u) << axis.ticks[i].label;
      if (i == 0) continue;
      EXPECT_LT(axis.ticks[i - 1].value, axis.ticks[i].value);
      EXPECT_NE(axis.ticks[i - 1].label, axis.ticks[i].label) << low << " " << high;
    }
  }
}

}  // namespace
}  // namespace trireme
