// Actors on three hosts who feed a learner on the fourth, replay servers on hosts of their own, and cables that are cut.
#include <csignal>
#include <memory>
#include <numeric>
#include <regex>
#include <vector>

#include "hosts_test_util.h"
#include "trireme/env/gym/test_python.h"

namespace trireme::testing {
namespace {

constexpr int kLearnerHost = 4;

class HostsWithActors : public HostsTest {
 protected:
  // A trajectory and its answer take 8 ms, whatever the machine: so slow that something can be done on the way.
  Cable cable() const override { return {.latency = std::chrono::milliseconds(2), .bytes_per_s = 25e6}; }
  void SetUp() override {
    HostsTest::SetUp();
    if (!IsSkipped()) WriteText(Path("token"), "a-secret-of-all-hosts\n");
  }

  Args Token() const { return {"--token-file", Path("token")}; }
  // Updates of 8 trajectories of 16 steps of 2 environments, two to an iteration.
  static constexpr int kTrajectory = 16 * 2;
  Args Learner(const std::string& env, const std::string& algo, const Args& more) const {
    return Set(Args{"train", "--env", env, "--algo", algo, "--json", "--out", Path("run")} + Token() + more,
               {"envs=16", "horizon=16", "hidden=[32]", "rounds=2", "eval_every=4096", "eval_episodes=20"});
  }
  void StartLearner(const Args& words) { learner_ = network_->Start(kLearnerHost, kBinary, words); }
  std::unique_ptr<Process> StartActor(int host, const std::string& whom,
                                      const std::string& actors = "1") const {
    return network_->Start(host, kBinary,
                           Args{"actor", "--learner", whom, "--actors", actors, "--wait", "60"} + Token());
  }
  static ::testing::AssertionResult Said(Process& process, const std::string& text) {
    if (process.RunsUntil([&] { return process.Err().find(text) != std::string::npos; }))
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "nobody said " << text << ": " << process.Err();
  }
  // Whether it learns from experience that comes from now on, more than could have been on its way.
  ::testing::AssertionResult GoesOn() {
    constexpr std::size_t kRows = 12;
    const std::size_t before = MetricLines("run");
    if (learner_->RunsUntil([&] { return MetricLines("run") >= before + kRows; }))
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "after " << before << " rows: " << learner_->Err();
  }
  // Expects the end of an actor's process that says so, and how many trajectories it has sent.
  static int SentUntil(Process& actor, int code, const std::string& text) {
    const Outcome outcome = actor.Wait();
    EXPECT_EQ(outcome.code, code) << outcome.err;
    const std::string said = outcome.out + outcome.err;
    std::smatch match;
    if (!std::regex_search(said, match, std::regex(text + " (\\d+) trajectories"))) {
      ADD_FAILURE() << "nothing about " << text << ": " << said;
      return 0;
    }
    return std::stoi(match[1]);
  }
  static constexpr const char *kOver = "the run is over;", *kInterrupted = "interrupted after";

  static int LearnedFrom(const Json& result) {
    const auto lag = result.value("policy_lag_histogram", std::vector<int>());
    return std::accumulate(lag.begin(), lag.end(), 0);
  }

