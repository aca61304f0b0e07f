#include "trireme/replay/replay_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "trireme/base/rng.h"

namespace trireme {
namespace {

constexpr int kObs = 2, kEnvs = 2, kSteps = 5;
constexpr double kGamma = 0.5;

EnvSpec SmallEnv() {
  EnvSpec env;
  env.name = "Small-v0";
  env.obs.shape = {kObs};
  env.action = ActionSpace::Discrete(3);
  return env;
}

ReplayRules Rules(std::size_t capacity, int n_step = 1) {
  return {.capacity = capacity, .n_step = n_step, .gamma = kGamma, .alpha = 1, .epsilon = 0};
}

// Steps whose observations say which they are: {environment, 100 * number + step}.
Trajectory Numbered(int number) {
  Trajectory t(RowLayout(kObs), 1, kSteps, kEnvs);
  for (int i = 0; i < kSteps * kEnvs + kEnvs; ++i) {
    t.obs[i * kObs] = static_cast<float>(i % kEnvs);
    t.obs[i * kObs + 1] = static_cast<float>(100 * number + i / kEnvs);
  }
  for (int i = 0; i < t.samples(); ++i) {
    t.actions[i] = static_cast<float>(i % 3);
    t.rewards[i] = static_cast<float>(1 + i / kEnvs);
    t.extra[i] = static_cast<float>(1 + i);
    t.terminated[i] = t.truncated[i] = 0;
  }
  return t;
}

struct Seen {
  float next_env, next_step, action, ret, discount, weight;
};

// What can be drawn, by environment and step.
std::map<std::pair<int, int>, Seen> AllOf(ReplayPart& part) {
  ReplayDraw draw(4000, RowLayout(kObs), 1);
  RandomStream random(1, Purpose::kTest, 0, 0);
  part.Sample(random, 1, draw);
  std::map<std::pair<int, int>, Seen> seen;
  const TransitionBatch& t = draw.transitions;
  for (std::size_t i = 0; i < draw.size(); ++i) {
    seen[{static_cast<int>(t.obs[i * kObs]), static_cast<int>(t.obs[i * kObs + 1])}] = {
        t.next_obs[i * kObs], t.next_obs[i * kObs + 1], t.actions[i],
        t.returns[i],         t.discounts[i],           draw.weights[i]};
  }
  return seen;
}

TEST(ReplayPart, EachStepIsTheStartOfOneTransitionWithinItsTrajectory) {
  ReplayPart part(Rules(100, 3), SmallEnv(), kEnvs);
  part.Insert(Numbered(1));
  part.Insert(Numbered(2));
  EXPECT_EQ(part.inserted(), 20u);
  const auto all = AllOf(part);
  ASSERT_EQ(all.size(), 20u);
  for (const auto& [at, seen] : all) {
    const auto [env, number] = at;
    const int step = number % 100, k = std::min(3, kSteps - step);
    EXPECT_EQ(seen.next_env, env);
    EXPECT_EQ(seen.next_step, number + k) << "never beyond the observation after the last step";
    EXPECT_EQ(seen.discount, static_cast<float>(std::pow(kGamma, k)));
    double ret = 0;
    for (int i = k; i-- > 0;) ret = (step + 1 + i) + kGamma * ret;
    EXPECT_EQ(seen.ret, static_cast<float>(ret));
    EXPECT_EQ(seen.action, static_cast<float>((step * kEnvs + env) % 3));
  }
}

TEST(ReplayPart, EndsOfEpisodesEndTransitions) {
  ReplayPart part(Rules(100, 3), SmallEnv(), kEnvs);
  Trajectory t = Numbered(0);
  t.terminated[1 * kEnvs + 0] = 1;  // environment 0 after its second step
  t.truncated[2 * kEnvs + 1] = 1;   // environment 1 after its third, where it saw {7, 8}
  t.truncated_samples = {2 * kEnvs + 1};
  t.truncated_obs = {7, 8};
  part.Insert(t);
  const auto all = AllOf(part);
  ASSERT_EQ(all.size(), 10u);
  EXPECT_EQ(all.at({0, 0}).discount, 0);
  EXPECT_EQ(all.at({0, 0}).ret, 1 + 0.5f * 2);
  EXPECT_EQ(all.at({0, 1}).ret, 2);
  EXPECT_EQ(all.at({0, 2}).discount, 0.125f) << "of the next episode";
  EXPECT_EQ(all.at({1, 1}).next_env, 7);
  EXPECT_EQ(all.at({1, 1}).next_step, 8);
  EXPECT_EQ(all.at({1, 1}).discount, 0.25f);
  EXPECT_EQ(all.at({1, 2}).discount, 0.5f);
  EXPECT_EQ(all.at({1, 3}).next_step, 5);
}

// Transitions complete in another order than their steps were taken; the priorities go with the steps.
TEST(ReplayPart, ErrorsOfActorsAreTheFirstPriorities) {
  for (const int n_step : {1, 3}) {
    ReplayPart part(Rules(100, n_step), SmallEnv(), kEnvs);
    part.Insert(Numbered(0));
    for (const auto& [at, seen] : AllOf(part)) {
      const int sample = at.second * kEnvs + at.first;
      EXPECT_NEAR(seen.weight, 1.0 / (1 + sample), 1e-5) << "the smallest error over this one";
    }
  }
}

TEST(ReplayPart, NewErrorsReachTheTransitionThatWasDrawn) {
  ReplayPart part(Rules(100), SmallEnv(), kEnvs);
  part.Insert(Numbered(0));
  ReplayDraw draw(8, RowLayout(kObs), 1);
  RandomStream random(1, Purpose::kTest, 0, 0);
  part.Sample(random, 1, draw);
  const std::uint64_t chosen = draw.numbers[3];
  std::vector<std::uint64_t> others;
  for (std::uint64_t number = 0; number < 10; ++number) {
    if (number != chosen) others.push_back(number);
  }
  part.Update(others, std::vector<float>(others.size(), 0.0f));
  part.Update(std::vector{chosen}, std::vector{5.0f});
  part.Sample(random, 1, draw);
  for (const std::uint64_t number : draw.numbers) EXPECT_EQ(number, chosen);
  EXPECT_EQ(part.overwritten_errors(), 0u);
}

// A transition that was overwritten since it was drawn: its error says nothing about the one in its place.
TEST(ReplayPart, ErrorsOfOverwrittenTransitionsAreLeftOut) {
  constexpr std::uint64_t kCapacity = 16;
  ReplayPart part(Rules(kCapacity), SmallEnv(), kEnvs);
  part.Insert(Numbered(0));
  part.Insert(Numbered(1));  // 20 in all: 0 ... 3 are gone, 4 ... 19 are there
  EXPECT_EQ(part.size(), kCapacity);
  ReplayDraw draw(500, RowLayout(kObs), 1);
  RandomStream random(1, Purpose::kTest, 0, 0);
  part.Sample(random, 1, draw);
  EXPECT_EQ(*std::ranges::min_element(draw.numbers), 4u);
  EXPECT_EQ(*std::ranges::max_element(draw.numbers), 19u);
  // Numbers are given as transitions are completed: with one step to each, as the samples are.
  for (std::size_t i = 0; i < draw.size(); ++i) {
    const std::uint64_t number = draw.numbers[i];
    EXPECT_EQ(draw.transitions.obs[i * kObs + 1], static_cast<float>(100 * (number / 10) + number % 10 / 2));
  }
  part.Update(std::vector<std::uint64_t>{0, 3}, std::vector{1e6f, 1e6f});
  EXPECT_EQ(part.overwritten_errors(), 2u);
  ReplayDraw after(500, RowLayout(kObs), 1);
  RandomStream same(1, Purpose::kTest, 0, 0);
  part.Sample(same, 1, after);
  EXPECT_EQ(after.numbers, draw.numbers) << "nothing has changed";
  part.Update(std::vector<std::uint64_t>{4}, std::vector{1e6f});
  part.Sample(same, 1, after);
  EXPECT_GT(std::ranges::count(after.numbers, 4u), 490);
}

TEST(ReplayPart, ATrajectoryLargerThanTheMemoryLeavesItsEnd) {
  ReplayPart part(Rules(4), SmallEnv(), kEnvs);
  part.Insert(Numbered(0));
  const auto all = AllOf(part);
  ASSERT_EQ(all.size(), 4u);
  for (const auto& [at, seen] : all) {
    EXPECT_GE(at.second, 3);
    EXPECT_NEAR(seen.weight, 7.0 / (1 + at.second * kEnvs + at.first), 1e-5);
  }
}

TEST(ReplayPart, GoesOnWhereItWasSaved) {
  ReplayPart part(Rules(16, 2), SmallEnv(), kEnvs), other(Rules(16, 2), SmallEnv(), kEnvs);
  part.Insert(Numbered(0));
  part.Insert(Numbered(1));
  StateWriter out;
  part.Save(out, "x");
  other.Load(StateReader(std::move(out).Encode()), "x");
  for (ReplayPart* each : {&part, &other}) each->Insert(Numbered(2));
  ReplayDraw a(64, RowLayout(kObs), 1), b(64, RowLayout(kObs), 1);
  RandomStream random(1, Purpose::kTest, 0, 0), same(1, Purpose::kTest, 0, 0);
  part.Sample(random, 0.5, a);
  other.Sample(same, 0.5, b);
  EXPECT_EQ(a.numbers, b.numbers);
  EXPECT_EQ(a.weights, b.weights);
}

}  // namespace
}  // namespace trireme
