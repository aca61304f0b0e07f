// Actors in processes of their own, which come, go and die, and learners that do: with real connections and real signals.
#include <csignal>
#include <memory>
#include <numeric>

#include "run_util.h"
#include "trireme/base/plugin.h"

namespace trireme::testing {
namespace {

class ActorTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 1);
    if (!HavePlugin("libtrireme_grpc.so")) GTEST_SKIP() << "built without gRPC";
  }

  virtual std::string Address() const { return "unix:" + Path("learner.sock"); }
  // Updates of 8 trajectories of 16 steps of 2 environments, two to an iteration.
  Args Learner(const std::string& algo, const Args& more = {}) const {
    return Set(Args{"train", "--env", "CartPole-v1", "--algo", algo, "--listen", Address(), "--json", "--out",
                    Path("run")} +
                   more,
               {"envs=16", "horizon=16", "hidden=[32]", "eval_every=4096", "eval_episodes=20"});
  }
  std::unique_ptr<Process> StartActor(const Args& more = {}, const std::string& actors = "1") const {
    return std::make_unique<Process>(
        kBinary, Args{"actor", "--learner", Address(), "--actors", actors, "--wait", "30"} + more);
  }
  static void ExpectEnds(Process& process, int code, const std::string& text = "") {
    const Outcome outcome = process.Wait();
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_NE((outcome.out + outcome.err).find(text), std::string::npos) << outcome.out << outcome.err;
  }
};

TEST_F(ActorTest, LearnersReachTheirTargetByActorsOfOtherProcesses) {
  for (const char* algo : {"impala", "appo", "apex"}) {
    for (const char* workers : {"1", "2"}) {
      SCOPED_TRACE(std::string(algo) + " " + workers);
      const auto first = StartActor();  // waits for it
      Process learner(kBinary, Learner(algo, {"--workers", workers, "--target", "400", "--steps", "400000"}));
      const auto second =
          std::string(workers) == "1" ? StartActor({}, "3") : nullptr;  // one for two learners
      const Json result = ResultOf(learner.Wait());
      EXPECT_TRUE(result["reached_target"]) << result;
      EXPECT_FALSE(result.contains("actors")) << "none of its own";
      const auto lag = result["policy_lag_histogram"].get<std::vector<int>>();
      EXPECT_EQ(std::accumulate(lag.begin(), lag.end(), 0) * 16 * 2, result["steps"]) << "each counts once";
      int joined = 0;  // a run may be over before the second one comes
      for (Process* actor : {first.get(), second.get()}) {
        if (actor == nullptr) continue;
        if (actor->Err().find("joined the learner") == std::string::npos) {
          actor->Signal(SIGKILL);
          actor->Wait();
          continue;
        }
        ExpectEnds(*actor, 0, "the run is over");
        ++joined;
      }
      EXPECT_GT(joined, 0);
      std::filesystem::remove_all(Path("run"));
    }
  }
}

TEST_F(ActorTest, ComeGoAndDieWhileTheLearnerGoesOn) {
  Process learner(kBinary, Learner("impala", {"--steps", "30000000", "--set", "eval_every=0"}));
  std::unique_ptr<Process> frozen = StartActor();
  ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > 0; })) << learner.Err();
  for (int round = 0; round < 8; ++round) {
    const auto actor = StartActor();
    const std::size_t lines = MetricLines("run");
    ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > lines + 2; })) << learner.Err();
    if (round == 3) frozen->Signal(SIGSTOP);  // the others are enough
    if (round % 2 == 0) {
      actor->Signal(SIGKILL);
      actor->Wait();
    } else {
      ASSERT_TRUE(actor->RunsUntil([&] { return actor->Catches(SIGTERM); }));
      actor->Signal(SIGTERM);
      ExpectEnds(*actor, 128 + SIGTERM, "interrupted after");
    }
  }
  frozen->Signal(SIGCONT);
  const std::size_t lines = MetricLines("run");
  ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > lines + 2; })) << learner.Err();
  EXPECT_NE(learner.Err().find("is gone"), std::string::npos);
  EXPECT_EQ(learner.Err().find("refused"), std::string::npos) << learner.Err();
  learner.Signal(SIGINT);
  EXPECT_EQ(learner.Wait().code, 128 + SIGINT);
  EXPECT_FALSE(Checkpoints(Path("run")).empty());
  frozen->Signal(SIGTERM);  // it waits for the learner to come back
  ExpectEnds(*frozen, 128 + SIGTERM);
}

