#include "trireme/algo/actor_critic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "trireme/algo/test_model.h"
#include "trireme/base/rng.h"

namespace trireme {
namespace {

EnvSpec DiscreteEnv(int obs_size, int choices) {
  EnvSpec env;
  env.obs.shape = {obs_size};
  env.action = ActionSpace::Discrete(choices);
  return env;
}
EnvSpec ContinuousEnv(int obs_size, int actions) {
  EnvSpec env;
  env.obs.shape = {obs_size};
  env.action = ActionSpace::Box(actions, -1.0f, 1.0f);
  return env;
}

std::vector<float> RandomObs(int n, int size) {
  RandomStream random(8, Purpose::kTest, 0, 0);
  std::vector<float> obs(static_cast<std::size_t>(n) * size);
  for (float& x : obs) x = static_cast<float>(random.NextNormal());
  return obs;
}
// The same observation n times.
std::vector<float> Repeated(int n, int size) {
  const std::vector<float> one = RandomObs(1, size);
  std::vector<float> obs;
  for (int b = 0; b < n; ++b) obs.insert(obs.end(), one.begin(), one.end());
  return obs;
}

struct Draws {
  std::vector<float> actions, log_probs;
};
Draws SampleOnce(TestModel& model, const std::vector<float>& obs, int n, std::uint64_t seed,
                 std::uint32_t first_env, std::uint64_t step) {
  Draws draws{std::vector<float>(static_cast<std::size_t>(n) * model.env.action.size()),
              std::vector<float>(n)};
  model.actor_critic.Sample({.seed = seed,
                             .step = step,
                             .first_env = first_env,
                             .n = n,
                             .obs = obs.data(),
                             .actions = draws.actions.data(),
                             .extra = draws.log_probs.data()},
                            *model.tape);
  return draws;
}

std::vector<double> Softmax(const float* logits, int choices) {
  std::vector<double> p(choices);
  double sum = 0;
  for (int a = 0; a < choices; ++a) sum += p[a] = std::exp(double{logits[a]});
  for (double& x : p) x /= sum;
  return p;
}

class Towers : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Both, Towers, testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Separate"; });

TEST_P(Towers, TheNetworkHasTheRightParts) {
  const bool shared = GetParam();
  TestModel discrete(DiscreteEnv(5, 3), shared), continuous(ContinuousEnv(5, 2), shared);
  EXPECT_EQ(discrete.actor_critic.shared(), shared);
  EXPECT_EQ(discrete.network.spec().towers.size(), shared ? 1u : 2u);
  EXPECT_EQ(discrete.network.spec().towers[0].outputs, shared ? 4 : 3);
  EXPECT_TRUE(discrete.network.spec().free_vectors.empty());
  EXPECT_EQ(continuous.network.spec().towers[0].outputs, shared ? 3 : 2);
  EXPECT_EQ(continuous.actor_critic.LogStd(std::span<const float>(continuous.params)).size(), 2u);
}

TEST_P(Towers, ValuesComeFromTheValueOutput) {
  TestModel model(DiscreteEnv(5, 3), GetParam());
  const std::vector<float> obs = RandomObs(10, 5);
  const std::size_t last = model.network.spec().towers.size() - 1;
  const int outputs = model.network.spec().towers[last].outputs;
  const std::unique_ptr<Tape> tape = model.executor->MakeTape(10);
  tape->SetParams(model.params);
  const std::span<const float> found = tape->Forward(last, obs.data(), 10);
  std::vector<float> expected;
  for (int b = 0; b < 10; ++b) expected.push_back(found[b * outputs + outputs - 1]);
  EXPECT_EQ(model.ValueOf(obs, 10), expected);
}

TEST_P(Towers, DiscreteActionsFollowTheSoftmax) {
  for (const int choices : {2, 5}) {
    TestModel model(DiscreteEnv(4, choices), GetParam());
    constexpr int kEnvs = 50, kSteps = 2000;
    const std::vector<float> obs = Repeated(kEnvs, 4);
    const std::vector<double> p = Softmax(model.PolicyOf(obs, kEnvs).data(), choices);
    std::vector<int> counts(choices);
    for (int step = 0; step < kSteps; ++step) {
      const Draws draws = SampleOnce(model, obs, kEnvs, 1, 0, step);
      for (int b = 0; b < kEnvs; ++b) {
        const int action = static_cast<int>(draws.actions[b]);
        ASSERT_EQ(static_cast<float>(action), draws.actions[b]);
        ASSERT_GE(action, 0);
        ASSERT_LT(action, choices);
        ++counts[action];
        ASSERT_NEAR(draws.log_probs[b], std::log(p[action]), 1e-5);
      }
    }
    constexpr double kDraws = kEnvs * kSteps;
    for (int a = 0; a < choices; ++a) {
      EXPECT_NEAR(counts[a] / kDraws, p[a], 4.5 * std::sqrt(p[a] * (1 - p[a]) / kDraws)) << "action " << a;
      EXPECT_GT(counts[a], 0);
    }
  }
}

TEST_P(Towers, ContinuousActionsFollowTheGaussian) {
  TestModel model(ContinuousEnv(3, 2), GetParam());
  const std::span<float> log_std = model.actor_critic.LogStd(std::span<float>(model.params));
  log_std[0] = -1.0f;
  log_std[1] = 0.5f;
  constexpr int kEnvs = 50, kSteps = 1000;
  const std::vector<float> obs = Repeated(kEnvs, 3);
  const std::vector<float> mean = model.PolicyOf(obs, 1);
  double sum[2] = {}, squares[2] = {}, product = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Draws draws = SampleOnce(model, obs, kEnvs, 2, 0, step);
    for (int b = 0; b < kEnvs; ++b) {
      double z[2], log_prob = 0;
      for (int d = 0; d < 2; ++d) {
        z[d] = (draws.actions[2 * b + d] - mean[d]) / std::exp(double{log_std[d]});
        sum[d] += z[d];
        squares[d] += z[d] * z[d];
        log_prob -= 0.5 * z[d] * z[d] + log_std[d] + 0.5 * std::log(2 * std::numbers::pi);
      }
      product += z[0] * z[1];
      ASSERT_NEAR(draws.log_probs[b], log_prob, 1e-4);
    }
  }
  constexpr double kDraws = kEnvs * kSteps;
  for (int d = 0; d < 2; ++d) {
    EXPECT_NEAR(sum[d] / kDraws, 0, 4.5 / std::sqrt(kDraws));
    EXPECT_NEAR(squares[d] / kDraws, 1, 4.5 * std::sqrt(2 / kDraws));
  }
  EXPECT_NEAR(product / kDraws, 0, 4.5 / std::sqrt(kDraws));  // dimensions are independent
}

// What a worker draws for an environment may not depend on which others it draws for.
TEST_P(Towers, ADrawBelongsToItsEnvironmentAndStep) {
  for (const bool discrete : {true, false}) {
    TestModel model(discrete ? DiscreteEnv(4, 5) : ContinuousEnv(4, 2), GetParam());
    const int width = model.env.action.size();
    constexpr int kEnvs = 40;
    const std::vector<float> obs = RandomObs(kEnvs, 4);
    const Draws all = SampleOnce(model, obs, kEnvs, 7, 100, 3);
    for (const int n : {1, 3, 8, 17}) {
      for (int first = 0; first + n <= kEnvs; first += n) {
        const std::vector<float> part(obs.begin() + first * 4, obs.begin() + (first + n) * 4);
        const Draws some = SampleOnce(model, part, n, 7, static_cast<std::uint32_t>(100 + first), 3);
        for (int b = 0; b < n; ++b) {
          for (int d = 0; d < width; ++d) {
            // The network may round differently for another number of samples; the draw is the same.
            ASSERT_NEAR(some.actions[b * width + d], all.actions[(first + b) * width + d], 1e-5);
          }
          ASSERT_NEAR(some.log_probs[b], all.log_probs[first + b], 1e-5);
        }
      }
    }
    EXPECT_EQ(SampleOnce(model, obs, kEnvs, 7, 100, 3).actions, all.actions);
    EXPECT_NE(SampleOnce(model, obs, kEnvs, 8, 100, 3).actions, all.actions);
    EXPECT_NE(SampleOnce(model, obs, kEnvs, 7, 140, 3).actions, all.actions);
    EXPECT_NE(SampleOnce(model, obs, kEnvs, 7, 100, 4).actions, all.actions);
  }
}

TEST_P(Towers, GreedyIsTheMostProbableAction) {
  constexpr int kEnvs = 40;
  const std::vector<float> obs = RandomObs(kEnvs, 4);
  TestModel discrete(DiscreteEnv(4, 5), GetParam());
  std::vector<float> actions(kEnvs);
  discrete.actor_critic.Greedy(obs.data(), nullptr, kEnvs, *discrete.tape, actions.data());
  const std::vector<float> logits = discrete.PolicyOf(obs, kEnvs);
  bool different = false;
  for (int b = 0; b < kEnvs; ++b) {
    for (int a = 0; a < 5; ++a) EXPECT_LE(logits[b * 5 + a], logits[b * 5 + static_cast<int>(actions[b])]);
    different |= actions[b] != actions[0];
  }
  EXPECT_TRUE(different);

  TestModel continuous(ContinuousEnv(4, 2), GetParam());
  std::vector<float> means(2 * kEnvs);
  continuous.actor_critic.Greedy(obs.data(), nullptr, kEnvs, *continuous.tape, means.data());
  EXPECT_EQ(means, continuous.PolicyOf(obs, kEnvs));
}

TEST(ActorCritic, NearCertainAndImpossibleActions) {
  TestModel model(DiscreteEnv(2, 3), false);
  std::fill(model.params.begin(), model.params.end(), 0.0f);
  const auto& tensors = model.network.layout().tensors();
  const auto bias =
      std::ranges::find_if(tensors, [](const TensorInfo& t) { return t.shape == std::vector<int>{3}; });
  ASSERT_NE(bias, tensors.end());
  float* logits = model.params.data() + bias->offset;
  logits[0] = -200;
  logits[1] = 200;
  logits[2] = -200;
  const std::vector<float> obs = RandomObs(50, 2);
  for (int step = 0; step < 20; ++step) {
    const Draws draws = SampleOnce(model, obs, 50, 1, 0, step);
    EXPECT_EQ(draws.actions, std::vector<float>(50, 1.0f));
    for (const float log_prob : draws.log_probs) EXPECT_NEAR(log_prob, 0, 1e-6);
  }
}

TEST(ActorCritic, AHiddenListThatMakesNoNetworkIsRefused) {
  EXPECT_THROW(MakeActorCriticNetwork({.layers = {.hidden = {}}}, DiscreteEnv(2, 2)), Error);
  EXPECT_THROW(MakeActorCriticNetwork({.layers = {.hidden = std::vector<int>(17, 4)}}, DiscreteEnv(2, 2)),
               Error);
}

}  // namespace
}  // namespace trireme
