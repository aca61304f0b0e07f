#include "trireme/base/system.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace trireme {
namespace {

TEST(System, ClocksDoNotGoBack) {
  double wall = MonotonicSeconds(), cpu = CpuSeconds();
  const double cpu_at_start = cpu;
  while (CpuSeconds() < cpu_at_start + 1e-3) {
    EXPECT_GE(MonotonicSeconds(), wall);
    EXPECT_GE(CpuSeconds(), cpu);
    wall = MonotonicSeconds();
    cpu = CpuSeconds();
  }
}

TEST(System, ProcessorsFollowTheAffinity) {
  EXPECT_GE(UsableProcessors(), 1);
  std::thread([] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    EXPECT_EQ(UsableProcessors(), 1);
  }).join();
}

}  // namespace
}  // namespace trireme
