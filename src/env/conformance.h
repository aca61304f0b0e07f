// What every environment must do, as checks on its entry: in the tree or not, built in or found by a source.
//
//   TEST(MyEnv, Conforms) { CheckEnv(FindEnv("MyEnv-v0")); }
//
// What an environment's facts do not promise is not asked of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/base/rng.h"
#include "trireme/env/registry.h"

namespace trireme {

// The action of copy `id` at `step`: random, a pure function of its arguments, within the bounds, and allowed
// by `mask` (empty: everything is).
inline void RandomAction(const ActionSpace& space, std::span<const std::uint8_t> mask, std::uint32_t id,
                         std::uint64_t step, float* action) {
  RandomStream random(7, Purpose::kAction, id, step);
  if (space.box()) {
    for (int k = 0; k < space.size(); ++k) {
      action[k] = space.low[k] + (space.high[k] - space.low[k]) * static_cast<float>(random.NextUniform());
    }
    return;
  }
  int first = 0;  // of the part, among all choices
  for (int part = 0; part < space.size(); ++part) {
    const int choices = space.parts[part];
    int choice = static_cast<int>(random.NextBelow(static_cast<std::uint32_t>(choices)));
    for (int tried = 0; !mask.empty() && mask[first + choice] == 0 && tried < choices; ++tried) {
      choice = (choice + 1) % choices;
    }
    action[part] = static_cast<float>(choice);
    first += choices;
  }
}

inline std::vector<float> RandomActions(const EnvBatch& batch, std::uint32_t first_id, std::uint64_t step) {
  const ActionSpace& space = batch.spec().action;
  std::vector<float> actions(static_cast<std::size_t>(batch.size()) * space.size());
  for (int i = 0; i < batch.size(); ++i) {
    const auto mask = batch.spec().masks ? batch.masks().subspan(i * space.choices(), space.choices())
                                         : std::span<const std::uint8_t>();
    RandomAction(space, mask, first_id + static_cast<std::uint32_t>(i), step, &actions[i * space.size()]);
  }
  return actions;
}

inline void StepRandomly(EnvBatch& batch, std::uint32_t first_id, std::uint64_t step) {
  batch.Step(RandomActions(batch, first_id, step));
}

// One row of observations as numbers.
inline std::vector<float> ObsRow(const EnvBatch& batch, std::span<const std::byte> rows, int i) {
  const ObsSpec& obs = batch.spec().obs;
  std::vector<float> row(static_cast<std::size_t>(obs.size()));
  ObsToFloat(obs, rows.data() + i * obs.bytes(), 1, row.data());
  return row;
}

// Everything a caller can see of copy i.
inline std::vector<double> Seen(const EnvBatch& batch, int i) {
  std::vector<double> seen = {batch.rewards()[i], double(batch.terminated()[i]),
                              double(batch.truncated()[i])};
  const bool done = batch.terminated()[i] || batch.truncated()[i];
  const auto add = [&](std::span<const std::byte> obs, std::span<const std::uint8_t> masks) {
    for (const float value : ObsRow(batch, obs, i)) seen.push_back(value);
    const std::size_t choices = masks.size() / static_cast<std::size_t>(batch.size());
    for (const std::uint8_t allowed : masks.subspan(i * choices, choices)) seen.push_back(allowed);
  };
  add(batch.obs(), batch.masks());
  if (done) add(batch.final_obs(), batch.final_masks());
  for (const EpisodeEnd& end : batch.finished()) {
    if (end.env != i) continue;
    seen.insert(seen.end(), {double(end.length), end.episode_return, double(end.terminated)});
  }
  return seen;
}

inline std::vector<std::vector<double>> SeenByAll(const EnvBatch& batch) {
  std::vector<std::vector<double>> seen;
  for (int i = 0; i < batch.size(); ++i) seen.push_back(Seen(batch, i));
  return seen;
}

inline std::unique_ptr<EnvBatch> MakeReset(const EnvEntry& env, int size, std::uint64_t seed = 1,
                                           std::uint32_t first_id = 0) {
  auto batch = env.make(size);
  batch->Reset(seed, Purpose::kEnvReset, first_id);
  return batch;
}

// Long enough for every copy to reach the time limit, where there is one and it is near.
inline int LongRun(const EnvEntry& env) {
  const int limit = env.spec.max_episode_steps;
  return (limit == 0 ? 2000 : std::min(limit, 2000)) + 60;
}

inline void CheckSpecAndViews(const EnvEntry& env) {
  const EnvSpec& spec = env.spec;
  EXPECT_NO_THROW(CheckSpec(spec));
  EXPECT_FALSE(spec.help.empty());
  const auto batch = MakeReset(env, 3);
  EXPECT_EQ(batch->spec().name, spec.name);
  EXPECT_EQ(batch->spec().obs, spec.obs);
  EXPECT_EQ(batch->spec().max_episode_steps, spec.max_episode_steps);
  EXPECT_EQ(batch->size(), 3);
  EXPECT_EQ(batch->obs().size(), 3 * spec.obs.bytes());
  EXPECT_EQ(batch->final_obs().size(), 3 * spec.obs.bytes());
  EXPECT_EQ(batch->masks().size(), spec.masks ? 3u * spec.action.choices() : 0u);
  EXPECT_EQ(batch->final_masks().size(), batch->masks().size());
  EXPECT_EQ(batch->rewards().size(), 3u);
  EXPECT_EQ(batch->terminated().size(), 3u);
  EXPECT_EQ(batch->truncated().size(), 3u);
  EXPECT_TRUE(batch->finished().empty());
  EXPECT_EQ(batch->snapshots() != nullptr, env.facts.snapshots);
}

// The defaults are the entry itself, and every option can be read back.
inline void CheckOptions(const EnvEntry& env) {
  if (!env.options) return;
  const auto options = env.options();
  ConfigFields fields;
  fields.Add(*options);
  EXPECT_FALSE(fields.fields().empty());
  fields.ApplyToml(fields.ToToml(), "its own options");
  const EnvEntry again = options->Entry({});
  EXPECT_EQ(again.spec.name, env.spec.name);
  EXPECT_EQ(again.spec.obs, env.spec.obs);
  EXPECT_EQ(again.spec.max_episode_steps, env.spec.max_episode_steps);
  EXPECT_EQ(again.make(2)->spec().name, env.spec.name);
}

// Each part of an action has a choice, for every copy.
inline void ExpectAChoice(const EnvSpec& spec, std::span<const std::uint8_t> masks, int i) {
  const std::uint8_t* mask = masks.data() + static_cast<std::ptrdiff_t>(i) * spec.action.choices();
  for (const int choices : spec.action.parts) {
    EXPECT_GT(std::count(mask, mask + choices, 1), 0) << "copy " << i;
    EXPECT_EQ(std::count(mask, mask + choices, 1) + std::count(mask, mask + choices, 0), choices);
    mask += choices;
  }
}

// Episodes end and restart by the book; those that end together are listed in the order of their copies.
inline void CheckEpisodes(const EnvEntry& env, int size = 13) {
  const EnvSpec& spec = env.spec;
  const auto batch = MakeReset(env, size);
  std::vector<int> length(size, 0);
  std::vector<double> sum(size, 0);
  int episodes = 0;
  for (int t = 0; t < LongRun(env); ++t) {
    for (int i = 0; spec.masks && i < size; ++i) ExpectAChoice(spec, batch->masks(), i);
    StepRandomly(*batch, 0, t);
    std::size_t ended = 0;
    for (int i = 0; i < size; ++i) {
      ++length[i];
      sum[i] += batch->rewards()[i];
      ASSERT_TRUE(std::isfinite(batch->rewards()[i]));
      for (const float value : ObsRow(*batch, batch->obs(), i)) ASSERT_TRUE(std::isfinite(value));
      const bool terminated = batch->terminated()[i], truncated = batch->truncated()[i];
      ASSERT_FALSE(terminated && truncated);
      ASSERT_TRUE(terminated || truncated || length[i] != spec.max_episode_steps)
          << "copy " << i << " goes on beyond its time limit";
      if (!terminated && !truncated) continue;
      for (const float value : ObsRow(*batch, batch->final_obs(), i)) ASSERT_TRUE(std::isfinite(value));
      ASSERT_LT(ended, batch->finished().size());
      const EpisodeEnd& end = batch->finished()[ended++];
      EXPECT_EQ(end.env, i) << "finished() is not in the order of the copies";
      EXPECT_EQ(end.length, length[i]);
      EXPECT_EQ(end.terminated, terminated);
      EXPECT_NEAR(end.episode_return, sum[i], 1e-6 * (1 + std::abs(sum[i])));
      length[i] = 0;
      sum[i] = 0;
      ++episodes;
    }
    ASSERT_EQ(ended, batch->finished().size());
  }
  if (spec.max_episode_steps > 0 && LongRun(env) > spec.max_episode_steps) {
    EXPECT_GE(episodes, size) << "some copy never ended an episode";
  }
}

inline void CheckReproducible(const EnvEntry& env) {
  if (!env.facts.reproducible) return;
  const auto a = MakeReset(env, 8), b = MakeReset(env, 8);
  StepRandomly(*b, 0, 0);
  b->Reset(1, Purpose::kEnvReset, 0);  // whatever came before
  ASSERT_EQ(SeenByAll(*a), SeenByAll(*b));
  for (int t = 0; t < LongRun(env); ++t) {
    StepRandomly(*a, 0, t);
    StepRandomly(*b, 0, t);
    ASSERT_EQ(SeenByAll(*a), SeenByAll(*b)) << "step " << t;
  }
}

// However copies are divided into batches: the same bits.
inline void CheckBatching(const EnvEntry& env) {
  if (!env.facts.reproducible) return;
  const auto whole = MakeReset(env, 16, 1, 100);
  std::vector<std::unique_ptr<EnvBatch>> parts;
  std::uint32_t first = 100;
  for (const int size : {8, 5, 1, 2}) {
    parts.push_back(MakeReset(env, size, 1, first));
    first += static_cast<std::uint32_t>(size);
  }
  for (int t = 0; t < LongRun(env); ++t) {
    StepRandomly(*whole, 100, t);
    std::vector<std::vector<double>> seen;
    std::uint32_t id = 100;
    for (const auto& part : parts) {
      StepRandomly(*part, id, t);
      id += static_cast<std::uint32_t>(part->size());
      for (auto& one : SeenByAll(*part)) seen.push_back(std::move(one));
    }
    ASSERT_EQ(SeenByAll(*whole), seen) << "step " << t;
  }
}

// Two batches whose steps are begun and ended in turns, and whose actions are overwritten meanwhile, do what
// batches do that are stepped one after the other.
inline void CheckStepsApart(const EnvEntry& env) {
  const auto a = MakeReset(env, 5), b = MakeReset(env, 3, 1, 5);
  const auto plain_a = MakeReset(env, 5), plain_b = MakeReset(env, 3, 1, 5);
  for (int t = 0; t < std::min(LongRun(env), 300); ++t) {
    std::vector<float> actions_a = RandomActions(*a, 0, t), actions_b = RandomActions(*b, 5, t);
    if (env.facts.reproducible) {
      plain_a->Step(actions_a);
      plain_b->Step(actions_b);
    }
    a->StepBegin(actions_a);
    std::ranges::fill(actions_a, std::numeric_limits<float>::quiet_NaN());
    b->StepBegin(actions_b);
    std::ranges::fill(actions_b, std::numeric_limits<float>::quiet_NaN());
    a->StepEnd();
    b->StepEnd();
    for (const auto& batch : {a.get(), b.get()}) {
      for (const float reward : batch->rewards()) ASSERT_TRUE(std::isfinite(reward));
    }
    if (!env.facts.reproducible) continue;
    ASSERT_EQ(SeenByAll(*a), SeenByAll(*plain_a)) << "step " << t;
    ASSERT_EQ(SeenByAll(*b), SeenByAll(*plain_b)) << "step " << t;
  }
}

// A loaded batch goes on with the same bits, and what does not fit is refused.
inline void CheckSnapshots(const EnvEntry& env) {
  if (!env.facts.snapshots) return;
  const auto original = MakeReset(env, 11, 5, 30), restored = MakeReset(env, 11, 6, 0);
  for (int t = 0; t < 37; ++t) StepRandomly(*original, 30, t);
  StateWriter out;
  original->snapshots()->Save(out, "shard/3/env");
  const StateReader saved(out.Encode());
  restored->snapshots()->Load(saved, "shard/3/env");
  ASSERT_TRUE(std::ranges::equal(original->obs(), restored->obs()));
  ASSERT_TRUE(std::ranges::equal(original->masks(), restored->masks()));
  for (int t = 37; t < 37 + LongRun(env); ++t) {
    StepRandomly(*original, 30, t);
    StepRandomly(*restored, 30, t);
    ASSERT_EQ(SeenByAll(*original), SeenByAll(*restored)) << "step " << t;
  }
  EXPECT_THROW(MakeReset(env, 12)->snapshots()->Load(saved, "shard/3/env"), Error);
  EXPECT_THROW(MakeReset(env, 11)->snapshots()->Load(saved, "elsewhere"), Error);
}

// Pictures are of one size, the same twice, and change nothing.
inline void CheckPictures(const EnvEntry& env) {
  EXPECT_EQ(env.make(2)->pictures(), nullptr);
  if (!env.make_drawn) return;
  const auto drawn = env.make_drawn(2), plain = MakeReset(env, 2);
  drawn->Reset(1, Purpose::kEnvReset, 0);
  EnvPictures* pictures = drawn->pictures();
  ASSERT_NE(pictures, nullptr);
  EXPECT_GT(pictures->per_second(), 0);
  int looked = 0;  // drawing may take long
  Picture first, picture, again;
  pictures->Draw(0, first);
  ASSERT_NO_THROW(CheckPicture(first, env.spec.name.c_str()));
  for (int t = 0; t < LongRun(env); ++t) {
    StepRandomly(*drawn, 0, t);
    if (env.facts.reproducible) {
      StepRandomly(*plain, 0, t);
      ASSERT_EQ(SeenByAll(*drawn), SeenByAll(*plain)) << "step " << t;
    }
    if (looked >= 20 || (t % 50 != 0 && drawn->finished().empty())) continue;
    ++looked;
    for (int i = 0; i < 2; ++i) {
      pictures->Draw(i, picture);
      ASSERT_NO_THROW(CheckPicture(picture, env.spec.name.c_str()));
      ASSERT_EQ(picture.width, first.width);
      ASSERT_EQ(picture.height, first.height);
      pictures->Draw(i, again);
      ASSERT_EQ(picture, again) << "step " << t;
    }
  }
}

// All of them.
inline void CheckEnv(const EnvEntry& env) {
  SCOPED_TRACE(env.spec.name);
  CheckSpecAndViews(env);
  CheckOptions(env);
  CheckEpisodes(env);
  CheckReproducible(env);
  CheckBatching(env);
  CheckStepsApart(env);
  CheckSnapshots(env);
  CheckPictures(env);
}

}  // namespace trireme
