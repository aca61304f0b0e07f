// Runs that are killed, interrupted and continued. Whatever happens to the processes, the run must end with
// the same parameters and the same metrics as one that was left alone.

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>

#include "run_util.h"
#include "trireme/train/checkpoint.h"

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
  // Runs `args` until `condition` holds, and sends a signal. The run is slowed
  // down, so that this comes long before its end.
  Outcome Cut(const Args& args, int signal, const std::function<bool()>& condition) const {
    Process process(kBinary, args + Args{"--straggler", "worker=0,factor=20"});
    EXPECT_TRUE(process.RunsUntil(condition));
    process.Signal(signal);
    return process.Wait();
  }
  // Kills it after some time. False: it had ended well before.
  bool KilledAfter(double seconds, const Args& args) const {
    Process process(kBinary, args);
    process.EndsWithin(seconds);
    process.Signal(SIGKILL);
    const Outcome outcome = process.Wait();
    if (outcome.signal == SIGKILL) return true;
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return false;
  }
  // Everything about two runs that does not depend on the clock.
  void ExpectSameRun(const Json& result, const std::string& name, const Json& expected,
                     const std::string& expected_name) const {
    for (const char* key : {"steps", "eval_return_mean", "eval_return_std", "reached_target", "params_sha256",
                            "best_return_mean", "best_return_std", "best_steps"})
      EXPECT_EQ(result[key], expected[key]) << key;
    const std::string best = "/best-" + expected["best_steps"].dump() + ".trireme";
    if (result["store"] == expected["store"]) {  // which the file names
      EXPECT_EQ(ReadText(Path(name) + best), ReadText(Path(expected_name) + best));
    }
    EXPECT_EQ(TimelessRows(Path(name)), TimelessRows(Path(expected_name)));
  }
};

TEST_F(ResumeTest, KilledBeforeTheFirstCheckpoint) {
  const Json whole = ResultOf(RunTrireme(LongRun("whole", "1000")));
  const Outcome killed = Cut(LongRun("cut", "1000"), SIGKILL, [&] { return MetricLines("cut") >= 3; });
  ASSERT_EQ(killed.signal, SIGKILL);
  ASSERT_TRUE(Checkpoints(Path("cut")).empty());
  ExpectSameRun(Resume("cut"), "cut", whole, "whole");
}

TEST_F(ResumeTest, KilledAgainAndAgainAtAnyMoment) {
  const Json whole = ResultOf(RunTrireme(LongRun("whole", "1000")));
  std::uint32_t random = 12345;
  int killed = 0;
  for (int attempt = 0; attempt < 25; ++attempt) {
    random = random * 1664525 + 1013904223;
    const double delay_s = 0.001 + 0.06 * (random >> 8) / (1 << 24);
    // What was killed before it recorded its settings is not a run yet, and is started again.
    const bool started = fs::exists(Path("cut") + "/config.toml");
    killed +=
        KilledAfter(delay_s, started ? Args{"train", "--resume", Path("cut"), "--json"} : LongRun("cut"));
  }
  EXPECT_GT(killed, 0);
  if (!fs::exists(Path("cut") + "/config.toml")) ResultOf(RunTrireme(LongRun("cut")));
  ExpectSameRun(Resume("cut"), "cut", whole, "whole");
}

TEST_F(ResumeTest, KilledInTheMiddleAndContinuedByOtherNumbersOfWorkers) {
  const Json whole = ResultOf(RunTrireme(LongRun("whole", "1000")));
  Cut(LongRun("cut", "0.01"), SIGKILL, [&] { return MetricLines("cut") >= 10; });
  Cut({"train", "--resume", Path("cut"), "--workers", "4", "--json"}, SIGKILL,
      [&] { return MetricLines("cut") >= 25; });
  ExpectSameRun(Resume("cut", {"--workers", "2"}), "cut", whole, "whole");
}

class InterruptTest : public ResumeTest, public ::testing::WithParamInterface<int> {};

