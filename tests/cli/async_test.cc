// Asynchronous runs from outside: what they report, what a schedule makes reproducible, what one slow or
// failing worker does, and what is left of a run that stops.

#include <algorithm>
#include <csignal>
#include <cstdint>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kIteration = 512;  // steps of SmallRunOf
const std::string kInTurns = "schedule=0< 1< 0> 1>";

std::int64_t Sum(const Json& numbers) {
  std::int64_t sum = 0;
  for (const Json& number : numbers) sum += number.get<std::int64_t>();
  return sum;
}

// Gradients a worker of SmallRunOf has pushed in so many steps of its own. DQN learns once per 16 steps, from
// the 256th on.
std::int64_t Pushes(const std::string& algo, std::int64_t steps) {
  return algo == "dqn" ? steps / 16 - 15 : steps / kIteration * 4;
}

class AsyncTest : public CliTest {
 protected:
  // One shard per worker, which is as much as a worker needs.
  Args Async(const std::string& algo, const std::string& name, int workers,
             const std::vector<std::string>& assignments = {}) const {
    const Args args =
        SmallRunOf(algo, name) + Args{"--store", "shared", "--workers", std::to_string(workers)};
    return Set(Set(args, {"shards=1"}), assignments);
  }
  Json Finished(const Args& args) const { return ResultOf(RunTrireme(args)); }
  // Expects that eval measures what the run says it ended with.
  void ExpectEvalAgrees(const std::string& name, const Json& result) const {
    const std::string episodes = std::to_string(result["eval_episodes"].get<int>());
    const Json eval =
        ResultOf(RunTrireme({"eval", Path(name), "--which", "last", "--episodes", episodes, "--json"}));
    for (const char* key : {"eval_return_mean", "eval_return_std", "params_sha256"})
      EXPECT_EQ(eval[key], result[key]) << key;
  }
};

