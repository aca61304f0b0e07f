// `trireme eval` on runs and on what is not one.

#include <csignal>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using EvalTest = CliTest;

TEST_F(EvalTest, AgreesWithTheRunsOwnFinalEvaluation) {
  Args args = SmallRun("run");
  for (std::string& arg : args) {
    if (arg == "eval_episodes=8") arg = "eval_episodes=100";
  }
  const Json run = ResultOf(RunTrireme(args + Args{"--workers", "2"}));
  const auto before = Snapshot(Path("run"));
  const Json eval = ResultOf(RunTrireme({"eval", Path("run"), "--which", "last", "--json"}));
  for (const char* key : {"eval_return_mean", "eval_return_std", "eval_episodes", "params_sha256", "steps"})
    EXPECT_EQ(eval[key], run[key]) << key;
  const Json other = ResultOf(RunTrireme({"eval", Path("run"), "--seed", "99", "--json"}));
  EXPECT_NE(other["eval_return_mean"], run["eval_return_mean"]);
  const Json few = ResultOf(RunTrireme({"eval", Path("run"), "--episodes", "3", "--json"}));
  EXPECT_EQ(few["eval_episodes"], 3);
  EXPECT_EQ(Snapshot(Path("run")), before);
}

// A run that learns, and then forgets again.
TEST_F(EvalTest, TakesTheBestPolicyUnlessToldOtherwise) {
  int forgotten = 0;
  for (const std::string seed : {"1", "2", "3", "4"}) {
    const Json run =
        FinishedRun(seed, {"--seed", seed, "--set", "learning_rate=0.05", "--set", "normalise_obs=true"});
    const auto eval = [&](const Args& which) {
      return ResultOf(RunTrireme(Args{"eval", Path(seed), "--episodes", "8", "--json"} + which));
    };
    const Json best = eval({}), last = eval({"--which", "last"});
    EXPECT_EQ(best, eval({"--which", "best"}));
    EXPECT_EQ(best["which"], "best");
    EXPECT_EQ(best["steps"], run["best_steps"]);
    EXPECT_EQ(best["eval_return_mean"], run["best_return_mean"]);
    EXPECT_EQ(best["eval_return_std"], run["best_return_std"]);
    EXPECT_EQ(last["which"], "last");
    EXPECT_EQ(last["steps"], run["steps"]);
    EXPECT_EQ(last["eval_return_mean"], run["eval_return_mean"]);
    forgotten += best["eval_return_mean"] > last["eval_return_mean"] ? 1 : 0;
    const std::string html = ReadText(Path(seed + "/report.html"));
    EXPECT_NE(html.find("Best evaluation"), std::string::npos);
  }
  EXPECT_GT(forgotten, 0) << "this test compares nothing";
  ExpectRefused(RunTrireme({"eval", Path("1"), "--which", "first"}), {"--which", "best, last"});
}

