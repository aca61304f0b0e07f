// The presets learn: a few seeds of each reach their target. (bench/presets.py tries ten, as a user would run
// them.) Workers in step give the same run every time. So do workers that move on their own under a schedule;
// without one each run is another, and on a busy machine a worse one: it must learn, however far it comes.

#include "run_util.h"

namespace trireme::testing {
namespace {

struct Task {
  const char* env;
  const char* algo;
  const char* target;
  std::vector<std::string> seeds = {"1", "2", "3"};
  std::string schedule = "";
};

// "CartPole_a3c"
std::string NameOf(const ::testing::TestParamInfo<Task>& info) {
  const std::string env = info.param.env;
  return env.substr(0, env.find('-')) + "_" + info.param.algo;
}

class LearningTest : public CliTest, public ::testing::WithParamInterface<Task> {};

class FreeLearningTest : public LearningTest {};

TEST_P(LearningTest, PresetReachesTheTarget) {
  const auto& [env, algo, target, seeds, schedule] = GetParam();
  const Args order = schedule.empty() ? Args() : Args{"--set", "schedule=" + schedule};
  for (const std::string& seed : seeds) {
    SCOPED_TRACE(seed);
    const Json result =
        ResultOf(RunTrireme(Args{"train", "--env", env, "--algo", algo, "--workers", "2", "--target", target,
                                 "--seed", seed, "--out", Path(seed), "--json"} +
                            order));
    EXPECT_TRUE(result["reached_target"]) << result;
    EXPECT_EQ(result["eval_episodes"], 100);
    EXPECT_GE(result["eval_return_mean"], std::stod(target));
  }
}

// An agent that does not learn stays at about 20.
TEST_P(FreeLearningTest, WorkersInNoOrderLearn) {
  const auto& [env, algo, target, seeds, schedule] = GetParam();
  const Json result = ResultOf(
      RunTrireme({"train", "--env", env, "--algo", algo, "--workers", "2", "--out", Path("run"), "--json"}));
  EXPECT_GE(result["best_return_mean"], std::stod(target));
}

constexpr const char* kInTurns = "0< 1< 0> 1>";

INSTANTIATE_TEST_SUITE_P(Presets, FreeLearningTest,
                         ::testing::Values(Task{"CartPole-v1", "a3c", "200"},
                                           Task{"CartPole-v1", "async_dqn", "200"}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Presets, LearningTest,
                         ::testing::Values(Task{"CartPole-v1", "ppo", "475"},
                                           Task{"Acrobot-v1", "ppo", "-100"},
                                           Task{"MountainCarContinuous-v0", "ppo", "90"},
                                           Task{"Pendulum-v1", "ppo", "-200"},
                                           Task{"CartPole-v1", "a2c", "475", {"1", "2"}},
                                           Task{"CartPole-v1", "a3c", "475", {"1", "2"}, kInTurns},
                                           Task{"CartPole-v1", "dqn", "475", {"1", "2"}},
                                           Task{"CartPole-v1", "async_dqn", "475", {"1", "2"}, kInTurns},
                                           Task{"Acrobot-v1", "a2c", "-100", {"1", "2"}},
                                           Task{"Acrobot-v1", "dqn", "-100", {"1", "2"}},
                                           Task{"MountainCar-v0", "dqn", "-110", {"1"}}),
                         NameOf);

}  // namespace
}  // namespace trireme::testing
