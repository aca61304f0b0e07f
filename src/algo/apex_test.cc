// Ape-X as a worker that collects for itself, and as a learner of what actors send.
#include "trireme/algo/apex.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "trireme/algo/collecting.h"
#include "trireme/algo/q_loss.h"
#include "trireme/algo/test_run.h"
#include "trireme/comm/group_of_one.h"

namespace trireme {
namespace {

Assignments Small(const Assignments& extra = {}) {
  Assignments all = {"envs=16",    "horizon=4",          "rounds=4",       "updates=2",  "batch=32",
                     "replay=800", "learning_starts=64", "target_every=5", "hidden=[16]"};
  all.insert(all.end(), extra.begin(), extra.end());
  return all;
}

const RunCase kRunCases[] = {
    {"Apex", "apex", "CartPole-v1", Small()},
    {"ApexDueling", "apex", "CartPole-v1", Small({"dueling=true", "double=false", "n_step=5", "huber=1"})},
    {"ApexWrapsAround", "apex", "CartPole-v1", Small({"replay=64", "n_step=1"})},
    // Episodes are cut off by the limit of 200 steps.
    {"ApexMountainCar", "apex", "MountainCar-v0", Small({"horizon=70", "rounds=1"})},
    {"ApexSeveralPasses", "apex", "CartPole-v1", Small({"hidden=[512]", "horizon=40", "rounds=1"})},
};

class ApexCases : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, ApexCases, testing::ValuesIn(kRunCases), NameOfCase);

TEST_P(ApexCases, BitIdenticalForAnyNumberOfWorkers) { ExpectSameBitsForAnyNumberOfWorkers(GetParam()); }
TEST_P(ApexCases, ContinuesBitForBitWithAnotherNumberOfWorkers) {
  ExpectContinuationWithAnotherNumberOfWorkers(GetParam());
}

TEST(Apex, RowsHoldWhatWasMeasured) {
  const AlgorithmRun run("apex", "CartPole-v1", Small({"rounds=16"}));
  const MetricRow row = run.Iterate(2, 0, 1).rows[0];
  ExpectPromisedRow("apex", row);
  EXPECT_EQ(row.Get("updates"), 2 * 16);
  EXPECT_GT(row.Get("episodes"), 10);
  EXPECT_GT(row.Get("q_loss"), 0);
  EXPECT_GT(row.Get("td_error"), 0);
}

TEST(Apex, LearnsNothingBeforeLearningStarts) {
  const AlgorithmRun run("apex", "CartPole-v1", Small({"rounds=2", "learning_starts=129"}));
  EXPECT_EQ(run.Iterate(2, 0, 1).params, run.initial());
  EXPECT_NE(run.Iterate(2, 0, 2).params, run.initial());
}

TEST(Apex, DivergenceIsAnErrorThatSaysWhatToDo) { ExpectDivergenceIsAnError("apex", Small()); }

TEST(ApexSettings, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(Refusal("apex", {}), "");
  EXPECT_TRUE(Mentions(Refusal("apex", {"envs=12"}), "envs = 12"));
  EXPECT_TRUE(Mentions(Refusal("apex", {"batch=12"}), "batch = 12"));
  EXPECT_TRUE(Mentions(Refusal("apex", {"replay=12"}), "replay = 12"));
  ExpectOutOfRange("apex", {"epsilon=0", "epsilon=1.1", "epsilon_alpha=-1", "n_step=0", "gamma=2"});
}

// An actor of 4 environments on its own.
struct ActorOf {
  ActorOf(const EnvEntry& env, const Assignments& assignments, int index = 0)
      : env(env),
        settings(SettingsWith("apex", Small(assignments))),
        network(settings->MakeNetwork(env.spec)),
        executor(MakeExecutor(network, {})),
        params(network.param_count()),
        tape(executor->MakeTape(128)) {
    network.Initialise(3, params);
    const auto [steps, envs] = settings->TrajectorySize(4);
    const auto acting = settings->MakeActing(env.spec, *executor, envs);
    Collector collector(env, {index, envs, 7}, steps, *acting);
    collector.Collect(params, trajectory);
    tape->SetParams(params);
  }
  std::vector<float> Q(const float* obs) {
    const auto outputs = tape->Forward(0, obs, 1);
    return {outputs.begin(), outputs.end()};
  }

