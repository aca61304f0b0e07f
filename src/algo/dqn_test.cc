#include "trireme/algo/dqn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "trireme/algo/test_dqn.h"

namespace trireme {
namespace {

const RunCase kRunCases[] = {
    {"CartPole", "dqn", "CartPole-v1", SmallDqn()},
    {"NotDouble", "dqn", "CartPole-v1", SmallDqn({"double=false", "activation=tanh", "optimizer=rmsprop"})},
    {"DuelingPrioritisedNStep", "dqn", "CartPole-v1",
     SmallDqn({"dueling=true", "prioritised=true", "n_step=3", "envs=24", "batch=40"})},
    {"SoftTargetHuber", "dqn", "CartPole-v1", SmallDqn({"target_tau=0.01", "target_every=1", "huber=0.5"})},
    {"SeveralUpdates", "dqn", "CartPole-v1", SmallDqn({"updates=3", "hidden=[16,8]"})},
    {"ReplayWrapsAround", "dqn", "CartPole-v1", SmallDqn({"replay=80", "prioritised=true"})},
    // More samples in a shard's part of a batch than fit into one pass.
    {"SeveralPasses", "dqn", "CartPole-v1",
     SmallDqn({"hidden=[512]", "batch=560", "rounds=2", "dueling=true"})},
    {"WarmUpOfSeveralIterations", "dqn", "CartPole-v1", SmallDqn({"learning_starts=300"})},
    // Episodes are cut off by the limit of 200 steps in the third iteration.
    {"MountainCarTruncating", "dqn", "MountainCar-v0",
     SmallDqn({"horizon=70", "rounds=1", "n_step=2", "updates=2"})},
};

class DqnCases : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, DqnCases, testing::ValuesIn(kRunCases), NameOfCase);

TEST_P(DqnCases, BitIdenticalForAnyNumberOfWorkers) { ExpectSameBitsForAnyNumberOfWorkers(GetParam()); }
TEST_P(DqnCases, ContinuesBitForBitWithAnotherNumberOfWorkers) {
  ExpectContinuationWithAnotherNumberOfWorkers(GetParam());
}

TEST(Dqn, RowsHoldWhatWasMeasured) {
  const AlgorithmRun run("dqn", "CartPole-v1", SmallDqn({"rounds=32", "updates=2"}));
  const MetricRow row = run.Iterate(2, 0, 1).rows[0];
  ExpectPromisedRow("dqn", row);
  EXPECT_EQ(row.Get("updates"), 2 * 31);  // the first round is all warm-up
  EXPECT_GT(row.Get("episodes"), 20);
  EXPECT_EQ(row.Get("episode_return_mean"), row.Get("episode_length_mean"));  // CartPole pays 1 per step
  EXPECT_NEAR(row.Get("episode_return_mean"), 22, 10);                        // of actions at random
  EXPECT_GT(row.Get("q_loss"), 0);
  EXPECT_GT(row.Get("td_error"), 0);
  EXPECT_GT(row.Get("grad_norm"), 0);
}

// Updates of each of the first three iterations.
std::vector<double> Updates(const Assignments& assignments) {
  const AlgorithmRun run("dqn", "CartPole-v1", assignments);
  std::vector<double> updates;
  for (const MetricRow& row : run.Iterate(2, 0, 3).rows) {
    ExpectPromisedRow("dqn", row);
    updates.push_back(row.Get("updates"));
  }
  return updates;
}

TEST(Dqn, LearnsNothingBeforeLearningStarts) {
  const auto updates = [](const char* starts) { return Updates(SmallDqn({"rounds=2", starts})); };
  EXPECT_EQ(updates("learning_starts=0"), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(updates("learning_starts=128"), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(updates("learning_starts=129"), (std::vector<double>{0, 0, 2}));

  const AlgorithmRun run("dqn", "CartPole-v1", SmallDqn({"rounds=2", "learning_starts=129"}));
  EXPECT_EQ(run.Iterate(2, 0, 2).params, run.initial());
  EXPECT_NE(run.Iterate(2, 0, 3).params, run.initial());
}

// Before every environment has taken n steps, a shard may have no transition at all.
TEST(Dqn, LearnsNothingBeforeThereAreTransitions) {
  EXPECT_EQ(Updates(SmallDqn({"rounds=1", "learning_starts=0", "n_step=8"})), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(Updates(SmallDqn({"rounds=1", "learning_starts=0", "n_step=9"})), (std::vector<double>{0, 0, 1}));
}

TEST(Dqn, EpsilonFollowsItsSchedule) {
  const auto epsilons = [](const char* schedule) {
    const AlgorithmRun run(
        "dqn", "CartPole-v1",
        SmallDqn({"rounds=1", "epsilon_start=0.9", "epsilon_end=0.1", "exploration_fraction=0.4", schedule}));
    std::vector<double> found;
    for (const MetricRow& row : run.Iterate(1, 0, 6).rows) found.push_back(row.Get("epsilon"));
    return found;
  };
  const std::vector<double> linear = epsilons("epsilon_schedule=linear");
  const std::vector<double> cosine = epsilons("epsilon_schedule=cosine");
  for (int i = 0; i < 6; ++i) {
    const double share = std::min(1.0, i / 4.0);
    EXPECT_NEAR(linear[i], 0.9 - 0.8 * share, 1e-12);
    EXPECT_NEAR(cosine[i], 0.5 + 0.4 * std::cos(std::numbers::pi * share), 1e-12);
  }
  EXPECT_EQ(epsilons("epsilon_schedule=constant"), std::vector<double>(6, 0.9));
}

// Parameters and target network after 0, 1, 2, ... updates.
struct Course {
  std::vector<std::vector<float>> params, target;
};
Course CourseOf(int updates, const Assignments& extra) {
  Assignments assignments = SmallDqn({"rounds=1", "learning_starts=0", "learning_rate=0.05"});
  assignments.insert(assignments.end(), extra.begin(), extra.end());
  const AlgorithmRun run("dqn", "CartPole-v1", assignments);
  Course course;
  for (int i = 0; i <= updates; ++i) {
    const AlgorithmRun::Outcome outcome = run.Iterate(1, 0, i);
    course.params.push_back(outcome.params);
    course.target.emplace_back(outcome.params.size());
    StateReader(outcome.state).Get<float>("dqn/target", course.target.back());
  }
  return course;
}

TEST(Dqn, TargetIsCopiedEverySoManyUpdates) {
  const Course course = CourseOf(8, {"target_every=3"});
  EXPECT_EQ(course.target[0], course.params[0]);
  for (int i = 1; i <= 8; ++i) {
    EXPECT_NE(course.params[i], course.params[i - 1]);
    EXPECT_EQ(course.target[i], course.params[(i - 1) / 3 * 3]) << i;  // moved before updates 0, 3, 6
  }
}

TEST(Dqn, TargetFollowsSlowly) {
  const Course course = CourseOf(5, {"target_every=2", "target_tau=0.25"});
  for (int i = 1; i <= 5; ++i) {
    const bool moves = (i - 1) % 2 == 0;
    for (std::size_t p = 0; p < course.target[i].size(); ++p) {
      const double before = course.target[i - 1][p], source = course.params[i - 1][p];
      const double expected = moves ? 0.25 * source + 0.75 * before : before;
      ASSERT_NEAR(course.target[i][p], expected, 1e-6 * std::abs(expected));
    }
  }
  EXPECT_NE(course.target[5], course.target[2]);
}

TEST(Dqn, ActsWithoutExploring) {
  ExpectGreedyActions("dqn", "Acrobot-v1", SmallDqn());
  ExpectGreedyActions("dqn", "Acrobot-v1", SmallDqn({"dueling=true"}));
  ExpectGreedyActions("dqn", "Acrobot-v1", {"hidden=[512]"});
}

TEST(Dqn, DivergenceIsAnErrorThatSaysWhatToDo) {
  for (const char* option : {"dueling=false", "dueling=true", "prioritised=true", "huber=1"}) {
    SCOPED_TRACE(option);
    ExpectDivergenceIsAnError("dqn", SmallDqn({"learning_starts=0", option}));
  }
}

TEST(DqnSettings, DrivesDiscreteActionsOnly) {
  EXPECT_TRUE(DqnEntry().discrete);
  EXPECT_FALSE(DqnEntry().continuous);
}

TEST(DqnSettings, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(Refusal("dqn", {}), "");
  EXPECT_EQ(Refusal("dqn", {"envs=12"}, 4), "");
  EXPECT_TRUE(Mentions(Refusal("dqn", {"envs=12"}), "envs = 12"));
  EXPECT_TRUE(Mentions(Refusal("dqn", {"envs=12"}), "shards = 8"));
  EXPECT_EQ(Refusal("dqn", {"batch=40"}), "");
  EXPECT_TRUE(Mentions(Refusal("dqn", {"batch=44"}), "batch = 44"));
  EXPECT_TRUE(Mentions(Refusal("dqn", {"batch=4"}), "batch = 4"));  // fewer than shards
  EXPECT_TRUE(Mentions(Refusal("dqn", {"replay=50001"}), "replay = 50001"));
  EXPECT_TRUE(Mentions(Refusal("dqn", {"replay=4"}), "replay = 4"));
  EXPECT_EQ(Refusal("dqn", {"epsilon_start=0.1", "epsilon_end=0.1"}), "");
  EXPECT_TRUE(Mentions(Refusal("dqn", {"epsilon_start=0.1", "epsilon_end=0.2"}), "epsilon_end = 0.2"));
}

TEST(DqnSettings, RefusesValuesOutOfRange) {
  ExpectOutOfRange("dqn", {"envs=0",
                           "horizon=0",
                           "updates=0",
                           "rounds=0",
                           "batch=0",
                           "replay=0",
                           "learning_starts=-1",
                           "gamma=1.1",
                           "n_step=0",
                           "double=2",
                           "target_tau=0",
                           "target_tau=1.1",
                           "target_every=0",
                           "epsilon_start=1.1",
                           "epsilon_end=-0.1",
                           "exploration_fraction=0",
                           "epsilon_schedule=square",
                           "priority_alpha=1.1",
                           "priority_beta=-0.1",
                           "priority_eps=-1",
                           "huber=-1",
                           "learning_rate=0",
                           "learning_rate=nan",
                           "max_grad_norm=-1",
                           "hidden=[0]",
                           "activation=sine"});
  EXPECT_THROW(SettingsWith("dqn", {"hidden=[]"})->MakeNetwork(FindEnv("CartPole-v1").spec), Error);
}

}  // namespace
}  // namespace trireme
