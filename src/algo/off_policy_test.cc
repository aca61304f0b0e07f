#include "trireme/algo/off_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/env/registry.h"

namespace trireme {
namespace {

TEST(ReplayConfig, BetaRisesToOneAndStaysThere) {
  const ReplayConfig config{.priority_beta = 0.4};
  EXPECT_DOUBLE_EQ(config.Beta(0), 0.4);
  EXPECT_DOUBLE_EQ(config.Beta(0.5), 0.7);
  EXPECT_DOUBLE_EQ(config.Beta(1), 1);
  EXPECT_DOUBLE_EQ(config.Beta(1.5), 1);  // workers on their own go on until all have ended
}

// Of CartPole a step has four numbers to see, an action, a reward, and two more for how it ended.
TEST(ReplayConfig, BytesCountTheReplayTheRolloutAndWhatWaits) {
  const EnvSpec& env = FindEnv("CartPole-v1").spec;
  constexpr std::uint64_t kStep = (4 + 1 + 3) * sizeof(float), kEnvs = 6, kHorizon = 5;
  ReplayConfig config{.replay = 1000};
  const auto bytes = [&] { return config.Bytes(env, kEnvs, kHorizon); };
  const std::uint64_t plain = ReplayBuffer::Bytes(1000, RowLayout(env), 1) + kEnvs * (kHorizon + 1) * kStep;
  EXPECT_EQ(bytes(), plain);
  config.n_step = 3;
  EXPECT_EQ(bytes(), plain + kEnvs * 3 * kStep);
  config.n_step = 1;
  config.prioritised = true;
  EXPECT_EQ(bytes(), plain + PrioritisedSampler::Bytes(1000));
}

class Shards : public testing::TestWithParam<bool> {
 protected:
  static constexpr int kHorizon = 40, kShards = 2;

  // One that remembers what its two environments did at random.
  static OffPolicyShard Collected(int index, std::uint64_t seed) {
    const ReplayConfig config{.replay = 200, .prioritised = GetParam()};
    OffPolicyShard shard(FindEnv("CartPole-v1"), {.index = index, .envs = 2, .seed = seed}, kHorizon, config,
                         0.9, kShards);
    shard.rollout.Collect(nullptr, [](const ActionRequest& request) {
      for (int b = 0; b < request.n; ++b) {
        request.actions[b] = static_cast<float>((request.step + request.first_env + b) % 2);
      }
    });
    shard.Remember();
    return shard;
  }
  static ReplayBatch Batch(OffPolicyShard& shard, std::uint64_t number, double beta = 0.5) {
    ReplayBatch batch(16, shard.rollout.env_spec());
    shard.Sample(number, beta, batch);
    return batch;
  }
};
INSTANTIATE_TEST_SUITE_P(Both, Shards, testing::Bool(),
                         [](const auto& info) { return info.param ? "Prioritised" : "Uniform"; });

TEST_P(Shards, RememberTheirPartOfTheReplay) {
  OffPolicyShard shard = Collected(0, 1);
  EXPECT_EQ(shard.replay.capacity(), 100u);
  EXPECT_EQ(shard.replay.size(), 80u);
  if (GetParam()) {
    EXPECT_EQ(shard.priorities->capacity(), 100u);
  }
}

// Equal draws would make batches of shards, seeds or updates alike.
TEST_P(Shards, DrawByTheirSeedTheirNumberAndThatOfTheBatch) {
  OffPolicyShard shard = Collected(0, 1), same = Collected(0, 1), other_shard = Collected(1, 1),
                 other_seed = Collected(0, 2);
  const std::vector<std::uint32_t> slots = Batch(shard, 7).slots;
  EXPECT_EQ(Batch(same, 7).slots, slots);
  EXPECT_NE(Batch(shard, 8).slots, slots);
  EXPECT_NE(Batch(other_shard, 7).slots, slots);
  EXPECT_NE(Batch(other_seed, 7).slots, slots);
}

TEST_P(Shards, BatchesHoldTheTransitionsOfTheirSlots) {
  OffPolicyShard shard = Collected(0, 1);
  const ReplayBatch batch = Batch(shard, 3);
  TransitionBatch expected(16, shard.rollout.layout(), 1);
  shard.replay.Gather(batch.slots, expected);
  EXPECT_TRUE(
      std::ranges::equal(batch.transitions.obs.span().first(16 * 4), expected.obs.span().first(16 * 4)));
  EXPECT_TRUE(std::ranges::equal(batch.transitions.actions.span(), expected.actions.span()));
  EXPECT_TRUE(std::ranges::equal(batch.transitions.discounts.span(), expected.discounts.span()));
}

TEST(PrioritisedShard, WeightsAreThoseOfBeta) {
  const ReplayConfig config{.replay = 100, .prioritised = true, .priority_alpha = 1};
  OffPolicyShard shard(FindEnv("CartPole-v1"), {.index = 0, .envs = 1, .seed = 1}, 50, config, 0.9, 1);
  shard.rollout.Collect(nullptr, [](const ActionRequest& request) { *request.actions = 0; });
  shard.Remember();
  std::vector<std::uint32_t> slots(50);
  std::vector<float> errors(50);
  for (std::uint32_t i = 0; i < 50; ++i) slots[i] = i, errors[i] = i < 25 ? 0.25f : 1.0f;
  shard.priorities->Update(slots, errors);
  for (const double beta : {0.0, 0.5, 1.0}) {
    ReplayBatch batch(40, shard.rollout.env_spec());
    shard.Sample(0, beta, batch);
    const auto expected = static_cast<float>(std::pow((0.25 + 0.01) / (1 + 0.01), beta));
    for (std::size_t i = 0; i < batch.size(); ++i) {
      EXPECT_NEAR(batch.weights[i], batch.slots[i] < 25 ? 1.0f : expected, 1e-5) << "beta " << beta;
    }
    EXPECT_TRUE(std::ranges::any_of(batch.slots, [](std::uint32_t slot) { return slot < 25; }));
    EXPECT_TRUE(std::ranges::any_of(batch.slots, [](std::uint32_t slot) { return slot >= 25; }));
  }
}

}  // namespace
}  // namespace trireme