  EnvEntry env;
  std::unique_ptr<AlgorithmSettings> settings;
  Network network;
  std::unique_ptr<const Executor> executor;
  std::vector<float> params;
  std::unique_ptr<Tape> tape;
  Trajectory trajectory;
};

// The first priorities are the errors that a learner with the same parameters finds in what it draws.
TEST(Apex, ActorsSendTheErrorsThatReplayWillMean) {
  for (const char* env : {"CartPole-v1", "MountainCar-v0"}) {
    for (const char* n_step : {"n_step=1", "n_step=4"}) {
      ActorOf actor(FindEnv(env), {"horizon=250", n_step});
      const Trajectory& t = actor.trajectory;
      EXPECT_GT(t.episodes.count, 0);
      const int n = n_step[7] - '0';
      ReplayPart part({.capacity = 4096, .n_step = n, .gamma = 0.99, .alpha = 1, .epsilon = 0},
                      actor.env.spec, t.envs);
      part.Insert(t);
      const auto obs_size = actor.env.spec.obs.size();
      ReplayDraw draw(200, RowLayout(actor.env.spec), 1);
      RandomStream random(5, Purpose::kTest, 0, 0);
      part.Sample(random, 1, draw);
      std::vector<float> errors;
      const TransitionBatch& drawn = draw.transitions;
      for (std::size_t i = 0; i < draw.size(); ++i) {
        const std::vector<float> next = actor.Q(drawn.next_obs.data() + i * obs_size);
        const float now = actor.Q(drawn.obs.data() + i * obs_size)[static_cast<int>(drawn.actions[i])];
        errors.push_back(
            std::abs(drawn.returns[i] + drawn.discounts[i] * *std::ranges::max_element(next) - now));
      }
      const float least = *std::ranges::min_element(errors);
      for (std::size_t i = 0; i < draw.size(); ++i)
        EXPECT_NEAR(draw.weights[i], least / errors[i], 1e-3 * draw.weights[i] + 1e-4) << env << n_step;
    }
  }
}

// Environment 0 explores most, and others as far as the mirrored number says.
TEST(Apex, EachEnvironmentExploresInItsOwnWay) {
  const auto share_of_greedy = [](int index) {
    ActorOf actor(FindEnv("CartPole-v1"), {"horizon=400", "epsilon=0.9", "epsilon_alpha=3"}, index);
    const Trajectory& t = actor.trajectory;
    std::vector<double> share(t.envs);
    for (int i = 0; i < t.samples(); ++i) {
      const std::vector<float> q = actor.Q(t.obs.data() + i * 4);
      share[i % t.envs] += (q[static_cast<int>(t.actions[i])] >= std::max(q[0], q[1]) ? 1.0 : 0.0) / t.steps;
    }
    return share;
  };
  const auto expected = [](double u) { return 1 - std::pow(0.9, 1 + 3 * u) / 2; };
  const std::vector<double> first = share_of_greedy(0), second = share_of_greedy(1);
  const double u_first[] = {0, 1 / 2.0, 1 / 4.0, 3 / 4.0}, u_second[] = {1 / 8.0, 5 / 8.0, 3 / 8.0, 7 / 8.0};
  for (int b = 0; b < 4; ++b) {
    EXPECT_NEAR(first[b], expected(u_first[b]), 0.08) << b;
    EXPECT_NEAR(second[b], expected(u_second[b]), 0.08) << b;
  }
}

// Hands out what it was given.
class Given final : public ExperienceSource {
 public:
  explicit Given(std::vector<const Trajectory*> trajectories) : trajectories_(std::move(trajectories)) {}
  std::span<const Trajectory* const> Next(std::span<const float>) override { return trajectories_; }

 private:
  std::vector<const Trajectory*> trajectories_;
};

// An actor with the learner's parameters and the number of its shard collects what the learner would have collected.
TEST(Apex, LearnsFromAnActorWhatItWouldFromItself) {
  ActorOf actor(FindEnv("CartPole-v1"), {"rounds=1", "learning_starts=0"});
  const auto learn = [&](int shards, ExperienceSource* given) {
    GroupOfOne alone;
    const auto store = MakeAllReduceStore(alone.comm(), actor.settings->optimizer(), actor.params);
    const auto algorithm = actor.settings->Make({.env = actor.env,
                                                 .executor = *actor.executor,
                                                 .store = *store,
                                                 .seed = 7,
                                                 .shards = shards,
                                                 .own_shards = 1,
                                                 .experience = given});
    MetricRow row;
    algorithm->Iterate(0, row);
    return std::vector<float>{store->params().begin(), store->params().end()};
  };
  Given given({&actor.trajectory});
  const std::vector<float> from_actor = learn(4, &given);
  EXPECT_NE(from_actor, actor.params);
  EXPECT_EQ(from_actor, learn(4, nullptr));
}

}  // namespace
}  // namespace trireme
