// Runs that are killed, interrupted and continued. Whatever happens to the processes, the run must end with
// the same parameters and the same metrics as one that was left alone.

#include <algorithm>
#include <csignal>
#include <cstdint>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

// 120 iterations, a checkpoint after each: a process killed anywhere has something to lose.
class ResumeTest : public CliTest {
 protected:
  Args LongRun(const std::string& name, const std::string& checkpoint_every_s = "0",
               const std::string& steps = "61440") const {
    Args args = SmallRun(name);
    *std::find(args.begin(), args.end(), "5120") = steps;
    return args + Args{"--workers", "1",
                       "--set",     "normalise_obs=true",
                       "--set",     "normalise_rewards=true",
                       "--set",     "checkpoint_every_s=" + checkpoint_every_s};
  }
  Json Resume(const std::string& name, const Args& more = {}) const {
    return ResultOf(RunTrireme(Args{"train", "--resume", Path(name), "--json"} + more));
  }
  std::size_t MetricLines(const std::string& name) const {
    std::error_code missing;
    const fs::path path = fs::path(Path(name)) / "metrics.jsonl";
    if (!fs::exists(path, missing)) return 0;
    const std::string text = ReadText(path);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  // Everything about two runs that does not depend on the clock.
  void ExpectSameRun(const Json& result, const std::string& name, const Json& expected,
                     const std::string& expected_name) const {
    for (const char* key :
         {"steps", "eval_return_mean", "eval_return_std", "reached_target", "params_sha256"})
      EXPECT_EQ(result[key], expected[key]) << key;
    EXPECT_EQ(TimelessRows(Path(name)), TimelessRows(Path(expected_name)));
  }
};

TEST_F(ResumeTest, KilledBeforeTheFirstCheckpoint) {
  const Json whole = ResultOf(RunTrireme(LongRun("whole", "1000")));
  {
    Process process(kBinary, LongRun("cut", "1000"));
    ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("cut") >= 3; }));
    process.Signal(SIGKILL);
    ASSERT_EQ(process.Wait().signal, SIGKILL);
  }
  ASSERT_TRUE(Checkpoints(Path("cut")).empty());
  ExpectSameRun(Resume("cut"), "cut", whole, "whole");
}

TEST_F(ResumeTest, KilledAgainAndAgainAtAnyMoment) {
  const Json whole = ResultOf(RunTrireme(LongRun("whole", "1000")));
  std::uint32_t random = 12345;
  int killed = 0;
  bool started = false;
  for (int attempt = 0; attempt < 25; ++attempt) {
    random = random * 1664525 + 1013904223;
    const double delay_s = 0.001 + 0.06 * (random >> 8) / (1 << 24);
    // What was killed before it recorded its settings is not a run yet, and is started again.
    started = started || fs::exists(Path("cut") + "/config.toml");
    Process process(kBinary, started ? Args{"train", "--resume", Path("cut"), "--json"} : LongRun("cut"));
    if (process.EndsWithin(delay_s)) {
      EXPECT_EQ(process.Wait().code, 0);
    } else {
      process.Signal(SIGKILL);
      EXPECT_EQ(process.Wait().signal, SIGKILL);
      ++killed;
    }
  }
  EXPECT_GT(killed, 0);
  if (!started) ResultOf(RunTrireme(LongRun("cut")));
  ExpectSameRun(Resume("cut"), "cut", whole, "whole");
}

TEST_F(ResumeTest, KilledInTheMiddleAndContinuedByOtherNumbersOfWorkers) {
  const Json whole = ResultOf(RunTrireme(LongRun("whole", "1000")));
  {
    Process process(kBinary, LongRun("cut", "0.01"));
    ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("cut") >= 10; }));
    process.Signal(SIGKILL);
    process.Wait();
  }
  {
    Process process(kBinary, {"train", "--resume", Path("cut"), "--workers", "4", "--json"});
    ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("cut") >= 25; }));
    process.Signal(SIGKILL);
    process.Wait();
  }
  ExpectSameRun(Resume("cut", {"--workers", "2"}), "cut", whole, "whole");
}

