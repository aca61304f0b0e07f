// Parameter servers on one host, workers on others, and a cable that is cut.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>
#include <sstream>

#include "hosts_test_util.h"

namespace trireme::testing {
namespace {

constexpr int kServerHost = 4;

class HostsWithServers : public HostsTest {
 protected:
  // A push and its answer take 8 ms, whatever the machine: so slow that something can be done on the way.
  Cable cable() const override { return {.latency = std::chrono::milliseconds(2), .bytes_per_s = 25e6}; }
  void SetUp() override {
    HostsTest::SetUp();
    if (!IsSkipped()) WriteText(Path("token"), "a-secret-of-all-hosts\n");
  }

  // As a user would: with a token, since it is for other hosts. What it says goes to Path("server.log").
  void StartServer(const Args& more = {}) {
    WriteText(Path("server.log"), "");
    const Args words = Args{"-c", "exec \"$@\" 2>" + Path("server.log"), "sh", kBinary} +
                       Args{"server", "--listen", kAddress, "--dir", Path("server"), "--audit"} + more;
    server_ = network_->Start(kServerHost, "/bin/sh", words);
  }
  Args Token() const { return {"--token-file", Path("token")}; }
  // Starts a worker on a host, with Path(Name(number)) as its folder.
  std::unique_ptr<Process> StartWorker(int number, const Args& more) {
    return network_->Start(
        number, kBinary,
        SmallRun(Name(number)) + Args{"--store", "server", "--servers", kAddress} + Token() + more);
  }
  static std::string Name(int number) { return "host" + std::to_string(number); }

  bool ServerSaid(const std::string& text) const {
    return ReadText(Path("server.log")).find(text) != std::string::npos;
  }
  // How often a worker was told that its push is done.
  std::size_t Acknowledged(int number) const {
    std::ifstream in(Path(Name(number)) + "/acknowledged-0");
    std::size_t lines = 0;
    for (std::string line; std::getline(in, line);) ++lines;
    return lines;
  }
  // Every update is in the server's list once, and every one that was acknowledged to a worker is in it.
  void Audit() const {
    std::set<std::string> applied;
    std::istringstream updates(ReadText(Path("server") + "/audit-0"));
    std::uint64_t version = 0, expected = 0;
    for (std::string worker, sequence; updates >> version >> worker >> sequence;) {
      ASSERT_EQ(version, ++expected);
      ASSERT_TRUE(applied.insert(worker + " " + sequence).second) << "twice: " << worker << " " << sequence;
    }
    std::size_t acknowledged = 0;
    for (int number = 1; number < kServerHost; ++number) {
      std::istringstream pushes(ReadText(Path(Name(number)) + "/acknowledged-0"));
      int server = 0;
      for (std::string worker, sequence; pushes >> server >> worker >> sequence; ++acknowledged)
        ASSERT_TRUE(applied.contains(worker + " " + sequence)) << "lost: " << worker << " " << sequence;
    }
    EXPECT_GT(acknowledged, 0u);
  }
  void EndServer() {
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(30).code, 0);
  }

