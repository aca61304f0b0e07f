#include "trireme/tune/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "trireme/base/median.h"
#include "trireme/tune/samplers.h"
#include "trireme/tune/test_functions.h"

namespace trireme {
namespace {

using namespace trireme::testing;
using Outcome = PastTrial::Outcome;

TestFunction FunctionOf(const std::string& name) {
  for (TestFunction& function : TestFunctions()) {
    if (function.name == name) return function;
  }
  ADD_FAILURE() << name;
  return {};
}

double MedianBest(const std::string& method, const TestFunction& function, int trials = 100) {
  std::vector<double> best;
  for (std::uint64_t seed = 1; seed <= 15; ++seed) {
    const auto sampler = MakeSampler(method, function.space, {.seed = seed});
    best.push_back(RunSearch(function, *sampler, trials, seed).best);
  }
  return Median(best);
}

bool Same(const Point& a, const Point& b) {
  return std::ranges::equal(a, b,
                            [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

TEST(Samplers, NormalQuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(NormalQuantile(0.5), 0, 1e-9);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963985, 1e-7);
  EXPECT_NEAR(NormalQuantile(0.025), -1.959963985, 1e-7);
  EXPECT_NEAR(NormalQuantile(1e-9), -5.997807, 1e-5);
  for (double p = 0.001; p < 1; p += 0.01) EXPECT_NEAR(NormalBelow(NormalQuantile(p)), p, 1e-10);
}

TEST(Samplers, RankPutsCompleteTrialsFirstThenWhoCameFurther) {
  const std::vector<PastTrial> history = {{{}, Outcome::kPruned, 1, 10},  {{}, Outcome::kComplete, 5, 0},
                                          {{}, Outcome::kRunning, 0, 0},  {{}, Outcome::kPruned, 9, 100},
                                          {{}, Outcome::kFailed, 0, 0},   {{}, Outcome::kComplete, 2, 0},
                                          {{}, Outcome::kPruned, 0.5, 10}};
  EXPECT_EQ(Ranked(history), (std::vector<int>{5, 1, 3, 6, 0, 4}));
}

TEST(Samplers, RandomPointsFillTheSpaceEvenly) {
  const Space space({Real("x", 0, 1), Real("y", 0, 1)});
  const auto sampler = MakeSampler("random", space, {.seed = 3});
  std::set<std::pair<int, int>> cells;
  for (int i = 0; i < 64; ++i) {
    const Point point = *sampler->Propose({}, i, 0);
    cells.emplace(static_cast<int>(point[0] * 4), static_cast<int>(point[1] * 4));
  }
  EXPECT_EQ(cells.size(), 16U);
  EXPECT_NE(*sampler->Propose({}, 0, 0), *sampler->Propose({}, 0, 1)) << "another attempt is another point";
}

TEST(Samplers, GridProposesEveryPointOnceAndThenNothing) {
  Parameter child = Real("child", 0, 1);
  child.parent = 0;
  child.parent_values = {1};
  const Space space({ChoiceOf("switch", {"off", "on"}), child, Whole("n", 1, 2), Real("x", 0, 1)});
  const auto sampler = MakeSampler("grid", space, {.seed = 2, .grid_levels = 3});
  std::set<std::string> points;
  int number = 0;
  while (const auto point = sampler->Propose({}, number, 0)) {
    points.insert(space.Describe(*point));
    ++number;
  }
  EXPECT_EQ(number, 1 * 2 * 3 + 3 * 2 * 3);
  EXPECT_EQ(points.size(), static_cast<std::size_t>(number));
  EXPECT_TRUE(points.contains("switch = on, child = 0.5, n = 2, x = 1"));
  EXPECT_TRUE(points.contains("switch = off, n = 1, x = 0"));
}

class EverySampler : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(All, EverySampler, ::testing::ValuesIn(kSamplers),
                         [](const auto& info) { return std::string(info.param); });

// What a resumed study relies on: a new sampler with the same history proposes the same.
TEST_P(EverySampler, ProposesByTheHistoryAlone) {
  for (const TestFunction& function : TestFunctions()) {
    const auto sampler = MakeSampler(GetParam(), function.space, {.seed = 7});
    const Searched searched = RunSearch(function, *sampler, 60, 1);
    for (const int number : {0, 7, 10, 31, 59}) {
      if (number >= static_cast<int>(searched.history.size())) break;  // a grid comes to its end
      const auto fresh = MakeSampler(GetParam(), function.space, {.seed = 7});
      const std::span<const PastTrial> before(searched.history.data(), static_cast<std::size_t>(number));
      EXPECT_TRUE(
          Same(*fresh->Propose(before, number, 0), searched.history[static_cast<std::size_t>(number)].point))
          << function.name << " " << number;
    }
    // And it does not matter what it was asked before.
    EXPECT_TRUE(Same(*sampler->Propose({searched.history.data(), 7}, 7, 0), searched.history[7].point));
  }
}

TEST_P(EverySampler, StaysInTheSpaceWhateverTheHistory) {
  const TestFunction function = FunctionOf("mixed");
  const auto random = MakeSampler("random", function.space, {});
  const auto sampler = MakeSampler(GetParam(), function.space, {.seed = 1});
  std::vector<PastTrial> history;
  for (int i = 0; i < 60; ++i) {
    const Point point = *sampler->Propose(history, i, 0);
    ASSERT_EQ(point.size(), function.space.size());
    for (std::size_t j = 0; j < point.size(); ++j) {
      const Parameter& parameter = function.space.parameters()[j];
      EXPECT_EQ(std::isnan(point[j]), !function.space.Counts(j, point)) << j;
      if (std::isnan(point[j])) continue;
      EXPECT_TRUE(parameter.categorical() ? point[j] < parameter.Levels() : point[j] >= parameter.low);
      EXPECT_TRUE(parameter.categorical() || point[j] <= parameter.high);
      EXPECT_TRUE(!parameter.whole || point[j] == std::round(point[j]));
    }
    // Failures, infinities and the same value again and again.
    const Outcome outcome = static_cast<Outcome>(i % 4);
    const double value = i % 7 == 0 ? std::numeric_limits<double>::infinity() : 1;
    history.push_back({i % 3 == 0 ? *random->Propose({}, i, 0) : point, outcome, value, i % 5 * 10.0});
  }
}

// Beside random points, which are what it must beat; the bounds leave room for other seeds.
TEST(Tpe, FindsWhatTheFunctionsHide) {
  EXPECT_LT(MedianBest("tpe", FunctionOf("branin")), 0.6);
  EXPECT_LT(MedianBest("tpe", FunctionOf("hartmann6")), -2.7);
  EXPECT_LT(MedianBest("tpe", FunctionOf("rosenbrock5")), 30);
  EXPECT_LT(MedianBest("tpe", FunctionOf("mixed")), 0.15);
  EXPECT_LT(MedianBest("tpe", FunctionOf("noisy")), 3);
  for (const char* name : {"branin", "hartmann6", "rosenbrock5", "mixed"})
    EXPECT_LT(MedianBest("tpe", FunctionOf(name)), MedianBest("random", FunctionOf(name))) << name;
}

TEST(CmaEs, FindsWhatTheFunctionsHide) {
  EXPECT_LT(MedianBest("cmaes", FunctionOf("branin")), 0.42);
  EXPECT_LT(MedianBest("cmaes", FunctionOf("hartmann6")), -2.7);
  EXPECT_LT(MedianBest("cmaes", FunctionOf("rosenbrock5")), 10);
  EXPECT_LT(MedianBest("cmaes", FunctionOf("rosenbrock5"), 3000), 1e-4);
  EXPECT_LT(MedianBest("cmaes", FunctionOf("mixed")), 0.5);
}

// Proposals of trials that run at the same time are not the same point.
TEST(Tpe, RunningTrialsKeepOthersAway) {
  const TestFunction function = FunctionOf("branin");
  const auto sampler = MakeSampler("tpe", function.space, {.seed = 5});
  Searched searched = RunSearch(function, *sampler, 40, 1);
  const Point alone = *sampler->Propose(searched.history, 40, 0);
  for (int i = 0; i < 40; ++i) searched.history.push_back({alone, Outcome::kRunning, 0, 0});
  const Point beside = *sampler->Propose(searched.history, 40, 0);
  EXPECT_FALSE(Same(alone, beside));
}

TEST(Samplers, AnUnknownOneIsNamed) {
  EXPECT_THROW(MakeSampler("best", Space({Real("x", 0, 1)}), {}), Error);
}

}  // namespace
}  // namespace trireme