TEST_F(EvalTest, SaysWhenThereIsNoBestPolicy) {
  // Stopped before the first evaluation.
  Process process(kBinary, Set(SmallRun("run"), {"eval_every=0", "steps=1000000000"}));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("run") >= 1; }));
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait().code, 130);
  const Outcome outcome = RunTrireme({"eval", Path("run"), "--episodes", "5"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("kept no best policy: this is the last one"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("last policy"), std::string::npos) << outcome.out;
}

TEST_F(EvalTest, SaysItInWordsWithoutJson) {
  FinishedRun("run");
  const Outcome outcome = RunTrireme({"eval", Path("run"), "--episodes", "5"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("over 5 episodes"), std::string::npos) << outcome.out;
}

// The car that has not learned stays in its valley for ever.
TEST_F(EvalTest, EpisodesWithoutALimitAreCutOffAndCanBeStopped) {
  for (const Args& store :
       {Args{"allreduce"}, Args{"shared"}, Args{"server", "--sync"}, Args{"server", "--async"}}) {
    const std::string name = store.back();
    SCOPED_TRACE(name);
    Process run(kBinary, Args{"train", "--env", "MountainCar-v0", "--algo", "a2c", "--workers", "1", "--out",
                              Path(name), "--steps", "1024", "--json", "--store"} +
                             store +
                             Args{"--set", "env_max_steps=0", "--set", "eval_max_steps=1000000000", "--set",
                                  "hidden=[8]", "--set", "rounds=4", "--set", "eval_episodes=3"});
    ASSERT_TRUE(run.RunsUntil([&] { return MetricLines(name) >= 1; }));
    run.Signal(SIGINT);  // the last evaluation is under way, or will be
    EXPECT_EQ(run.Wait().code, 130);
    EXPECT_FALSE(std::filesystem::exists(Path(name + "/result.json")));

    const Json result = Resume(name, {"--set", "eval_max_steps=150"});
    EXPECT_EQ(result["eval_return_mean"], -150);
    EXPECT_EQ(result["eval_cut_off"], 3);
    const Outcome eval = RunTrireme({"eval", Path(name)});
    EXPECT_NE(eval.out.find("100 of 100 episodes were cut off after 150 steps"), std::string::npos)
        << eval.out;
  }
}

TEST_F(EvalTest, IsInterruptedAsATrainingIs) {
  const Args args = {"train", "--env",   "MountainCar-v0", "--algo", "a2c",   "--workers",
                     "1",     "--steps", "1024",           "--json", "--out", Path("run")};
  ResultOf(RunTrireme(Set(args, {"env_max_steps=0", "eval_max_steps=10", "hidden=[8]", "rounds=4"})));
  // From now on the car may stay in its valley for ever.
  const std::string config = Path("run/config.toml");
  std::string text = ReadText(config);
  text.replace(text.find("eval_max_steps = 10"), 19, "eval_max_steps = 1000000000");
  WriteText(config, text);
  const auto before = Snapshot(Path("run"));
  for (const int signal : {SIGINT, SIGTERM}) {
    Process eval(kBinary, {"eval", Path("run"), "--json"});
    ASSERT_TRUE(eval.RunsUntil([&] { return eval.Catches(signal); }));
    eval.Signal(signal);
    const Outcome outcome = eval.Wait();
    EXPECT_EQ(outcome.code, 128 + signal);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "interrupted; the evaluation did not come to its end\n");
  }
  EXPECT_EQ(Snapshot(Path("run")), before);
}

TEST_F(EvalTest, ExperienceIsNotHeldInMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more memory than the limit";
#endif
  const Args args = {"train",     "--env", "CartPole-v1", "--algo", "dqn",
                     "--workers", "1",     "--json",      "--out",  Path("run")};
  const Json run =
      ResultOf(RunTrireme(Set(args, {"steps=700000", "replay=700000", "learning_starts=1000000000",
                                     "eval_every=0", "hidden=[8]", "checkpoint_every_s=1000"})));
  constexpr rlim_t kMost = rlim_t{32} << 20;
  ASSERT_GT(2 * fs::file_size(Checkpoints(Path("run")).at(0)), kMost) << "this test tries nothing";
  for (const char* which : {"last", "best"}) {
    const Json eval =
        ResultOf(RunTrireme({"eval", Path("run"), "--which", which, "--json"}, {.most_memory = kMost}));
    EXPECT_EQ(eval["params_sha256"], run["params_sha256"]);
  }
}

TEST_F(EvalTest, RefusesWhatIsNoRun) {
  ExpectRefused(RunTrireme({"eval"}), {"run is required"});
  ExpectRefused(RunTrireme({"eval", Path("missing")}), {"there is no folder", Path("missing")});
  fs::create_directory(Path("empty"));
  ExpectRefused(RunTrireme({"eval", Path("empty")}), {"holds no run", Path("empty")});
  FinishedRun("run");
  for (const fs::path& file : Checkpoints(Path("run"))) fs::remove(file);
  ExpectRefused(RunTrireme({"eval", Path("run")}), {"holds no checkpoint", Path("run")});
}

TEST_F(EvalTest, RefusesBadNumbers) {
  FinishedRun("run");
  for (const char* bad : {"0", "-1", "1e30", "nan", "inf", "1.5", "many", ""}) {
    SCOPED_TRACE(bad);
    ExpectRefused(RunTrireme({"eval", Path("run"), "--episodes", bad}), {"--episodes"});
  }
  for (const char* bad : {"-1", "1e30", "nan", "0.5"}) {
    SCOPED_TRACE(bad);
    ExpectRefused(RunTrireme({"eval", Path("run"), "--seed", bad}), {"--seed"});
  }
}

}  // namespace
}  // namespace trireme::testing
