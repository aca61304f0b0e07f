#include "trireme/comm/link.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme {
namespace {

// A link that takes 2 ms for a round trip and 4 ms more for many bytes. What is first, and two of every three
// exchanges, are disturbed.
TEST(ProcessLink, TellsLatencyFromBandwidth) {
  ProcessLink link;
  double time_s = 100;
  std::vector<std::size_t> sizes;
  MeasureLink(
      link,
      [&](std::size_t bytes) {
        sizes.push_back(bytes);
        time_s += bytes == 0 ? 0.002 : 0.006;
        if (sizes.size() % 3 != 0) time_s += 0.001 * static_cast<double>(sizes.size());
      },
      [&] { return time_s; });
  EXPECT_NEAR(link.latency_s, 0.001, 1e-9);
  EXPECT_TRUE(link.measured());
  EXPECT_GT(sizes.back(), 100'000u);
  EXPECT_NEAR(static_cast<double>(2 * sizes.back()) / link.bytes_per_s, 0.004, 1e-9);
  // What was measured explains what was seen.
  link.messages = 2;
  link.bytes = 2 * sizes.back();
  EXPECT_NEAR(link.estimate_s(), 0.006, 1e-9);
}

// An exchange that takes no longer with many bytes than without is that fast.
TEST(ProcessLink, IsNeverInfinitelyFast) {
  ProcessLink link;
  double time_s = 0;
  MeasureLink(
      link, [&](std::size_t bytes) { time_s += bytes == 0 ? 0.002 : 0.001; }, [&] { return time_s; });
  EXPECT_NEAR(link.latency_s, 0.001, 1e-9);
  EXPECT_NEAR(link.bytes_per_s, 2e6 * static_cast<double>(ProcessLink::kLarge), 1);
}

TEST(ProcessLink, WhatWasNotMeasuredIsNotEstimated) {
  ProcessLink link;
  link.messages = link.bytes = 1000;
  EXPECT_FALSE(link.measured());
  EXPECT_EQ(link.estimate_s(), 0);
}

TEST(ProcessLink, CutsLongNames) {
  ProcessLink link;
  link.SetName(std::string(1000, 'x'));
  EXPECT_EQ(std::string(link.to), std::string(sizeof(link.to) - 1, 'x'));
  link.SetName("short");
  EXPECT_EQ(std::string(link.to), "short");
}

}  // namespace
}  // namespace trireme
