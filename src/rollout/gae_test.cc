#include "trireme/rollout/gae.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>
#include <vector>

#include "trireme/base/rng.h"

namespace trireme {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  Case(int t, int b, float discount, float mix)
      : steps(t),
        envs(b),
        gamma(discount),
        lambda(mix),
        rewards(t * b),
        values((t + 1) * b),
        final_values(t * b, kNan),  // where no episode was truncated nothing may read it
        terminated(t * b),
        truncated(t * b) {}

  void Run() {
    advantages.assign(rewards.size(), kNan);
    returns.assign(rewards.size(), kNan);
    ComputeGae({.steps = steps,
                .envs = envs,
                .rewards = rewards,
                .values = values,
                .terminated = terminated,
                .truncated = truncated,
                .final_values = final_values,
                .gamma = gamma,
                .lambda = lambda},
               advantages, returns);
  }

  int steps, envs;
  float gamma, lambda;
  std::vector<float> rewards, values, final_values;
  std::vector<std::uint8_t> terminated, truncated;
  std::vector<float> advantages, returns;
};

// The definition, term by term: A_t = sum_k (gamma lambda)^k delta_{t+k}, up to the end of the episode.
double NaiveAdvantage(const Case& c, int t, int b) {
  double sum = 0, weight = 1;
  for (; t < c.steps; ++t, weight *= double{c.gamma} * c.lambda) {
    const int i = t * c.envs + b;
    double next = c.values[i + c.envs];
    if (c.terminated[i]) next = 0;
    if (c.truncated[i]) next = c.final_values[i];
    sum += weight * (c.rewards[i] + double{c.gamma} * next - c.values[i]);
    if (c.terminated[i] || c.truncated[i]) break;
  }
  return sum;
}

class GaeSizes : public testing::TestWithParam<std::tuple<int, float>> {};
INSTANTIATE_TEST_SUITE_P(EnvsAndLambda, GaeSizes,
                         testing::Combine(testing::Values(1, 3, 8, 17), testing::Values(0.0f, 0.95f, 1.0f)));

TEST_P(GaeSizes, FollowsTheDefinition) {
  const auto [envs, lambda] = GetParam();
  for (const int steps : {1, 2, 37}) {
    Case c(steps, envs, 0.99f, lambda);
    RandomStream random(3, Purpose::kTest, static_cast<std::uint32_t>(envs), steps);
    for (float& r : c.rewards) r = static_cast<float>(random.NextNormal());
    for (float& v : c.values) v = static_cast<float>(3 * random.NextNormal());
    for (std::size_t i = 0; i < c.rewards.size(); ++i) {
      const std::uint32_t end = random.NextBelow(8);
      c.terminated[i] = end == 0;
      c.truncated[i] = end == 1;
      if (c.truncated[i]) c.final_values[i] = static_cast<float>(3 * random.NextNormal());
    }
    c.Run();
    for (int t = 0; t < steps; ++t) {
      for (int b = 0; b < envs; ++b) {
        const int i = t * envs + b;
        const double expected = NaiveAdvantage(c, t, b);
        EXPECT_NEAR(c.advantages[i], expected, 1e-4) << "t " << t << " b " << b;
        EXPECT_NEAR(c.returns[i], expected + c.values[i], 1e-4) << "t " << t << " b " << b;
      }
    }
  }
}

// Two steps, one environment, gamma = lambda = 1/2, rewards 1 and 2, values 10, 20, 40:
// delta_1 = 2 + 20 - 20 = 2 and A_0 = (1 + 10 - 10) + 2/4 = 1.5.
Case TwoSteps() {
  Case c(2, 1, 0.5f, 0.5f);
  c.rewards = {1, 2};
  c.values = {10, 20, 40};
  return c;
}

TEST(Gae, AnEpisodeThatGoesOn) {
  Case c = TwoSteps();
  c.Run();
  EXPECT_EQ(c.advantages, (std::vector<float>{1.5f, 2.0f}));
  EXPECT_EQ(c.returns, (std::vector<float>{11.5f, 22.0f}));
}

// delta_0 = 1 + 0 - 10; nothing of step 1 reaches step 0.
TEST(Gae, ATerminatedEpisodeHasNoFuture) {
  Case c = TwoSteps();
  c.terminated[0] = 1;
  c.Run();
  EXPECT_EQ(c.advantages, (std::vector<float>{-9.0f, 2.0f}));
  EXPECT_EQ(c.returns, (std::vector<float>{1.0f, 22.0f}));
}

// delta_0 = 1 + 100/2 - 10: the value of the episode's own last observation, not that of the next episode.
TEST(Gae, ATruncatedEpisodeBootstrapsFromItsOwnLastObservation) {
  Case c = TwoSteps();
  c.truncated[0] = 1;
  c.final_values[0] = 100;
  c.Run();
  EXPECT_EQ(c.advantages, (std::vector<float>{41.0f, 2.0f}));
  EXPECT_EQ(c.returns, (std::vector<float>{51.0f, 22.0f}));
}

TEST(Gae, EndsAtTheLastStepIgnoreTheRowAfterTheRollout) {
  Case c = TwoSteps();
  c.terminated[1] = 1;
  c.Run();
  EXPECT_EQ(c.advantages, (std::vector<float>{1 - 18.0f / 4, -18.0f}));

  c = TwoSteps();
  c.truncated[1] = 1;
  c.final_values[1] = 8;
  c.Run();
  EXPECT_EQ(c.advantages, (std::vector<float>{1 - 14.0f / 4, -14.0f}));
}

// With lambda = 1 and gamma = 1 the return is the plain sum of rewards plus the value at the end.
TEST(Gae, LambdaOneSumsRewards) {
  Case c(4, 1, 1.0f, 1.0f);
  c.rewards = {1, 2, 4, 8};
  c.values = {5, 6, 7, 9, 100};
  c.Run();
  EXPECT_EQ(c.returns, (std::vector<float>{115, 114, 112, 108}));
}

}  // namespace
}  // namespace trireme
