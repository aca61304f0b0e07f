#include "trireme/comm/link.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace trireme {
namespace {

// A link that takes 2 ms for a round trip and 4 ms more for many bytes; machines add to that, never subtract.
TEST(ProcessLink, TellsLatencyFromBandwidth) {
  ProcessLink link;
  std::vector<std::size_t> sizes;
  MeasureLink(link, [&](std::size_t bytes) {
    sizes.push_back(bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(bytes == 0 ? 2 : 6));
  });
  EXPECT_GE(link.latency_s, 0.001);
  EXPECT_TRUE(link.measured());
  EXPECT_GT(sizes.back(), 100'000u);
  // What was measured explains what was seen: a large exchange took at least 6 ms.
  link.messages = 2;
  link.bytes = 2 * sizes.back();
  EXPECT_GE(link.estimate_s(), 0.006 - 1e-9);
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
