#include "trireme/plan/processors.h"

#include <gtest/gtest.h>

#include <utility>

namespace trireme {
namespace {

using Ends = std::vector<std::pair<double, int>>;

// Runs all jobs to their ends: (time, tag).
Ends Drain(Processors& processors) {
  Ends ends;
  while (!processors.idle()) {
    const double end_s = processors.NextEnd();
    ends.emplace_back(end_s, processors.Finish(end_s).tag);
  }
  return ends;
}

TEST(ProcessorsTest, AsManyJobsAsProcessorsDoNotNoticeEachOther) {
  Processors processors(2);
  processors.Start(1, 4, {.tag = 1});
  processors.Start(2, 1, {.tag = 2});
  EXPECT_EQ(Drain(processors), (Ends{{3, 2}, {5, 1}}));
}

TEST(ProcessorsTest, TwoJobsOnOneProcessorTakeTwiceAsLong) {
  Processors processors(1);
  processors.Start(0, 2, {.tag = 1});
  processors.Start(0, 2, {.tag = 2});
  EXPECT_EQ(Drain(processors), (Ends{{4, 1}, {4, 2}}));
}

// Alone for 1, then at half speed until the short one is done at 3, then alone again.
TEST(ProcessorsTest, AJobThatBeginsLaterSlowsTheOthersFromThenOn) {
  Processors processors(1);
  processors.Start(0, 4, {.tag = 1});
  processors.Start(1, 1, {.tag = 2});
  EXPECT_EQ(Drain(processors), (Ends{{3, 2}, {5, 1}}));
}

TEST(ProcessorsTest, NobodyUsesMoreThanOneProcessorAndAllAreUsed) {
  Processors processors(2);
  for (int tag = 0; tag < 4; ++tag) processors.Start(0, 1, {.tag = tag});
  EXPECT_EQ(Drain(processors), (Ends{{2, 0}, {2, 1}, {2, 2}, {2, 3}}));
  processors.Start(5, 1, {.tag = 9});
  EXPECT_EQ(Drain(processors), (Ends{{6, 9}}));
}

TEST(ProcessorsTest, WhatWasAskedBeforeAChangeIsOutOfDate) {
  Processors processors(1);
  processors.Start(0, 2, {.tag = 1});
  const int before = processors.changes();
  EXPECT_EQ(processors.NextEnd(), 2);
  processors.Start(1, 0, {.tag = 2});  // takes nothing, but comes first
  EXPECT_NE(processors.changes(), before);
  EXPECT_EQ(Drain(processors), (Ends{{1, 2}, {2, 1}}));
}

}  // namespace
}  // namespace trireme
