// Environments that step elsewhere, where all shards of a worker are on their way while actions are chosen for one:
// algorithms compute what they compute with one shard after the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "trireme/algo/test_run.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

// Every shard has three environments: one alone, and two.
const RunCase kCases[] = {
    {"Ppo", "ppo", "CartPole", {"envs=24", "horizon=16", "hidden=[16]"}},
    {"PpoNormalised", "ppo", "Pendulum", {"envs=24", "horizon=70", "hidden=[16]", "normalise_obs=true"}},
    {"PpoMasks", "ppo", "Corridor", {"envs=24", "horizon=16", "hidden=[16]"}},
    {"A2cParts", "a2c", "Dials", {"envs=24", "rounds=4", "hidden=[16]"}},
    {"ImpalaMasks", "impala", "Corridor", {"envs=24", "rounds=4", "hidden=[16]"}},
    {"AppoParts", "appo", "Dials", {"envs=24", "horizon=16", "hidden=[16]"}},
    {"Dqn",
     "dqn",
     "CartPole",
     {"envs=24", "rounds=16", "hidden=[16]", "learning_starts=64", "epsilon_start=0.3"}},
    {"DqnMasks",
     "dqn",
     "Corridor",
     {"envs=24", "rounds=16", "hidden=[16]", "learning_starts=64", "n_step=3"}},
    {"PpoOneEach", "ppo", "CartPole", {"envs=8", "horizon=32", "hidden=[16]"}},
    {"A2cTarget", "a2c", "CartPole", {"envs=8", "rounds=4", "hidden=[16]", "target_tau=0.5"}},
    {"DqnOneEach",
     "dqn",
     "CartPole",
     {"envs=8", "rounds=8", "horizon=2", "hidden=[16]", "batch=16", "learning_starts=64"}},
};

class StepsElsewhere : public testing::TestWithParam<RunCase> {
 protected:
  static void SetUpTestSuite() {
    Add("CartPole", ForwardingEntry<ThreadedBatch>("CartPole", {.snapshots = true, .reproducible = true}));
    Add("Pendulum", FindEnv("Pendulum-v1"));
    Add("Corridor", SoaEntry<Corridor>());
    Add("Dials", SoaEntry<Dials>());
  }
  static void Add(const std::string& name, EnvEntry env) {
    env.options = nullptr;  // they are those of the environment it was made of
    for (const bool elsewhere : {false, true}) {
      env.facts.steps_elsewhere = elsewhere;
      env.spec.name = NameOf(name, elsewhere);
      AddEnv(env);
    }
  }
  static std::string NameOf(const std::string& name, bool elsewhere) {
    return fmt::format("StepsElsewhereTest.{}-v{:d}", name, elsewhere);
  }
  static AlgorithmRun Run(bool elsewhere) {
    const RunCase& c = GetParam();
    return {c.algo, NameOf(c.env, elsewhere), c.assignments};
  }
};
INSTANTIATE_TEST_SUITE_P(Cases, StepsElsewhere, testing::ValuesIn(kCases), NameOfCase);

TEST_P(StepsElsewhere, ChangesNothing) {
  const AlgorithmRun::Outcome expected = Run(false).Iterate(1, 0, 3);
  for (const int workers : {1, 2, 4}) {
    const AlgorithmRun::Outcome found = Run(true).Iterate(workers, 0, 3);
    EXPECT_EQ(found.params, expected.params);
    ExpectSameRows(found.rows, expected.rows);
  }
}

TEST_P(StepsElsewhere, ContinuesBitForBit) {
  RunCase c = GetParam();
  const std::string env = NameOf(c.env, true);
  c.env = env.c_str();
  ExpectContinuationWithAnotherNumberOfWorkers(c);
}

// Of all workers, since they move in step.
TEST(StepsElsewhereTogether, AllShardsAreOnTheirWayAtOnce) {
  for (const auto& [algo, more, steps] :
       {std::tuple{"ppo", Assignments{"horizon=8", "minibatches=2"}, 8},
        std::tuple{"a2c", Assignments{"horizon=2", "rounds=3"}, 6},
        std::tuple{"dqn", Assignments{"horizon=1", "rounds=5", "learning_starts=0", "batch=16"}, 5}}) {
    for (const int workers : {1, 2, 4}) {
      for (const int envs : {1, 3}) {
        SCOPED_TRACE(fmt::format("{}, {} workers, {} environments in a shard", algo, workers, envs));
        Meeting meeting(AlgorithmRun::kShards * std::min(envs, 2));
        const EnvEntry env = MeetingEntry(FindEnv("CartPole-v1"), meeting);
        Assignments assignments{fmt::format("envs={}", AlgorithmRun::kShards * envs), "hidden=[16]"};
        assignments.insert(assignments.end(), more.begin(), more.end());
        AlgorithmRun(algo, env, assignments).Iterate(workers, 0, 2);
        EXPECT_TRUE(meeting.Met(2 * steps));
      }
    }
  }
}

}  // namespace
}  // namespace trireme
