// Algorithms keep to the boundary of executor.h: they say when parameters have changed, and read outputs while
// they are there. On copies, as on a device, they then compute what they compute in place.

#include <gtest/gtest.h>

#include "trireme/algo/test_run.h"

namespace trireme {
namespace {

const RunCase kCases[] = {
    {"PpoShared",
     "ppo",
     "CartPole-v1",
     {"envs=16", "horizon=24", "hidden=[8]", "shared_tower=true", "normalise_advantages=true"}},
    {"PpoContinuous",
     "ppo",
     "Pendulum-v1",
     {"envs=16", "horizon=24", "hidden=[8,8]", "normalise_obs=true", "normalise_rewards=true"}},
    {"A2c", "a2c", "CartPole-v1", {"envs=16", "rounds=4", "hidden=[8]"}},
    {"A2cTarget",
     "a2c",
     "Pendulum-v1",
     {"envs=16", "rounds=4", "hidden=[8]", "target_tau=0.3", "value_learning_rate=0.01"}},
    {"Impala", "impala", "CartPole-v1", {"envs=16", "rounds=4", "hidden=[8]", "shared_tower=true"}},
    {"AppoContinuous", "appo", "Pendulum-v1", {"envs=16", "horizon=24", "hidden=[8]"}},
    {"Dqn",
     "dqn",
     "CartPole-v1",
     {"envs=8", "hidden=[8]", "rounds=16", "learning_starts=64", "updates=2", "target_every=3",
      "epsilon_start=0.3", "prioritised=true"}},
    {"DqnSingle",
     "dqn",
     "CartPole-v1",
     {"envs=8", "hidden=[8]", "rounds=16", "learning_starts=64", "double=false", "target_every=2",
      "target_tau=0.5", "epsilon_start=0.3", "dueling=true"}},
};

class ExecutorBoundary : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, ExecutorBoundary, testing::ValuesIn(kCases), NameOfCase);

TEST_P(ExecutorBoundary, ComputingOnCopiesChangesNothing) {
  const RunCase& c = GetParam();
  const AlgorithmRun in_place(c.algo, c.env, c.assignments);
  const AlgorithmRun on_copies(c.algo, c.env, c.assignments, AlgorithmRun::Computed::kOnCopies);
  const AlgorithmRun::Outcome expected = in_place.Iterate(1, 0, 3);
  EXPECT_NE(expected.params, in_place.initial());
  ExpectSameOutcome(on_copies.Iterate(1, 0, 3), expected);
}

TEST_P(ExecutorBoundary, ComputingOnCopiesAfterAnInterruptionChangesNothing) {
  const RunCase& c = GetParam();
  const AlgorithmRun on_copies(c.algo, c.env, c.assignments, AlgorithmRun::Computed::kOnCopies);
  AlgorithmRun::Outcome whole = AlgorithmRun(c.algo, c.env, c.assignments).Iterate(1, 0, 4);
  whole.rows.erase(whole.rows.begin(), whole.rows.begin() + 2);
  ExpectSameOutcome(on_copies.Iterate(1, 2, 4, on_copies.Iterate(1, 0, 2).state), whole);
}

TEST_P(ExecutorBoundary, ActingOnCopiesChangesNothing) {
  const RunCase& c = GetParam();
  const AlgorithmRun in_place(c.algo, c.env, c.assignments);
  const AlgorithmRun on_copies(c.algo, c.env, c.assignments, AlgorithmRun::Computed::kOnCopies);
  RandomStream random(1, Purpose::kTest, 0, 0);
  std::vector<float> obs(static_cast<std::size_t>(Algorithm::kMostActed) * in_place.env().spec.obs.size());
  for (float& value : obs) value = static_cast<float>(random.NextNormal());
  EXPECT_EQ(on_copies.Act(obs, 2), in_place.Act(obs, 2));
}

}  // namespace
}  // namespace trireme
