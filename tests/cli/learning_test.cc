// The presets learn: a few seeds of each reach their target, as a user would run them. (bench/presets.py
// tries ten.) Workers in step give the same run every time; with workers that move on their own each run is
// another one, so their presets must have margin.

#include "run_util.h"

namespace trireme::testing {
namespace {

struct Task {
  const char* env;
  const char* algo;
  const char* target;
  std::vector<std::string> seeds = {"1", "2", "3"};
};

// "CartPole_a3c"
std::string NameOf(const ::testing::TestParamInfo<Task>& info) {
  const std::string env = info.param.env;
  return env.substr(0, env.find('-')) + "_" + info.param.algo;
}

class LearningTest : public CliTest, public ::testing::WithParamInterface<Task> {};

TEST_P(LearningTest, PresetReachesTheTarget) {
  const auto& [env, algo, target, seeds] = GetParam();
  for (const std::string& seed : seeds) {
    SCOPED_TRACE(seed);
    const Json result =
        ResultOf(RunTrireme({"train", "--env", env, "--algo", algo, "--workers", "2", "--target", target,
                             "--seed", seed, "--out", Path(seed), "--json"}));
    EXPECT_TRUE(result["reached_target"]) << result;
    EXPECT_EQ(result["eval_episodes"], 100);
    EXPECT_GE(result["eval_return_mean"], std::stod(target));
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, LearningTest,
                         ::testing::Values(Task{"CartPole-v1", "ppo", "475"},
                                           Task{"Acrobot-v1", "ppo", "-100"},
                                           Task{"MountainCarContinuous-v0", "ppo", "90"},
                                           Task{"Pendulum-v1", "ppo", "-200"},
                                           Task{"CartPole-v1", "a2c", "475", {"1", "2"}},
                                           Task{"CartPole-v1", "a3c", "475", {"1", "2"}},
                                           Task{"CartPole-v1", "dqn", "475", {"1", "2"}},
                                           Task{"CartPole-v1", "async_dqn", "475", {"1", "2"}},
                                           Task{"Acrobot-v1", "a2c", "-100", {"1", "2"}},
                                           Task{"Acrobot-v1", "dqn", "-100", {"1", "2"}},
                                           Task{"MountainCar-v0", "dqn", "-110", {"1"}}),
                         NameOf);

}  // namespace
}  // namespace trireme::testing
