// Training through parameter servers: real servers, real workers, really killed.
#include <csignal>
#include <memory>

#include "server_util.h"

namespace trireme::testing {
namespace {

class ServerTest : public ServerCliTest {
 protected:
  // A small run through servers that are there.
  Args RunOn(const std::string& servers, const std::string& name, const Args& more = {}) const {
    return SmallRun(name) + Args{"--store", "server", "--servers", servers} + more;
  }
  std::string Sha(const Args& args) const {
    return ResultOf(RunTrireme(args)).value("params_sha256", "none");
  }
  // So slow that something can be done to it on the way.
  static Args Slowly() { return {"--straggler", "worker=0,factor=40", "--workers", "1"}; }
};

TEST_F(ServerTest, InStepItHasTheBitsOfTheAllreduceStore) {
  for (const char* algo : {"ppo", "a2c", "dqn"}) {
    const auto small = [&](const std::string& name) {
      return std::string(algo) == "ppo" ? SmallRun(name) : Set(SmallRunOf(algo, name), {"hidden=[64,64]"});
    };
    const std::string expected = Sha(small(std::string(algo) + "-threads") + Args{"--workers", "2"});
    for (const char* servers : {"1", "2"}) {
      EXPECT_EQ(Sha(small(std::string(algo) + "-" + servers) +
                    Args{"--workers", "2", "--store", "server", "--servers", servers}),
                expected)
          << algo << ", " << servers << " servers";
    }
  }
}

TEST_F(ServerTest, ThroughSharedMemoryItHasTheSameBits) {
  const std::string address = "shm:" + Path("part.sock");
  Process server(kBinary, Args{"server", "--listen", address});
  ASSERT_TRUE(server.RunsUntil([&] { return std::filesystem::exists(Path("part.sock")); }));
  const std::string expected = Sha(SmallRun("threads") + Args{"--workers", "2"});
  EXPECT_EQ(Sha(RunOn(address, "shared", {"--workers", "2"})), expected);
}

// A gradient there and the parameters back, once per update and worker; the rest are evaluations and ends.
TEST_F(ServerTest, ResultsTellWhatEveryLinkCarried) {
  constexpr double kParameters = 2 * (4 * 64 + 64 + 64 * 64 + 64) + 64 * 2 + 2 + 64 + 1;
  for (const char* pace : {"--async", "--sync"}) {
    const Args args = Set(SmallRun(pace), {"hidden=[64,64]"}) +
                      Args{"--workers", "2", "--store", "server", "--servers", "2", pace};
    const Json result = ResultOf(RunTrireme(args));
    const double workers = pace == std::string("--sync") ? 2 : 1;  // that push for one update
    EXPECT_GT(result["rounds"], 0);
    EXPECT_GE(result["bytes_per_round"], 2 * workers * kParameters * 4);
    EXPECT_LT(result["bytes_per_round"], 1.5 * 2 * workers * kParameters * 4);
    EXPECT_GE(result["messages_per_round"], 2 * 2 * workers);
    ASSERT_EQ(result["links"].size(), 4u);  // of two workers to two servers
    double bytes = 0;
    for (const Json& link : result["links"]) {
      bytes += link["bytes"].get<double>();
      EXPECT_GT(link["latency_s"], 0);
      EXPECT_GT(link["bytes_per_s"], 0);
      EXPECT_NEAR(link["estimate_s"],
                  link["messages"].get<double>() * link["latency_s"].get<double>() +
                      link["bytes"].get<double>() / link["bytes_per_s"].get<double>(),
                  1e-9);
      EXPECT_GE(link["waited_s"], 0);
    }
    EXPECT_EQ(bytes, result["bytes_sent"]);
  }
}

TEST_F(ServerTest, WorkersOfTwoProcessesMoveInStep) {
  const std::string expected = Sha(SmallRun("threads") + Args{"--workers", "2"});
  const auto server = StartServer("server");
  const Args both = {"--workers", "1", "--set", "run_workers=2"};
  Process other(kBinary, RunOn(Address("server"), "other", both));
  EXPECT_EQ(ResultOf(RunTrireme(RunOn(Address("server"), "one", both)))["params_sha256"], expected);
  EXPECT_EQ(ResultOf(other.Wait())["params_sha256"], expected);
}

TEST_F(ServerTest, AKilledServerChangesNothing) {
  const std::string expected = Sha(SmallRun("threads") + Args{"--workers", "1"});
  auto server = StartServer("server");
  Process worker(kBinary, RunOn(Address("server"), "run", Slowly()));
  for (const std::size_t lines : {2, 5}) {
    ASSERT_TRUE(worker.RunsUntil([&] { return MetricLines("run") >= lines; }));
    server->Signal(SIGKILL);
    server->Wait();
    server = StartServer("server");
  }
  EXPECT_EQ(ResultOf(worker.Wait())["params_sha256"], expected);
}

TEST_F(ServerTest, TrainingGoesOnWithoutAKilledWorkerAndWithANewOne) {
  const auto server = StartServer("server");
  const Args way = {"--async", "--set", "lease_s=0.5"};
  Process killed(kBinary, RunOn(Address("server"), "killed", way + Slowly()));
  ASSERT_TRUE(killed.RunsUntil([&] { return MetricLines("killed") >= 1; }));
  Process other(kBinary, RunOn(Address("server"), "other", way + Slowly()));
  killed.Signal(SIGKILL);
  killed.Wait();
  Process newcomer(kBinary, RunOn(Address("server"), "newcomer", way + Slowly()));
  for (Process* process : {&other, &newcomer}) EXPECT_GE(ResultOf(process->Wait()).value("steps", 0), 5120);
}

TEST_F(ServerTest, AWorkerThatWaitsForAPlaceCanBeStopped) {
  const auto server = StartServer("server");
  Process first(kBinary, RunOn(Address("server"), "first", Slowly()));
  ASSERT_TRUE(first.RunsUntil([&] { return MetricLines("first") >= 1; }));
  Process second(kBinary, RunOn(Address("server"), "second", {"--workers", "1"}));
  ASSERT_TRUE(second.RunsUntil([&] { return std::filesystem::exists(Path("second/config.toml")); }));
  second.Signal(SIGINT);
  const Outcome outcome = second.Wait();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("stopped while waiting for server"), std::string::npos) << outcome.err;
  EXPECT_EQ(first.Wait().code, 0);
}

// Of two places only one is taken: it says so, and can be stopped.
TEST_F(ServerTest, AWorkerThatWaitsForOthersSaysSoAndCanBeStopped) {
  const auto server = StartServer("server");
  Process alone("/bin/sh", Args{"-c", "exec \"$@\" 2>" + Path("said"), "sh", kBinary} +
                               RunOn(Address("server"), "run", {"--workers", "1", "--set", "run_workers=2"}));
  const auto said = [&](const std::string& text) {
    return std::filesystem::exists(Path("said")) && ReadText(Path("said")).find(text) != std::string::npos;
  };
  EXPECT_TRUE(alone.RunsUntil([&] { return said("waiting for server"); }));
  EXPECT_TRUE(said("worker 1 (not there)")) << ReadText(Path("said"));
  alone.Signal(SIGINT);
  EXPECT_EQ(alone.Wait().code, 2);
  EXPECT_TRUE(said("was stopped while waiting for server")) << ReadText(Path("said"));
}

TEST_F(ServerTest, ServersInAnotherOrderAreRefusedAndNothingIsLeftBehind) {
  const auto one = StartServer("one"), two = StartServer("two");
  const Args way = {"--async", "--workers", "1"};
  ResultOf(RunTrireme(RunOn(Address("one") + "," + Address("two"), "first", way)));
  const Args swapped = RunOn(Address("two") + "," + Address("one"), "second", way);
  ExpectRefused(RunTrireme(swapped), {"holds part 1 of 2", "not part 0", "order"});
  EXPECT_FALSE(std::filesystem::exists(Path("second")));
}

TEST_F(ServerTest, ARoundDoesNotWaitForABackupWorkerAndTheRunEndsWithoutIt) {
  const Json result = ResultOf(RunTrireme(
      RunOn("2", "run", {"--workers", "4", "--backup-workers", "1", "--straggler", "worker=3,factor=20"})));
  EXPECT_GE(result.value("steps", 0), 5120);
}

// The only worker that may lead is the one that rounds do not wait for: the others must not go on, or hand in at the
// end, without anybody to decide and to write.
TEST_F(ServerTest, ALeaderThatIsLeftBehindLeadsAgain) {
  const Json result = ResultOf(RunTrireme(
      RunOn("2", "run", {"--workers", "4", "--backup-workers", "1", "--straggler", "worker=0,factor=30"})));
  EXPECT_GE(result.value("steps", 0), 5120);
  EXPECT_EQ(result["eval_episodes"], 8);
  EXPECT_EQ(Checkpoints(Path("run")).size(), 1u);
  EXPECT_EQ(Resume("run", {"--steps", "6144"}).value("steps", 0), 6144);
}

// The first thread has ended the run before the last has joined it.
TEST_F(ServerTest, AShortRunOfManyThreadsEndsWell) {
  for (int i = 0; i < 5; ++i) {
    const Args tiny = Set(SmallRun(std::to_string(i)), {"envs=8", "horizon=8", "minibatches=1", "epochs=1",
                                                        "hidden=[8]", "eval_episodes=1", "shards=4"});
    const Json result = ResultOf(RunTrireme(tiny + Args{"--workers", "4", "--set", "steps=64", "--store",
                                                        "server", "--servers", "1", "--async"}));
    EXPECT_GE(result.value("steps", 0), 64);
    EXPECT_GE(result.value("best_steps", 0), 64);
  }
}

TEST_F(ServerTest, AnAsynchronousRunContinuesAfterAnInterruption) {
  Process worker(kBinary, RunOn("1", "run", Slowly() + Args{"--async"}));
  ASSERT_TRUE(worker.RunsUntil([&] { return MetricLines("run") >= 3; }));
  worker.Signal(SIGINT);
  EXPECT_EQ(worker.Wait().code, 130);
  EXPECT_GE(Resume("run").value("steps", 0), 5120);
}

// Of the threads of one process the first leaves as it pleases; one that rounds do not wait for is far behind then.
TEST_F(ServerTest, AnInterruptedRunEndsWithAThreadThatIsLeftBehind) {
  const Args way = {"--workers", "4", "--backup-workers", "1", "--straggler", "worker=3,factor=100"};
  for (const std::size_t lines : {1, 2, 4, 7}) {
    const std::string name = std::to_string(lines);
    Process process(kBinary, RunOn("2", name, way + Args{"--set", "steps=1000000"}));
    ASSERT_TRUE(process.RunsUntil([&] { return MetricLines(name) >= lines; }));
    process.Signal(SIGTERM);
    const Outcome outcome = process.Wait();
    EXPECT_EQ(outcome.code, 143) << outcome.err;
    EXPECT_EQ(Checkpoints(Path(name)).size(), 1u);
  }
  EXPECT_GE(Resume("1", {"--steps", "6144"}).value("steps", 0), 6144);
}

TEST_F(ServerTest, AWorkerWithoutItsServerSaysSoAndLeavesACheckpoint) {
  auto server = StartServer("server");
  Process worker(kBinary, RunOn(Address("server"), "run", Slowly() + Args{"--set", "server_wait_s=1"}));
  ASSERT_TRUE(worker.RunsUntil([&] { return MetricLines("run") >= 2; }));
  server->Signal(SIGKILL);
  server->Wait();
  const Outcome outcome = worker.Wait();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("waited 1 s for"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("--resume"), std::string::npos) << outcome.err;
  EXPECT_EQ(Checkpoints(Path("run")).size(), 1u);
  EXPECT_GE(Resume("run", {"--set", "servers=1"}).value("steps", 0), 5120);
}

TEST_F(ServerTest, AnInterruptedRunContinuesExactlyOnNewServers) {
  const std::string expected = Sha(SmallRun("threads") + Args{"--workers", "1"});
  Process worker(kBinary, RunOn("2", "run", Slowly()));
  ASSERT_TRUE(worker.RunsUntil([&] { return MetricLines("run") >= 3; }));
  worker.Signal(SIGINT);
  EXPECT_EQ(worker.Wait().code, 130);
  std::filesystem::remove_all(Path("run") + "/servers");
  EXPECT_EQ(Resume("run")["params_sha256"], expected);
}

TEST_F(ServerTest, AWorkerOfAnotherRunIsToldTheDifference) {
  const auto server = StartServer("server");
  Process first(kBinary, RunOn(Address("server"), "first", Slowly()));
  ASSERT_TRUE(first.RunsUntil([&] { return MetricLines("first") >= 1; }));
  const auto told = [&](const Args& more, const std::vector<std::string>& parts) {
    const Outcome outcome = RunTrireme(RunOn(Address("server"), "second", more + Args{"--workers", "1"}));
    EXPECT_EQ(outcome.code, 2);
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    }
  };
  told({"--seed", "77"}, {"seed", "77"});
  told({"--set", "env_max_steps=50"}, {"env \"CartPole-v1\"", "CartPole-v1 max_steps=50"});
}