  const std::string kAddress = Network::Address(kLearnerHost) + ":7373";
  std::unique_ptr<Process> learner_;
};

// One host is cut off for a while, another for good.
TEST_F(HostsWithActors, TheLearnerGoesOnWithThoseWhoAreThereAndReachesItsTarget) {
  StartLearner(
      Learner("CartPole-v1", "impala", {"--listen", kAddress, "--steps", "400000", "--set", "target=400"}));
  std::vector<std::unique_ptr<Process>> actors(kLearnerHost);
  for (int host = 1; host < kLearnerHost; ++host) {
    actors[host] = StartActor(host, kAddress);
    ASSERT_TRUE(Said(*learner_, "actor " + std::to_string(host - 1) + " at")) << actors[host]->Err();
  }
  ASSERT_TRUE(GoesOn());
  network_->Cut(2);
  ASSERT_TRUE(GoesOn());
  network_->Mend(2);
  // Now it is the only one: so it sends again.
  network_->Cut(1);
  network_->Cut(3);
  ASSERT_TRUE(GoesOn());
  network_->Mend(1);
  const Json result = ResultOf(learner_->Wait());
  EXPECT_TRUE(result["reached_target"]) << result;
  EXPECT_GE(result["steps"], 400'000);
  EXPECT_EQ(LearnedFrom(result) * kTrajectory, result["steps"]);
  int sent = SentUntil(*actors[1], 0, kOver) + SentUntil(*actors[2], 0, kOver);
  ASSERT_FALSE(actors[3]->EndsWithin(0)) << "nobody could tell it";
  actors[3]->Signal(SIGTERM);
  sent += SentUntil(*actors[3], 128 + SIGTERM, kInterrupted);
  EXPECT_LE(LearnedFrom(result), sent) << "some have counted twice";
}

// The learner draws from the other one meanwhile.
TEST_F(HostsWithActors, AReplayServerThatIsCutOffComesBack) {
  constexpr int kServers[] = {2, 3};
  std::vector<std::unique_ptr<Process>> servers, actors;
  std::vector<std::string> addresses;
  for (const int host : kServers) {
    addresses.push_back(Network::Address(host) + ":7474");
    servers.push_back(network_->Start(host, kBinary, Args{"replay", "--listen", addresses.back()} + Token()));
  }
  StartLearner(Learner("CartPole-v1", "apex",
                       {"--replay", addresses[0] + "," + addresses[1], "--steps", "60000", "--set",
                        "target=150", "--set", "learning_starts=2048"}));
  for (const std::string& server : addresses) actors.push_back(StartActor(1, server));
  for (const auto& server : servers) ASSERT_TRUE(Said(*server, "joined")) << learner_->Err();
  ASSERT_TRUE(GoesOn());
  network_->Cut(3);
  ASSERT_TRUE(GoesOn());
  network_->Mend(3);
  network_->Cut(2);
  ASSERT_TRUE(GoesOn());
  network_->Mend(2);
  const Json result = ResultOf(learner_->Wait());
  EXPECT_TRUE(result["reached_target"]) << result;
  EXPECT_GE(result["steps"], 60'000);
  int sent = 0;
  for (const auto& actor : actors) sent += SentUntil(*actor, 0, kOver);
  EXPECT_GT(LearnedFrom(result), 0);
  EXPECT_LE(LearnedFrom(result), sent) << "some have counted twice";
  for (const auto& server : servers) EXPECT_EQ(server->Wait().code, 0);
}

// On every host somebody is the only one for a while.
class HostsWithActorsOf : public HostsWithActors, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Sources, HostsWithActorsOf, ::testing::Values("plugin", "py", "gym"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(HostsWithActorsOf, EveryHostCollectsFromEnvironmentsOfOthers) {
  const std::string source = GetParam();
  if (source != "plugin") {
    const std::string missing = MissingInTests(source == "py" ? "numpy" : "gymnasium");
    if (!missing.empty()) GTEST_SKIP() << missing;
    ::setenv("TRIREME_PYTHON", TestPython().c_str(), 1);
  }
  const std::string env = source == "plugin" ? "plugin:" TRIREME_FRAGILE_PLUGIN ":Fragile-v0"
                          : source == "py"   ? "py:" TRIREME_PYTHON_ENVS "/trouble.py:Walk"
                                             : "gym:CartPole-v1";
  StartLearner(Learner(
      env, "impala",
      {"--listen", kAddress, "--steps", "1000000000", "--set", "eval_every=0", "--set", "eval_episodes=1"}));
  for (int host = 1; host < kLearnerHost; ++host) {
    SCOPED_TRACE(host);
    const auto actor = StartActor(host, kAddress, "2");
    ASSERT_TRUE(GoesOn()) << actor->Err();
    if (host + 1 == kLearnerHost) {
      learner_->Signal(SIGINT);
      EXPECT_EQ(learner_->Wait().code, 128 + SIGINT) << learner_->Err();
    }
    actor->Signal(SIGTERM);
    EXPECT_GT(SentUntil(*actor, 128 + SIGTERM, kInterrupted), 0);
    EXPECT_NE(actor->Err().find("joined the learner at " + kAddress + ": " + env), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::testing
