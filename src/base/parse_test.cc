#include "trireme/base/parse.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Parse, TrimRemovesBlanksAtBothEnds) {
  EXPECT_EQ(Trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(Trim("  "), "");
  EXPECT_EQ(Trim(""), "");
}

TEST(Parse, LinesAreTakenOneByOneAsFarAsTheyEnd) {
  std::string_view text = "a b\n\nrest";
  EXPECT_EQ(TakeLine(text), "a b");
  EXPECT_EQ(TakeLine(text), "");
  EXPECT_EQ(text, "rest");
  EXPECT_EQ(TakeLine(text), "");
  EXPECT_EQ(text, "rest");
}

TEST(Parse, Doubles) {
  EXPECT_EQ(ParseDouble("1_000.5"), 1000.5);
  EXPECT_EQ(ParseDouble(" +3e-4 "), 3e-4);
  EXPECT_EQ(ParseDouble("-.5"), -0.5);
  for (const char* text :
       {"", "+", "-", "x", "1x", "nan", "-inf", "1e999", "1e-999", "1_", "0x1", "+-1", "1 1"}) {
    EXPECT_EQ(ParseDouble(text), std::nullopt) << text;
  }
}

TEST(Parse, WholeDigitsNeverRound) {
  EXPECT_EQ(ParseWholeDigits("9007199254740993"), "9007199254740993");
  EXPECT_EQ(ParseWholeDigits("18446744073709551615.0"), "18446744073709551615");
  EXPECT_EQ(ParseWholeDigits("12345678901234567.89e2"), "1234567890123456789");
  EXPECT_EQ(ParseWholeDigits("-007e1"), "-70");
  EXPECT_EQ(ParseWholeDigits("-0.0"), "0");
  EXPECT_EQ(ParseWholeDigits("0e-5"), "0");
  EXPECT_EQ(ParseWholeDigits("9007199254740993.0000000000001"), std::nullopt);
  EXPECT_EQ(ParseWholeDigits("5e-1"), std::nullopt);
  EXPECT_EQ(ParseWholeDigits("1e1001"), std::nullopt);
}

}  // namespace
}  // namespace trireme
