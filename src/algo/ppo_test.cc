#include "trireme/algo/ppo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "trireme/algo/on_policy.h"
#include "trireme/algo/test_plain.h"
#include "trireme/algo/test_run.h"

namespace trireme {
namespace {

const Assignments kEverything = {"envs=24",           "horizon=40",        "epochs=3",
                                 "minibatches=3",     "hidden=[16]",       "normalise_obs=true",
                                 "entropy_coef=0.01", "desired_kl=0.01",   "normalise_rewards=true",
                                 "target_kl=0.02",    "learning_rate=0.01"};
const RunCase kRunCases[] = {
    {"CartPole", "ppo", "CartPole-v1", {"envs=16", "horizon=32", "hidden=[16,16]"}},
    {"CartPoleSharedClipped",
     "ppo",
     "CartPole-v1",
     {"envs=16", "horizon=32", "hidden=[16]", "shared_tower=true", "value_clip=0.2", "activation=relu",
      "normalise_advantages=false", "clip_schedule=linear", "optimizer=rmsprop"}},
    {"Pendulum", "ppo", "Pendulum-v1", {"envs=8", "horizon=70", "hidden=[16]", "minibatches=7"}},
    {"PendulumEverything", "ppo", "Pendulum-v1", kEverything},
    {"CartPoleEverything", "ppo", "CartPole-v1", kEverything},
    // Episodes are cut off by the limit of 200 steps in every iteration.
    {"MountainCarTruncating", "ppo", "MountainCar-v0", {"envs=8", "horizon=210", "hidden=[8]", "epochs=1"}},
};

class PpoCases : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, PpoCases, testing::ValuesIn(kRunCases), NameOfCase);

TEST_P(PpoCases, BitIdenticalForAnyNumberOfWorkers) { ExpectSameBitsForAnyNumberOfWorkers(GetParam()); }
TEST_P(PpoCases, ContinuesBitForBitWithAnotherNumberOfWorkers) {
  ExpectContinuationWithAnotherNumberOfWorkers(GetParam());
}

TEST(Ppo, RolloutsAndTheOrderOfSamplesAreTheMemoryOfExperience) {
  const EnvSpec& env = FindEnv("CartPole-v1").spec;
  EXPECT_EQ(SettingsWith("ppo", {"envs=16", "horizon=5", "epochs=3"})->ExperienceBytes(env),
            16 * 6 * (OnPolicyShard::BytesPerSample(env) + 3 * sizeof(int)));
}

TEST(Ppo, ActsWithoutExploring) {
  ExpectGreedyActions("ppo", "Acrobot-v1", {"hidden=[16]"});
  ExpectGreedyActions("ppo", "Acrobot-v1", {"hidden=[16]", "shared_tower=true"});
  ExpectGreedyActions("ppo", "Acrobot-v1", {"hidden=[512]"});
}

TEST(Ppo, RowsHoldWhatTheRegistryPromises) {
  const AlgorithmRun run("ppo", "CartPole-v1",
                         {"envs=16", "horizon=64", "hidden=[16]", "epochs=2", "minibatches=3"});
  const MetricRow row = run.Iterate(2, 0, 1).rows[0];
  ExpectPromisedRow("ppo", row);
  EXPECT_EQ(row.Get("updates"), 6);
  EXPECT_GT(row.Get("episodes"), 10);
  EXPECT_EQ(row.Get("episode_return_mean"), row.Get("episode_length_mean"));  // CartPole pays 1 per step
  EXPECT_NEAR(row.Get("episode_return_mean"), 22, 10);  // of a policy that knows nothing
  EXPECT_NEAR(row.Get("entropy"), std::log(2.0), 0.02);
  EXPECT_GE(row.Get("approx_kl"), 0);
}

TEST(Ppo, LearningRateFollowsItsSchedule) {
  const Assignments small = {"envs=8",        "horizon=8", "hidden=[8]",
                             "minibatches=1", "epochs=1",  "learning_rate=0.01"};
  const auto rates = [&](const std::string& extra) {
    Assignments all = small;
    all.push_back(extra);
    std::vector<double> found;
    for (const MetricRow& row : AlgorithmRun("ppo", "CartPole-v1", all).Iterate(1, 0, 3).rows) {
      found.push_back(row.Get("learning_rate"));
    }
    return found;
  };
  EXPECT_EQ(rates("learning_rate_schedule=constant"), (std::vector<double>{0.01, 0.01, 0.01}));
  const std::vector<double> linear = rates("learning_rate_schedule=linear");
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(linear[i], 0.01 * (1 - 0.1 * i), 1e-12);
  // A desired divergence far beyond what such an update can do raises the rate every time.
  const std::vector<double> adaptive = rates("desired_kl=100");
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(adaptive[i], 0.01 * std::pow(1.5, i), 1e-12);
}

TEST(Ppo, TargetKlEndsAnIterationEarly) {
  Assignments assignments = {"envs=16", "horizon=32", "hidden=[16]", "epochs=10", "learning_rate=0.05"};
  EXPECT_EQ(AlgorithmRun("ppo", "CartPole-v1", assignments).Iterate(1, 0, 1).rows[0].Get("updates"), 40);
  assignments.push_back("target_kl=0.01");
  const double updates =
      AlgorithmRun("ppo", "CartPole-v1", assignments).Iterate(2, 0, 1).rows[0].Get("updates");
  EXPECT_GE(updates, 2);
  EXPECT_LT(updates, 40);
}

TEST(Ppo, DivergenceIsAnErrorThatSaysWhatToDo) {
  ExpectDivergenceIsAnError("ppo", {"envs=8", "horizon=8", "hidden=[8]", "minibatches=1", "epochs=1"});
}

TEST(PpoSettings, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(Refusal("ppo", {}), "");
  EXPECT_EQ(Refusal("ppo", {"envs=12"}, 4), "");
  EXPECT_TRUE(Mentions(Refusal("ppo", {"envs=12"}), "envs = 12"));
  EXPECT_TRUE(Mentions(Refusal("ppo", {"envs=12"}), "shards = 8"));
  EXPECT_NE(Refusal("ppo", {"envs=4"}), "");  // fewer than shards

  EXPECT_EQ(Refusal("ppo", {"envs=8", "horizon=16", "minibatches=16"}), "");
  EXPECT_TRUE(Mentions(Refusal("ppo", {"envs=8", "horizon=16", "minibatches=17"}), "minibatches = 17"));
}

TEST(PpoSettings, RefusesValuesOutOfRange) {
  ExpectOutOfRange("ppo", {"envs=0", "envs=-8", "horizon=0", "epochs=0", "minibatches=0", "gamma=1.1",
                           "gae_lambda=-0.1", "clip=0", "learning_rate=0", "learning_rate=nan", "hidden=[0]",
                           "max_grad_norm=-1", "activation=sine", "final_fraction=2"});
  EXPECT_THROW(SettingsWith("ppo", {"hidden=[]"})->MakeNetwork(FindEnv("CartPole-v1").spec), Error);
}

TEST(AlgorithmRegistry, FindsByNameAndSuggests) {
  EXPECT_EQ(FindAlgorithm("ppo").name, "ppo");
  try {
    FindAlgorithm("ppp");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'ppo'?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme
