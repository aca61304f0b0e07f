#include "trireme/env/host/patience.h"

#include <gtest/gtest.h>

#include <utility>

#include "trireme/env/host/layout.h"

namespace trireme {
namespace {

TEST(HostPatience, MakingTakesAtLeastAMinuteUnlessNothingIsLimited) {
  const HostPatience little(5), much(100), none(0);
  EXPECT_EQ(little.LimitOf(HostWork::kStep), 5);
  EXPECT_EQ(little.LimitOf(HostWork::kMaking), 60);
  EXPECT_EQ(little.Describe(HostWork::kStep), "5 s (env_timeout_s)");
  EXPECT_EQ(little.Describe(HostWork::kMaking),
            "60 s (the least for starting a process and making environments; env_timeout_s is 5)");
  EXPECT_EQ(much.LimitOf(HostWork::kMaking), 100);
  EXPECT_EQ(none.LimitOf(HostWork::kStep), 0);
  EXPECT_EQ(none.LimitOf(HostWork::kMaking), 0);
}

TEST(HostPatience, OnceTheRunIsAskedToEndEverythingIsLimited) {
  for (const auto& [timeout_s, limit_s] : {std::pair{0.0, 10.0}, {5.0, 5.0}, {100.0, 10.0}}) {
    HostPatience patience(timeout_s);
    bool stop = false;
    patience.SetStop([&] { return stop; });
    EXPECT_EQ(patience.LimitOf(HostWork::kStep), timeout_s);
    stop = true;
    EXPECT_EQ(patience.LimitOf(HostWork::kStep), limit_s);
    EXPECT_EQ(patience.LimitOf(HostWork::kMaking), 10);
    patience.SetStop(nullptr);
    EXPECT_EQ(patience.LimitOf(HostWork::kStep), timeout_s);
  }
}

// How many looks of `seconds` it takes.
int LooksUntilOver(HostWait wait, const HostProgress& progress, double seconds) {
  for (int looks = 1; looks < 100'000; ++looks) {
    if (wait.IsOver(progress, seconds)) return looks;
  }
  return 0;
}

TEST(HostWait, CountsWhileNothingChanges) {
  const HostPatience patience(1);
  HostWait wait = HostWait::ForPart(patience);
  for (const HostProgress& progress : {HostProgress{.serving = 3},
                                       {.serving = 3, .at = 1},
                                       {.serving = 3, .done = 7, .at = 1},
                                       {.done = 7},
                                       {.serving = kHostAnswering, .done = 7},
                                       {.serving = kHostAnswering, .steps = 1, .done = 7}}) {
    for (int look = 0; look < 15; ++look) EXPECT_FALSE(wait.IsOver(progress, 0.0625));
  }
  for (int look = 0; look < 16; ++look) EXPECT_FALSE(wait.IsOver({.serving = 4}, 0.0625));
  EXPECT_TRUE(wait.IsOver({.serving = 4}, 0.0625));
  EXPECT_EQ(wait.work(), HostWork::kStep);
}

TEST(HostWait, WhatAHostIsAtDecidesHowLongItMayTake) {
  const HostPatience patience(1);
  const auto part = HostWait::ForPart(patience);
  const auto made = HostWait::ForAnswer(patience, HostWork::kMaking);
  const auto drawn = HostWait::ForAnswer(patience, HostWork::kStep);
  const HostProgress idle, serving{.serving = 1}, answering{.serving = kHostAnswering};
  for (const auto& wait : {part, drawn}) EXPECT_EQ(LooksUntilOver(wait, idle, 0.0625), 17);
  for (const auto& wait : {part, drawn, made}) EXPECT_EQ(LooksUntilOver(wait, serving, 0.0625), 17);
  EXPECT_EQ(LooksUntilOver(drawn, answering, 0.0625), 17);
  EXPECT_EQ(LooksUntilOver(made, idle, 0.0625), 961);
  for (const auto& wait : {part, made}) EXPECT_EQ(LooksUntilOver(wait, answering, 0.0625), 961);
}

TEST(HostWait, TimeInWhichThisProgramDidNotRunDoesNotCount) {
  const HostPatience patience(1);
  EXPECT_EQ(LooksUntilOver(HostWait::ForPart(patience), {}, 1000), 13);
}

}  // namespace
}  // namespace trireme
