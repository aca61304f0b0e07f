// `trireme bench speedup` from outside: what it prints, what it leaves and what it refuses. Never how long
// anything takes.

#include <algorithm>
#include <csignal>
#include <set>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class BenchTest : public CliTest {
 protected:
  // Two iterations of 512 steps.
  Args Bench(const std::string& name, const Args& more = {}) const {
    return Args{"bench", "speedup",       "--env", "CartPole-v1", "--set", "envs=16",
                "--set", "horizon=32",    "--set", "hidden=[16]", "--set", "epochs=1",
                "--set", "minibatches=2", "--out", Path(name)} +
           more;
  }
  Args Tiny(const std::string& name, const Args& more = {}) const {
    return Bench(name, {"--steps", "1024"}) + more;
  }
  std::set<std::string> Files(const std::string& name) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(Path(name))) names.insert(entry.path().filename());
    return names;
  }
  // The command must be refused with exit code 2 and leave the test's folder as it was.
  void Refused(const Args& more, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(::testing::PrintToString(more));
    const auto before = Snapshot(folder_);
    const Outcome outcome = RunTrireme(Tiny("bench", more), {.folder = folder_.string()});
    ExpectRefused(outcome, parts);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(Snapshot(folder_), before);
  }

  const std::set<std::string> kResult = {"settings.toml", "speedup.json", "speedup.svg"};
};

TEST_F(BenchTest, InStepLeavesJsonAndPictureAndNoRuns) {
  const Outcome outcome = RunTrireme(Tiny("bench", {"--workers", "4,1,2", "--repeats", "2", "--json"}));
  const Json json = ResultOf(outcome);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1);
  EXPECT_EQ(Json::parse(ReadText(Path("bench/speedup.json"))), json);
  EXPECT_EQ(Files("bench"), kResult);
  EXPECT_EQ(json["env"], "CartPole-v1");
  EXPECT_EQ(json["algo"], "ppo");
  EXPECT_EQ(json["store"], "allreduce");
  EXPECT_EQ(json["asynchronous"], false);
  EXPECT_EQ(json["steps"], 1024);
  EXPECT_EQ(json["repeats"], 2);
  EXPECT_EQ(json["interrupted"], false);
  EXPECT_TRUE(json["target"].is_null());
  EXPECT_TRUE(json["straggler"].is_null());
  ASSERT_EQ(json["rows"].size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& row = json["rows"][i];
    EXPECT_EQ(row["workers"], 1 << i);
    EXPECT_EQ(row["runs"], 2);
    EXPECT_EQ(row["over_processors"], row["workers"] > json["processors"]);
    for (const char* key : {"wall_s", "cpu_s", "steps_per_s", "speedup", "efficiency", "kept"})
      EXPECT_GT(row[key], 0.0) << key;
    EXPECT_GE(row["idle"], 0.0);
    EXPECT_TRUE(row["staleness_mean"].is_null());
  }
  EXPECT_EQ(json["rows"][0]["speedup"], 1.0);
  EXPECT_GT(json["rows"][1]["bytes_per_step"], 0.0);
  EXPECT_GT(json["rows"][1]["messages_per_step"], 0.0);

  // Alternately, the same seed and the same steps each time.
  ASSERT_EQ(json["runs"].size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(json["runs"][i]["workers"], 1 << (i % 3));
    EXPECT_EQ(json["runs"][i]["seed"], 1);
    EXPECT_EQ(json["runs"][i]["steps"], 1024);
  }
  const std::string svg = ReadText(Path("bench/speedup.svg"));
  for (const char* part : {"<svg", "ppo on CartPole-v1, store allreduce", ">ideal<", "</svg>"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
}

TEST_F(BenchTest, AsynchronousTakesAnyNumberOfWorkersAndReportsStaleness) {
  const Json json = ResultOf(
      RunTrireme(Tiny("bench", {"--store", "shared", "--workers", "1,3", "--repeats", "1", "--json"})));
  EXPECT_EQ(json["store"], "shared");
  EXPECT_EQ(json["asynchronous"], true);
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][1]["workers"], 3);
  EXPECT_EQ(json["rows"][0]["staleness_mean"], 0.0);
  EXPECT_FALSE(json["rows"][1]["staleness_mean"].is_null());
  EXPECT_GE(json["runs"][1]["steps"], 1024);
}