  const std::string kAddress = Network::Address(kServerHost) + ":7171";
  std::unique_ptr<Process> server_;
};

TEST_F(HostsWithServers, InStepTheyHaveTheBitsOfOneProcess) {
  const std::string expected = FinishedRun("threads", {"--workers", "4"}).value("params_sha256", "none");
  StartServer(Token());
  const auto start = [&](int number, const char* workers) {
    return StartWorker(number, {"--workers", workers, "--set", "run_workers=4"});
  };
  const std::unique_ptr<Process> workers[] = {start(1, "1"), start(2, "1"), start(3, "2")};
  for (const auto& worker : workers) {
    const Json result = ResultOf(worker->Wait());
    EXPECT_EQ(result["params_sha256"], expected);
    ExpectLinksAreNoBetterThan(cable(), result);
    // In step, nobody can have waited less than the messages took.
    for (const Json& link : result["links"])
      EXPECT_GE(link["waited_s"], 0.5 * link["estimate_s"].get<double>());
  }
  EndServer();
}

TEST_F(HostsWithServers, AStrangerOnTheNetworkIsRefusedAndAServerWithoutATokenWarns) {
  StartServer(Token());
  const Args stranger = SmallRun("stranger") + Args{"--store", "server", "--servers", kAddress};
  const Outcome outcome = network_->Start(1, kBinary, stranger)->Wait();
  ExpectRefused(outcome, {kAddress, "token"});
  EXPECT_EQ(ResultOf(StartWorker(2, {"--workers", "1"})->Wait()).value("steps", 0), 5120);
  EXPECT_FALSE(ServerSaid("no --token-file"));
  EndServer();
  StartServer();
  EXPECT_TRUE(server_->RunsUntil([&] { return ServerSaid("no --token-file"); }));
  EndServer();
}

TEST_F(HostsWithServers, AWorkerThatIsCutOffLeavesAndComesBackAndNoUpdateIsLostOrDoubled) {
  StartServer(Token());
  const Args way = {"--async",     "--audit", "--workers",     "1",     "--set",
                    "steps=51200", "--set",   "overlap=false", "--set", "lease_s=1"};
  std::map<int, std::unique_ptr<Process>> workers;
  for (int number = 1; number < kServerHost; ++number) {
    workers[number] = StartWorker(number, way);
    ASSERT_TRUE(workers[number]->RunsUntil([&] { return Acknowledged(number) >= 1; }));
  }
  network_->Cut(2);
  ASSERT_TRUE(
      server_->RunsUntil([&] { return ServerSaid("worker 1 was not heard for 1 s and is given up"); }));
  // Nothing reaches it, and the others go on.
  const std::size_t before = Acknowledged(2), others = Acknowledged(1);
  ASSERT_TRUE(workers[3]->RunsUntil([&] { return Acknowledged(1) >= others + 8; }));
  EXPECT_EQ(Acknowledged(2), before);
  network_->Mend(2);
  EXPECT_TRUE(workers[2]->RunsUntil([&] { return Acknowledged(2) > before; }));
  for (const auto& [number, worker] : workers) {
    EXPECT_GE(ResultOf(worker->Wait()).value("steps", 0), 51200) << "host " << number;
  }
  EndServer();
  Audit();
}

class CutOffForGood : public HostsWithServers, public ::testing::WithParamInterface<int> {};
// The first host leads the run.
INSTANTIATE_TEST_SUITE_P(Hosts, CutOffForGood, ::testing::Values(1, 2),
                         [](const auto& info) { return "host" + std::to_string(info.param); });

TEST_P(CutOffForGood, InStepTheRestGoesOnAndTheWorkerSaysWhyItEnds) {
  StartServer(Token());
  std::map<int, std::unique_ptr<Process>> workers;
  for (int number = 1; number < kServerHost; ++number) {
    workers[number] = StartWorker(number, {"--workers", number == 3 ? "2" : "1", "--set", "run_workers=4",
                                           "--set", "lease_s=1", "--set", "server_wait_s=3"});
    ASSERT_TRUE(server_->RunsUntil([&] { return ServerSaid("joined from " + Network::Address(number)); }));
  }
  ASSERT_TRUE(workers[1]->RunsUntil([&] { return MetricLines("host1") >= 2; }));
  network_->Cut(GetParam());
  for (const auto& [number, worker] : workers) {
    if (number == GetParam()) continue;
    EXPECT_EQ(ResultOf(worker->Wait()).value("steps", 0), 5120) << "host " << number;
  }
  const Outcome lost = workers[GetParam()]->Wait();
  EXPECT_EQ(lost.code, 2);
  EXPECT_NE(lost.err.find("waited 3 s for server " + kAddress), std::string::npos) << lost.err;
  EXPECT_NE(lost.err.find("--resume"), std::string::npos) << lost.err;
  EXPECT_FALSE(Checkpoints(Path(Name(GetParam()))).empty());
  EndServer();
}

}  // namespace
}  // namespace trireme::testing
