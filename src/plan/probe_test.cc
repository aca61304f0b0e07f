// What trips to servers cost is probed through processes of the program itself: see tests/cli/plan_test.cc.

#include "trireme/plan/probe.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ProbeTest, MemoryIsQuick) {
  const Link threads = ProbeThreads(100'000);
  EXPECT_GT(threads.latency_s, 1e-9);
  EXPECT_GT(threads.bytes_per_s, 1e6);
  for (const double per_float : {ProbeAdd(10'000), ProbeCopy(10'000), ProbeShared({}, 10'000)}) {
    EXPECT_GT(per_float, 1e-12);
    EXPECT_LT(per_float, 1e-6);
  }
}

TEST(ProbeTest, TheLoopbackHasALatencyAndARate) {
  const Link loopback = ProbeLoopback();
  EXPECT_GT(loopback.latency_s, 1e-7);
  EXPECT_LT(loopback.latency_s, 0.1);
  EXPECT_GT(loopback.bytes_per_s, 1e6);
  EXPECT_LT(loopback.bytes_per_s, 1e12);
}

}  // namespace
}  // namespace trireme
