// Searches whose trials run in other processes that join them, come and go: with real connections and real signals.
#include <csignal>

#include "trireme/base/plugin.h"
#include "tune_util.h"

namespace trireme::testing {
namespace {

class TuneJoinTest : public TuneTest {
 protected:
  void SetUp() override {
    TuneTest::SetUp();
    setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 1);
    if (!HavePlugin("libtrireme_grpc.so")) GTEST_SKIP() << "built without gRPC";
  }

  // A search that leaves all trials to others.
  std::unique_ptr<Process> StartSearch(const Args& more) const {
    Args args = Tune(Args{"--parallel", "0", "--listen", Address()} + more);
    auto search = std::make_unique<Process>(kBinary, args);
    EXPECT_TRUE(search->RunsUntil([&] { return std::filesystem::exists(Path("study.address")); }))
        << search->Err();
    return search;
  }
  std::unique_ptr<Process> StartWorker() const { return StartWorker({"--join", Path("study.db")}); }
  std::unique_ptr<Process> StartWorker(const Args& args) const {
    const bool says = std::ranges::find(args, "--parallel") != args.end();
    return std::make_unique<Process>(kBinary,
                                     Args{"tune"} + (says ? Args{} : Args{"--parallel", "1"}) + args);
  }
  std::string Address() const { return "unix:" + Path("search.sock"); }
  std::map<int, std::string> Values() const {
    return Column("SELECT number, value FROM trials JOIN trial_values USING (trial_id)");
  }
  // All of the study has ended, under numbers without gaps.
  void ExpectWhole(std::size_t trials) const {
    const auto states = States();
    ASSERT_EQ(states.size(), trials);
    for (std::size_t i = 0; i < trials; ++i) {
      ASSERT_TRUE(states.contains(static_cast<int>(i)));
      EXPECT_TRUE(states.at(static_cast<int>(i)) == "COMPLETE" || states.at(static_cast<int>(i)) == "PRUNED")
          << i << " " << states.at(static_cast<int>(i));
    }
  }
  static void ExpectEnds(Process& process, int code) {
    const Outcome outcome = process.Wait();
    EXPECT_EQ(outcome.code, code) << outcome.err;
  }
};

TEST_F(TuneJoinTest, AWorkerFindsWhatTheSearchWouldFindAlone) {
  const Args search = {"--method", "tpe", "--trials", "8"};
  {
    const auto worker = StartWorker();  // waits for it
    const auto process = StartSearch(search);
    ExpectEnds(*process, 0);
    ExpectEnds(*worker, 0);
  }
  ExpectWhole(8);
  // Now there is nothing left to do, and nobody needs to join for that.
  EXPECT_EQ(RunTrireme(Tune(Args{"--parallel", "0", "--listen", Address()} + search)).code, 0);
  EXPECT_FALSE(std::filesystem::exists(Path("study.address"))) << "nobody listens there any more";
  const auto proposals = Proposals(), values = Values();
  std::filesystem::remove(Path("study.db"));
  const Outcome alone = RunTrireme(Tune(Args{"--parallel", "1"} + search));
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(Proposals(), proposals);
  EXPECT_EQ(Values(), values);
}

TEST_F(TuneJoinTest, WorkersComeAndGo) {
  const auto search = StartSearch({"--trials", "24", "--steps", "8192", "--target", "400"});
  // Killed, stopped by hand, and interrupted, each in the middle of a trial; others come.
  std::vector<std::unique_ptr<Process>> workers;
  const auto running = [&](const std::string& text) {
    const std::string said = search->Err();
    return said.find(text) != std::string::npos;
  };
  workers.push_back(StartWorker());
  ASSERT_TRUE(search->RunsUntil([&] { return running("trial 1"); })) << search->Err();
  workers[0]->Signal(SIGKILL);
  workers.push_back(StartWorker());
  ASSERT_TRUE(search->RunsUntil([&] { return running("trial 3"); })) << search->Err();
  workers[1]->Signal(SIGINT);
  EXPECT_EQ(workers[1]->Wait().code, 130);
  workers.push_back(StartWorker());
  workers.push_back(StartWorker());
  ASSERT_TRUE(search->RunsUntil([&] { return running("trial 6"); })) << search->Err();
  workers[2]->Signal(SIGSTOP);  // says no more, and its connection stays
  ExpectEnds(*search, 0);
  ExpectEnds(*workers[3], 0);
  workers[2]->Signal(SIGCONT);
  workers[2]->Signal(SIGTERM);
  workers[2]->Wait();
  ExpectWhole(24);
}

TEST_F(TuneJoinTest, AWorkerWaitsForASearchThatWasKilled) {
  auto search = StartSearch({"--trials", "1000"});
  const auto worker = StartWorker();
  ASSERT_TRUE(search->RunsUntil([&] { return search->Err().find("trial 2") != std::string::npos; }));
  search->Signal(SIGKILL);
  search->Wait();
  const std::size_t begun = States().size();
  std::filesystem::remove(Path("study.address"));
  search = StartSearch({"--trials", std::to_string(begun + 4)});
  ExpectEnds(*search, 0);
  ExpectEnds(*worker, 0);
  ExpectWhole(begun + 4);
}

// A search that is interrupted leaves nothing running, and its worker says why it has nothing to do.
TEST_F(TuneJoinTest, AWorkerOfASearchThatDoesNotComeBackSaysSo) {
  const auto search = StartSearch({"--trials", "1000"});
  const auto worker = StartWorker({"--join", Address(), "--wait", "0.5"});
  ASSERT_TRUE(search->RunsUntil([&] { return search->Err().find("trial 2") != std::string::npos; }));
  search->Signal(SIGINT);
  EXPECT_EQ(search->Wait().code, 130);
  for (const auto& [number, state] : States()) EXPECT_NE(state, "RUNNING") << number;
  const Outcome outcome = worker->Wait();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("no search has answered at " + Address()), std::string::npos) << outcome.err;
}