class AsyncAlgoTest : public AsyncTest, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Algos, AsyncAlgoTest, ::testing::Values("a2c", "dqn"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(AsyncAlgoTest, AnyNumberOfWorkersFinishesAndAccountsForItself) {
  std::int64_t message = 0;  // bytes of one, known after the run without anybody else
  for (const int workers : {1, 3, 5}) {
    SCOPED_TRACE(workers);
    const std::string name = std::to_string(workers);
    const Json result = Finished(Async(GetParam(), name, workers));
    EXPECT_EQ(result["algo"], GetParam());
    EXPECT_EQ(result["store"], "shared");
    EXPECT_EQ(result["workers"], workers);
    const auto steps = result["steps"].get<std::int64_t>();
    EXPECT_GE(steps, 4096);
    EXPECT_LT(steps, 4096 + workers * kIteration);  // everybody ends the iteration it is in

    ASSERT_EQ(result["per_worker"].size(), static_cast<std::size_t>(workers));
    std::int64_t own_steps = 0, pushes = 0;
    for (const Json& worker : result["per_worker"]) {
      EXPECT_GT(worker["busy_s"], 0.0);
      EXPECT_GE(worker["idle_s"], 0.0);
      own_steps += worker["steps"].get<std::int64_t>();
      pushes += Pushes(GetParam(), worker["steps"]);
    }
    EXPECT_EQ(own_steps, steps);
    EXPECT_EQ(Sum(result["staleness_histogram"]), pushes);
    EXPECT_GE(result["staleness_max"], result["staleness_mean"]);
    EXPECT_TRUE(workers > 1 || result["staleness_max"] == 0);

    // A pull and a push are one message each. At the end worker 0 tells each of the others that it is over,
    // in two doubles.
    const std::int64_t told = workers - 1, bytes = result["bytes_sent"];
    EXPECT_EQ(result["messages_sent"], 2 * pushes + told);
    if (workers == 1) message = bytes / (2 * pushes);
    EXPECT_EQ(bytes, 2 * pushes * message + 16 * told);

    const std::vector<Json> rows = TimelessRows(Path(name));
    EXPECT_EQ(rows.size(), result["per_worker"][0]["steps"].get<std::size_t>() / kIteration);
    for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_GT(rows[i]["step"], rows[i - 1]["step"]);
    EXPECT_EQ(rows.back()["step"], steps);
    EXPECT_EQ(rows.back()["eval_return_mean"], result["eval_return_mean"]);
    ExpectEvalAgrees(name, result);
  }
  EXPECT_GT(message, 4 * 4 * 16);  // at least the weights of the first layer
}

TEST_P(AsyncAlgoTest, OneWorkerIsTheLocalStoreBitForBit) {
  const Json alone = Finished(Async(GetParam(), "alone", 1));
  const Json local = Finished(
      {"train", "--config", Path("alone/config.toml"), "--store", "local", "--out", Path("local"), "--json"});
  EXPECT_EQ(local["store"], "local");
  for (const char* key : {"steps", "params_sha256", "eval_return_mean", "eval_return_std"})
    EXPECT_EQ(alone[key], local[key]) << key;
  EXPECT_EQ(TimelessRows(Path("alone")), TimelessRows(Path("local")));
}

TEST_P(AsyncAlgoTest, AScheduleMakesItReproducible) {
  const Json first = Finished(Async(GetParam(), "first", 2, {kInTurns}));
  const Json again = Finished(Async(GetParam(), "again", 2, {kInTurns}));
  for (const char* key : {"steps", "params_sha256", "eval_return_mean", "eval_return_std", "bytes_sent",
                          "messages_sent", "staleness_histogram"})
    EXPECT_EQ(again[key], first[key]) << key;
  EXPECT_EQ(TimelessRows(Path("again")), TimelessRows(Path("first")));
  // Worker 1 always misses the push of worker 0.
  const std::int64_t each = Pushes(GetParam(), 2048);
  EXPECT_EQ(first["staleness_histogram"], Json({each, each}));
  ExpectEvalAgrees("first", first);

  const Json other = Finished(Async(GetParam(), "other", 2, {"schedule=0< 0> 1< 1>"}));
  EXPECT_NE(other["params_sha256"], first["params_sha256"]);
  EXPECT_EQ(other["staleness_histogram"], Json::array({2 * each}));
  const Json seed = Finished(Async(GetParam(), "seed", 2, {kInTurns, "seed=2"}));
  EXPECT_NE(seed["params_sha256"], first["params_sha256"]);
}

TEST_P(AsyncAlgoTest, AScheduledRunThatStopsAtItsTargetIsReproducible) {
  Finished(Async(GetParam(), "whole", 2, {kInTurns}));
  std::vector<Json> rows = TimelessRows(Path("whole"));
  // The best evaluation before the end: it is reached for the first time where it was made.
  std::size_t best = 0;
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
    if (rows[i]["eval_return_mean"].is_null()) continue;
    if (rows[best]["eval_return_mean"].is_null() ||
        rows[i]["eval_return_mean"] > rows[best]["eval_return_mean"])
      best = i;
  }
  ASSERT_FALSE(rows[best]["eval_return_mean"].is_null());
  const Json mean = rows[best]["eval_return_mean"];
  rows.resize(best + 1);
  std::vector<Json> results;
  for (const std::string name : {"first", "again", "third"}) {
    results.push_back(Finished(Async(GetParam(), name, 2, {kInTurns}) + Args{"--target", mean.dump()}));
    EXPECT_EQ(results.back()["reached_target"], true);
    EXPECT_EQ(results.back()["steps_to_target"], rows.back()["step"]);
    EXPECT_EQ(results.back()["eval_return_mean"], mean);
    EXPECT_EQ(results.back()["params_sha256"], results[0]["params_sha256"]);
    EXPECT_EQ(TimelessRows(Path(name)), rows);
    ExpectEvalAgrees(name, results.back());
  }
}

TEST_F(AsyncTest, PpoFollowsAScheduleToo) {
  const auto run = [&](const std::string& name) {
    return Finished(SmallRun(name) + Args{"--store", "shared", "--workers", "2", "--set", kInTurns});
  };
  const Json first = run("first"), again = run("again");
  EXPECT_GE(first["steps"], 5120);
  EXPECT_EQ(again["params_sha256"], first["params_sha256"]);
  EXPECT_EQ(TimelessRows(Path("again")), TimelessRows(Path("first")));
}

