#include "trireme/rollout/vtrace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/rollout/gae.h"

namespace trireme {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Case {
  Case(int steps, int envs)
      : steps(steps),
        envs(envs),
        log_ratios(steps * envs),
        rewards(steps * envs),
        values((steps + 1) * envs),
        final_values(steps * envs, kNan),  // where no episode was truncated nothing may read it
        terminated(steps * envs),
        truncated(steps * envs) {}

  void Run() {
    targets.assign(rewards.size(), kNan);
    advantages.assign(rewards.size(), kNan);
    weights.assign(rewards.size(), kNan);
    ComputeVtrace({.steps = steps,
                   .envs = envs,
                   .log_ratios = log_ratios,
                   .rewards = rewards,
                   .values = values,
                   .terminated = terminated,
                   .truncated = truncated,
                   .final_values = final_values,
                   .gamma = gamma,
                   .lambda = lambda,
                   .rho_bar = rho_bar,
                   .c_bar = c_bar},
                  targets, advantages, weights);
  }
  void Draw(std::uint64_t number, double deviation_of_ratios) {
    RandomStream random(5, Purpose::kTest, static_cast<std::uint32_t>(envs), number);
    for (float& r : rewards) r = static_cast<float>(random.NextNormal());
    for (float& v : values) v = static_cast<float>(3 * random.NextNormal());
    for (float& l : log_ratios) l = static_cast<float>(deviation_of_ratios * random.NextNormal());
    for (std::size_t i = 0; i < rewards.size(); ++i) {
      const std::uint32_t end = random.NextBelow(8);
      terminated[i] = end == 0;
      truncated[i] = end == 1;
      if (truncated[i] != 0) final_values[i] = static_cast<float>(3 * random.NextNormal());
    }
  }

  int steps, envs;
  float gamma = 0.97f, lambda = 1, rho_bar = 1, c_bar = 1;
  std::vector<float> log_ratios, rewards, values, final_values;
  std::vector<std::uint8_t> terminated, truncated;
  std::vector<float> targets, advantages, weights;
};

// Equation 1 of the paper, as the sum over later steps that it is, with lambda in c:
//   v_s = V(x_s) + sum_{t >= s} gamma^(t - s) (prod_{i = s}^{t - 1} c_i) delta_t,  up to the end of the episode.
double TargetByTheSum(const Case& c, int s, int b) {
  double sum = c.values[s * c.envs + b], product = 1;
  for (int t = s; t < c.steps; ++t) {
    const int i = t * c.envs + b;
    const double ratio = std::exp(double{c.log_ratios[i]});
    double next = c.values[i + c.envs];
    if (c.terminated[i] != 0) next = 0;
    if (c.truncated[i] != 0) next = c.final_values[i];
    const double delta =
        std::min<double>(c.rho_bar, ratio) * (c.rewards[i] + double{c.gamma} * next - c.values[i]);
    sum += product * delta;
    if (c.terminated[i] != 0 || c.truncated[i] != 0) break;
    product *= double{c.gamma} * c.lambda * std::min<double>(c.c_bar, ratio);
  }
  return sum;
}

class VtraceSizes : public testing::TestWithParam<std::tuple<int, float>> {};
INSTANTIATE_TEST_SUITE_P(EnvsAndLambda, VtraceSizes,
                         testing::Combine(testing::Values(1, 3, 8, 17), testing::Values(0.0f, 0.9f, 1.0f)));

TEST_P(VtraceSizes, FollowsThePaper) {
  const auto [envs, lambda] = GetParam();
  for (const int steps : {1, 2, 37}) {
    for (const auto& [rho_bar, c_bar] : {std::pair(1.0f, 1.0f), std::pair(2.0f, 0.7f)}) {
      Case c(steps, envs);
      c.lambda = lambda;
      c.rho_bar = rho_bar;
      c.c_bar = c_bar;
      c.Draw(static_cast<std::uint64_t>(steps), 0.7);
      c.Run();
      for (int t = 0; t < steps; ++t) {
        for (int b = 0; b < envs; ++b) {
          const int i = t * envs + b;
          const bool ends = c.terminated[i] != 0 || c.truncated[i] != 0;
          double follows = t + 1 < steps ? TargetByTheSum(c, t + 1, b) : c.values[i + envs];
          if (ends) follows = c.terminated[i] != 0 ? 0 : c.final_values[i];
          const double ratio = std::exp(double{c.log_ratios[i]});
          EXPECT_NEAR(c.targets[i], TargetByTheSum(c, t, b), 1e-4) << "t " << t << " b " << b;
          EXPECT_NEAR(c.advantages[i], c.rewards[i] + double{c.gamma} * follows - c.values[i], 1e-4);
          EXPECT_NEAR(c.weights[i], std::min<double>(rho_bar, ratio), 1e-6);
        }
      }
    }
  }
}

// Where the policy is the one that acted, v_t is the return of n steps up to the end of the episode or of the trajectory,
// which GAE with lambda = 1 has too.
TEST_P(VtraceSizes, OfItsOwnExperienceItIsTheNStepReturn) {
  const auto [envs, lambda] = GetParam();
  Case c(29, envs);
  c.lambda = lambda;
  c.Draw(1, 0);
  c.Run();
  std::vector<float> advantages(c.rewards.size()), returns(c.rewards.size());
  ComputeGae({.steps = c.steps,
              .envs = envs,
              .rewards = c.rewards,
              .values = c.values,
              .terminated = c.terminated,
              .truncated = c.truncated,
              .final_values = c.final_values,
              .gamma = c.gamma,
              .lambda = lambda},
             advantages, returns);
  for (std::size_t i = 0; i < returns.size(); ++i) {
    EXPECT_NEAR(c.targets[i], returns[i], 1e-4);
    if (lambda == 1) {
      EXPECT_NEAR(c.advantages[i], advantages[i], 1e-4);
    }
    EXPECT_EQ(c.weights[i], 1.0f);
  }
}

// Two steps, gamma = 1/2, rewards 1 and 2, values 10, 20, 40, ratios 1/2 and 4:
//   v_1 = 20 + (2 + 20 - 20) = 22;  delta_0 = (1 + 10 - 10) / 2;  v_0 = 10 + 1/2 + 1/2 * 1/2 * (22 - 20) = 11
TEST(Vtrace, ByHand) {
  Case c(2, 1);
  c.gamma = 0.5f;
  c.rewards = {1, 2};
  c.values = {10, 20, 40};
  c.log_ratios = {-std::log(2.0f), std::log(4.0f)};
  c.Run();
  EXPECT_NEAR(c.targets[0], 11, 1e-5);
  EXPECT_NEAR(c.targets[1], 22, 1e-5);
  EXPECT_NEAR(c.advantages[0], 1 + 11 - 10, 1e-5);
  EXPECT_NEAR(c.advantages[1], 2 + 20 - 20, 1e-5);
  EXPECT_NEAR(c.weights[0], 0.5f, 1e-6);
  EXPECT_EQ(c.weights[1], 1.0f);
}

}  // namespace
}  // namespace trireme
