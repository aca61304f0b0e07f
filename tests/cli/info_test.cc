// Help, version and the lists: what a newcomer types first.

#include "run_util.h"

namespace trireme::testing {
namespace {

using InfoTest = CliTest;

TEST_F(InfoTest, VersionNeedsNoEnvironmentVariables) {
  const Outcome outcome = RunTrireme({"--version"}, {.empty_environment = true});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.starts_with("trireme ")) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST_F(InfoTest, TrainingNeedsNoEnvironmentVariables) {
  EXPECT_EQ(ResultOf(RunTrireme(SmallRun("run"), {.empty_environment = true}))["steps"], 5120);
}

TEST_F(InfoTest, HelpNamesEverySubcommandAndEachHasItsOwn) {
  const Outcome all = RunTrireme({"--help"});
  EXPECT_EQ(all.code, 0);
  for (const std::string command : {"train", "eval", "envs", "algos", "devices"}) {
    EXPECT_NE(all.out.find("\n  " + command), std::string::npos) << command;
    const Outcome own = RunTrireme({command, "--help"});
    EXPECT_EQ(own.code, 0) << command;
    EXPECT_NE(own.out.find(command), std::string::npos);
    EXPECT_EQ(own.err, "");
  }
}

TEST_F(InfoTest, TrainHelpNamesEveryFlagOfTheContract) {
  const std::string help = RunTrireme({"train", "--help"}).out;
  for (const char* flag :
       {"--env", "--env-arg", "--env-hosts", "--env-timeout", "--algo", "--workers", "--store", "--device",
        "--steps", "--target", "--seed", "--config", "--out", "--resume", "--set", "--json"}) {
    EXPECT_NE(help.find(flag), std::string::npos) << flag;
  }
}

TEST_F(InfoTest, EnvsListsAllEnvironments) {
  const Outcome outcome = RunTrireme({"envs"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* name :
       {"CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "Pendulum-v1"}) {
    EXPECT_NE(outcome.out.find(name), std::string::npos) << name;
  }
}

// A source that cannot be listed keeps nobody from hearing of the others.
TEST_F(InfoTest, SourcesAreNamedAndListedWhereThatCanBe) {
  const ProcessOptions no_python{.variables = {"TRIREME_PYTHON=/no/such/python"}};
  const Outcome all = RunTrireme({"envs", "--all"}, no_python);
  EXPECT_EQ(all.code, 0);
  for (const char* part :
       {"gym:NAME", "cannot be listed: cannot start /no/such/python", "py:NAME", "CartPole-v1"}) {
    EXPECT_NE(all.out.find(part), std::string::npos) << part << "\n" << all.out;
  }
  EXPECT_EQ(RunTrireme({"envs"}, no_python).out.find("cannot be listed"), std::string::npos);
}

TEST_F(InfoTest, EnvsTellsAboutOneAndItsOptions) {
  const Outcome outcome = RunTrireme({"envs", "CartPole-v1"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* part : {"4 numbers", "2 choices", "500 steps", "475", "resumes exactly", "same bits",
                           "env_max_steps", "cut off"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  ExpectRefused(RunTrireme({"envs", "CartPole"}), {"'CartPole'", "'CartPole-v1'"});
  ExpectRefused(RunTrireme({"envs", "nobody:CartPole-v1"}), {"no source claims 'nobody:'"});
}

TEST_F(InfoTest, AlgosListsAlgorithmsAndTheirSettings) {
  const Outcome all = RunTrireme({"algos"});
  EXPECT_EQ(all.code, 0);
  EXPECT_NE(all.out.find("ppo"), std::string::npos);
  const Outcome ppo = RunTrireme({"algos", "ppo"});
  EXPECT_EQ(ppo.code, 0);
  for (const char* key : {"learning_rate", "gamma", "hidden", "eval_episodes", "checkpoint_every_s"})
    EXPECT_NE(ppo.out.find(key), std::string::npos) << key;
  for (const std::string algo : {"ppo", "a2c", "dqn"}) {
    const std::string settings = RunTrireme({"algos", algo}).out;
    EXPECT_EQ(settings.find("\"ppo\"") != std::string::npos, algo == "ppo") << settings;
    EXPECT_NE(settings.find("\"" + algo + "\""), std::string::npos) << settings;
  }
  const Outcome table = RunTrireme({"algos", "ppo", "--markdown"});
  EXPECT_NE(table.out.find("| `learning_rate` |"), std::string::npos);
  ExpectRefused(RunTrireme({"algos", "pppo"}), {"pppo", "'ppo'"});
}

TEST_F(InfoTest, OutputThatCannotBeWrittenIsAnError) {
  const Outcome outcome = RunTrireme({"envs"}, {.out_file = "/dev/full"});
  ExpectRefused(outcome, {"cannot write the output", "No space left"});
}

}  // namespace
}  // namespace trireme::testing
