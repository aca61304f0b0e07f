// Runs whose workers learn from what actors send. Where chance decides the order in which these do so, what is tested
// holds for every order.

#include "trireme/train/actors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "trireme/env/test_env.h"
#include "trireme/metrics/jsonl.h"
#include "trireme/train/test_runs.h"
#include "trireme/train/test_stop.h"

namespace trireme {
namespace {

// Eight iterations of 256 steps, each of two updates of four trajectories: 32 steps.
const Assignments kSmall = {"hidden=[16]", "steps=2048", "eval_every=1024", "eval_episodes=9",
                            "shards=4",    "envs=16",    "horizon=8",       "rounds=2",
                            "workers=1",   "actors=2",   "seed=3",          "entropy_coef=0.01"};

class ActorRuns : public RunsTest {
 protected:
  static std::unique_ptr<RunSettings> Settings(const Assignments& extra = {},
                                               const std::string& algo = "impala",
                                               const std::string& store = "allreduce") {
    return SettingsOf("CartPole-v1", algo, store, {kSmall, extra});
  }
  static std::string RefusalOf(const Assignments& extra, const std::string& algo = "impala",
                               const std::string& store = "allreduce") {
    return trireme::RefusalOf([&] { Settings(extra, algo, store); });
  }
};

std::uint64_t Sum(const std::vector<std::uint64_t>& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
}

TEST_F(ActorRuns, LearnFromEveryTrajectoryOnceAndTellItsAge) {
  for (const char* workers : {"workers=1", "workers=2"}) {
    SCOPED_TRACE(workers);
    const auto settings = Settings({workers});
    const TrainResult result = Go(*settings, Folder(workers, *settings));
    EXPECT_EQ(result.facts.steps, 2048);
    EXPECT_EQ(result.facts.actors, 2);
    EXPECT_EQ(Sum(result.facts.lag), 8u * 2 * 4);
    EXPECT_EQ(result.facts.too_old, 0u);
    EXPECT_EQ(result.facts.rounds, 16u);
    const std::vector<MetricRow> rows = ReadJsonl(RunFolder::Open(PathOf(workers)).metrics());
    ASSERT_EQ(rows.size(), 8u);
    for (const MetricRow& row : rows) {
      EXPECT_GE(row.Get("policy_lag"), 0);
      EXPECT_LE(row.Get("importance_weight"), 1);
    }
  }
}

// The same order of everything gives the same bits; another order gives others.
TEST_F(ActorRuns, AScheduleMakesThemReproducible) {
  const auto hash = [&](const std::string& name, const char* schedule) {
    const auto settings = Settings({std::string("schedule=") + schedule, "queue=8"});
    const TrainResult result = Go(*settings, Folder(name, *settings));
    EXPECT_EQ(result.facts.steps, 2048);
    return std::pair(result.facts.params_sha256, result.facts.lag);
  };
  constexpr const char* kInTurns = "0< 1< 0> 1> 0< 1< 0> 1> 2< 2>";
  constexpr const char* kLate = "0< 0> 0< 1< 1> 0> 1< 2< 2> 1>";
  const auto [in_turns, lag] = hash("a", kInTurns);
  EXPECT_EQ(hash("b", kInTurns), std::pair(in_turns, lag));
  EXPECT_EQ(lag, std::vector<std::uint64_t>{64}) << "all of the policy that learns";
  EXPECT_TRUE(Mentions(RefusalOf({std::string("schedule=") + kLate}), "takes 4 trajectories"));
  const auto [other, other_lag] = hash("c", "0< 0> 0< 0> 0< 0> 0< 0> 1< 2< 2> 0< 0> 0< 0> 0< 0> 1> 2< 2>");
  EXPECT_NE(other, in_turns);
  EXPECT_EQ(other_lag, (std::vector<std::uint64_t>{56, 8})) << "each second time one is a version old";
}

TEST_F(ActorRuns, TooOldIsLeftOut) {
  const auto settings = Settings({"max_lag=1", "queue=64", "steps=8192"});
  const TrainResult result = Go(*settings, Folder("run", *settings));
  EXPECT_LE(result.facts.lag_most, 1u);
  EXPECT_EQ(Sum(result.facts.lag), 32u * 2 * 4);
}

TEST_F(ActorRuns, AppoLearnsFromThem) {
  const auto settings = SettingsOf("CartPole-v1", "appo", "allreduce",
                                   {{"hidden=[16]", "steps=2048", "eval_every=0", "eval_episodes=9",
                                     "shards=4", "envs=16", "horizon=16", "workers=1", "actors=3"}});
  const TrainResult result = Go(*settings, Folder("run", *settings));
  EXPECT_EQ(result.facts.steps, 2048);
  EXPECT_EQ(Sum(result.facts.lag), 8u * 4);
}

// Ape-X, which learns from everything more than once.
class ApexRuns : public ActorRuns {
 protected:
  static std::unique_ptr<RunSettings> Settings(const Assignments& extra = {}) {
    return SettingsOf("CartPole-v1", "apex", "allreduce",
                      {{"hidden=[16]", "steps=2048", "eval_every=1024", "eval_episodes=9", "shards=4",
                        "envs=16", "horizon=8", "rounds=2", "updates=4", "workers=1", "actors=2", "seed=3",
                        "batch=32", "replay=1024", "learning_starts=256"},
                       extra});
  }
};

TEST_F(ApexRuns, RememberEveryTrajectoryOnceAndTellItsAge) {
  for (const char* workers : {"workers=1", "workers=2"}) {
    SCOPED_TRACE(workers);
    const auto settings = Settings({workers});
    const TrainResult result = Go(*settings, Folder(workers, *settings));
    EXPECT_EQ(result.facts.steps, 2048);
    EXPECT_EQ(Sum(result.facts.lag), 8u * 2 * 4);
  }
}

TEST_F(ApexRuns, AScheduleMakesThemReproducible) {
  const auto hash = [&](const std::string& name, const char* schedule) {
    const auto settings = Settings({std::string("schedule=") + schedule, "queue=8"});
    return Go(*settings, Folder(name, *settings)).facts.params_sha256;
  };
  constexpr const char* kInTurns = "0< 1< 0> 1> 0< 1< 0> 1> 2< 2>";
  EXPECT_EQ(hash("a", kInTurns), hash("b", kInTurns));
  EXPECT_NE(hash("c", "0< 0> 0< 0> 0< 0> 0< 0> 1< 2< 2> 0< 0> 0< 0> 0< 0> 1> 2< 2>"), hash("d", kInTurns));
}

// What is remembered is part of a checkpoint: a run that goes on learns from it at once, with actors or without.
TEST_F(ApexRuns, ARunGoesOnWithWhatItRemembers) {
  const auto begun = Settings();
  const RunFolder folder = Folder("run", *begun);
  Go(*begun, folder);
  std::int64_t steps = 2048;
  for (const char* actors : {"actors=4", "actors=0", "actors=2"}) {
    SCOPED_TRACE(actors);
    steps += 256;
    const auto longer = Settings({actors, fmt::format("steps={}", steps)});
    EXPECT_EQ(Train(*longer, folder, {.json = true}).facts.steps, steps);
    const std::vector<MetricRow> rows = ReadJsonl(folder.metrics());
    EXPECT_EQ(rows.back().Get("updates"), 2 * 4);
    EXPECT_GT(rows.back().Get("td_error"), 0) << "nothing was drawn";
  }
}

TEST(ActorsOfServers, AreSpreadEvenlyOverAllProcesses) {
  EXPECT_EQ(ActorsOfServers(0, 5, 3), (std::vector<int>{2, 2, 1}));
  for (const int processes : {1, 2, 3, 7}) {
    for (const int actors : {0, 1, 2, 5}) {
      for (const int servers : {1, 2, 3, 4}) {
        std::vector<int> all(servers);
        for (int process = 0; process < processes; ++process) {
          const std::vector<int> own = ActorsOfServers(process, actors, servers);
          EXPECT_EQ(std::accumulate(own.begin(), own.end(), 0), actors);
          for (int i = 0; i < servers; ++i) all[i] += own[i];
        }
        const auto [least, most] = std::ranges::minmax(all);
        EXPECT_LE(most - least, 1) << processes << " processes of " << actors << " for " << servers;
      }
    }
  }
}

// What was learned goes on, in new episodes, with actors or without.
TEST_F(ActorRuns, ARunGoesOn) {
  const auto begun = Settings();
  const RunFolder folder = Folder("run", *begun);
  Go(*begun, folder);
  std::int64_t steps = 2048;
  for (const char* actors : {"actors=4", "actors=0", "actors=2"}) {
    SCOPED_TRACE(actors);
    steps += 512;
    const auto longer = Settings({actors, fmt::format("steps={}", steps)});
    testing::internal::CaptureStderr();
    const TrainResult result = Train(*longer, folder, {.json = false});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(result.facts.steps, steps);
    EXPECT_TRUE(Mentions(said, "CartPole-v1 begins new episodes, all else goes on")) << said;
  }
}

// Fails in its hundredth step.
class FailingBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void StepBegin(std::span<const float> actions) override {
    if (++steps_ == 100) Fail("this environment fails");
    ForwardingBatch::StepBegin(actions);
  }

