// The presets learn: three seeds of each reach their target, as a user would run them. (bench/presets.py
// tries ten.)

#include "run_util.h"

namespace trireme::testing {
namespace {

struct Task {
  const char* env;
  const char* target;
};

class LearningTest : public CliTest, public ::testing::WithParamInterface<Task> {};

TEST_P(LearningTest, PresetReachesTheTarget) {
  for (const char* seed : {"1", "2", "3"}) {
    SCOPED_TRACE(seed);
    const Json result =
        ResultOf(RunTrireme({"train", "--env", GetParam().env, "--algo", "ppo", "--target", GetParam().target,
                             "--seed", seed, "--out", Path(seed), "--json"}));
    EXPECT_TRUE(result["reached_target"]) << result;
    EXPECT_EQ(result["eval_episodes"], 100);
    EXPECT_GE(result["eval_return_mean"], std::stod(GetParam().target));
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, LearningTest,
                         ::testing::Values(Task{"CartPole-v1", "475"}, Task{"Acrobot-v1", "-100"},
                                           Task{"MountainCarContinuous-v0", "90"},
                                           Task{"Pendulum-v1", "-200"}));

}  // namespace
}  // namespace trireme::testing