TEST_F(AsyncTest, ASystemIsItsAlgorithmWithItsStore) {
  const auto config = [&](const std::string& name, const Args& more) {
    Finished(Args{"train", "--env", "CartPole-v1", "--workers", "2", "--steps", "1", "--out", Path(name),
                  "--json"} +
             more);
    return ReadText(Path(name + "/config.toml"));
  };
  const std::string a3c = config("a3c", {"--algo", "a3c"});
  EXPECT_NE(a3c.find("algo = \"a2c\"\n"), std::string::npos) << a3c;
  EXPECT_NE(a3c.find("store = \"shared\"\n"), std::string::npos) << a3c;
  EXPECT_EQ(config("a2c", {"--algo", "a2c", "--store", "shared"}), a3c);
  EXPECT_EQ(config("both", {"--algo", "a3c", "--store", "shared"}), a3c);
  EXPECT_EQ(config("async_dqn", {"--algo", "async_dqn"}),
            config("dqn", {"--algo", "dqn", "--store", "shared"}));

  // However the store is chosen, its preset comes with it.
  EXPECT_NE(a3c.find("\nshards = 1\n"), std::string::npos) << a3c;
  EXPECT_EQ(config("set", {"--algo", "a2c", "--set", "store=shared"}), a3c);
  WriteText(Path("store.toml"), "algo = \"a2c\"\nstore = \"shared\"\n");
  EXPECT_EQ(config("file", {"--config", Path("store.toml")}), a3c);
  WriteText(Path("system.toml"), "algo = \"a3c\"\n");
  EXPECT_EQ(config("system", {"--config", Path("system.toml")}), a3c);
  const std::string in_step = config("in-step", {"--config", Path("store.toml"), "--store", "allreduce"});
  EXPECT_NE(in_step.find("\nshards = 8\n"), std::string::npos) << in_step;
  EXPECT_EQ(in_step, config("a2c-in-step", {"--algo", "a2c"}));
}

// The parameters that were seen to reach the target are what the run leaves, though others have gone on.
TEST_F(AsyncTest, ARunThatStopsAtItsTargetKeepsWhatReachedIt) {
  for (const std::string seed : {"1", "2", "3", "4"}) {
    SCOPED_TRACE(seed);
    const Json result = Finished({"train", "--env", "CartPole-v1", "--algo", "a3c", "--workers", "2",
                                  "--target", "475", "--seed", seed, "--out", Path(seed), "--json"});
    EXPECT_EQ(result["reached_target"], true);
    EXPECT_GE(result["eval_return_mean"], 475.0);
    ExpectEvalAgrees(seed, result);
  }
}

// Worker 0 spends so long on its first evaluation that the other one does the rest of the run meanwhile.
TEST_F(AsyncTest, KeepsWhatReachedTheTargetWhenTheOthersFinishMeanwhile) {
  const Json result =
      Finished(Async("a2c", "run", 2, {"steps=12288", "eval_episodes=20000", "eval_every=512"}) +
               Args{"--target", "1"});
  EXPECT_EQ(result["reached_target"], true);
  const std::vector<Json> rows = TimelessRows(Path("run"));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["step"], result["steps_to_target"]);
  EXPECT_EQ(rows[0]["eval_return_mean"], result["eval_return_mean"]);
  ExpectEvalAgrees("run", result);
}

TEST_P(AsyncAlgoTest, ADivergingWorkerEndsTheRun) {
  for (const auto& [name, workers, schedule] :
       {std::tuple{"free", 3, std::string("schedule=")}, std::tuple{"in-turns", 2, kInTurns}}) {
    SCOPED_TRACE(name);
    const Outcome outcome = RunTrireme(
        Async(GetParam(), name, workers,
              {schedule, "learning_rate=1e30", "learning_rate_schedule=constant", "steps=1000000000"}));
    EXPECT_EQ(outcome.code, 2);
    ExpectRefused(outcome, {"diverged", "learning_rate"});
  }
}

