#include "trireme/optim/groups.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace trireme {
namespace {

// "first-last:rate" of every run; "-" for none.
std::string Runs(std::size_t begin, std::size_t end, const ParameterGroups& groups) {
  std::string runs;
  ForEachGroup(
      begin, end, groups.all(), [&](std::size_t first, std::size_t last, const ParameterGroup* group) {
        runs += fmt::format("{}{}-{}:{}", runs.empty() ? "" : " ", first, last,
                            group == nullptr ? std::string("-") : fmt::format("{}", group->learning_rate));
      });
  return runs;
}

TEST(ParameterGroups, CutARangeIntoRuns) {
  const ParameterGroups groups = {{20, 30, 3}, {5, 10, 1}, {10, 12, 2}};
  EXPECT_EQ(Runs(0, 40, groups), "0-5:- 5-10:1 10-12:2 12-20:- 20-30:3 30-40:-");
  EXPECT_EQ(Runs(0, 5, groups), "0-5:-");
  EXPECT_EQ(Runs(6, 9, groups), "6-9:1");
  EXPECT_EQ(Runs(9, 21, groups), "9-10:1 10-12:2 12-20:- 20-21:3");
  EXPECT_EQ(Runs(30, 40, groups), "30-40:-");
  EXPECT_EQ(Runs(20, 20, groups), "");
  EXPECT_EQ(Runs(0, 4, {}), "0-4:-");
  EXPECT_EQ(Runs(0, 30, {{0, 30, 4}}), "0-30:4");
}

TEST(ParameterGroups, WhatMakesNoSenseIsSaid) {
  const auto wrong = [](const std::vector<ParameterGroup>& groups) {
    const char* const why = WrongGroups(groups, 100);
    return std::string(why == nullptr ? "" : why);
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(wrong({}), "");
  EXPECT_EQ(wrong({{0, 10, 0, 0}, {10, 100, 1, 2}}), "");
  EXPECT_NE(wrong({{0, 101}}), "");
  EXPECT_NE(wrong({{0, 10}, {9, 20}}), "");
  EXPECT_NE(wrong({{10, 20}, {0, 5}}), "");
  EXPECT_NE(wrong({{10, 10}}), "");
  EXPECT_NE(wrong({{10, 9}}), "");
  EXPECT_NE(wrong({{0, std::numeric_limits<std::size_t>::max()}}), "");
  EXPECT_NE(wrong({{0, 10, kInfinity}}), "");
  EXPECT_NE(wrong({{0, 10, 1, std::numeric_limits<double>::quiet_NaN()}}), "");
  EXPECT_NE(wrong({{0, 10, 1, -1}}), "");
  std::vector<ParameterGroup> many;
  for (std::size_t i = 0; i < 9; ++i) many.push_back({i, i + 1});
  EXPECT_NE(wrong(many), "");
  many.pop_back();
  EXPECT_EQ(wrong(many), "");
}

}  // namespace
}  // namespace trireme
