// Environments that step elsewhere, in two groups of which one is on its way while actions are chosen for the
// other: algorithms compute what they compute with one group.
#include <gtest/gtest.h>

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
    {"Dqn",
     "dqn",
     "CartPole",
     {"envs=24", "rounds=16", "hidden=[16]", "learning_starts=64", "epsilon_start=0.3"}},
    {"DqnMasks",
     "dqn",
     "Corridor",
     {"envs=24", "rounds=16", "hidden=[16]", "learning_starts=64", "n_step=3"}},
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
  for (const int workers : {1, 2}) {
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

}  // namespace
}  // namespace trireme