 private:
  int steps_ = 0;
};

// An actor that fails ends the run, whoever waits for what, and its cause is told.
TEST_F(ActorRuns, AnActorThatFailsSaysWhy) {
  AddEnv(ForwardingEntry<FailingBatch>("ActorRuns.Failing-v0", {.reproducible = true}));
  int runs = 0;
  for (const Assignments& extra :
       std::vector<Assignments>{{}, {"workers=2", "actors=4"}, {"schedule=0< 1< 0> 1> 0< 1< 0> 1> 2< 2>"}}) {
    const auto settings = SettingsOf("ActorRuns.Failing-v0", "impala", "allreduce", {kSmall, extra});
    const std::string why = Refusal(*settings, Folder(fmt::format("run{}", ++runs), *settings));
    EXPECT_TRUE(Mentions(why, "this environment fails")) << why;
  }
}

TEST_F(ActorRuns, StoppedTheyLeaveACheckpoint) {
  const auto settings = Settings({"steps=100000000", "eval_every=0"});
  const RunFolder folder = Folder("run", *settings);
  const TrainResult result = TrainOneIteration(*settings, folder);
  EXPECT_TRUE(result.interrupted);
  EXPECT_GT(result.facts.steps, 0);
  const auto rest = Settings({fmt::format("steps={}", result.facts.steps + 256), "eval_every=0"});
  EXPECT_EQ(Go(*rest, folder).facts.steps, result.facts.steps + 256);
}

// Without actors they run on any store, in a given order too.
TEST_F(ActorRuns, WithoutActorsAScheduleOfWorkersHolds) {
  for (const char* algo : {"impala", "appo"}) {
    const auto hash = [&](const std::string& name) {
      const auto settings =
          SettingsOf("CartPole-v1", algo, "shared",
                     {{"hidden=[16]", "steps=2048", "eval_every=0", "eval_episodes=9", "shards=1", "envs=8",
                       "horizon=16", "workers=2", "schedule=0< 1< 0> 1>"}});
      return Go(*settings, Folder(name, *settings)).facts.params_sha256;
    };
    EXPECT_EQ(hash(std::string(algo) + "1"), hash(std::string(algo) + "2"));
  }
}

TEST_F(ActorRuns, RefuseWhatDoesNotFitTogether) {
  EXPECT_TRUE(
      Mentions(trireme::RefusalOf([&] { SettingsOf("CartPole-v1", "ppo", "allreduce", {{"actors=2"}}); }),
               "impala, appo, apex"));
  EXPECT_TRUE(Mentions(RefusalOf({"workers=2", "actors=3"}), "actors = 3"));
  EXPECT_TRUE(Mentions(RefusalOf({}, "impala", "shared"), "--store allreduce"));
  EXPECT_TRUE(Mentions(RefusalOf({"model_parallel=tensor=2", "workers=2"}), "model_parallel"));
  EXPECT_TRUE(Mentions(RefusalOf({"actors=0", "queue=3"}), "--actors"));
  EXPECT_TRUE(Mentions(RefusalOf({"actors=0", "max_lag=3"}), "--actors"));
  EXPECT_TRUE(Mentions(RefusalOf({"schedule=0< 1< 0> 1> 2< 2>", "max_lag=1"}), "max_lag"));
  EXPECT_TRUE(Mentions(RefusalOf({"schedule=0< 0>"}), "worker 1"));
  EXPECT_TRUE(Mentions(RefusalOf({"workers=2", "schedule=0< 1< 0> 1> 2< 2>"}), "--workers 1"));
}

}  // namespace
}  // namespace trireme
