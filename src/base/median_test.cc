#include "trireme/base/median.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kUnknown = std::numeric_limits<double>::quiet_NaN();

TEST(Median, MiddleOrMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({9, 1, 5, 7}), 6);
  EXPECT_EQ(Median({1, kInf, 2}), 2);
  EXPECT_EQ(Median({1, kInf}), kInf);
  EXPECT_EQ(Median({kUnknown, 4, kUnknown}), 4);
  EXPECT_TRUE(std::isnan(Median({kUnknown})));
}

}  // namespace
}  // namespace trireme
