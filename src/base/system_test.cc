#include "trireme/base/system.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

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

TEST(System, AHomeIsThatOfTheUserUnlessSaid) {
  const char* const before = std::getenv("HOME");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("HOME", "/somewhere", 1);
  EnsureHome();
  EXPECT_STREQ(std::getenv("HOME"), "/somewhere");
  const passwd* const user = ::getpwuid(::getuid());
  for (const bool empty : {false, true}) {
    empty ? ::setenv("HOME", "", 1) : ::unsetenv("HOME");
    EnsureHome();
    if (user != nullptr) {
      EXPECT_STREQ(std::getenv("HOME"), user->pw_dir);
    }
  }
  before == nullptr ? ::unsetenv("HOME") : ::setenv("HOME", kept.c_str(), 1);
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

cpu_set_t Affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return set;
}

TEST(System, AThreadLeavesProcessorsAndStaysFree) {
  if (UsableProcessors() < 2) GTEST_SKIP() << "there is one processor only";
  std::thread([] {
    const cpu_set_t before = Affinity();
    bool left = false;
    for (int i = 0; i < 100 && !left; ++i) {  // the system may move it back before anybody looks
      const int here[] = {CurrentProcessor()};
      LeaveProcessors(here);
      left = CurrentProcessor() != here[0];
    }
    EXPECT_TRUE(left);
    const cpu_set_t after = Affinity();
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
  }).join();
}

TEST(System, AThreadWithNowhereToGoStays) {
  const cpu_set_t before = Affinity();
  std::vector<int> all = {-1, CPU_SETSIZE};
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) all.push_back(processor);
  LeaveProcessors(all);
  const cpu_set_t after = Affinity();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace trireme