TEST_F(TuneJoinTest, WorkersOfAPopulationMustSeeItsStates) {
  const auto search = StartSearch({"--method", "pbt", "--population", "5", "--trials", "15", "--objective",
                                   "return", "--seeds", "1", "--steps", "10240"});
  std::filesystem::rename(Path("study.states"), Path("hidden"));
  const Outcome stranger = StartWorker()->Wait();
  EXPECT_EQ(stranger.code, 2);
  EXPECT_NE(stranger.err.find("must share the folder of the study"), std::string::npos) << stranger.err;
  std::filesystem::rename(Path("hidden"), Path("study.states"));
  const auto first = StartWorker(), second = StartWorker();
  ExpectEnds(*search, 0);
  ExpectEnds(*first, 0);
  ExpectEnds(*second, 0);
  ExpectWhole(15);
}

// A trial that takes whoever runs it along is not run for ever.
TEST_F(TuneJoinTest, ATrialWhoseWorkersVanishFails) {
  auto search = StartSearch({"--trials", "1", "--steps", "100000000", "--target", "501"});
  for (int i = 0; i < 3; ++i) {
    const auto worker = StartWorker();
    ASSERT_TRUE(search->RunsUntil([&] { return States()[0] == "RUNNING"; }));
    worker->Signal(SIGKILL);
    worker->Wait();
    ASSERT_TRUE(search->RunsUntil([&] { return States()[0] != "RUNNING"; })) << i;
  }
  const auto worker = StartWorker();
  const Outcome outcome = search->Wait();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("whoever ran it was gone, 3 times"), std::string::npos) << outcome.err;
}

TEST_F(TuneJoinTest, SaysWhatCannotWork) {
  WriteText(Path("secret"), "a-secret\n");
  WriteText(Path("wrong"), "another\n");
  const auto search = StartSearch({"--trials", "1000", "--token-file", Path("secret")});
  const auto refused = [&](const Args& args, const std::vector<std::string>& parts) {
    const auto worker = StartWorker(args);
    const Outcome outcome = worker->Wait();
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    for (const std::string& part : parts) EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  };
  refused({"--join", Address()}, {"--token-file", "secret of the search"});
  refused({"--join", Address(), "--token-file", Path("wrong")}, {"--token-file", "secret of the search"});
  refused({"--join", "127.0.0.1:1", "--wait", "0.2"}, {"no search has answered at 127.0.0.1:1", "--listen"});
  refused({"--join", "nowhere", "--wait", "0.2"}, {"no search has answered at nowhere"});
  refused({"--join", Address(), "--trials", "7"}, {"leave out"});
  refused({"--join", Address(), "--env", "CartPole-v1"}, {"leave out"});
  refused({"--join", Address(), "--listen", Address()}, {"two ends"});
  refused({"--parallel", "0"}, {"--listen"});
  const Outcome taken = RunTrireme(Tune({"--study", Path("other.db"), "--listen", Address()}));
  EXPECT_EQ(taken.code, 2);
  EXPECT_NE(taken.err.find("another server does"), std::string::npos) << taken.err;
}

// Where the environment is not, all trials would fail one after the other.
TEST_F(TuneJoinTest, AWorkerThatCannotMakeTheEnvironmentRunsNothing) {
  std::filesystem::copy_file(TRIREME_FRAGILE_PLUGIN, Path("here.so"));
  const Args args = Fragile("none", {"--listen", Address(), "--trials", "1000", "--steps", "100000"});
  Args search = args;
  std::ranges::replace(search, std::string("plugin:") + TRIREME_FRAGILE_PLUGIN + ":Fragile-v0",
                       "plugin:" + Path("here.so") + ":Fragile-v0");
  Process process(kBinary, search);
  ASSERT_TRUE(process.RunsUntil([&] { return std::filesystem::exists(Path("study.address")); }))
      << process.Err();
  std::filesystem::rename(Path("here.so"), Path("gone.so"));
  const Outcome worker = StartWorker()->Wait();
  EXPECT_EQ(worker.code, 2);
  EXPECT_NE(worker.err.find("here.so"), std::string::npos) << worker.err;
  process.Signal(SIGINT);
  process.Wait();
}

}  // namespace
}  // namespace trireme::testing