class InterruptTest : public ResumeTest, public ::testing::WithParamInterface<int> {};

TEST_P(InterruptTest, SignalWritesACheckpointAndSaysHowToContinue) {
  const Json whole = ResultOf(RunTrireme(LongRun("whole", "1000")));
  Process process(kBinary, LongRun("cut", "1000"));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("cut") >= 3; }));
  process.Signal(GetParam());
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.err.find("trireme train --resume " + Path("cut")), std::string::npos) << outcome.err;
  const Json partial = ResultOf(outcome);
  EXPECT_LT(partial["steps"], whole["steps"]);
  ASSERT_EQ(Checkpoints(Path("cut")).size(), 1u);
  EXPECT_EQ(MetricLines("cut"), partial["steps"].get<std::size_t>() / 512);
  ExpectSameRun(Resume("cut"), "cut", whole, "whole");
}

INSTANTIATE_TEST_SUITE_P(Signals, InterruptTest, ::testing::Values(SIGINT, SIGTERM), [](const auto& info) {
  return std::string(info.param == SIGINT ? "Interrupt" : "Terminate");
});

TEST_F(ResumeTest, FinishedRunReportsTheSameResult) {
  const Json whole = FinishedRun("run");
  EXPECT_EQ(Resume("run"), whole);
  EXPECT_EQ(MetricLines("run"), 10u);
}

TEST_F(ResumeTest, FinishedRunCanBeMadeLonger) {
  FinishedRun("run");
  EXPECT_EQ(Resume("run", {"--steps", "6144"})["steps"], 6144);
  EXPECT_EQ(MetricLines("run"), 12u);
  EXPECT_NE(ReadText(Path("run/config.toml")).find("\nsteps = 6144\n"), std::string::npos);
}

TEST_F(ResumeTest, AnotherTargetIsJudgedAnew) {
  EXPECT_EQ(FinishedRun("run", {"--target", "1"})["steps"], 2048);
  const Json higher = Resume("run", {"--target", "1e6"});
  EXPECT_EQ(higher["steps"], 5120);
  EXPECT_EQ(higher["reached_target"], false);
  const Json lower = Resume("run", {"--target", "1"});
  EXPECT_EQ(lower["steps"], 5120);
  EXPECT_EQ(lower["steps_to_target"], 5120);
}

TEST_F(ResumeTest, KeepsTwoCheckpointsAndNoTemporaries) {
  FinishedRun("run", {"--set", "checkpoint_every_s=0"});
  ASSERT_EQ(Checkpoints(Path("run")).size(), 2u);
  WriteText(Path("run/checkpoint-99.trireme.tmp"), "left by a killed process");
  Resume("run", {"--steps", "6144"});
  EXPECT_FALSE(fs::exists(Path("run/checkpoint-99.trireme.tmp")));
  EXPECT_EQ(Checkpoints(Path("run")).at(0).filename(), "checkpoint-6144.trireme");
  EXPECT_EQ(Checkpoints(Path("run")).size(), 2u);
}

TEST_F(ResumeTest, SecondProcessInTheSameFolderIsRefused) {
  Process process(kBinary, LongRun("run", "1000", "1000000000"));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("run") >= 1; }));
  ExpectRefused(RunTrireme({"train", "--resume", Path("run"), "--json"}), {"another process", Path("run")});
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait().code, 0);
}

TEST_F(ResumeTest, FolderKilledBeforeItsSettingsWereRecordedIsStartedAgain) {
  fs::create_directory(Path("run"));
  WriteText(Path("run/config.toml.tmp"), "env = ");
  ExpectRefused(RunTrireme({"train", "--resume", Path("run")}), {"config.toml is missing", "--out"});
  EXPECT_EQ(FinishedRun("run")["steps"], 5120);
}

}  // namespace
}  // namespace trireme::testing