// Actors that have no network: one is killed with whatever it has asked, one is frozen, and the run reaches its end.
TEST_F(ActorTest, CentralInferenceChoosesForThemWhoeverDies) {
  Process learner(kBinary, Learner("impala", {"--inference", "central", "--steps", "100000", "--actors", "1",
                                              "--set", "eval_every=0"}));
  const auto stays = StartActor({}, "2"), frozen = StartActor();
  ASSERT_TRUE(learner.RunsUntil([&] {
    return learner.Err().find("actor 3 at") != std::string::npos && MetricLines("run") > 0;
  })) << learner.Err();
  frozen->Signal(SIGSTOP);
  for (int i = 0; i < 3; ++i) {
    const auto victim = StartActor();
    const auto joined = [&] {
      return learner.Err().find(fmt::format("actor {} at", 4 + i)) != std::string::npos;
    };
    ASSERT_TRUE(learner.RunsUntil(joined)) << learner.Err();
    const std::size_t lines = MetricLines("run");
    ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > lines + 1; })) << learner.Err();
    victim->Signal(SIGKILL);
    victim->Wait();
  }
  const Json result = ResultOf(learner.Wait());
  EXPECT_GE(result["steps"], 100000);
  const auto lag = result["policy_lag_histogram"].get<std::vector<int>>();
  EXPECT_EQ(std::accumulate(lag.begin(), lag.end(), 0) * 16 * 2, result["steps"]) << "each counts once";
  const auto batches = result["inference_batch_histogram"].get<std::vector<std::int64_t>>();
  const auto latency = result["inference_latency_us_histogram"].get<std::vector<std::int64_t>>();
  EXPECT_GT(result["inference_batch_mean"], 2) << "an actor has two environments, and there are several";
  // What was learned from has asked once for each two samples.
  EXPECT_GE(std::accumulate(latency.begin(), latency.end(), std::int64_t{0}), result["steps"].get<int>() / 2);
  EXPECT_GT(std::accumulate(batches.begin(), batches.end(), std::int64_t{0}), 0);
  ExpectEnds(*stays, 0, "the run is over");
  frozen->Signal(SIGCONT);
  frozen->Signal(SIGTERM);  // where it does not hear that the run is over, it waits for the learner
  const Outcome outcome = frozen->Wait();
  EXPECT_TRUE(outcome.code == 0 || outcome.code == 128 + SIGTERM) << outcome.code << outcome.err;
}

// The learner is killed while they wait for choices; they go on when it comes back.
TEST_F(ActorTest, ActorsWithoutANetworkGoOnWithALearnerThatComesBack) {
  const auto actor = StartActor({}, "2");
  {
    Process learner(kBinary, Learner("appo", {"--inference", "central", "--steps", "30000000", "--set",
                                              "checkpoint_every_s=0"}));
    ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > 2; })) << learner.Err();
    learner.Signal(SIGKILL);
    learner.Wait();
  }
  const Json result = ResultOf(RunTrireme({"train", "--resume", Path("run"), "--steps", "30000", "--json"}));
  EXPECT_GE(result["steps"], 30000);
  EXPECT_TRUE(result.contains("inference_batch_histogram"));
  ExpectEnds(*actor, 0, "the run is over");
}

TEST_F(ActorTest, GoOnWithALearnerThatWasKilledAndComesBack) {
  const auto actor = StartActor();
  {
    Process learner(kBinary, Learner("impala", {"--steps", "30000000", "--set", "checkpoint_every_s=0"}));
    ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > 20; })) << learner.Err();
    learner.Signal(SIGKILL);
    learner.Wait();
  }
  ASSERT_TRUE(actor->RunsUntil([] { return true; }));
  const Json result = ResultOf(RunTrireme({"train", "--resume", Path("run"), "--steps", "300000", "--json"}));
  EXPECT_GE(result["steps"], 300000);
  ExpectEnds(*actor, 0, "the run is over");
}

// The signal comes while nobody sends anything.
TEST_F(ActorTest, ALearnerWithoutActorsSaysWhatItWaitsForAndCanBeStopped) {
  Process learner(kBinary, Learner("impala"));
  ASSERT_TRUE(learner.RunsUntil([&] {
    return learner.Err().find("no experience comes") != std::string::npos;
  })) << learner.Err();
  learner.Signal(SIGINT);
  ExpectEnds(learner, 2, "stopped while it waited for actors");
}

