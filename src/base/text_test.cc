#include "base/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace trireme {
namespace {

const std::vector<std::string> kNames = {"learning_rate", "gamma", "CartPole-v1", "Acrobot-v1"};

TEST(SuggestNearest, FindsTheClosestName) {
  EXPECT_EQ(SuggestNearest("lerning_rate", kNames), " Did you mean 'learning_rate'?");
  EXPECT_EQ(SuggestNearest("gama", kNames), " Did you mean 'gamma'?");
  EXPECT_EQ(SuggestNearest("Acrobot-v0", kNames), " Did you mean 'Acrobot-v1'?");
}

TEST(SuggestNearest, IgnoresCase) {
  EXPECT_EQ(SuggestNearest("cartpole-V1", kNames), " Did you mean 'CartPole-v1'?");
}

TEST(SuggestNearest, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(SuggestNearest("zzzzzzzz", kNames), "");
  EXPECT_EQ(SuggestNearest("", kNames), "");
  EXPECT_EQ(SuggestNearest("gamma", {}), "");
}

}  // namespace
}  // namespace trireme
