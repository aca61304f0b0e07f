// Workers in step through servers that die, take over and join: nothing of what all hold alike is lost.
#include <csignal>
#include <memory>

#include "server_util.h"
#include "trireme/train/checkpoint.h"

namespace trireme::testing {
namespace {

class JoiningTest : public ServerCliTest {
 protected:
  // Two workers make a run; the others are given up after half a second. Every iteration is evaluated, so
  // that whoever dies does so in one that is.
  Args Half(const Args& run, const Args& more = {}) const {
    return Set(run + Args{"--store", "server", "--servers", Address("server"), "--workers", "1"} + more,
               {"run_workers=2", "lease_s=0.5", "eval_every=512", "checkpoint_every_s=0.2"});
  }
  // Slow where it has this rank.
  Args Ppo(const std::string& name, int rank) const {
    return Set(Half(SmallRun(name), {"--straggler", "worker=" + std::to_string(rank) + ",factor=40"}),
               {"steps=20480", "normalise_obs=true", "normalise_rewards=true"});
  }
  Args Dqn(const std::string& name) const {
    return Set(Half(SmallRunOf("dqn", name), {"--straggler", "worker=0,factor=20"}), {"steps=49152"});
  }
  StateReader Newest(const std::string& name) const { return *ReadNewestCheckpoint(Path(name)); }
  static void Kill(Process& process) {
    process.Signal(SIGKILL);
    process.Wait();
  }
};

// What all workers hold alike is that of the whole run, whoever has it in the end: every iteration has added
// its samples to the statistics once, and every update was made once.
void ExpectWholePpo(const StateReader& state) {
  const auto steps = state.GetValue<std::int64_t>("progress/steps");
  EXPECT_EQ(steps, 20480);
  EXPECT_EQ(state.GetValue<std::uint64_t>("ppo/iteration"), steps / 512);
  EXPECT_NEAR(state.GetValue<double>("ppo/obs_normaliser/count"), steps, 1e-6);
  EXPECT_NEAR(state.GetValue<double>("ppo/return_normaliser/count"), steps, 1e-6);
  EXPECT_EQ(state.GetValue<std::int64_t>("optimizer/steps"), steps / 512 * 16);
}

// The first leader dies; so does the second, when a third has come.
TEST_F(JoiningTest, TheNextLeaderAndTheOneAfterItLoseNothing) {
  const auto server = StartServer("server");
  Process first(kBinary, Ppo("first", 0));
  ASSERT_TRUE(first.RunsUntil([&] { return Said("server", "worker 0 joined"); }));
  Process second(kBinary, Ppo("second", 1));
  ASSERT_TRUE(first.RunsUntil([&] { return MetricLines("first") >= 3; }));
  Kill(first);
  ASSERT_TRUE(second.RunsUntil([&] { return MetricLines("second") >= 2; }));
  Process third(kBinary, Ppo("third", 0));
  ASSERT_TRUE(second.RunsUntil([&] { return MetricLines("third") >= 2; }));  // has the lower rank
  Kill(second);
  const Json result = ResultOf(third.Wait());
  EXPECT_EQ(result.value("steps", 0), 20480);
  EXPECT_FALSE(result["eval_return_mean"].is_null());
  ExpectWholePpo(Newest("third"));
}

TEST_F(JoiningTest, ANewcomerLearnsOnWithTheOthersTargetsAndCounters) {
  const auto server = StartServer("server");
  Process first(kBinary, Dqn("first"));
  ASSERT_TRUE(first.RunsUntil([&] { return Said("server", "worker 0 joined"); }));
  auto second = std::make_unique<Process>(kBinary, Dqn("second"));
  ASSERT_TRUE(first.RunsUntil([&] { return MetricLines("first") >= 3; }));
  Kill(*second);
  second = std::make_unique<Process>(kBinary, Dqn("newcomer"));
  const Json result = ResultOf(first.Wait());
  ASSERT_EQ(result.value("steps", 0), 49152);
  EXPECT_EQ(ResultOf(second->Wait())["params_sha256"], result["params_sha256"]);
  // All are there: the checkpoint is whole, and the newcomer's shards have streams of their own.
  const StateReader state = Newest("first");
  EXPECT_FALSE(state.Has("run/partial"));
  EXPECT_EQ(state.GetValue<std::uint64_t>("dqn/collected"), 49152u);
  EXPECT_EQ(state.GetValue<std::uint64_t>("dqn/updates"), (49152u - 256u) / 16 + 1);
  EXPECT_EQ(state.GetValue<std::uint64_t>("shard/3/seed"), 1u);
  EXPECT_NE(state.GetValue<std::uint64_t>("shard/4/seed"), 1u);
}

// All workers die; the servers stay. Those who come then go on from the last boundary.
TEST_F(JoiningTest, WhenAllAreGoneTheNextBeginWhereTheyEnded) {
  const auto server = StartServer("server");
  {
    Process first(kBinary, Ppo("first", 0));
    ASSERT_TRUE(first.RunsUntil([&] { return Said("server", "worker 0 joined"); }));
    Process second(kBinary, Ppo("second", 1));
    ASSERT_TRUE(first.RunsUntil([&] { return MetricLines("first") >= 8; }));
    Kill(first);
    Kill(second);
  }
  Process third(kBinary, Ppo("third", 0)), fourth(kBinary, Ppo("fourth", 1));
  EXPECT_EQ(ResultOf(third.Wait()).value("steps", 0), 20480);
  EXPECT_EQ(fourth.Wait().code, 0);
  const StateReader state = Newest(MetricLines("third") > 0 ? "third" : "fourth");
  // The iteration that they were killed in may be counted once more, or not at all.
  EXPECT_NEAR(state.GetValue<double>("ppo/obs_normaliser/count"), 20480, 513);
}

TEST_F(JoiningTest, ARunThatHasEndedIsNotJoined) {
  const auto server = StartServer("server");
  const Args way = {"--store", "server", "--servers", Address("server"), "--workers", "1"};
  ResultOf(RunTrireme(SmallRun("run") + way));
  const Outcome late = RunTrireme(SmallRun("late") + way);
  EXPECT_EQ(late.code, 3);
  EXPECT_EQ(late.out, "");
  EXPECT_NE(late.err.find("has ended after 5120 steps"), std::string::npos) << late.err;
  EXPECT_FALSE(std::filesystem::exists(Path("late")));
  // Who has its result can still show it.
  EXPECT_EQ(Resume("run").value("steps", 0), 5120);
}

// A policy that hardly learns sees other episodes after a resume than before it.
TEST_F(JoiningTest, AnElasticResumeDoesNotRepeatItsExperience) {
  const Args run = Set(SmallRun("run"), {"learning_rate=1e-12", "steps=1024"}) +
                   Args{"--store", "server", "--servers", "1", "--async", "--workers", "1"};
  ResultOf(RunTrireme(run));
  Resume("run", {"--set", "steps=2048"});
  const std::vector<Json> rows = TimelessRows(Path("run"));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_NE(rows[0]["episode_return_mean"], rows[2]["episode_return_mean"]);
  EXPECT_NE(rows[1]["episode_return_mean"], rows[3]["episode_return_mean"]);
}

// Threads that are ahead of a stopped one wait for nobody.
TEST_F(JoiningTest, AnInterruptedRunWithBoundedStalenessLeavesACheckpoint) {
  for (int attempt = 0; attempt < 4; ++attempt) {
    const std::string name = "run" + std::to_string(attempt);
    Process worker(kBinary, Set(SmallRun(name), {"steps=1000000000", "eval_every=0"}) +
                                Args{"--store", "server", "--servers", "1", "--ssp", "1", "--workers", "4"});
    ASSERT_TRUE(worker.RunsUntil([&] { return MetricLines(name) >= 3; }));
    worker.Signal(attempt % 2 == 0 ? SIGINT : SIGTERM);
    const Outcome outcome = worker.Wait();
    EXPECT_EQ(Checkpoints(Path(name)).size(), 1u) << outcome.err;
    EXPECT_EQ(outcome.err.find("while waiting"), std::string::npos) << outcome.err;
  }
}

// The list of one thread's pushes cannot grow beyond a limit, which it comes to after some thousand of them.
TEST_F(JoiningTest, AThreadThatFailsStopsItsSiblingsAndTheirWorkIsKept) {
  const auto server = StartServer("server");
  const Args run =
      Set(SmallRun("run"), {"steps=1000000000000"}) +
      Args{"--store", "server", "--servers", Address("server"), "--async", "--workers", "2", "--audit"};
  Process begun(kBinary, run);
  ASSERT_TRUE(begun.RunsUntil([&] { return MetricLines("run") >= 3; }));
  begun.Signal(SIGINT);
  begun.Wait();
  const auto left = Checkpoints(Path("run"));
  constexpr std::size_t kLimit = 1 << 20;
  WriteText(Path("run/acknowledged-1"), std::string(kLimit - (1 << 16), '\n'));
  Process goes_on(kBinary, {"train", "--resume", Path("run"), "--audit"}, {.largest_file = kLimit});
  const Outcome outcome = goes_on.Wait();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("acknowledged-1"), std::string::npos) << outcome.err;
  EXPECT_NE(Checkpoints(Path("run")), left);
}

}  // namespace
}  // namespace trireme::testing
