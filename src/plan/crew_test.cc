#include "trireme/plan/crew.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trireme {
namespace {

PlanConstants Constants() {
  PlanConstants constants;
  constants.floats = 1;
  constants.steps_per_round = 12;
  constants.round_fixed_s = 1;
  constants.round_split_s = 8;
  return constants;
}

TEST(CrewTest, WorkersFillOneHostAfterTheOther) {
  const PlanConstants constants = Constants();
  const Crew crew(constants, {.workers = 5, .cores = 2}, 0);
  EXPECT_EQ(crew.hosts(), 3);
  EXPECT_EQ(crew.HostOfEach(), (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(crew.OnHost(2), 1);
  EXPECT_EQ(crew.FirstOn(2), 4);
  const Crew squeezed(constants, {.workers = 5, .hosts = 2, .cores = 2}, 0);
  EXPECT_EQ(squeezed.HostOfEach(), (std::vector<int>{0, 0, 0, 1, 1}));
}

// Either half or three halves of the mean, as round_times say, depending on worker and round alone.
TEST(CrewTest, RoundsAreDrawnByWorkerAndRound) {
  PlanConstants constants = Constants();
  constants.round_times = {500, 1500};
  const Scenario scenario{.way = Way::kAsync, .workers = 2, .cores = 2, .rounds = 400};
  Crew crew(constants, scenario, 1), again(constants, scenario, 1);
  std::vector<double> first, second;
  for (int round = 0; round < 400; ++round) {
    first.push_back(crew.NextCompute(0));
    second.push_back(crew.NextCompute(1));
    EXPECT_TRUE(first.back() == 5 || first.back() == 15) << first.back();
    EXPECT_EQ(again.NextCompute(0), first.back());  // nobody else needs to be asked
    crew.Finish(0, round);
    again.Finish(0, round);
    crew.Finish(1, round);
  }
  EXPECT_NE(first, second);
  EXPECT_NEAR(static_cast<double>(std::ranges::count(first, 5.0)), 200, 60);
}

TEST(CrewTest, WorkersInStepSplitARoundAndOthersDoNot) {
  const PlanConstants constants = Constants();
  EXPECT_EQ(Crew(constants, {.workers = 4, .cores = 4}, 0.5).NextCompute(0), 1 + 8.0 / 4 + 0.5);
  EXPECT_EQ(Crew(constants, {.workers = 4, .cores = 4, .split = false}, 0.5).NextCompute(0), 9.5);
  EXPECT_EQ(Crew(constants, {.way = Way::kAsync, .workers = 4, .cores = 4}, 0.5).NextCompute(0), 9.5);
}

TEST(CrewTest, MoreWorkersThanProcessorsTakeTurnsUnlessSomebodyElseSeesToThat) {
  const PlanConstants constants = Constants();
  const Scenario scenario{.way = Way::kAsync, .workers = 6, .hosts = 1, .cores = 2};
  EXPECT_EQ(Crew(constants, scenario, 0).NextCompute(0), 27);
  EXPECT_EQ(Crew(constants, scenario, 0, /*turns=*/false).NextCompute(0), 9);
}

TEST(CrewTest, CrowdingGrowsWithTheProcessorsThatAreUsed) {
  const PlanConstants constants = Constants();
  const auto crowding = [&](int workers, int cores) {
    return Crew(constants, {.workers = workers, .hosts = 1, .cores = cores}, 0).Crowding(0, 3);
  };
  EXPECT_EQ(crowding(1, 5), 1);
  EXPECT_EQ(crowding(3, 5), 2);
  EXPECT_EQ(crowding(5, 5), 3);
  EXPECT_EQ(crowding(9, 5), 3);
  EXPECT_EQ(crowding(4, 1), 1);
}

// In step each does its rounds; on their own the quick ones do those of the slow ones.
TEST(CrewTest, GoesOnUntilAllRoundsAreDone) {
  const PlanConstants constants = Constants();
  Crew in_step(constants, {.workers = 2, .cores = 2, .rounds = 10}, 0);
  Crew own(constants, {.way = Way::kAsync, .workers = 2, .cores = 2, .rounds = 10}, 0);
  for (int round = 0; round < 10; ++round) {
    in_step.Finish(0, round);
    own.Finish(0, round);
  }
  EXPECT_FALSE(in_step.GoesOn(0));
  EXPECT_TRUE(in_step.GoesOn(1));
  EXPECT_TRUE(own.GoesOn(0));
  for (int round = 10; round < 20; ++round) own.Finish(0, round);
  EXPECT_TRUE(own.AllDone());
  EXPECT_FALSE(own.GoesOn(1));
}

// Ten rounds, of which the first two do not count; each of the others takes 12 s, 9 of which are computing.
TEST(CrewTest, FiguresForgetTheStart) {
  const PlanConstants constants = Constants();
  Crew crew(constants, {.rounds = 10}, 0);
  for (int round = 0; round < 10; ++round) {
    crew.NextCompute(0);
    crew.Finish(0, round < 2 ? 1000 + round : 1001 + 12 * (round - 1));
  }
  const Outcome outcome = crew.Summarise(/*communication_s=*/1);
  EXPECT_DOUBLE_EQ(outcome.round_s, 12);
  EXPECT_DOUBLE_EQ(outcome.compute_s, 9);
  EXPECT_DOUBLE_EQ(outcome.waiting_s, 2);
  EXPECT_DOUBLE_EQ(outcome.steps_per_s, 1);
}

}  // namespace
}  // namespace trireme