// It is the actor that ends, with what its environment says; the learner waits for others.
TEST_F(ActorTest, AnEnvironmentThatFailsEndsItsActorsAndNotTheLearner) {
  Process learner(kBinary,
                  Set(Args{"train", "--env", std::string("plugin:") + TRIREME_FRAGILE_PLUGIN + ":Fragile-v0",
                           "--algo", "impala", "--listen", Address(), "--out", Path("run"), "--json",
                           "--env-arg", "fault=error", "--env-arg", "at=2000"},
                      {"envs=16", "horizon=16", "steps=30000000", "eval_every=0"}));
  for (int i = 0; i < 2; ++i) {
    const auto actor = StartActor();
    ExpectEnds(*actor, 2, "Fragile-v0");
    EXPECT_FALSE(learner.EndsWithin(0)) << learner.Err();
  }
  ASSERT_TRUE(learner.RunsUntil([&] { return learner.Err().find("is gone") != std::string::npos; }));
  learner.Signal(SIGTERM);
  ExpectEnds(learner, 2, "stopped while it waited for actors");
}

// Its environments take longer than the rest of the run, so it hears nothing meanwhile. Policies are such as the system holds
// until it listens again, and such as it does not.
TEST_F(ActorTest, OneInTheMiddleOfATrajectoryHearsThatTheRunIsOver) {
  for (const Args& size : {Args{"hidden=[32]", "steps=300000"}, Args{"hidden=[700,700]", "steps=8192"}}) {
    SCOPED_TRACE(size[0]);
    Process learner(kBinary, Set(Learner("impala"), Args{"eval_every=0"} + size));
    const auto slow = StartActor();
    ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > 0; })) << learner.Err();
    slow->Signal(SIGSTOP);
    const auto other = StartActor();
    ASSERT_TRUE(learner.RunsUntil([&] { return other->Err().find("joined") != std::string::npos; }));
    ExpectEnds(*other, 0, "the run is over");
    learner.EndsWithin(5);  // long policies would be lost now if it did not wait for who has to read them
    slow->Signal(SIGCONT);
    ExpectEnds(*slow, 0, "the run is over");
    EXPECT_EQ(learner.Wait().code, 0);
    std::filesystem::remove_all(Path("run"));
  }
}

// What actors send then is refused, and they end; so does the learner, with the reason. Little waits for it from before.
TEST_F(ActorTest, ARunThatDivergesEndsItsLearner) {
  const Args impala = Learner("impala");
  for (const Args& args : {impala, impala + Args{"--inference", "central"}, Learner("appo")}) {
    Process learner(kBinary, Set(args, {"learning_rate=1e25", "activation=relu", "queue=1"}));
    const auto actor = StartActor();
    ExpectEnds(learner, 2, "training diverged");
    actor->Signal(SIGTERM);  // one that was not refused waits for the learner
    EXPECT_NE(actor->Wait().code, 0);
    std::filesystem::remove_all(Path("run"));
  }
}

TEST_F(ActorTest, MistakesAreRefused) {
  ExpectRefused(RunTrireme({"actor"}), {"--learner"});
  ExpectRefused(RunTrireme({"actor", "--learner", Address(), "--wait", "0"}),
                {"no learner has answered at unix:"});
  ExpectRefused(RunTrireme({"actor", "--learner", Address(), "--actors", "-1"}), {"actors"});
  ExpectRefused(RunTrireme({"actor", "--learner", "nothing", "--wait", "0"}), {"nothing"});
  ExpectRefused(RunTrireme(Set(Learner("impala"), {"shards=1", "envs=1024", "horizon=40000"})), {"--listen"});
  ExpectRefused(RunTrireme({"tune", "--env", "CartPole-v1", "--algo", "impala", "--set", "listen=127.0.0.1:0",
                            "--study", Path("study.db")}),
                {"listen"});
  ExpectRefused(RunTrireme(Learner("ppo")), {"ppo", "impala, appo, apex"});
  ExpectRefused(RunTrireme(Learner("impala", {"--store", "shared"})), {"--store allreduce"});
  ExpectRefused(RunTrireme(Learner("impala", {"--set", "schedule=0< 0> 1< 1>"})), {"--listen"});
  ExpectRefused(RunTrireme(Set(Learner("impala"), {"listen=nowhere:x"})), {"nowhere:x"});
  ExpectRefused(RunTrireme({"train", "--env", "CartPole-v1", "--algo", "impala", "--inference", "central"}),
                {"--actors or --listen"});
  ExpectRefused(RunTrireme(Learner("impala", {"--inference", "remote"})), {"local", "central"});
  EXPECT_FALSE(std::filesystem::exists(Path("run")));
  WriteText(Path("secret"), "a\n");
  WriteText(Path("other"), "b\n");
  Process learner(kBinary, Learner("impala", {"--token-file", Path("secret")}));
  ASSERT_TRUE(learner.RunsUntil([&] { return std::filesystem::exists(Path("learner.sock")); }))
      << learner.Err();
  for (const Args& token : {Args{}, Args{"--token-file", Path("other")}}) {
    const auto actor = StartActor(token);
    ExpectEnds(*actor, 2, "--token-file");
  }
  const auto actor = StartActor({"--token-file", Path("secret")});
  ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > 0; })) << learner.Err();
  // A second learner finds the address taken, and leaves nothing.
  Args second = Learner("impala", {"--token-file", Path("secret")});
  *std::ranges::find(second, Path("run")) = Path("second");
  const Outcome taken = RunTrireme(second);
  EXPECT_EQ(taken.code, 2);
  EXPECT_NE(taken.err.find("learner.sock"), std::string::npos) << taken.err;
  EXPECT_FALSE(std::filesystem::exists(Path("second")));
  learner.Signal(SIGTERM);
  EXPECT_EQ(learner.Wait().code, 128 + SIGTERM);
}