TEST_P(InterruptTest, SignalWritesACheckpointAndSaysHowToContinue) {
  const Json whole = ResultOf(RunTrireme(LongRun("whole", "1000")));
  const Outcome outcome = Cut(LongRun("cut", "1000"), GetParam(), [&] { return MetricLines("cut") >= 3; });
  EXPECT_NE(outcome.err.find("trireme train --resume " + Path("cut")), std::string::npos) << outcome.err;
  const Json partial = ResultOf(outcome, 128 + GetParam());
  EXPECT_LT(partial["steps"], whole["steps"]);
  ASSERT_EQ(Checkpoints(Path("cut")).size(), 1u);
  // The line of an iteration whose evaluation was stopped comes when that is made up for.
  const bool pending = ReadNewestCheckpoint(Path("cut"))->Has("progress/eval_pending");
  EXPECT_EQ(MetricLines("cut"), partial["steps"].get<std::size_t>() / 512 - pending);
  ExpectSameRun(Resume("cut"), "cut", whole, "whole");
}

INSTANTIATE_TEST_SUITE_P(Signals, InterruptTest, ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1),
                         [](const auto& info) { return std::string(::sigabbrev_np(info.param)); });

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

TEST_F(ResumeTest, MoreStepsGoPastATargetThatWasReached) {
  const std::string whole = FinishedRun("whole")["params_sha256"];
  EXPECT_EQ(FinishedRun("run", {"--target", "1"})["steps"], 2048);
  // As they say nothing of a target.
  const Outcome more = RunTrireme({"train", "--resume", Path("run"), "--steps", "5120"});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_NE(more.err.find("target 1 was reached after 2048 steps: training goes on to 5120"),
            std::string::npos)
      << more.err;
  const Json result = Json::parse(ReadText(Path("run/result.json")));
  EXPECT_EQ(result["steps"], 5120);
  EXPECT_EQ(result["params_sha256"], whole);
  EXPECT_EQ(result["reached_target"], true);
  EXPECT_EQ(result["steps_to_target"], 2048);
  // A run that was cut on its way there goes on too.
  EXPECT_NE(ReadText(Path("run/config.toml")).find("stop_at_target = false"), std::string::npos);
  EXPECT_EQ(Resume("run", {"--set", "steps=6144"})["steps"], 6144);
}

TEST_F(ResumeTest, AResumeWithNothingToDoSaysWhy) {
  const Json whole = FinishedRun("run", {"--target", "1"});
  const auto resumed = [&](const Args& more, const std::vector<std::string>& parts) {
    const Outcome outcome = RunTrireme(Args{"train", "--resume", Path("run")} + more);
    EXPECT_EQ(outcome.code, 0);
    for (const std::string& part : parts)
      EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " is not in: " << outcome.err;
    EXPECT_EQ(Json::parse(ReadText(Path("run/result.json"))), whole);
  };
  const std::vector<std::string> reached = {"nothing to do: target 1 was reached after 2048 steps",
                                            "--steps with more than 2048, or another --target"};
  resumed({}, reached);
  resumed({"--steps", "10000", "--target", "1"}, reached);
  resumed({"--steps", "2048"}, {"nothing to do: all 2048 steps are done", "--steps with more than 2048"});
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
  EXPECT_EQ(process.Wait().code, 143);
}

TEST_F(ResumeTest, FolderKilledBeforeItsSettingsWereRecordedIsStartedAgain) {
  fs::create_directory(Path("run"));
  WriteText(Path("run/config.toml.tmp"), "env = ");
  ExpectRefused(RunTrireme({"train", "--resume", Path("run")}), {"config.toml is missing", "--out"});
  EXPECT_EQ(FinishedRun("run")["steps"], 5120);
}

