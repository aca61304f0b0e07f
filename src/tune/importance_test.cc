#include "trireme/tune/importance.h"

#include <gtest/gtest.h>

#include <numeric>

#include "trireme/tune/test_functions.h"

namespace trireme {
namespace {

using testing::ChoiceOf;
using testing::Real;

std::vector<PastTrial> HistoryOf(const Space& space, int trials,
                                 const std::function<double(const Point&)>& value) {
  const auto sampler = MakeSampler("random", space, {});
  std::vector<PastTrial> history;
  for (int i = 0; i < trials; ++i) {
    const Point point = *sampler->Propose({}, i, 0);
    history.push_back({point, PastTrial::Outcome::kComplete, value(point), 0});
  }
  return history;
}

TEST(Importance, FindsWhatMatters) {
  const Space space(
      {Real("much", 0, 1), Real("nothing", 0, 1), ChoiceOf("some", {"a", "b"}), Real("also nothing", 0, 1)});
  const auto history =
      HistoryOf(space, 120, [](const Point& x) { return 10 * std::pow(x[0] - 0.7, 2) + x[2]; });
  const std::vector<double> shares = Importance(space, history);
  ASSERT_EQ(shares.size(), 4U);
  EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-9);
  EXPECT_GT(shares[0], 0.4);
  EXPECT_GT(shares[2], 0.1);
  EXPECT_LT(shares[1] + shares[3], 0.1);
  EXPECT_EQ(Importance(space, history), shares);
}

TEST(Importance, SaysNothingWhereThereIsNothingToSay) {
  const Space space({Real("x", 0, 1)});
  const auto value = [](const Point& x) { return x[0]; };
  EXPECT_TRUE(Importance(space, HistoryOf(space, 19, value)).empty());
  EXPECT_TRUE(Importance(space, {}).empty());
  std::vector<PastTrial> failed = HistoryOf(space, 60, value);
  for (PastTrial& trial : failed) trial.outcome = PastTrial::Outcome::kFailed;
  EXPECT_TRUE(Importance(space, failed).empty());
}

}  // namespace
}  // namespace trireme
