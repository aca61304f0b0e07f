// Several processes that want the same folder: one has it, and the others leave it alone.

#include <csignal>
#include <memory>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class FolderTest : public CliTest {
 protected:
  // One that ends soon.
  Args TinyRun(const std::string& name, const std::string& seed) const {
    return Set(SmallRun(name), {"hidden=[8]", "epochs=1", "eval_every=0", "eval_episodes=1"}) +
           Args{"--workers", "1", "--seed", seed};
  }
  // Waits for a server that never comes.
  Args NoServer() const {
    return {"--store", "server", "--servers", "unix:" + Path("none"), "--set", "server_wait_s=600"};
  }
  // Is refused when the folder is already claimed: so few parameters cannot be shared out.
  Args TooManyServers() const { return {"--store", "server", "--servers", "unix:/none/a,unix:/none/b"}; }
};

TEST_F(FolderTest, OfTrainingsStartedAtOnceOneHasTheFolder) {
  constexpr int kTries = 30, kProcesses = 3;
  for (int i = 0; i < kTries; ++i) {
    const std::string name = std::to_string(i);
    std::vector<std::unique_ptr<Process>> processes;
    for (int k = 0; k < kProcesses; ++k)
      processes.push_back(std::make_unique<Process>(kBinary, TinyRun(name, std::to_string(100 + k))));
    int winners = 0;
    for (int k = 0; k < kProcesses; ++k) {
      const Outcome outcome = processes[k]->Wait();
      if (outcome.code != 0) {
        ExpectRefused(outcome, {Path(name), "choose another folder"});
        continue;
      }
      ++winners;
      const std::string seed = std::to_string(100 + k);
      EXPECT_EQ(Json::parse(ReadText(Path(name + "/result.json"))), ResultOf(outcome));
      EXPECT_NE(ReadText(Path(name + "/config.toml")).find("\nseed = " + seed + "\n"), std::string::npos);
      EXPECT_EQ(TimelessRows(Path(name)).size(), 10u);
    }
    ASSERT_EQ(winners, 1) << "try " << i;
  }
}

// The first fails before anything happens and takes its folder back, while the other one comes.
TEST_F(FolderTest, ATrainingThatFailsTakesNobodyElsesFolderAway) {
  constexpr int kTries = 30;
  for (int i = 0; i < kTries; ++i) {
    const std::string name = std::to_string(i);
    Process fails(kBinary, TinyRun(name, "1") + TooManyServers());
    Process trains(kBinary, TinyRun(name, "2"));
    EXPECT_EQ(fails.Wait().code, 2);
    const Outcome outcome = trains.Wait();
    if (outcome.code == 0) {
      EXPECT_EQ(Json::parse(ReadText(Path(name + "/result.json"))), ResultOf(outcome));
    } else {
      ExpectRefused(outcome, {Path(name), "choose another folder"});
      EXPECT_FALSE(fs::exists(Path(name)));
    }
  }
}

TEST_F(FolderTest, AResumeDoesNotTakeTheFolderOfAProcessThatWaits) {
  Process waits(kBinary, TinyRun("run", "1") + NoServer());
  ASSERT_TRUE(waits.RunsUntil([&] { return fs::exists(Path("run/config.toml")); }));
  const auto before = Snapshot(Path("run"));
  for (int i = 0; i < 5; ++i)
    ExpectRefused(RunTrireme({"train", "--resume", Path("run"), "--json"}), {"another process", Path("run")});
  EXPECT_EQ(Snapshot(Path("run")), before);
  EXPECT_FALSE(waits.EndsWithin(0));
}

TEST_F(FolderTest, ServersOfItsOwnThatARunCannotUseLeaveNothing) {
  const Args servers = {"--store", "server", "--servers", "2"};
  ExpectRefused(RunTrireme(TinyRun("run", "1") + servers), {"servers are too many"});
  EXPECT_FALSE(fs::exists(Path("run")));
}

TEST_F(FolderTest, ARefusedResumeKeepsARunThatHasNotBegun) {
  {
    Process waits(kBinary, TinyRun("run", "1") + NoServer());
    ASSERT_TRUE(waits.RunsUntil([&] { return fs::exists(Path("run/config.toml")); }));
    waits.Signal(SIGKILL);
    waits.Wait();
  }
  const auto before = Snapshot(Path("run"));
  ExpectRefused(RunTrireme(Args{"train", "--resume", Path("run"), "--json"} + TooManyServers()),
                {"servers are too many"});
  EXPECT_EQ(Snapshot(Path("run")), before);
}

}  // namespace
}  // namespace trireme::testing