TEST_F(ServerTest, AStrangerWithoutTheTokenIsRefused) {
  WriteText(Path("token"), "a-secret\n");
  const auto server = StartServer("server", {"--token-file", Path("token")});
  const Outcome outcome = RunTrireme(RunOn(Address("server"), "stranger"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("token"), std::string::npos) << outcome.err;
  EXPECT_EQ(RunTrireme(RunOn(Address("server"), "friend", {"--token-file", Path("token")})).code, 0);
}

// What a cut took is said, and given up only when somebody says so.
TEST_F(ServerTest, FilesHaveOneServerAndALossIsSaid) {
  auto server = StartServer("server");
  ExpectRefused(RunTrireme({"server", "--listen", Address("other"), "--dir", Path("server")}),
                {"another server uses", Path("server")});
  ResultOf(RunTrireme(RunOn(Address("server"), "run", {"--workers", "1"})));
  server->Signal(SIGKILL);
  server->Wait();
  const std::string log = Path("server/shard-0/shard.log0");
  std::filesystem::resize_file(log, 100'000);
  const Args again = {"server", "--listen", Address("server"), "--dir", Path("server"), "--quiet"};
  ExpectRefused(RunTrireme(again), {log, "was cut to 100000 bytes", "--accept-loss"});
  std::filesystem::remove(Path("server.sock"));
  server = StartServer("server", {"--accept-loss"});
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait().code, 0);
  server = StartServer("server");
}

TEST_F(ServerTest, WhatMakesNoSenseIsRefused) {
  ExpectRefused(RunTrireme({"server", "--durable"}), {"--dir"});
  ExpectRefused(RunTrireme({"server", "--listen", "nonsense"}), {"nonsense"});
  ExpectRefused(RunTrireme(SmallRun("a") + Args{"--servers", "2", "--store", "local"}), {"--store server"});
  ExpectRefused(RunTrireme(SmallRun("b") + Args{"--servers", "1000"}), {"servers", "64"});
  ExpectRefused(RunTrireme(SmallRun("c") + Args{"--servers", "1", "--sync", "--async"}), {"--sync"});
  ExpectRefused(RunTrireme(SmallRun("d") + Args{"--servers", "a:1,,b:2"}), {"empty address"});
  ExpectRefused(RunTrireme(SmallRun("d") + Args{"--servers", "a:1,b:0"}), {"port 0"});
  ExpectRefused(RunTrireme(SmallRun("e") + Args{"--servers", "1", "--backup-workers", "2", "--workers", "2"}),
                {"backup_workers"});
}

}  // namespace
}  // namespace trireme::testing