// The same for algorithms that have more to lose: target networks, replay, priorities.
class AlgoResumeTest : public ResumeTest, public ::testing::WithParamInterface<const char*> {
 protected:
  // 60 iterations.
  Args LongRunOf(const std::string& name, const std::vector<std::string>& assignments = {}) const {
    return Set(Set(SmallRunOf(GetParam(), name), {"steps=30720", "eval_every=4096"}), assignments);
  }
};

INSTANTIATE_TEST_SUITE_P(Algos, AlgoResumeTest, ::testing::Values("a2c", "dqn"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(AlgoResumeTest, InStepNeitherWorkersNorDeathsChangeAnything) {
  const Json whole = ResultOf(RunTrireme(LongRunOf("whole") + Args{"--workers", "1"}));
  for (const std::string workers : {"2", "4", "8"}) {
    SCOPED_TRACE(workers);
    ExpectSameRun(ResultOf(RunTrireme(LongRunOf(workers) + Args{"--workers", workers})), workers, whole,
                  "whole");
  }
  EXPECT_NE(ResultOf(RunTrireme(LongRunOf("seed", {"seed=2"})))["params_sha256"], whole["params_sha256"]);

  const Args often = LongRunOf("cut", {"checkpoint_every_s=0"});
  const Args numbers = {"2", "8", "1", "4"};
  std::uint32_t random = 54321;
  int killed = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    random = random * 1664525 + 1013904223;
    const double delay_s = 0.005 + 0.06 * (random >> 8) / (1 << 24);
    const Args start =
        fs::exists(Path("cut/config.toml")) ? Args{"train", "--resume", Path("cut"), "--json"} : often;
    killed += KilledAfter(delay_s, start + Args{"--workers", numbers[attempt % numbers.size()], "--straggler",
                                                "worker=0,factor=3"});
  }
  EXPECT_GT(killed, 0);
  if (!fs::exists(Path("cut/config.toml"))) ResultOf(RunTrireme(often));
  ExpectSameRun(Resume("cut"), "cut", whole, "whole");
}

TEST_P(AlgoResumeTest, OneAsynchronousWorkerContinuesBitForBit) {
  const Args run = LongRunOf("cut", {"store=shared", "workers=1", "shards=1", "checkpoint_every_s=0.02"});
  const Outcome interrupted = Cut(run, SIGINT, [&] { return MetricLines("cut") >= 5; });
  EXPECT_LT(ResultOf(interrupted, 130)["steps"], 30720);
  EXPECT_NE(interrupted.err.find("trireme train --resume " + Path("cut")), std::string::npos);
  const std::string checkpoint = Checkpoints(Path("cut")).at(0);
  const Outcome killed = Cut({"train", "--resume", Path("cut"), "--json"}, SIGKILL, [&] {
    const auto files = Checkpoints(Path("cut"));
    return !files.empty() && files[0] != checkpoint;
  });
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_LT(MetricLines("cut"), 60u);
  const Json continued = Resume("cut");
  const Json local = ResultOf(RunTrireme(
      {"train", "--config", Path("cut/config.toml"), "--store", "local", "--out", Path("local"), "--json"}));
  ExpectSameRun(continued, "cut", local, "local");
}

// Their order is a matter of chance, so there is no whole run to compare with: what was done until the
// checkpoint stays, and what comes later is done once.
TEST_P(AlgoResumeTest, SeveralAsynchronousWorkersGoOnFromTheCheckpoint) {
  const Args run = LongRunOf(
      "cut", {"store=shared", "workers=3", "shards=1", "checkpoint_every_s=0.02", "steps=1000000000"});
  const Outcome killed =
      Cut(run, SIGKILL, [&] { return MetricLines("cut") >= 20 && !Checkpoints(Path("cut")).empty(); });
  ASSERT_EQ(killed.signal, SIGKILL);
  const std::string newest = Checkpoints(Path("cut")).at(0).stem();
  const std::int64_t saved = std::stoll(newest.substr(newest.find('-') + 1)), steps = saved + 20480;
  WriteText(Path("cut/metrics.jsonl"), ReadText(Path("cut/metrics.jsonl")) + "{\"step\":");  // a torn row
  const Json result = Resume("cut", {"--steps", std::to_string(steps)});
  EXPECT_GE(result["steps"], steps);
  EXPECT_LT(result["steps"], steps + 3 * 512);
  std::int64_t own_steps = 0;
  for (const Json& worker : result["per_worker"]) own_steps += worker["steps"].get<std::int64_t>();
  EXPECT_EQ(own_steps, result["steps"]);

  const std::vector<Json> rows = TimelessRows(Path("cut"));
  std::int64_t updates = 0;
  bool before = false, after = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_GT(rows[i]["step"], i == 0 ? 0 : rows[i - 1]["step"].get<std::int64_t>());
    updates += rows[i].value("updates", 0.0);
    (rows[i]["step"] <= saved ? before : after) = true;
  }
  EXPECT_TRUE(before);
  EXPECT_TRUE(after);
  EXPECT_EQ(rows.back()["step"], result["steps"]);
  // Every iteration of worker 0 has left its figures once.
  const std::int64_t steps_of_0 = result["per_worker"][0]["steps"];
  EXPECT_EQ(updates, GetParam() == std::string("dqn") ? steps_of_0 / 16 - 15 : steps_of_0 / 512 * 4);
}

