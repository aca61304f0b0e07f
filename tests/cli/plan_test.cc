// `trireme plan` from outside: what it prints, what it leaves and what it refuses. Never how long anything
// takes.

#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include "run_util.h"

namespace trireme::testing {
namespace {

class PlanTest : public CliTest {
 protected:
  // A small network; measures for an instant.
  Args Plan(const Args& more = {}) const {
    return Args{"plan",     "--env",      "CartPole-v1",   "--set",       "envs=16",
                "--set",    "horizon=32", "--set",         "hidden=[16]", "--set",
                "epochs=1", "--set",      "minibatches=2", "--seconds",   "0.2"} +
           more;
  }
  void Refused(const Args& more, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(::testing::PrintToString(more));
    const Outcome outcome = RunTrireme(Plan(more), {.folder = folder_.string()});
    ExpectRefused(outcome, parts);
    EXPECT_EQ(outcome.code, 2);
  }
};

TEST_F(PlanTest, PredictsEveryWayUpToAThousandWorkers) {
  const Outcome outcome = RunTrireme(Plan({"--json", "--latency-us", "50", "--bandwidth-gbit", "10"}));
  const Json json = ResultOf(outcome);
  EXPECT_EQ(outcome.err, "");
  std::map<std::string, std::set<int>> workers;
  for (const Json& row : json["rows"]) workers[row["way"]].insert(row["workers"].get<int>());
  for (const char* way : {"allreduce", "async", "ssp"}) {
    EXPECT_EQ(workers[way].size(), 11u) << way;
    EXPECT_EQ(*workers[way].rbegin(), 1024) << way;
  }
  EXPECT_EQ(json["rows"][0]["speedup"], 1);
  EXPECT_DOUBLE_EQ(json["constants"]["network_latency_s"]["value"].get<double>(), 50e-6);
  EXPECT_EQ(json["constants"]["network_bytes_per_s"]["value"], 1.25e9);
  EXPECT_EQ(json["constants"]["network_latency_s"]["origin"], "--latency-us");
  EXPECT_EQ(json["constants"]["round_split_s"]["origin"], "measured");
  EXPECT_EQ(json["constants"]["steps_per_round"]["value"], 256);
  EXPECT_TRUE(json["validation"].empty());
  EXPECT_EQ(json["servers_on"], "own");
  for (const Json& row : json["rows"]) EXPECT_GT(row["speedup"], 0) << row;
  EXPECT_FALSE(workers.contains("server-sync"));
  EXPECT_TRUE(json["not_predicted"].contains("server-sync"));
}

// Through a real server process.
TEST_F(PlanTest, TripsToServersAreMeasured) {
  const Json json = ResultOf(RunTrireme(Plan({"--json", "--workers-up-to", "1"})));
  const Json& constants = json["constants"];
  for (const char* name : {"trip_worker_s", "trip_server_s", "trip_latency_s", "trip_fixed_share",
                           "trip_crowding", "threads_latency_s", "threads_bytes_per_s"}) {
    ASSERT_TRUE(constants.contains(name)) << name;
    EXPECT_EQ(constants[name]["origin"], "measured") << name;
    ASSERT_TRUE(constants[name]["value"].is_number()) << name;  // infinity and NaN are not
    EXPECT_GE(constants[name]["value"], 0) << name;
  }
  EXPECT_GT(constants["trip_worker_s"]["value"], 0);
  EXPECT_GT(constants["trip_server_s"]["value"], 0);
  EXPECT_TRUE(json["notes"].empty()) << json["notes"];
}

// The program alone, as `make demo` leaves it.
TEST_F(PlanTest, WithoutServersTheirWaysAreLeftOutAndTheReasonIsSaid) {
  std::filesystem::copy_file(kBinary, Path("trireme"));
  const auto plan = [&](const Args& more) {
    const Json json = ResultOf(Process(Path("trireme"), Plan(Args{"--json"} + more)).Wait());
    std::set<std::string> ways;
    for (const Json& row : json["rows"]) ways.insert(row["way"]);
    for (const auto& [way, why] : json["not_predicted"].items()) ways.insert(way);
    EXPECT_EQ(ways, (std::set<std::string>{"allreduce", "server-sync", "shared"}));
    const std::string note = json["notes"].back();
    EXPECT_NE(note.find("left out: async"), std::string::npos) << note;
    return note;
  };
  const std::string note = plan({"--validate", "--workers-up-to", "2", "--save-constants", Path("c.toml")});
  EXPECT_NE(note.find("`make all`"), std::string::npos) << note;
  plan({"--constants", Path("c.toml")});
}

// Constants of a file, so both predictions are of the same machine; the network is as quick as the host.
TEST_F(PlanTest, ServersMayRunOnTheHostsOfTheirWorkers) {
  ResultOf(RunTrireme(Plan({"--json", "--workers-up-to", "1", "--save-constants", Path("c.toml")})));
  const auto rate = [&](const char* where, const char* way) {
    const Json json = ResultOf(
        RunTrireme(Plan({"--json", "--constants", Path("c.toml"), "--workers-up-to", "2", "--cores", "1",
                         "--latency-us", "0.001", "--bandwidth-gbit", "8000", "--servers-on", where})));
    EXPECT_EQ(json["servers_on"], where);
    double steps_per_s = 0;
    for (const Json& row : json["rows"]) {
      if (row["way"] == way && row["workers"] == 2) steps_per_s = row["steps_per_s"];
    }
    return steps_per_s;
  };
  for (const char* way : {"async", "ssp"}) {
    EXPECT_GT(rate("workers", way), 0) << way;
    EXPECT_LT(rate("workers", way), rate("own", way)) << way;
  }
}

TEST_F(PlanTest, TheSameConstantsAndSeedGiveTheSameOutput) {
  ResultOf(RunTrireme(Plan({"--json", "--workers-up-to", "2", "--save-constants", Path("c.toml")})));
  const Args again = Plan({"--constants", Path("c.toml"), "--workers-up-to", "64", "--out", Path("p.svg"),
                           "--straggler", "worker=1,factor=5,chance=0.01,slowdown=10"});
  const Outcome first = RunTrireme(again), second = RunTrireme(again);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_NE(first.out.find("straggler worker=1,factor=5"), std::string::npos) << first.out;
  EXPECT_NE(first.out.find(Path("c.toml")), std::string::npos) << first.out;
  EXPECT_NE(ReadText(Path("p.svg")).find("allreduce, simulated"), std::string::npos);
  EXPECT_NE(RunTrireme(again + Args{"--seed", "2"}).out, first.out);
}

TEST_F(PlanTest, ValidationRunsWhatThisMachineCanRun) {
  const Json json = ResultOf(RunTrireme(Plan(
      {"--json", "--validate", "--workers-up-to", "4", "--out", Path("p.svg"), "--set", "target_kl=0"})));
  ASSERT_FALSE(json["validation"].empty());
  std::map<std::string, std::string> stores;
  for (const Json& check : json["validation"]) {
    stores[check["way"]] = check["store"];
    EXPECT_GT(check["measured_steps_per_s"], 0);
    EXPECT_TRUE(check["speedup_error"].is_number());
    EXPECT_EQ(check["measured_staleness"].is_null(), check["way"] == "allreduce");
  }
  const std::map<std::string, std::string> all = {
      {"allreduce", "allreduce"}, {"async", "server"}, {"ssp", "server"}, {"shared", "shared"}};
  EXPECT_EQ(stores, all) << json["notes"];
  for (const auto& [way, store] : all) {
    EXPECT_NE(ReadText(Path("p.svg")).find(way + ", measured"), std::string::npos) << way;
  }
}

// What a round and a message take is measured with them.
TEST_F(PlanTest, PrecisionCodecsAndSplitsArePlanned) {
  const auto plan = [&](const Args& more) { return ResultOf(RunTrireme(Plan(Args{"--json"} + more))); };
  const auto constant = [](const Json& json, const char* name) {
    return json["constants"][name]["value"].get<double>();
  };
  const Json coded = plan({"--compress", "int8", "--precision", "bf16", "--cores", "1"});
  EXPECT_EQ(coded["variant"], "precision=bf16 compress=int8");
  EXPECT_LT(constant(coded, "exchange_bytes"), 4 * constant(coded, "floats"));
  EXPECT_GT(constant(coded, "decode_s"), 0);
  std::set<std::string> ways;
  for (const Json& row : coded["rows"]) ways.insert(row["way"]);
  EXPECT_EQ(ways, (std::set<std::string>{"allreduce", "async", "ssp"}));
  EXPECT_NE(coded["notes"].dump().find("left out: shared: compress"), std::string::npos) << coded["notes"];

  const Json averaged = plan({"--local-steps", "4", "--workers-up-to", "2"});
  EXPECT_EQ(constant(averaged, "exchanges_per_round"), 0.25);

  if (std::thread::hardware_concurrency() < 2) return;
  const Json split =
      plan({"--model-parallel", "tensor=2", "--cores", "2", "--workers-up-to", "8", "--validate"});
  EXPECT_EQ(constant(split, "members"), 2);
  std::set<int> workers;
  for (const Json& row : split["rows"]) {
    EXPECT_EQ(row["way"], "allreduce");
    workers.insert(row["workers"].get<int>());
  }
  EXPECT_EQ(workers, (std::set<int>{2, 4, 8}));
  EXPECT_EQ(split["validation"][0]["workers"], 2);
}

// An actor and a learner, each as it is alone.
TEST_F(PlanTest, ActorsOnOtherHostsArePlanned) {
  for (const char* algo : {"impala", "appo", "apex"}) {
    SCOPED_TRACE(algo);
    const Outcome outcome =
        RunTrireme({"plan",          "--env",     "CartPole-v1", "--algo",     algo,
                    "--set",         "envs=16",   "--set",       "horizon=16", "--set",
                    "hidden=[16]",   "--seconds", "0.2",         "--actors",   "12",
                    "--actor-hosts", "3",         "--cores",     "4",          "--bandwidth-gbit",
                    "0.1",           "--json",    "--out",       Path("p.svg")});
    const Json json = ResultOf(outcome);
    EXPECT_EQ(outcome.err, "");
    std::vector<std::vector<int>> hosts;
    for (const Json& row : json["rows"]) hosts.push_back({row["actors"], row["hosts"]});
    EXPECT_EQ(hosts, (std::vector<std::vector<int>>{{1, 1}, {2, 2}, {4, 3}, {8, 3}, {12, 3}}));
    const Json& constants = json["constants"];
    for (const char* name : {"actor_steps_per_s", "actor_processors", "learner_steps_per_s",
                             "trajectory_bytes", "policy_bytes"}) {
      EXPECT_GT(constants[name]["value"], 0) << name;
      EXPECT_EQ(constants[name]["origin"], "measured") << name;
    }
    EXPECT_EQ(constants["trajectory_steps"]["value"], 16 * 2);
    EXPECT_EQ(constants["network_bytes_per_s"]["origin"], "--bandwidth-gbit");
    for (const Json& row : json["rows"]) {
      EXPECT_GT(row["steps_per_s"], 0);
      EXPECT_LE(row["steps_per_s"], constants["learner_steps_per_s"]["value"]);
    }
    EXPECT_NE(ReadText(Path("p.svg")).find("sum of actors alone"), std::string::npos);
  }
}

TEST_F(PlanTest, WithoutALibraryActorsAreMeasuredThroughSharedMemory) {
  std::filesystem::copy_file(kBinary, Path("trireme"));
  const Json json = ResultOf(Process(Path("trireme"), {"plan", "--env", "CartPole-v1", "--algo", "impala",
                                                       "--seconds", "0.2", "--actors", "2", "--json"})
                                 .Wait());
  EXPECT_EQ(json["rows"].size(), 2u);
}

TEST_F(PlanTest, InterruptWhileActorsAreMeasured) {
  Process process(kBinary,
                  {"plan", "--env", "CartPole-v1", "--algo", "impala", "--actors", "4", "--seconds", "3600"});
  ASSERT_TRUE(process.RunsUntil([&] { return process.Catches(SIGINT); }));
  process.Signal(SIGINT);
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

TEST_F(PlanTest, RefusesWhatMakesNoSenseWithActors) {
  const auto refused = [&](const std::string& algo, const Args& more, const std::vector<std::string>& parts) {
    SCOPED_TRACE(::testing::PrintToString(more));
    const Outcome outcome = RunTrireme(Args{"plan", "--env", "CartPole-v1", "--algo", algo, "--json"} + more);
    ExpectRefused(outcome, parts);
    EXPECT_EQ(outcome.code, 2);
  };
  const Args actors = {"--actors", "4"};
  refused("ppo", actors, {"ppo", "impala, appo, apex"});
  refused("impala", {"--actors", "-1"}, {"--actors"});
  refused("impala", {"--actors", "few"}, {"--actors", "few"});
  refused("impala", {"--actor-hosts", "4"}, {"--actor-hosts 4", "--actors"});
  refused("impala", {"--set", "actors=4"}, {"--actors"});
  refused("impala", {"--set", "listen=127.0.0.1:0"}, {"--actors"});
  refused("apex", actors + Args{"--set", "replay_servers=127.0.0.1:1"}, {"replay_servers"});
  refused("impala", actors + Args{"--set", "schedule=0< 0> 1< 1>"}, {"schedule"});
  refused("impala", actors + Args{"--store", "shared"}, {"--store allreduce"});
  for (const Args& each : {Args{"--validate"},
                           {"--workers-up-to", "4"},
                           {"--ssp", "2"},
                           {"--constants", "c.toml"},
                           {"--save-constants", "c.toml"},
                           {"--straggler", "worker=1,factor=5"}})
    refused("impala", actors + each, {each[0], "--actors"});
}

TEST_F(PlanTest, InterruptWhileMeasuringLeavesNothing) {
  Args args = Plan({"--json", "--save-constants", Path("c.toml")});
  std::ranges::replace(args, "0.2", "3600");
  Process process(kBinary, args);
  ASSERT_TRUE(process.RunsUntil([&] { return process.Catches(SIGINT); }));
  process.Signal(SIGINT);
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_FALSE(std::filesystem::exists(Path("c.toml")));
}

TEST_F(PlanTest, RefusesWhatMakesNoSense) {
  Refused({"--latency-us", "fast"}, {"--latency-us", "fast"});
  Refused({"--bandwidth-gbit", "0"}, {"--bandwidth-gbit", "above 0"});
  Refused({"--workers-up-to", "0"}, {"--workers-up-to"});
  Refused({"--cores", "0"}, {"--cores"});
  Refused({"--ssp", "-1"}, {"--ssp"});
  Refused({"--servers-on", "mars"}, {"--servers-on", "workers"});
  Refused({"--servers", "0"}, {"--servers"});
  Refused({"--seconds", "soon"}, {"--seconds"});
  Refused({"--straggler", "worker=1"}, {"--straggler", "factor"});
  Refused({"--straggler", "chance=0.1"}, {"--straggler", "slowdown"});
  Refused({"--straggler", "speed=5"}, {"--straggler", "speed"});
  Refused({"--constants", Path("none.toml")}, {"none.toml"});
  Refused({"--out", Path("none/plan.svg")}, {"--out", "there is no folder " + Path("none")});
  Refused({"--compress", "zip"}, {"compress", "zip"});
  Refused({"--model-parallel", "tensor=3"}, {"tensor=3"});
  Refused({"--model-parallel", "tensor=2", "--cores", "1"}, {"--cores 1", "on one host"});
  Refused({"--model-parallel", "tensor=2", "--compress", "int8"}, {"does not go together"});
  Refused({"--save-constants", Path("none/here.toml")}, {"--save-constants", "there is no folder"});
}

}  // namespace
}  // namespace trireme::testing
