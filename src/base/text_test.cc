#include "trireme/base/text.h"

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

TEST(Printable, KeepsTextAndShowsTheRest) {
  EXPECT_EQ(Printable("plain, \"quoted\" \\ ~"), "plain, \"quoted\" \\ ~");
  EXPECT_EQ(Printable("h\u00e4lt \u20ac \U0001f600"), "h\u00e4lt \u20ac \U0001f600");
  EXPECT_EQ(Printable("\x1b[2J\r\n\t\x7f"), "\\x1b[2J\\x0d\\x0a\\x09\\x7f");
  EXPECT_EQ(Printable(std::string_view("\0a", 2)), "\\x00a");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b"
            "2J")
      << "a control character of two bytes";
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xc0\x9b \xe0\x80\x9b \xed\xa0\x80 \xf4\x90\x80\x80"),
            "\\xc0\\x9b \\xe0\\x80\\x9b \\xed\\xa0\\x80 \\xf4\\x90\\x80\\x80");
}

}  // namespace
}  // namespace trireme
