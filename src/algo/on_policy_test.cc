#include "trireme/algo/on_policy.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/env/test_env.h"

namespace trireme {
namespace {

// Batches hold of a sample what was seen, allowed and done when it was collected.
TEST(OnPolicyBatch, GathersWhatBelongsToItsSamples) {
  for (const EnvEntry& env : {SoaEntry<Corridor>(), BytesEntry("OnPolicyTest.Bytes-v0")}) {
    SCOPED_TRACE(env.spec.name);
    constexpr int kEnvs = 3, kHorizon = 30;
    OnPolicyShard shard(env, {.index = 1, .envs = kEnvs, .seed = 5}, kHorizon);
    const int obs_size = env.spec.obs.size(), choices = env.spec.action.choices();
    std::vector<float> obs, actions, log_probs;
    std::vector<std::uint8_t> masks;
    shard.rollout.Collect(nullptr, [&](const ActionRequest& request) {
      for (int b = 0; b < request.n; ++b) {
        const std::uint8_t* mask = request.masks == nullptr ? nullptr : request.masks + b * choices;
        request.actions[b] = mask == nullptr || mask[0] != 0 ? 0.0f : 1.0f;
        request.extra[b] = static_cast<float>(request.step * 10 + static_cast<std::uint64_t>(b));
        if (mask != nullptr) masks.insert(masks.end(), mask, mask + choices);
      }
      obs.insert(obs.end(), request.obs, request.obs + request.n * obs_size);
      actions.insert(actions.end(), request.actions, request.actions + request.n);
      log_probs.insert(log_probs.end(), request.extra, request.extra + request.n);
    });
    for (int i = 0; i < shard.rollout.samples(); ++i) {
      shard.advantages[i] = static_cast<float>(1000 + i);
      shard.returns[i] = static_cast<float>(2000 + i);
      shard.values[i] = static_cast<float>(3000 + i);
    }

    const std::vector<int> samples = {70, 4, 4, 89, 0};
    OnPolicyBatch batch(env.spec, samples.size());
    batch.values.assign(samples.size(), -1.0f);
    batch.GatherObs(shard, samples);
    batch.GatherRest(shard, samples, false);
    EXPECT_EQ(batch.values, std::vector<float>(samples.size(), -1.0f)) << "only where they are wanted";
    batch.GatherRest(shard, samples, true);
    ASSERT_EQ(batch.masks != nullptr, env.spec.masks);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const int sample = samples[i];
      for (int k = 0; k < obs_size; ++k) EXPECT_EQ(batch.obs[i * obs_size + k], obs[sample * obs_size + k]);
      for (int a = 0; env.spec.masks && a < choices; ++a) {
        EXPECT_EQ(batch.masks[i * choices + a], masks[sample * choices + a]) << "sample " << sample;
      }
      EXPECT_EQ(batch.actions[i], actions[sample]);
      EXPECT_EQ(batch.log_probs[i], log_probs[sample]);
      EXPECT_EQ(batch.advantages[i], static_cast<float>(1000 + sample));
      EXPECT_EQ(batch.returns[i], static_cast<float>(2000 + sample));
      EXPECT_EQ(batch.values[i], static_cast<float>(3000 + sample));
    }
  }
}

// Of CartPole: four numbers to see, an action, six more numbers, and two flags.
TEST(OnPolicyShard, BytesOfASample) {
  EXPECT_EQ(OnPolicyShard::BytesPerSample(FindEnv("CartPole-v1").spec), (4 + 1 + 6) * sizeof(float) + 2);
}

TEST(OnPolicyStats, ErrorsOfValuesAndReturnsAreCountedApart) {
  OnPolicyShard shard(FindEnv("CartPole-v1"), {.index = 0, .envs = 2, .seed = 1}, 2);
  for (int i = 0; i < 4; ++i) {
    shard.advantages[i] = static_cast<float>(i);
    shard.returns[i] = static_cast<float>(10 * i);
  }
  std::vector<double> sums(kOnPolicyStats);
  AddValueErrors(shard, sums);
  EXPECT_EQ(sums[kErrorMoments], 6);
  EXPECT_EQ(sums[kErrorMoments + 1], 14);
  EXPECT_EQ(sums[kReturnMoments], 60);
  EXPECT_EQ(sums[kReturnMoments + 1], 1400);
}

}  // namespace
}  // namespace trireme