// Through shared memory, for which no library is loaded.
class SharedMemoryActorTest : public ActorTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    setenv("TRIREME_PLUGINS", Path("nothing").c_str(), 1);
  }
  void TearDown() override {
    setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 1);
    CliTest::TearDown();
  }
  std::string Address() const override { return "shm:" + Path("learner.sock"); }
};

TEST_F(SharedMemoryActorTest, ActorsAreKilledAndTheRunReachesItsEnd) {
  constexpr int kKilled = 6;
  Process learner(kBinary, Learner("impala", {"--steps", "2000000", "--set", "eval_every=0"}));
  for (int i = 0; i < kKilled; ++i) {
    const auto actor = StartActor({}, "2");
    const std::size_t lines = MetricLines("run");
    ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > lines + 2; })) << learner.Err();
    actor->Signal(SIGKILL);
    actor->Wait();
  }
  const auto last = StartActor({}, "2");
  const Json result = ResultOf(learner.Wait());
  EXPECT_GE(result["steps"], 2000000);
  const auto lag = result["policy_lag_histogram"].get<std::vector<int>>();
  EXPECT_EQ(std::accumulate(lag.begin(), lag.end(), 0) * 16 * 2, result["steps"]) << "each counts once";
  ExpectEnds(*last, 0, "the run is over");
  EXPECT_FALSE(std::filesystem::exists(Path("learner.sock")));
}

TEST_F(SharedMemoryActorTest, ALearnerThatWasKilledComesBackAtTheSamePlace) {
  const auto actor = StartActor();
  {
    Process learner(kBinary, Learner("impala", {"--steps", "30000000", "--set", "checkpoint_every_s=0"}));
    ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > 20; })) << learner.Err();
    learner.Signal(SIGKILL);
    learner.Wait();
  }
  ASSERT_TRUE(std::filesystem::exists(Path("learner.sock")));
  const Json result = ResultOf(RunTrireme({"train", "--resume", Path("run"), "--steps", "300000", "--json"}));
  EXPECT_GE(result["steps"], 300000);
  ExpectEnds(*actor, 0, "the run is over");
}

TEST_F(SharedMemoryActorTest, MistakesAreRefused) {
  WriteText(Path("secret"), "a\n");
  WriteText(Path("other"), "b\n");
  ExpectRefused(RunTrireme({"actor", "--learner", Address(), "--wait", "0"}),
                {"no learner has answered at shm:"});
  ExpectRefused(RunTrireme({"actor", "--learner", Address(), "--tls-ca", Path("secret")}),
                {"certificates", "shm:"});
  ExpectRefused(RunTrireme(Set(Learner("impala"), {"listen=shm:"})), {"shm:/path"});
  ExpectRefused(RunTrireme(Set(Learner("impala"), {"listen=shm:/no/such/folder/socket"})),
                {"cannot listen on shm:/no/such/folder/socket"});
  EXPECT_FALSE(std::filesystem::exists(Path("run")));
  Process learner(kBinary, Learner("impala", {"--token-file", Path("secret")}));
  ASSERT_TRUE(learner.RunsUntil([&] { return std::filesystem::exists(Path("learner.sock")); }))
      << learner.Err();
  for (const Args& token : {Args{}, Args{"--token-file", Path("other")}}) {
    const auto actor = StartActor(token);
    ExpectEnds(*actor, 2, "--token-file");
  }
  const auto actor = StartActor({"--token-file", Path("secret")});
  ASSERT_TRUE(learner.RunsUntil([&] { return MetricLines("run") > 0; })) << learner.Err();
  Args second = Learner("impala");
  *std::ranges::find(second, Path("run")) = Path("second");
  ExpectRefused(RunTrireme(second), {"learner.sock", "another server"});
  learner.Signal(SIGTERM);
  EXPECT_EQ(learner.Wait().code, 128 + SIGTERM);
}

}  // namespace
}  // namespace trireme::testing
