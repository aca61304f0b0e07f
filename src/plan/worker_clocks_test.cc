#include "trireme/plan/worker_clocks.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Workers = std::vector<int>;

TEST(WorkerClocksTest, WithoutABoundEverybodyIsAnsweredAtOnce) {
  WorkerClocks clocks(2, std::nullopt);
  for (int push = 0; push < 10; ++push) EXPECT_EQ(clocks.Applied(1), Workers{1});
  EXPECT_EQ(clocks.Ahead(1), 10);
  EXPECT_EQ(clocks.Ahead(0), 0);
}

TEST(WorkerClocksTest, WhoIsTooFarAheadWaitsForTheSlowest) {
  WorkerClocks clocks(3, 1);
  EXPECT_EQ(clocks.Applied(0), Workers{0});
  EXPECT_EQ(clocks.Applied(0), Workers{});  // two ahead of 1 and 2
  EXPECT_EQ(clocks.Applied(1), Workers{1});
  EXPECT_EQ(clocks.Applied(1), Workers{});
  EXPECT_EQ(clocks.Applied(2), (Workers{0, 1, 2}));  // in the order of their pushes
  EXPECT_EQ(clocks.Ahead(0), 1);
  EXPECT_EQ(clocks.Ahead(2), 0);
}

}  // namespace
}  // namespace trireme
