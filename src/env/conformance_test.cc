// What every registered environment must do. A new environment is covered by being in the registry; give the
// bounds of its observations below.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/simd.h"
#include "trireme/env/env.h"

namespace trireme {
namespace {

// The largest magnitude each observation can have, the last of an episode included.
const std::map<std::string, std::vector<double>> kObsBounds = {
    {"CartPole-v1", {2.4 + 0.1, 5.0, 0.21 + 0.1, 5.0}},
    {"MountainCar-v0", {1.2, 0.07}},
    {"MountainCarContinuous-v0", {1.2, 0.07}},
    {"Acrobot-v1", {1, 1, 1, 1, 12.5664, 28.2744}},
    {"Pendulum-v1", {1, 1, 8}},
};

// The action of copy `id` at `step`: random, a pure function of its arguments, within the bounds.
void Act(const ActionSpace& space, std::uint32_t id, std::uint64_t step, float* action) {
  RandomStream random(7, Purpose::kAction, id, step);
  if (space.discrete) {
    *action = static_cast<float>(random.NextBelow(static_cast<std::uint32_t>(space.choices)));
    return;
  }
  for (int k = 0; k < space.size(); ++k) {
    action[k] = space.low[k] + (space.high[k] - space.low[k]) * static_cast<float>(random.NextUniform());
  }
}

void StepRandomly(EnvBatch& batch, std::uint32_t first_id, std::uint64_t step) {
  const ActionSpace& space = batch.spec().action;
  std::vector<float> actions(static_cast<std::size_t>(batch.size() * space.size()));
  for (int i = 0; i < batch.size(); ++i) {
    Act(space, first_id + static_cast<std::uint32_t>(i), step, &actions[i * space.size()]);
  }
  batch.Step(actions);
}

// Everything a caller can see of copy i.
std::vector<double> Seen(const EnvBatch& batch, int i) {
  std::vector<double> seen = {batch.rewards()[i], double(batch.terminated()[i]),
                              double(batch.truncated()[i])};
  const bool done = batch.terminated()[i] || batch.truncated()[i];
  for (int k = 0; k < batch.spec().obs_size; ++k) {
    seen.push_back(batch.obs()[k * batch.size() + i]);
    if (done) seen.push_back(batch.final_obs()[k * batch.size() + i]);
  }
  for (const EpisodeEnd& end : batch.finished()) {
    if (end.env != i) continue;
    seen.insert(seen.end(), {double(end.length), end.episode_return, double(end.terminated)});
  }
  return seen;
}

std::vector<std::vector<double>> SeenByAll(const EnvBatch& batch) {
  std::vector<std::vector<double>> seen;
  for (int i = 0; i < batch.size(); ++i) seen.push_back(Seen(batch, i));
  return seen;
}

// The state of the only copy.
std::vector<double> StateOf(const EnvBatch& batch) {
  StateWriter out;
  batch.Save(out, "env");
  const StateReader saved(out.Encode());
  std::vector<double> state;
  for (int k = 0; saved.Has("env/state/" + std::to_string(k)); ++k) {
    state.push_back(saved.GetValue<double>("env/state/" + std::to_string(k)));
  }
  return state;
}

class Conformance : public testing::TestWithParam<EnvEntry> {
 protected:
  void TearDown() override { OverrideIsa(Isa::kAvx512); }
  const EnvSpec& spec() const { return GetParam().spec; }
  // Long enough for every copy to reach the time limit.
  int LongRun() const { return spec().max_episode_steps + 60; }
  std::unique_ptr<EnvBatch> Make(int size, std::uint64_t seed = 1, std::uint32_t first_id = 0) const {
    auto batch = GetParam().make(size);
    batch->Reset(seed, Purpose::kEnvReset, first_id);
    return batch;
  }
};

TEST_P(Conformance, SpecIsSane) {
  EXPECT_FALSE(spec().name.empty());
  EXPECT_FALSE(spec().help.empty());
  EXPECT_GT(spec().obs_size, 0);
  EXPECT_GT(spec().max_episode_steps, 0);
  EXPECT_TRUE(std::isfinite(spec().reward_threshold));
  EXPECT_EQ(FindEnv(spec().name).spec.name, spec().name);
  if (spec().action.discrete) {
    EXPECT_GE(spec().action.choices, 2);
  } else {
    ASSERT_EQ(spec().action.low.size(), spec().action.high.size());
    for (int k = 0; k < spec().action.size(); ++k) EXPECT_LT(spec().action.low[k], spec().action.high[k]);
  }
  const auto batch = Make(3);
  EXPECT_EQ(batch->spec().name, spec().name);
  EXPECT_EQ(batch->size(), 3);
  EXPECT_EQ(batch->obs().size(), 3u * spec().obs_size);
  EXPECT_EQ(batch->final_obs().size(), 3u * spec().obs_size);
  EXPECT_EQ(batch->rewards().size(), 3u);
  EXPECT_EQ(batch->terminated().size(), 3u);
  EXPECT_EQ(batch->truncated().size(), 3u);
}

TEST_P(Conformance, SameSeedSameBitsOtherSeedOrPurposeOtherStart) {
  const auto a = Make(8), b = Make(8), other_seed = Make(8, 2), other_purpose = Make(8);
  other_purpose->Reset(1, Purpose::kEvalReset, 0);
  std::set<std::vector<double>> starts;
  for (const auto* batch : {a.get(), other_seed.get(), other_purpose.get()}) {
    for (const auto& seen : SeenByAll(*batch)) starts.insert(seen);
  }
  EXPECT_EQ(starts.size(), 24u) << "two copies start alike";
  for (int t = 0; t < LongRun(); ++t) {
    StepRandomly(*a, 0, t);
    StepRandomly(*b, 0, t);
    ASSERT_EQ(SeenByAll(*a), SeenByAll(*b)) << "step " << t;
  }
}

// However copies are divided into batches, whole blocks or not, and whatever the instruction set: the same
// bits.
TEST_P(Conformance, ACopyDoesNotDependOnItsBatchOrTheInstructionSet) {
  OverrideIsa(Isa::kAvx512);
  const auto whole = Make(16, 1, 100);
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    whole->Reset(1, Purpose::kEnvReset, 100);
    std::vector<std::unique_ptr<EnvBatch>> parts;
    const int sizes[] = {8, 5, 1, 2};
    std::uint32_t first = 100;
    for (const int size : sizes) {
      parts.push_back(Make(size, 1, first));
      first += static_cast<std::uint32_t>(size);
    }
    for (int t = 0; t < LongRun(); ++t) {
      OverrideIsa(Isa::kAvx512);
      StepRandomly(*whole, 100, t);
      OverrideIsa(isa);
      std::vector<std::vector<double>> seen;
      std::uint32_t id = 100;
      for (const auto& part : parts) {
        StepRandomly(*part, id, t);
        id += static_cast<std::uint32_t>(part->size());
        for (auto& one : SeenByAll(*part)) seen.push_back(std::move(one));
      }
      ASSERT_EQ(SeenByAll(*whole), seen) << IsaName(isa) << " step " << t;
    }
  }
}

TEST_P(Conformance, EpisodesEndAndRestartByTheBook) {
  constexpr int kSize = 13;
  const auto batch = Make(kSize);
  std::vector<int> length(kSize, 0), episode(kSize, 0);
  std::vector<double> sum(kSize, 0);
  for (int t = 0; t < LongRun(); ++t) {
    StepRandomly(*batch, 0, t);
    std::size_t ended = 0;
    for (int i = 0; i < kSize; ++i) {
      ++length[i];
      sum[i] += batch->rewards()[i];
      const bool terminated = batch->terminated()[i], truncated = batch->truncated()[i];
      ASSERT_FALSE(terminated && truncated);
      ASSERT_EQ(truncated, length[i] == spec().max_episode_steps && !terminated);
      if (!terminated && !truncated) continue;
      ASSERT_LT(ended, batch->finished().size());
      const EpisodeEnd& end = batch->finished()[ended++];
      EXPECT_EQ(end.env, i);
      EXPECT_EQ(end.length, length[i]);
      EXPECT_EQ(end.terminated, terminated);
      EXPECT_NEAR(end.episode_return, sum[i], 1e-6 * (1 + std::abs(sum[i])));
      length[i] = 0;
      sum[i] = 0;
      ++episode[i];
    }
    ASSERT_EQ(ended, batch->finished().size());
  }
  int episodes = 0;
  for (const int e : episode) episodes += e;
  EXPECT_GE(episodes, kSize) << "some copy never ended an episode";
}

// A copy that is put back to its start state before every step never ends its task, so the clock must.
TEST_P(Conformance, TruncatesExactlyAtTheTimeLimit) {
  const auto batch = Make(1);
  const std::vector<double> start = StateOf(*batch);
  for (int episode = 0; episode < 2; ++episode) {
    for (int t = 1; t <= spec().max_episode_steps; ++t) {
      batch->SetState(0, start);
      StepRandomly(*batch, 0, t);
      ASSERT_FALSE(batch->terminated()[0]);
      ASSERT_EQ(batch->truncated()[0], t == spec().max_episode_steps) << "step " << t;
    }
  }
}

// The same with many copies at once, whose clocks all say so in one step.
TEST_P(Conformance, EpisodesThatEndTogetherAreListedInTheOrderOfTheirCopies) {
  constexpr int kSize = 21;  // whole blocks and a part of one
  const auto batch = Make(kSize);
  const std::vector<double> start = StateOf(*Make(1));
  for (int t = 1; t <= spec().max_episode_steps; ++t) {
    for (int i = 0; i < kSize; ++i) batch->SetState(i, start);
    StepRandomly(*batch, 0, t);
  }
  std::vector<int> listed, all;
  for (const EpisodeEnd& end : batch->finished()) listed.push_back(end.env);
  for (int i = 0; i < kSize; ++i) all.push_back(i);
  EXPECT_EQ(listed, all);
}

TEST_P(Conformance, FinalObservationIsTheOneBeforeTheRestart) {
  const auto batch = Make(1);
  const auto copy = [](std::span<const float> values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> first_obs = copy(batch->obs());
  std::vector<double> before;
  int t = -1;
  while (batch->finished().empty()) {
    ASSERT_LE(t, spec().max_episode_steps);
    before = StateOf(*batch);
    StepRandomly(*batch, 0, ++t);
  }
  // The last step again, from the same state but with a fresh clock.
  const auto replay = Make(1);
  replay->SetState(0, before);
  StepRandomly(*replay, 0, t);
  EXPECT_EQ(copy(batch->final_obs()), copy(replay->finished().empty() ? replay->obs() : replay->final_obs()));
  EXPECT_NE(copy(batch->obs()), copy(batch->final_obs()));
  EXPECT_NE(copy(batch->obs()), first_obs) << "episode 1 starts as episode 0 did";
}

TEST_P(Conformance, ObservationsAndRewardsStayInBounds) {
  ASSERT_TRUE(kObsBounds.contains(spec().name))
      << "give the bounds of its observations at the top of this file";
  const std::vector<double>& bounds = kObsBounds.at(spec().name);
  const auto batch = Make(16);
  for (int t = 0; t < LongRun(); ++t) {
    StepRandomly(*batch, 0, t);
    for (int i = 0; i < batch->size(); ++i) {
      ASSERT_TRUE(std::isfinite(batch->rewards()[i]));
      for (int k = 0; k < spec().obs_size; ++k) {
        ASSERT_LE(std::abs(batch->obs()[k * 16 + i]), bounds[k] * (1 + 1e-6)) << "observation " << k;
        ASSERT_LE(std::abs(batch->final_obs()[k * 16 + i]), bounds[k] * (1 + 1e-6))
            << "final observation " << k;
      }
    }
  }
}

TEST_P(Conformance, ContinuousActionsAreClipped) {
  if (spec().action.discrete) return;
  const auto beyond = Make(8), at_bound = Make(8);
  const auto size = static_cast<std::size_t>(8 * spec().action.size());
  std::vector<float> huge(size), bound(size);
  for (std::size_t k = 0; k < size; ++k) {
    const std::size_t dimension = k % spec().action.low.size();
    huge[k] = k % 2 == 0 ? 1e6f : -1e6f;
    bound[k] = k % 2 == 0 ? spec().action.high[dimension] : spec().action.low[dimension];
  }
  for (int t = 0; t < 50; ++t) {
    beyond->Step(huge);
    at_bound->Step(bound);
    for (std::size_t k = 0; k < beyond->obs().size(); ++k)
      ASSERT_NEAR(beyond->obs()[k], at_bound->obs()[k], 1e-5);
    for (const float reward : beyond->rewards()) ASSERT_TRUE(std::isfinite(reward));
  }
  // Even what is no number at all leaves the state finite.
  beyond->Step(std::vector<float>(size, std::numeric_limits<float>::quiet_NaN()));
  for (const float value : beyond->obs()) EXPECT_TRUE(std::isfinite(value));
  beyond->Step(std::vector<float>(size, std::numeric_limits<float>::infinity()));
  for (const float value : beyond->obs()) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(Conformance, LoadContinuesBitIdentically) {
  const auto original = Make(11, 5, 30), restored = Make(11, 6, 0);
  for (int t = 0; t < 37; ++t) StepRandomly(*original, 30, t);
  StateWriter out;
  original->Save(out, "shard/3/env");
  restored->Load(StateReader(out.Encode()), "shard/3/env");
  for (std::size_t k = 0; k < original->obs().size(); ++k) ASSERT_EQ(original->obs()[k], restored->obs()[k]);
  for (int t = 37; t < 37 + LongRun(); ++t) {
    StepRandomly(*original, 30, t);
    StepRandomly(*restored, 30, t);
    ASSERT_EQ(SeenByAll(*original), SeenByAll(*restored)) << "step " << t;
  }
}

TEST_P(Conformance, LoadRefusesAnotherSizeAndAnotherEnvironment) {
  StateWriter out;
  Make(4)->Save(out, "env");
  const StateReader saved(out.Encode());
  EXPECT_THROW(Make(5)->Load(saved, "env"), Error);
  EXPECT_THROW(Make(4)->Load(saved, "elsewhere"), Error);
  for (const EnvEntry& other : AllEnvs()) {
    if (other.spec.name == spec().name) continue;
    EXPECT_THROW(other.make(4)->Load(saved, "env"), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(AllEnvs, Conformance, testing::ValuesIn(AllEnvs().begin(), AllEnvs().end()),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : info.param.spec.name) {
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           }
                           return name;
                         });

TEST(Registry, SuggestsTheNearestName) {
  EXPECT_EQ(FindEnv("CartPole-v1").spec.name, "CartPole-v1");
  try {
    FindEnv("CartPole-v0");
    FAIL() << "found an environment that is not there";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'CartPole-v1'?"), std::string::npos)
        << error.what();
  }
}

TEST(Registry, NamesAreUnique) {
  std::set<std::string> names;
  for (const EnvEntry& entry : AllEnvs()) names.insert(entry.spec.name);
  EXPECT_EQ(names.size(), AllEnvs().size());
}

}  // namespace
}  // namespace trireme
