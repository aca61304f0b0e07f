// IMPALA and APPO, as workers that collect for themselves and as learners of what actors send.
#include "trireme/algo/impala.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "trireme/algo/test_run.h"
#include "trireme/algo/vtrace_learner.h"
#include "trireme/comm/group_of_one.h"

namespace trireme {
namespace {

const RunCase kRunCases[] = {
    {"Impala", "impala", "CartPole-v1", {"envs=16", "rounds=4", "hidden=[16,16]"}},
    {"ImpalaShared",
     "impala",
     "CartPole-v1",
     {"envs=16", "rounds=4", "hidden=[16]", "shared_tower=true", "vtrace_lambda=0.9"}},
    {"ImpalaSeveralPasses", "impala", "CartPole-v1", {"envs=16", "horizon=40", "rounds=1", "hidden=[256]"}},
    // Episodes are cut off by the limit of 200 steps.
    {"ImpalaPendulum", "impala", "Pendulum-v1", {"envs=8", "horizon=70", "rounds=2", "hidden=[16]"}},
    {"Appo", "appo", "CartPole-v1", {"envs=16", "horizon=24", "hidden=[16,16]"}},
    {"AppoPlain",
     "appo",
     "CartPole-v1",
     {"envs=16", "horizon=24", "hidden=[16]", "normalise_advantages=false", "epochs=3", "minibatches=1"}},
    {"AppoPendulum", "appo", "Pendulum-v1", {"envs=8", "horizon=90", "hidden=[16]"}},
};

class VtraceCases : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, VtraceCases, testing::ValuesIn(kRunCases), NameOfCase);

TEST_P(VtraceCases, BitIdenticalForAnyNumberOfWorkers) { ExpectSameBitsForAnyNumberOfWorkers(GetParam()); }
TEST_P(VtraceCases, ContinuesBitForBitWithAnotherNumberOfWorkers) {
  ExpectContinuationWithAnotherNumberOfWorkers(GetParam());
}

TEST(Impala, RowsHoldWhatWasMeasured) {
  for (const char* algo : {"impala", "appo"}) {
    const AlgorithmRun run(algo, "CartPole-v1", {"envs=16", "horizon=64", "hidden=[16]"});
    const MetricRow row = run.Iterate(2, 0, 1).rows[0];
    ExpectPromisedRow(algo, row);
    EXPECT_GT(row.Get("episodes"), 10);
    EXPECT_NEAR(row.Get("episode_return_mean"), 22, 10);  // of a policy that knows nothing
    EXPECT_NEAR(row.Get("entropy"), std::log(2.0), 0.05);
    EXPECT_GT(row.Get("grad_norm"), 0);
  }
  // What a worker has collected with the very parameters that it learns with counts fully.
  const AlgorithmRun one("impala", "CartPole-v1", {"envs=16", "rounds=1", "hidden=[16]"});
  EXPECT_NEAR(one.Iterate(1, 0, 1).rows[0].Get("importance_weight"), 1, 1e-5);
}

TEST(Impala, ActsWithoutExploring) {
  for (const char* algo : {"impala", "appo"}) {
    const AlgorithmRun run(algo, "Acrobot-v1", {"hidden=[16]"});
    const std::vector<float> obs(3 * 6, 0.3f);
    const std::vector<float> actions = run.Act(obs);
    EXPECT_EQ(actions, run.Act(obs));
    for (const float action : actions) EXPECT_TRUE(action == 0 || action == 1 || action == 2);
  }
}

TEST(Impala, DivergenceIsAnErrorThatSaysWhatToDo) {
  ExpectDivergenceIsAnError("impala", {"envs=8", "horizon=8", "rounds=1", "hidden=[8]"});
  ExpectDivergenceIsAnError("appo", {"envs=8", "horizon=8", "hidden=[8]"});
}

TEST(ImpalaSettings, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(Refusal("impala", {}), "");
  EXPECT_EQ(Refusal("appo", {}), "");
  EXPECT_TRUE(Mentions(Refusal("impala", {"envs=12"}), "envs = 12"));
  EXPECT_TRUE(Mentions(Refusal("appo", {"envs=8", "horizon=2", "minibatches=4"}), "minibatches = 4"));
  ExpectOutOfRange("impala", {"rho_bar=0", "c_bar=-1", "vtrace_lambda=1.1", "gamma=2", "rounds=0"});
}

// ---- Learning from what was sent ----

// Hands out what it was given.
class Given final : public ExperienceSource {
 public:
  explicit Given(std::vector<const Trajectory*> trajectories) : trajectories_(std::move(trajectories)) {}
  std::span<const Trajectory* const> Next(std::span<const float>) override { return trajectories_; }

