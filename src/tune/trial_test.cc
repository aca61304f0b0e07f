// What decides about trials, and how their seeds take turns.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/tune/objective.h"
#include "trireme/tune/rungs.h"
#include "trireme/tune/seed_relay.h"
#include "trireme/tune/trial_order.h"

namespace trireme {
namespace {

SeedResult Reached(double seconds, std::int64_t steps) {
  return {.seed = 1,
          .steps = steps,
          .seconds = seconds,
          .reached = true,
          .steps_to_target = steps,
          .seconds_to_target = seconds,
          .last_return = 480,
          .best_return = 480};
}
SeedResult Missed(double best) {
  return {.seed = 1,
          .steps = 1000,
          .seconds = 1,
          .reached = false,
          .steps_to_target = 0,
          .seconds_to_target = 0,
          .last_return = best,
          .best_return = best};
}

TEST(Objectives, AreMeansMadeWorseByTheirError) {
  const Aim time{Objective::kTimeToTarget, 475, 1000};
  const std::vector<SeedResult> seeds = {Reached(1, 100), Reached(3, 300)};
  const Score score = ScoreOf(time, seeds);
  EXPECT_DOUBLE_EQ(score.mean, 2);
  EXPECT_DOUBLE_EQ(score.error, 1);  // deviation sqrt(2), over sqrt(2)
  EXPECT_DOUBLE_EQ(score.value, 3);
  EXPECT_DOUBLE_EQ(ScoreOf({Objective::kStepsToTarget, 475, 1000}, seeds).value, 300);
  const Score returns = ScoreOf({Objective::kReturn, 0, 1000}, std::vector{Missed(10), Missed(20)});
  EXPECT_DOUBLE_EQ(returns.value, 15 - 5);
  EXPECT_EQ(returns.missed, 0);
  EXPECT_EQ(TextOf(time, score), "2 +- 1 s");
}

TEST(Objectives, WhoMissesTheTargetIsWorseThanWhoReachesItAndStillTold) {
  const Aim aim{Objective::kTimeToTarget, 475, 1000};
  const double near = aim.ValueOf(Missed(400)), far = aim.ValueOf(Missed(20)),
               nan = aim.ValueOf(Missed(std::nan("")));
  EXPECT_LT(aim.ValueOf(Reached(80'000, 100)), near);
  EXPECT_LT(near, far);
  EXPECT_LT(far, nan);
  EXPECT_EQ(ScoreOf(aim, std::vector{Reached(1, 1), Missed(3)}).missed, 1);
  const Aim negative{Objective::kStepsToTarget, -150, 1000};
  EXPECT_LT(negative.ValueOf(Missed(-200)), negative.ValueOf(Missed(-1000)));
}

TEST(Objectives, SeedsSurviveBeingWritten) {
  std::vector<SeedResult> seeds = {Reached(1.5, 100), Missed(std::nan(""))};
  seeds[0].seed = 18'446'744'073'709'551'615U;
  const std::vector<SeedResult> read = SeedsFromJson(SeedsToJson(seeds));
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].seed, seeds[0].seed);
  EXPECT_EQ(read[0].seconds_to_target, 1.5);
  EXPECT_TRUE(std::isnan(read[1].best_return));
  EXPECT_THROW(SeedsFromJson("[{\"seed\": \"x\"}]"), Error);
  EXPECT_THROW(SeedsFromJson("nonsense"), Error);
  EXPECT_THROW(ParseObjective("speed"), Error);
}

TEST(Rungs, AreThirdsDownToTheFirstEvaluation) {
  EXPECT_EQ(RungSteps(90'000, 4096), (std::vector<std::int64_t>{10'000, 30'000}));
  EXPECT_EQ(RungSteps(90'000, 1), (std::vector<std::int64_t>{1111, 3333, 10'000, 30'000}));
  EXPECT_TRUE(RungSteps(100, 50).empty());
}

TEST(Rungs, TheBestThirdGoesOn) {
  EXPECT_TRUE(GoesOn(5, {})) << "the first one has nobody to be compared with";
  EXPECT_FALSE(GoesOn(5, std::vector<double>{1}));
  EXPECT_TRUE(GoesOn(1, std::vector<double>{5}));
  const std::vector<double> others = {1, 2, 3, 4, 5};  // with this one there are six: two go on
  EXPECT_TRUE(GoesOn(0, others));
  EXPECT_TRUE(GoesOn(1.5, others));
  EXPECT_FALSE(GoesOn(2.5, others));
  EXPECT_FALSE(GoesOn(std::nan(""), others));
}

TEST(Rungs, BracketsGetMoreTrialsTheEarlierTheyEndThem) {
  std::vector<int> counts(4);
  for (int trial = 0; trial < 1000; ++trial) ++counts[static_cast<std::size_t>(BracketOf(trial, 3))];
  for (std::size_t b = 0; b < 4; ++b) EXPECT_GT(counts[b], 0) << b;
  EXPECT_GT(counts[0], 2 * counts[1]);
  EXPECT_GT(counts[1], counts[2]);
  EXPECT_EQ(BracketOf(17, 0), 0);
}

// Seeds that note when they have their turn.
struct Race {
  std::string events;
  int rungs_left;
  SeedRelay relay;

  Race(int seeds, int rungs)
      : rungs_left(rungs), relay(seeds, [this] {
          events += '|';
          return rungs_left-- > 0;
        }) {}

  // Each seed passes `passes[seed]` rungs and then finishes.
  void Run(const std::vector<int>& passes) {
    std::vector<std::thread> threads;
    for (int seed = static_cast<int>(passes.size()) - 1; seed >= 0; --seed) {
      threads.emplace_back([this, seed, rungs = passes[static_cast<std::size_t>(seed)]] {
        const char name = static_cast<char>('a' + seed);
        try {
          relay.Begin(seed);
          for (int i = 0; i < rungs; ++i) {
            events += name;
            relay.Pass(seed);
          }
          events += static_cast<char>(std::toupper(name));
          relay.Finish(seed);
        } catch (const TrialEnded&) {
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST(SeedRelay, SeedsTakeTurnsAndMeetAtRungs) {
  Race race(3, 10);
  race.Run({2, 2, 2});
  EXPECT_EQ(race.events, "abc|abc|ABC");
}

TEST(SeedRelay, WhoHasFinishedIsPassedOver) {
  Race race(3, 10);
  race.Run({0, 2, 1});
  EXPECT_EQ(race.events, "Abc|bC|B");
  Race last(2, 10);
  last.Run({1, 0});
  EXPECT_EQ(last.events, "aB|A");
}

TEST(SeedRelay, ADecisionEndsAll) {
  Race race(3, 1);
  race.Run({2, 2, 2});
  EXPECT_EQ(race.events, "abc|abc|") << "nobody comes to the end";
}

TEST(TrialOrders, SurviveBeingSent) {
  const TrialOrder order{.config = "a = \"b\"\n",
                         .seeds = {1, 2},
                         .rungs = {10, 30},
                         .aim = {Objective::kStepsToTarget, 475.5, 1000},
                         .cap = 2.5};
  const TrialOrder read = TrialOrder::Parse(order.ToJson());
  EXPECT_EQ(read.config, order.config);
  EXPECT_EQ(read.seeds, order.seeds);
  EXPECT_EQ(read.rungs, order.rungs);
  EXPECT_EQ(read.aim.objective, Objective::kStepsToTarget);
  EXPECT_EQ(read.aim.target, 475.5);
  EXPECT_EQ(read.cap, 2.5);
  EXPECT_THROW(TrialOrder::Parse("{}"), Error);
}

}  // namespace
}  // namespace trireme
