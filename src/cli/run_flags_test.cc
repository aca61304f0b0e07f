#include "trireme/cli/run_flags.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"

namespace trireme {
namespace {

RunFlags CartPole(const std::string& algo) {
  RunFlags flags;
  flags.env = "CartPole-v1";
  flags.algo = algo;
  return flags;
}

std::string Refusal(const RunFlags& flags) {
  try {
    SettingsOfNewRun(flags);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool Mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST(RunFlags, LaterSourcesWin) {
  const ScratchFolder folder;
  RunFlags flags = CartPole("");
  flags.env = "";
  flags.config = (folder.path() / "a.toml").string();
  WriteFileAtomically(flags.config,
                      {"env = \"Acrobot-v1\"\nalgo = \"a2c\"\nseed = 5\nsteps = 111\ngamma = 0.5\n"});
  const auto from_file = SettingsOfNewRun(flags);
  EXPECT_EQ(from_file->run.env, "Acrobot-v1");
  EXPECT_EQ(from_file->run.algo, "a2c");
  EXPECT_EQ(from_file->run.seed, 5u);
  EXPECT_EQ(from_file->run.steps, 111);
  EXPECT_EQ(from_file->fields.Get("gamma"), "0.5");

  flags.env = "CartPole-v1";
  flags.algo = "dqn";
  flags.seed = "6";
  flags.steps = "222";
  flags.assignments = {" gamma = 0.75"};
  const auto from_flags = SettingsOfNewRun(flags);
  EXPECT_EQ(from_flags->run.env, "CartPole-v1");
  EXPECT_EQ(from_flags->run.algo, "dqn");
  EXPECT_EQ(from_flags->run.seed, 6u);
  EXPECT_EQ(from_flags->run.steps, 222);
  EXPECT_EQ(from_flags->fields.Get("gamma"), "0.75");
}

TEST(RunFlags, OnlyATargetThatWasTypedStopsTheRun) {
  RunFlags flags = CartPole("ppo");
  EXPECT_FALSE(SettingsOfNewRun(flags)->run.stop_at_target);
  flags.target = "100";
  EXPECT_TRUE(SettingsOfNewRun(flags)->run.stop_at_target);
  EXPECT_TRUE(IsGiven(flags, "target"));
  EXPECT_FALSE(IsGiven(flags, "steps"));
  flags.assignments = {" steps =5"};
  EXPECT_TRUE(IsGiven(flags, "steps"));
  EXPECT_FALSE(IsGiven(flags, "step"));
}

// A system is its algorithm with its store, at its own pace; the store may be that of servers.
TEST(RunFlags, SystemsChooseStoreAndPace) {
  RunFlags flags = CartPole("a3c");
  auto settings = SettingsOfNewRun(flags);
  EXPECT_EQ(settings->run.algo, "a2c");
  EXPECT_EQ(settings->run.store, "shared");
  flags.servers = "2";
  settings = SettingsOfNewRun(flags);
  EXPECT_EQ(settings->run.store, "server");
  EXPECT_EQ(settings->fields.ToToml(), [&] {
    RunFlags spelled = CartPole("a2c");
    spelled.servers = "2";
    spelled.async = true;
    return SettingsOfNewRun(spelled)->fields.ToToml();
  }());
  flags.sync = true;
  EXPECT_TRUE(Mentions(Refusal(flags), "--algo a3c is a2c with workers that move on their own"));
}

// Workers on their own have other presets than workers in step, however that is said.
TEST(RunFlags, ThePaceDecidesWhichPreset) {
  const auto shards = [](const std::function<void(RunFlags&)>& say) {
    RunFlags flags = CartPole("a2c");
    flags.store = "server";
    say(flags);
    return SettingsOfNewRun(flags)->fields.Get("shards");
  };
  const std::string in_step = shards([](RunFlags& flags) { flags.sync = true; });
  const std::string free = shards([](RunFlags& flags) { flags.async = true; });
  ASSERT_NE(in_step, free);
  EXPECT_EQ(shards([](RunFlags& flags) { flags.ssp = "3"; }), free);
  EXPECT_EQ(shards([](RunFlags& flags) { flags.assignments = {"pace=async"}; }), free);
  EXPECT_EQ(shards([](RunFlags& flags) { flags.assignments = {"pace=sync"}; }), in_step);
}

TEST(RunFlags, ContradictionsAreRefused) {
  RunFlags several = CartPole("a2c");
  several.store = "server";
  several.sync = several.async = true;
  EXPECT_TRUE(Mentions(Refusal(several), "choose one of --sync, --async and --ssp"));
  several.sync = false;
  several.ssp = "2";
  EXPECT_TRUE(Mentions(Refusal(several), "choose one of --sync, --async and --ssp"));

  RunFlags elsewhere = CartPole("a2c");
  elsewhere.backup_workers = "1";
  EXPECT_TRUE(Mentions(Refusal(elsewhere), "are for --store server"));

  RunFlags twice = CartPole("ppo");
  twice.assignments = {"gamma=0.9", " gamma =0.8"};
  EXPECT_TRUE(Mentions(Refusal(twice), "gamma was set before"));
  twice.assignments = {"env=Acrobot-v1"};
  EXPECT_TRUE(Mentions(Refusal(twice), "env is chosen by --env"));
  EXPECT_TRUE(Mentions(Refusal({}), "say which environment"));
}

TEST(Straggler, HasAWorkerAndAFactor) {
  EXPECT_EQ(ParseStraggler("", 4).factor, Straggler().factor);
  const Straggler straggler = ParseStraggler("factor=2.5,worker=3", 4);
  EXPECT_EQ(straggler.worker, 3);
  EXPECT_EQ(straggler.factor, 2.5);
  EXPECT_THROW(ParseStraggler("worker=3", 4), Error);
  EXPECT_THROW(ParseStraggler("factor=3", 4), Error);
  EXPECT_THROW(ParseStraggler("worker=4,factor=2", 4), Error);
}

using SignalsDeathTest = testing::Test;

TEST(SignalsDeathTest, TheFirstAsksForAnEndAndDecidesTheExitCode) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    EXPECT_EXIT(
        {
          const std::atomic<bool>& stop = StopOnSignals();
          if (stop) ::_exit(1);
          std::raise(signal);
          if (!stop) ::_exit(2);
          std::raise(signal == SIGTERM ? SIGINT : SIGTERM);
          ::_exit(InterruptedCode());
        },
        testing::ExitedWithCode(128 + signal), "");
  }
}

TEST(SignalsDeathTest, TheSecondEndsTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        StopOnSignals();
        std::raise(SIGINT);
        std::raise(SIGINT);
        ::_exit(1);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace trireme
