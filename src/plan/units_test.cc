#include "trireme/plan/units.h"

#include <gtest/gtest.h>

#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

TEST(UnitsTest, ReadsDurations) {
  EXPECT_DOUBLE_EQ(ParseSeconds("50us", "--latency"), 50e-6);
  EXPECT_DOUBLE_EQ(ParseSeconds(" 1.5 ms ", "--latency"), 1.5e-3);
  EXPECT_DOUBLE_EQ(ParseSeconds("300ns", "--latency"), 300e-9);
  EXPECT_DOUBLE_EQ(ParseSeconds("2s", "--latency"), 2);
  EXPECT_DOUBLE_EQ(ParseSeconds("1e-5s", "--latency"), 1e-5);
}

TEST(UnitsTest, ReadsRates) {
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("1.2GB/s", "--bandwidth"), 1.2e9);
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("10Gbit/s", "--bandwidth"), 1.25e9);
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("100Mbit/s", "--bandwidth"), 12.5e6);
  EXPECT_DOUBLE_EQ(ParseBytesPerSecond("3e8B/s", "--bandwidth"), 3e8);
}

TEST(UnitsTest, RefusesWhatIsNoQuantity) {
  for (const char* text : {"", "us", "fast", "-1us", "0", "nan", "1 hour", "5GB/s", "30"}) {
    EXPECT_THROW(ParseSeconds(text, "--latency"), Error) << text;
  }
  for (const char* text : {"", "GB/s", "0GB/s", "-3MB/s", "inf", "50us", "1GB", "1.2"}) {
    EXPECT_THROW(ParseBytesPerSecond(text, "--bandwidth"), Error) << text;
  }
}

TEST(UnitsTest, PrintsThreeDigits) {
  EXPECT_EQ(FormatSeconds(12.34e-6), "12.3 us");
  EXPECT_EQ(FormatSeconds(0.00099999), "1.00 ms");
  EXPECT_EQ(FormatSeconds(0), "0.00 ns");
  EXPECT_EQ(FormatSeconds(250), "250 s");
  EXPECT_EQ(FormatSeconds(std::numeric_limits<double>::quiet_NaN()), "-");
  EXPECT_EQ(FormatBytesPerSecond(1.2e9), "1.20 GB/s");
}

}  // namespace
}  // namespace trireme