TEST_F(BenchTest, TargetGoesThroughSeedsAndCountsMisses) {
  const Args to = {"--seed", "7", "--workers", "1,2", "--repeats", "2", "--set", "eval_every=512", "--json"};
  const Json json = ResultOf(RunTrireme(Tiny("reached", to + Args{"--target", "1"})));
  EXPECT_EQ(json["target"], 1.0);
  ASSERT_EQ(json["runs"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(json["runs"][i]["seed"], 7 + i / 2);
    EXPECT_EQ(json["runs"][i]["steps"], 512);  // any policy balances for one step
  }
  EXPECT_EQ(json["rows"][1]["reached"], 2);
  EXPECT_GT(json["rows"][1]["speedup"], 0.0);

  const Json missed = ResultOf(RunTrireme(Tiny("missed", to + Args{"--target", "1e6"})));
  EXPECT_EQ(missed["rows"][0]["reached"], 0);
  EXPECT_EQ(missed["rows"][0]["runs"], 2);
  EXPECT_TRUE(missed["rows"][0]["time_to_target_s"].is_null());
  EXPECT_TRUE(missed["rows"][1]["speedup"].is_null());
}

TEST_F(BenchTest, PeopleGetATable) {
  const Outcome outcome =
      RunTrireme(Tiny("bench", {"--workers", "1,2", "--repeats", "1", "--straggler", "worker=0,factor=2"}));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"workers", "speed-up", "efficiency", "kept", "idle %", "bytes/step", "\n      1 ",
                           "worker 0 was made 2 times slower", "speedup.svg"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << outcome.out;
  EXPECT_NE(outcome.err.find("run 2 of 2: 2 workers"), std::string::npos) << outcome.err;
}

TEST_F(BenchTest, WithoutOutAndWorkersEverythingIsChosen) {
  Args args = Tiny("unused", {"--repeats", "1", "--json"});
  const auto out = std::find(args.begin(), args.end(), "--out");
  args.erase(out, out + 2);
  for (const char* name :
       {"runs/CartPole-v1-ppo-allreduce-speedup-001", "runs/CartPole-v1-ppo-allreduce-speedup-002"}) {
    const Json json = ResultOf(RunTrireme(args, {.folder = folder_.string()}));
    EXPECT_EQ(json["rows"][0]["workers"], 1);
    EXPECT_LE(json["rows"].back()["workers"], 2 * json["processors"].get<int>());
    EXPECT_EQ(Files(name), kResult);
  }
}

TEST_F(BenchTest, InterruptKeepsWhatWasMeasured) {
  // Without end: a thousand repeats.
  Process process(kBinary, Tiny("bench", {"--workers", "1,2", "--repeats", "1000"}));
  ASSERT_TRUE(process.RunsUntil([&] { return process.Err().find("run 4 of 2000") != std::string::npos; }));
  process.Signal(SIGINT);
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_NE(outcome.out.find("interrupted: some runs are missing"), std::string::npos) << outcome.out;
  const Json json = Json::parse(ReadText(Path("bench/speedup.json")));
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_EQ(json["rows"].size(), 2u);
  EXPECT_GE(json["runs"].size(), 4u);
  EXPECT_LT(json["runs"].size(), 2000u);
  EXPECT_EQ(Files("bench"), kResult);
}

// In the warm-up or soon after.
TEST_F(BenchTest, InterruptInTheFirstRunIsCleanToo) {
  Process process(kBinary, Bench("bench", {"--steps", "1e12", "--workers", "1", "--json"}));
  ASSERT_TRUE(process.RunsUntil([&] { return process.Catches(SIGINT); }));
  process.Signal(SIGINT);
  const Json json = ResultOf(process.Wait(), 130);
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_TRUE(json["rows"].empty());
  EXPECT_EQ(Files("bench"), kResult);
}

TEST_F(BenchTest, AFailingRunLeavesNoRuns) {
  ExpectRefused(RunTrireme(Tiny("bench", {"--workers", "1", "--set", "learning_rate=1e30", "--json"})),
                {"diverged"});
  EXPECT_EQ(Files("bench"), std::set<std::string>{"settings.toml"});
}

TEST_F(BenchTest, NeverOverwrites) {
  fs::create_directory(Path("bench"));
  WriteText(Path("bench/cat.jpg"), "precious");
  Refused({}, {Path("bench"), "not empty"});
  EXPECT_EQ(RunTrireme(Tiny("done", {"--workers", "1", "--repeats", "1"})).code, 0);
  const auto before = Snapshot(folder_);
  ExpectRefused(RunTrireme(Tiny("done")), {Path("done"), "not empty"});
  EXPECT_EQ(Snapshot(folder_), before);
}

TEST_F(BenchTest, RefusesNumbersOfWorkersThatCannotBe) {
  Refused({"--workers", "0"}, {"--workers", "1 to 64"});
  Refused({"--workers", "1,-2"}, {"--workers"});
  Refused({"--workers", "1,65"}, {"--workers", "1 to 64"});
  Refused({"--workers", "1,two"}, {"--workers", "two"});
  Refused({"--workers", "[]"}, {"--workers"});
  Refused({"--workers", "1,2,2"}, {"--workers", "once"});
  Refused({"--workers", "1,3"}, {"workers = 3", "shards = 8"});
  Refused({"--workers", "1,2", "--store", "local"}, {"local", "2"});
  Refused({"--set", "workers=2"}, {"--workers 1,2,4"});
}

TEST_F(BenchTest, RefusesOtherBadInput) {
  Refused({"--repeats", "0"}, {"--repeats", "1 to 1000"});
  Refused({"--repeats", "many"}, {"--repeats", "whole number"});
  Refused({"--target", "high"}, {"--target", "number"});
  Refused({"--algo", "pppo"}, {"pppo", "'ppo'"});
  Refused({"--store", "alreduce"}, {"--store", "alreduce"});
  Refused({"--set", "gama=1"}, {"gama", "'gamma'"});
  Refused({"--config", Path("none.toml")}, {Path("none.toml")});
  Refused({"--straggler", "factor=2"}, {"--straggler", "say worker"});
  Refused({"--straggler", "worker=1,factor=2", "--workers", "1,2"}, {"no worker 1", "among 1 worker"});
  Refused({"--straggler", "worker=3,factor=2", "--workers", "2,4"}, {"no worker 3", "among 2 workers"});
  Refused({"extra"}, {"extra"});
  for (const Args& args : {Args{"bench"}, Args{"bench", "speed"}, Args{"bench", "speedup"}}) {
    const Outcome outcome = RunTrireme(args, {.folder = folder_.string()});
    ExpectRefused(outcome, {});
    EXPECT_EQ(outcome.code, 2);
  }
}

TEST_F(BenchTest, AStragglerNeedsOnlyToBeAmongTheMeasured) {
  const Json json = ResultOf(RunTrireme(
      Tiny("bench", {"--workers", "2,4", "--repeats", "1", "--straggler", "worker=1,factor=2", "--json"})));
  EXPECT_EQ(json["straggler"]["worker"], 1);
  EXPECT_TRUE(json["rows"][0]["speedup"].is_null());
  EXPECT_GT(json["rows"][0]["kept"], 0.0);
}

}  // namespace
}  // namespace trireme::testing