TEST_P(AsyncAlgoTest, ADiskThatFillsUpEndsTheRunAndLosesNothing) {
  Finished(Async(GetParam(), "whole", 3));
  const auto checkpoint = fs::file_size(Checkpoints(Path("whole")).at(0));
  const Outcome failed = RunTrireme(Async(GetParam(), "run", 3, {"checkpoint_every_s=0"}),
                                    {.largest_file = static_cast<rlim_t>(checkpoint / 2)});
  EXPECT_EQ(failed.code, 2);
  ExpectRefused(failed, {"cannot write", Path("run"), "File too large"});
  EXPECT_GE(Resume("run")["steps"], 4096);
}

TEST_F(AsyncTest, AFolderThatBecomesUnwritableEndsTheRun) {
  const SmallDisk disk(Path("disk"));
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs more rights than this user has";
  WriteText(Path("disk/filler"), std::string(SmallDisk::kBytes - 100'000, 'x'));
  const Outcome failed = RunTrireme(Async("dqn", "disk/run", 3, {"replay=16384", "steps=1000000000"}));
  EXPECT_EQ(failed.code, 2);
  ExpectRefused(failed, {"cannot write", Path("disk/run"), "No space left on device"});
}

// Idle is waiting for others, busy is everything else.
double IdleShare(const Json& worker) {
  const double idle = worker["idle_s"], busy = worker["busy_s"];
  return idle / (idle + busy);
}

TEST_P(AsyncAlgoTest, InStepEverybodyWaitsForAStraggler) {
  const Args run =
      SmallRunOf(GetParam(), "slow") + Args{"--workers", "4", "--straggler", "worker=2,factor=20"};
  const Json result = Finished(run);
  ASSERT_EQ(result["per_worker"].size(), 4u);
  const Json& slow = result["per_worker"][2];
  for (const int rank : {0, 1, 3}) {
    const Json& other = result["per_worker"][rank];
    EXPECT_EQ(other["steps"], slow["steps"]);
    EXPECT_GT(IdleShare(other), 0.3) << rank;
    EXPECT_LT(other["busy_s"], slow["busy_s"]) << rank;
    EXPECT_GT(other["idle_s"], slow["idle_s"]) << rank;
  }
  // It changes when things happen, not what happens.
  EXPECT_EQ(result["params_sha256"], Finished(SmallRunOf(GetParam(), "even"))["params_sha256"]);
}

TEST_P(AsyncAlgoTest, NobodyWaitsForAStragglerOnTheirOwn) {
  const Json result = Finished(Async(GetParam(), "run", 3, {"steps=51200", "eval_every=0"}) +
                               Args{"--straggler", "factor=20,worker=1"});
  ASSERT_EQ(result["per_worker"].size(), 3u);
  const auto steps = [&](int rank) { return result["per_worker"][rank]["steps"].get<std::int64_t>(); };
  EXPECT_LT(3 * steps(1), steps(0));
  EXPECT_LT(3 * steps(1), steps(2));
  EXPECT_GE(steps(1), kIteration);
}

TEST_F(AsyncTest, MemoryForExperienceIsReported) {
  const auto bytes = [](const Json& result) { return result["experience_bytes"].get<std::int64_t>(); };
  const std::int64_t one = bytes(Finished(Async("dqn", "one", 1)));
  EXPECT_GT(one, 1024 * 2 * 4 * 4);  // both observations of each transition
  EXPECT_EQ(bytes(Finished(Async("dqn", "three", 3))), 3 * one);
  EXPECT_EQ(bytes(Finished(SmallRunOf("dqn", "in-step") + Args{"--workers", "2"})), one);
  EXPECT_LT(bytes(Finished(Async("dqn", "uniform", 1, {"prioritised=false"}))), one);
  EXPECT_GT(bytes(Finished(Async("dqn", "long", 1, {"replay=2048"}))), one * 3 / 2);

  Args args = Async("dqn", "people", 3);
  args.erase(std::find(args.begin(), args.end(), "--json"));
  const Outcome outcome = RunTrireme(args);
  EXPECT_EQ(outcome.code, 0);
  const std::string opening = outcome.err.substr(0, outcome.err.find('\n'));
  for (const char* part : {"dqn on CartPole-v1", "3 workers", "asynchronous", "memory for experience"})
    EXPECT_NE(opening.find(part), std::string::npos) << opening;
  for (const char* part : {"worker 2: ", "staleness of gradients: mean "})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace trireme::testing