TEST_P(AlgoResumeTest, ASignalEndsAnAsynchronousRunWithACheckpoint) {
  for (const std::string schedule : {"", "0< 1< 2< 0> 1> 2>"}) {
    SCOPED_TRACE(schedule);
    const std::string name = schedule.empty() ? "free" : "in-turns";
    const Args run = LongRunOf(
        name, {"store=shared", "workers=3", "shards=1", "steps=1000000000", "schedule=" + schedule});
    const Outcome outcome = Cut(run, SIGTERM, [&] { return MetricLines(name) >= 3; });
    const Json partial = ResultOf(outcome, 143);
    EXPECT_NE(outcome.err.find("trireme train --resume " + Path(name)), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(Path(name + "/result.json")));
    const std::int64_t steps = partial["steps"];
    EXPECT_EQ(Checkpoints(Path(name)).at(0).filename(), "checkpoint-" + std::to_string(steps) + ".trireme");
    EXPECT_GE(Resume(name, {"--steps", std::to_string(steps + 4096)})["steps"], steps + 4096);
    EXPECT_TRUE(fs::exists(Path(name + "/result.json")));
  }
}

TEST_P(AlgoResumeTest, AnAsynchronousRunIsContinuedAsItWas) {
  const auto run = [&](const std::string& name, const Args& more) {
    return ResultOf(RunTrireme(Set(SmallRunOf(GetParam(), name), {"shards=4"}) + more));
  };
  const Json result = run("alone", {"--store", "shared", "--workers", "2"});
  run("in-step", {"--workers", "2"});
  const auto refused = [&](const std::string& name, const Args& more, const std::vector<std::string>& parts) {
    const auto before = Snapshot(folder_);
    ExpectRefused(RunTrireme(Args{"train", "--resume", Path(name), "--json", "--steps", "9999"} + more),
                  std::vector<std::string>{Path(name)} + parts);
    EXPECT_EQ(Snapshot(folder_), before);
  };
  refused("alone", {"--workers", "4"}, {"store shared, 2 workers, not shared, 4 workers"});
  refused("alone", {"--workers", "1"}, {"store shared, 2 workers, not shared, 1 workers"});
  refused("alone", {"--store", "allreduce"}, {"store shared, 2 workers, not synchronous"});
  refused("alone", {"--store", "local", "--workers", "1"}, {"store shared, 2 workers, not synchronous"});
  refused("alone", {"--set", "share_moments=false"}, {"share_moments = true"});
  refused("in-step", {"--store", "shared"}, {"store synchronous, not shared, 2 workers"});
  EXPECT_EQ(Resume("alone"), result);
}

}  // namespace
}  // namespace trireme::testing