 private:
  std::vector<const Trajectory*> trajectories_;
};

struct Learner {
  explicit Learner(const std::string& algo, const Assignments& assignments)
      : settings(SettingsWith(algo, assignments)),
        network(settings->MakeNetwork(env.spec)),
        executor(MakeExecutor(network, {})),
        params(network.param_count()) {
    network.Initialise(3, params);
  }
  // Parameters after one iteration that learns from `given`, or from what it collects itself.
  std::vector<float> Learn(ExperienceSource* given) const {
    GroupOfOne alone;
    const auto store = MakeAllReduceStore(alone.comm(), settings->optimizer(), params);
    const auto algorithm = settings->Make(
        {.env = env, .executor = *executor, .store = *store, .seed = 7, .shards = 1, .experience = given});
    MetricRow row;
    algorithm->Iterate(0, row);
    weight = row.Get("importance_weight");
    return {store->params().begin(), store->params().end()};
  }
  Trajectory Collect(std::span<const float> with, int index) const {
    const auto [steps, envs] = settings->TrajectorySize(1);
    const auto acting = settings->MakeActing(env.spec, *executor, envs);
    Collector collector(env, {index, envs, 7}, steps, *acting);
    Trajectory trajectory;
    collector.Collect(with, trajectory);
    return trajectory;
  }

  EnvEntry env = FindEnv("CartPole-v1");
  std::unique_ptr<AlgorithmSettings> settings;
  Network network;
  std::unique_ptr<const Executor> executor;
  std::vector<float> params;
  mutable double weight = 0;
};

// An actor with the learner's parameters and the number of its shard collects what the learner would have collected.
TEST(Impala, LearnsFromAnActorWhatItWouldFromItself) {
  for (const char* algo : {"impala", "appo"}) {
    const Learner learner(algo, algo == std::string("impala")
                                    ? Assignments{"envs=8", "rounds=1", "hidden=[16]"}
                                    : Assignments{"envs=8", "hidden=[16]"});
    const Trajectory trajectory = learner.Collect(learner.params, 0);
    EXPECT_GT(trajectory.episodes.count, 0);
    Given given({&trajectory});
    const std::vector<float> from_actor = learner.Learn(&given);
    EXPECT_NE(from_actor, learner.params);
    EXPECT_EQ(from_actor, learner.Learn(nullptr)) << algo;
  }
}

// Of a policy that acted quite differently less counts.
TEST(Impala, OlderPoliciesCountLess) {
  const Learner learner("impala", {"envs=8", "rounds=1", "hidden=[16]", "policy_gain=1"});
  std::vector<float> other(learner.params.size());
  learner.network.Initialise(4, other);
  const Trajectory trajectory = learner.Collect(other, 0);
  Given given({&trajectory});
  learner.Learn(&given);
  EXPECT_LT(learner.weight, 0.99);
  EXPECT_GT(learner.weight, 0.3);
}

// Each actor has environments and randomness of its own; none repeats itself.
TEST(Impala, ActorsSeeDifferentThings) {
  const Learner learner("impala", {"envs=8", "hidden=[16]"});
  const auto same = [](const Trajectory& a, const Trajectory& b) { return std::ranges::equal(a.obs, b.obs); };
  const Trajectory first = learner.Collect(learner.params, 0);
  EXPECT_TRUE(same(first, learner.Collect(learner.params, 0)));
  EXPECT_FALSE(same(first, learner.Collect(learner.params, 1)));
}

}  // namespace
}  // namespace trireme
