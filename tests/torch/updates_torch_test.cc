// Whole training by libtorch and by the fused executor: the same seed, the same experience, parameters that agree.
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/algo/test_run.h"

namespace trireme {
namespace {

using Computed = AlgorithmRun::Computed;

const RunCase kOneUpdate[] = {
    {"Ppo", "ppo", "CartPole-v1", {"envs=64", "horizon=32", "hidden=[64,64]", "epochs=1", "minibatches=1"}},
    {"PpoContinuous",
     "ppo",
     "Pendulum-v1",
     {"envs=64", "horizon=32", "hidden=[64,64]", "epochs=1", "minibatches=1", "normalise_obs=true"}},
    {"PpoShared",
     "ppo",
     "CartPole-v1",
     {"envs=64", "horizon=32", "hidden=[256,160]", "epochs=1", "minibatches=1", "shared_tower=true"}},
    {"A2c", "a2c", "CartPole-v1", {"envs=64", "rounds=1", "hidden=[64,64]"}},
    {"A2cTarget", "a2c", "Pendulum-v1", {"envs=64", "rounds=1", "hidden=[64]", "target_tau=0.3"}},
    {"Dqn",
     "dqn",
     "CartPole-v1",
     {"envs=8", "hidden=[64,64]", "rounds=1", "learning_starts=8", "updates=1", "batch=64"}},
    {"DqnDueling",
     "dqn",
     "CartPole-v1",
     {"envs=8", "hidden=[64]", "rounds=1", "learning_starts=8", "updates=1", "batch=64", "dueling=true",
      "prioritised=true"}},
};

const RunCase kSeveral[] = {
    {"Ppo", "ppo", "CartPole-v1", {"envs=16", "horizon=32", "hidden=[64,64]"}},
    {"PpoContinuous",
     "ppo",
     "Pendulum-v1",
     {"envs=16", "horizon=24", "hidden=[64,64]", "normalise_obs=true", "normalise_rewards=true"}},
    {"A2c", "a2c", "CartPole-v1", {"envs=16", "rounds=4", "hidden=[64,64]"}},
    {"Dqn",
     "dqn",
     "CartPole-v1",
     {"envs=8", "hidden=[64,64]", "rounds=16", "learning_starts=64", "updates=2", "target_every=3",
      "prioritised=true"}},
};

double Norm(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

// How far parameters by libtorch are from those by the fused executor, relative to what training has changed, which is
// little of what they are.
double Apart(const RunCase& c, int iterations) {
  const AlgorithmRun fused(c.algo, c.env, c.assignments);
  const AlgorithmRun torch(c.algo, c.env, c.assignments, Computed::kByTorch);
  const std::vector<float> expected = fused.Iterate(1, 0, iterations).params;
  const double moved = Norm(expected, fused.initial());
  EXPECT_GT(moved, 0);
  const double apart = Norm(torch.Iterate(1, 0, iterations).params, expected);
  EXPECT_GT(apart, 0) << "the same bits: both were computed by the same executor";
  return apart / moved;
}

class OneUpdateTorchTest : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, OneUpdateTorchTest, testing::ValuesIn(kOneUpdate), NameOfCase);
TEST_P(OneUpdateTorchTest, AgreesWithTheDefault) { EXPECT_LT(Apart(GetParam(), 1), 1e-5); }

class SeveralTorchTest : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, SeveralTorchTest, testing::ValuesIn(kSeveral), NameOfCase);
TEST_P(SeveralTorchTest, IterationsAgreeWithTheDefault) { EXPECT_LT(Apart(GetParam(), 4), 1e-5); }

TEST_P(SeveralTorchTest, SameSeedGivesTheSameBitsForAnyNumberOfWorkers) {
  const RunCase& c = GetParam();
  const AlgorithmRun run(c.algo, c.env, c.assignments, Computed::kByTorch);
  const AlgorithmRun::Outcome one = run.Iterate(1, 0, 3);
  ExpectSameOutcome(run.Iterate(1, 0, 3), one);
  for (const int workers : {2, 4}) {
    SCOPED_TRACE(fmt::format("{} workers", workers));
    ExpectSameOutcome(run.Iterate(workers, 0, 3), one);
  }
}

TEST_P(SeveralTorchTest, AnInterruptionChangesNoBit) {
  const RunCase& c = GetParam();
  const AlgorithmRun run(c.algo, c.env, c.assignments, Computed::kByTorch);
  AlgorithmRun::Outcome whole = run.Iterate(2, 0, 4);
  whole.rows.erase(whole.rows.begin(), whole.rows.begin() + 2);
  ExpectSameOutcome(run.Iterate(1, 2, 4, run.Iterate(2, 0, 2).state), whole);
}

}  // namespace
}  // namespace trireme
