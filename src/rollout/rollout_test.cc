#include "trireme/rollout/rollout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "trireme/env/registry.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

// Actions that depend on nothing but the step and the environment: both sides of a comparison can make them.
float ScriptedAction(const EnvSpec& env, std::uint64_t step, std::uint32_t id) {
  RandomStream random(5, Purpose::kTest, id, step);
  return env.action.discrete() ? static_cast<float>(random.NextBelow(env.action.choices()))
                               : static_cast<float>(random.NextNormal());
}

auto ScriptedPolicy(const Rollout& rollout) {
  return [&rollout](const ActionRequest& request) {
    for (int b = 0; b < request.n; ++b) {
      request.actions[b] = ScriptedAction(rollout.env_spec(), request.step, request.first_env + b);
      request.extra[b] = request.actions[b] + 0.5f;
    }
  };
}

void Collect(Rollout& rollout) { rollout.Collect(nullptr, ScriptedPolicy(rollout)); }

std::vector<float> RowOf(std::span<const float> rows, int width, int index) {
  return {rows.begin() + index * width, rows.begin() + (index + 1) * width};
}

class Envs : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Some, Envs, testing::Values("CartPole-v1", "MountainCar-v0", "Pendulum-v1"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

// Three rollouts in a row against the same environments stepped by hand: all rows, ends, last observations.
TEST_P(Envs, RowsHoldWhatTheEnvironmentGave) {
  const EnvEntry& env = FindEnv(GetParam());
  const ShardSpec shard{.index = 2, .envs = 5, .seed = 9};
  constexpr int kSteps = 250;  // beyond the limit of 200 of two of them
  Rollout rollout(env, shard, kSteps);
  const std::unique_ptr<EnvBatch> batch = env.make(shard.envs);
  batch->Reset(shard.seed, Purpose::kEnvReset, 10);
  const int obs_size = env.spec.obs.size();

  std::uint64_t step = 0;
  bool any_end = false;
  for (int round = 0; round < 3; ++round) {
    Collect(rollout);
    EpisodeTotals totals;
    std::map<int, std::vector<float>> truncated;  // by sample, in order
    for (int t = 0; t < kSteps; ++t, ++step) {
      std::vector<float> actions;
      for (int b = 0; b < shard.envs; ++b) {
        const int i = t * shard.envs + b;
        EXPECT_EQ(RowOf(rollout.obs(), obs_size, i), RowOf(FloatObs(batch->obs()), obs_size, b));
        actions.push_back(ScriptedAction(env.spec, step, 10 + b));
        EXPECT_EQ(rollout.actions()[i], actions.back());
        EXPECT_EQ(rollout.extra()[i], actions.back() + 0.5f);
      }
      batch->Step(actions);
      for (int b = 0; b < shard.envs; ++b) {
        const int i = t * shard.envs + b;
        EXPECT_EQ(rollout.rewards()[i], batch->rewards()[b]);
        EXPECT_EQ(rollout.terminated()[i], batch->terminated()[b]);
        EXPECT_EQ(rollout.truncated()[i], batch->truncated()[b]);
        if (batch->truncated()[b]) truncated[i] = RowOf(FloatObs(batch->final_obs()), obs_size, b);
      }
      for (const EpisodeEnd& end : batch->finished()) {
        totals.count += 1;
        totals.return_sum += end.episode_return;
        totals.length_sum += end.length;
      }
    }
    for (int b = 0; b < shard.envs; ++b) {
      EXPECT_EQ(RowOf(rollout.obs(), obs_size, kSteps * shard.envs + b),
                RowOf(FloatObs(batch->obs()), obs_size, b));
    }
    ASSERT_EQ(rollout.truncated_samples().size(), truncated.size());
    ASSERT_EQ(rollout.truncated_obs().size(), truncated.size() * obs_size);
    int n = 0;
    for (const auto& [sample, last_obs] : truncated) {
      EXPECT_EQ(rollout.truncated_samples()[n], sample);
      EXPECT_EQ(RowOf(rollout.truncated_obs(), obs_size, n), last_obs);
      ++n;
    }
    const EpisodeTotals taken = rollout.TakeEpisodes();
    EXPECT_EQ(taken.count, totals.count);
    EXPECT_EQ(taken.return_sum, totals.return_sum);
    EXPECT_EQ(taken.length_sum, totals.length_sum);
    EXPECT_EQ(rollout.TakeEpisodes().count, 0);
    any_end |= totals.count > 0;
  }
  EXPECT_TRUE(any_end);
}

// MountainCar without a push never ends but by its limit of 200 steps.
TEST(Rollout, TruncatedEpisodesKeepTheirLastObservation) {
  Rollout rollout(FindEnv("MountainCar-v0"), {.index = 0, .envs = 3, .seed = 1}, 450);
  const auto stay = [](const ActionRequest& request) { std::fill_n(request.actions, request.n, 1.0f); };
  rollout.Collect(nullptr, stay);
  const std::vector<int> expected = {199 * 3, 199 * 3 + 1, 199 * 3 + 2, 399 * 3, 399 * 3 + 1, 399 * 3 + 2};
  EXPECT_EQ(std::vector<int>(rollout.truncated_samples().begin(), rollout.truncated_samples().end()),
            expected);
  for (std::size_t n = 0; n < expected.size(); ++n) {
    EXPECT_EQ(rollout.truncated()[expected[n]], 1);
    EXPECT_EQ(rollout.terminated()[expected[n]], 0);
    // The car has rolled for 200 steps; the next row is a new start, where it stands still.
    EXPECT_NE(rollout.truncated_obs()[2 * n + 1], 0.0f);
    EXPECT_EQ(rollout.obs()[2 * (expected[n] + 3) + 1], 0.0f);
  }
  const EpisodeTotals totals = rollout.TakeEpisodes();
  EXPECT_EQ(totals.count, 6);
  EXPECT_EQ(totals.return_sum, -1200);
  EXPECT_EQ(totals.length_sum, 1200);

  // The list belongs to one rollout: 450 = 2 * 200 + 50, so the next holds steps 600 and 800.
  rollout.Collect(nullptr, stay);
  ASSERT_EQ(rollout.truncated_samples().size(), 6u);
  EXPECT_EQ(rollout.truncated_samples()[0], 149 * 3);
}

TEST(Rollout, StepNumbersGoOn) {
  Rollout rollout(FindEnv("CartPole-v1"), {.index = 0, .envs = 2, .seed = 1}, 4);
  std::vector<std::uint64_t> steps;
  const auto policy = [&](const ActionRequest& request) {
    steps.push_back(request.step);
    ASSERT_EQ(request.n, 2);
    request.actions[0] = request.actions[1] = 0;
  };
  rollout.Collect(nullptr, policy);
  rollout.Collect(nullptr, policy);
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_P(Envs, ALoadedRolloutContinuesBitForBit) {
  const EnvEntry& env = FindEnv(GetParam());
  const ShardSpec shard{.index = 1, .envs = 4, .seed = 3};
  Rollout original(env, shard, 130), loaded(env, shard, 130);
  Collect(original);
  original.TakeEpisodes();
  StateWriter out;
  original.Save(out);
  EXPECT_TRUE(loaded.Load(StateReader(out.Encode())));
  for (int round = 0; round < 2; ++round) {
    Collect(original);
    Collect(loaded);
    EXPECT_TRUE(std::ranges::equal(loaded.obs(), original.obs()));
    EXPECT_TRUE(std::ranges::equal(loaded.actions(), original.actions()));
    EXPECT_TRUE(std::ranges::equal(loaded.rewards(), original.rewards()));
    EXPECT_TRUE(std::ranges::equal(loaded.truncated_samples(), original.truncated_samples()));
    EXPECT_TRUE(std::ranges::equal(loaded.truncated_obs(), original.truncated_obs()));
    const EpisodeTotals a = original.TakeEpisodes(), b = loaded.TakeEpisodes();
    EXPECT_EQ(a.count, b.count);
    EXPECT_EQ(a.return_sum, b.return_sum);
  }
}

// Says of every terminated episode that it was truncated as well; or tells nobody what has ended.
template <bool kHidden>
class ContradictoryBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  std::span<const std::uint8_t> truncated() const override {
    return kHidden ? inner_->truncated() : inner_->terminated();
  }
  std::span<const EpisodeEnd> finished() const override {
    return kHidden ? std::span<const EpisodeEnd>() : inner_->finished();
  }
};

TEST(Rollout, RefusesEnvironmentsThatContradictThemselves) {
  const auto error = [](const EnvEntry& env) -> std::string {
    try {
      Rollout rollout(env, {.index = 0, .envs = 4, .seed = 3}, 200);
      Collect(rollout);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string both = error(ForwardingEntry<ContradictoryBatch<false>>("Both-v0", {}));
  EXPECT_NE(both.find("Both-v0 is not what it says it is: copy"), std::string::npos) << both;
  const std::string hidden = error(ForwardingEntry<ContradictoryBatch<true>>("Hidden-v0", {}));
  EXPECT_NE(hidden.find("Hidden-v0 is not what it says it is: it has set"), std::string::npos) << hidden;
  EXPECT_NE(hidden.find("listed 0"), std::string::npos) << hidden;
  EnvEntry unsaved = ForwardingEntry<ForwardingBatch>("Unsaved-v0", {.snapshots = true});
  EXPECT_NE(error(unsaved).find("offer no snapshots"), std::string::npos) << error(unsaved);
}

TEST(Rollout, WhatCannotBeSavedGoesOnWithNewEpisodes) {
  const EnvFacts unsaved{.snapshots = false, .reproducible = true};
  const EnvEntry without = ForwardingEntry<ForwardingBatch>("Unsaved-v0", unsaved);
  const EnvEntry& with = FindEnv("CartPole-v1");
  for (const auto& [from, to] : {std::pair(without, without), {with, without}, {without, with}}) {
    SCOPED_TRACE(from.spec.name + " to " + to.spec.name);
    Rollout saved(from, {.index = 1, .envs = 4, .seed = 3}, 20);
    Collect(saved);
    StateWriter out;
    saved.Save(out);

    const ShardSpec anew{.index = 1, .envs = 4, .seed = 5};
    Rollout loaded(to, anew, 20), fresh(to, anew, 20);
    EXPECT_FALSE(loaded.Load(StateReader(out.Encode())));
    EXPECT_EQ(loaded.step_number(), 20u);
    EXPECT_EQ(loaded.shard().seed, 5u);
    Collect(loaded);
    Collect(fresh);
    EXPECT_TRUE(std::ranges::equal(loaded.obs().first(4 * 4), fresh.obs().first(4 * 4)));
    EXPECT_EQ(loaded.step_number(), 40u);
  }
}

TEST(Rollout, ShardsOfOneRunAreNumberedThrough) {
  // Environments 4 ... 7 of a run are the same whether they are half of one shard or a shard of their own.
  Rollout whole(FindEnv("CartPole-v1"), {.index = 0, .envs = 8, .seed = 3}, 20);
  Rollout second(FindEnv("CartPole-v1"), {.index = 1, .envs = 4, .seed = 3}, 20);
  Collect(whole);
  Collect(second);
  for (int t = 0; t <= 20; ++t) {
    for (int b = 0; b < 4; ++b) {
      EXPECT_EQ(RowOf(second.obs(), 4, t * 4 + b), RowOf(whole.obs(), 4, t * 8 + 4 + b));
    }
  }
}

TEST(Rollout, ObservationsAreNormalisedAndRawOnesMeasured) {
  const EnvEntry& env = FindEnv("MountainCar-v0");
  const ShardSpec shard{.index = 0, .envs = 3, .seed = 1};
  Rollout raw(env, shard, 210), normalised(env, shard, 210);
  Normaliser normaliser(2, true, 1.5f);
  std::vector<double> known(normaliser.sums_size());
  for (const std::vector<float>& x : {std::vector<float>{-0.6f, 0.02f}, {-0.4f, -0.02f}}) {
    normaliser.AddTo(known, x.data());
  }
  normaliser.Merge(known);

  Collect(raw);
  EXPECT_TRUE(raw.raw_sums().empty());
  normalised.Collect(&normaliser, ScriptedPolicy(normalised));
  const auto expect_applied = [&](std::span<const float> from, std::span<const float> to) {
    ASSERT_EQ(from.size(), to.size());
    bool clipped = false;
    for (std::size_t i = 0; i < from.size(); i += 2) {
      float expected[2];
      normaliser.Apply(from.data() + i, expected);
      EXPECT_EQ(to[i], expected[0]);
      EXPECT_EQ(to[i + 1], expected[1]);
      clipped |= expected[0] == 1.5f || expected[0] == -1.5f;
    }
    EXPECT_TRUE(clipped);
  };
  expect_applied(raw.obs(), normalised.obs());
  ASSERT_EQ(raw.truncated_samples().size(), 3u);
  std::vector<float> last(6);
  for (int n = 0; n < 3; ++n) normaliser.Apply(raw.truncated_obs().data() + 2 * n, last.data() + 2 * n);
  EXPECT_TRUE(std::ranges::equal(normalised.truncated_obs(), last));

  std::vector<double> expected_sums(normaliser.sums_size());
  for (int i = 3; i < 211 * 3; ++i) normaliser.AddTo(expected_sums, raw.obs().data() + 2 * i);
  EXPECT_TRUE(std::ranges::equal(normalised.raw_sums(), expected_sums));
}

// Against the same environments stepped by hand: rows as they were given, masks with them, and what the policy
// is shown.
TEST(Rollout, BytesAndMasksAreKeptAsTheyCome) {
  for (const EnvEntry& env : {BytesEntry("RolloutTest.Bytes-v0"), SoaEntry<Corridor>()}) {
    SCOPED_TRACE(env.spec.name);
    const ShardSpec shard{.index = 1, .envs = 3, .seed = 9};
    constexpr int kSteps = 60;
    Rollout rollout(env, shard, kSteps);
    const RowLayout& layout = rollout.layout();
    const std::unique_ptr<EnvBatch> batch = env.make(shard.envs);
    batch->Reset(shard.seed, Purpose::kEnvReset, shard.first_env());
    std::size_t truncated = 0;
    rollout.Collect(nullptr, [&](const ActionRequest& request) {
      std::vector<float> expected(3 * layout.obs_size());
      ObsToFloat(env.spec.obs, batch->obs().data(), 3, expected.data());
      EXPECT_EQ(std::vector<float>(request.obs, request.obs + expected.size()), expected);
      ASSERT_EQ(request.masks != nullptr, env.spec.masks);
      if (env.spec.masks) {
        EXPECT_TRUE(std::equal(batch->masks().begin(), batch->masks().end(), request.masks));
      }
      std::fill_n(request.actions, 3, static_cast<float>(request.step % 2));
      if (env.spec.masks) std::fill_n(request.actions, 3, 2.0f);  // stay: runs into the time limit
      batch->Step({request.actions, 3});
      for (const EpisodeEnd& end : batch->finished()) truncated += !end.terminated;
    });
    // The row after the last step.
    std::vector<float> row(layout.width());
    for (int b = 0; b < 3; ++b) {
      layout.Pack(batch->obs().data() + b * env.spec.obs.bytes(),
                  batch->masks().data() + b * layout.mask_size(), 1, row.data());
      const float* kept = rollout.obs().data() + (kSteps * 3 + b) * layout.width();
      EXPECT_EQ(std::memcmp(row.data(), kept, layout.width() * sizeof(float)), 0);
    }
    EXPECT_EQ(rollout.truncated_samples().size(), truncated);
    EXPECT_EQ(rollout.truncated_obs().size(), truncated * layout.width());
  }
}

}  // namespace
}  // namespace trireme
