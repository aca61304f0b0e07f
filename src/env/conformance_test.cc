// What every built-in environment must do: the kit of conformance.h, and what only those made of vectors can.
// A new environment is covered by being in the table; give the bounds of its observations below.
#include "trireme/env/conformance.h"

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
#include "trireme/env/batch.h"

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

SettableBatch& Settable(EnvBatch& batch) { return dynamic_cast<SettableBatch&>(batch); }

class Conformance : public testing::TestWithParam<EnvEntry> {
 protected:
  void TearDown() override { OverrideIsa(Isa::kAvx512); }
  const EnvSpec& spec() const { return GetParam().spec; }
  std::unique_ptr<EnvBatch> Make(int size, std::uint64_t seed = 1, std::uint32_t first_id = 0) const {
    return MakeReset(GetParam(), size, seed, first_id);
  }
};

TEST_P(Conformance, PassesTheKit) { CheckEnv(GetParam()); }

TEST_P(Conformance, OtherSeedOrPurposeOtherStart) {
  const auto a = Make(8), other_seed = Make(8, 2), other_purpose = Make(8);
  other_purpose->Reset(1, Purpose::kEvalReset, 0);
  std::set<std::vector<double>> starts;
  for (const auto* batch : {a.get(), other_seed.get(), other_purpose.get()}) {
    for (const auto& seen : SeenByAll(*batch)) starts.insert(seen);
  }
  EXPECT_EQ(starts.size(), 24u) << "two copies start alike";
}

// Every copy by its own seed, as if it were the first and only one, through several episodes and a snapshot.
TEST_P(Conformance, CopiesCanHaveSeedsOfTheirOwn) {
  const std::vector<std::uint64_t> seeds = {7, 9, 7, std::uint64_t{1} << 40};
  const auto together = Make(4);
  Settable(*together).ResetEach(seeds, Purpose::kEnvReset);
  std::vector<std::unique_ptr<EnvBatch>> alone;
  for (const std::uint64_t seed : seeds) alone.push_back(Make(1, seed));
  const int size = spec().action.size();
  for (int t = 0; t < LongRun(GetParam()); ++t) {
    if (t == 10) {
      StateWriter saved;
      together->snapshots()->Save(saved, "env");
      together->Reset(1, Purpose::kEnvReset, 0);
      together->snapshots()->Load(StateReader(std::move(saved).Encode()), "env");
    }
    const std::vector<float> actions = RandomActions(*alone[0], 0, t);
    std::vector<float> all;
    for (int i = 0; i < 4; ++i) all.insert(all.end(), actions.begin(), actions.begin() + size);
    together->Step(all);
    for (const auto& one : alone) one->Step(actions);
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      ASSERT_EQ(SeenByAll(*together)[i], SeenByAll(*alone[i])[0]) << "copy " << i << " after step " << t;
    }
  }
}

TEST_P(Conformance, ACopyDoesNotDependOnTheInstructionSet) {
  OverrideIsa(Isa::kAvx512);
  const auto widest = Make(13, 1, 100);  // a whole block and a part of one
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2}) {
    widest->Reset(1, Purpose::kEnvReset, 100);
    const auto other = Make(13, 1, 100);
    for (int t = 0; t < LongRun(GetParam()); ++t) {
      OverrideIsa(Isa::kAvx512);
      StepRandomly(*widest, 100, t);
      OverrideIsa(isa);
      StepRandomly(*other, 100, t);
      ASSERT_EQ(SeenByAll(*widest), SeenByAll(*other)) << IsaName(isa) << " step " << t;
    }
  }
}

// A copy that is put back to its start state before every step never ends its task, so the clock must.
TEST_P(Conformance, TruncatesExactlyAtTheTimeLimit) {
  const auto batch = Make(1);
  const std::vector<double> start = Settable(*batch).StateOf(0);
  for (int episode = 0; episode < 2; ++episode) {
    for (int t = 1; t <= spec().max_episode_steps; ++t) {
      Settable(*batch).SetState(0, start);
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
  const std::vector<double> start = Settable(*Make(1)).StateOf(0);
  for (int t = 1; t <= spec().max_episode_steps; ++t) {
    for (int i = 0; i < kSize; ++i) Settable(*batch).SetState(i, start);
    StepRandomly(*batch, 0, t);
  }
  std::vector<int> listed, all;
  for (const EpisodeEnd& end : batch->finished()) listed.push_back(end.env);
  for (int i = 0; i < kSize; ++i) all.push_back(i);
  EXPECT_EQ(listed, all);
}

TEST_P(Conformance, FinalObservationIsTheOneBeforeTheRestart) {
  const auto batch = Make(1);
  const auto copy = [](std::span<const std::byte> rows) {
    return std::vector<float>(FloatObs(rows).begin(), FloatObs(rows).end());
  };
  const std::vector<float> first_obs = copy(batch->obs());
  std::vector<double> before;
  int t = -1;
  while (batch->finished().empty()) {
    ASSERT_LE(t, spec().max_episode_steps);
    before = Settable(*batch).StateOf(0);
    StepRandomly(*batch, 0, ++t);
  }
  // The last step again, from the same state but with a fresh clock.
  const auto replay = Make(1);
  Settable(*replay).SetState(0, before);
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
  for (int t = 0; t < LongRun(GetParam()); ++t) {
    StepRandomly(*batch, 0, t);
    for (int i = 0; i < batch->size(); ++i) {
      ASSERT_TRUE(std::isfinite(batch->rewards()[i]));
      for (std::size_t k = 0; k < bounds.size(); ++k) {
        ASSERT_LE(std::abs(ObsRow(*batch, batch->obs(), i).at(k)), bounds[k] * (1 + 1e-6))
            << "observation " << k;
        ASSERT_LE(std::abs(ObsRow(*batch, batch->final_obs(), i).at(k)), bounds[k] * (1 + 1e-6))
            << "final observation " << k;
      }
    }
  }
}

TEST_P(Conformance, ContinuousActionsAreClipped) {
  if (!spec().action.box()) return;
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
    const std::span<const float> obs = FloatObs(beyond->obs());
    for (std::size_t k = 0; k < obs.size(); ++k) ASSERT_NEAR(obs[k], FloatObs(at_bound->obs())[k], 1e-5);
    for (const float reward : beyond->rewards()) ASSERT_TRUE(std::isfinite(reward));
  }
  // Even what is no number at all leaves the state finite.
  beyond->Step(std::vector<float>(size, std::numeric_limits<float>::quiet_NaN()));
  for (const float value : FloatObs(beyond->obs())) EXPECT_TRUE(std::isfinite(value));
  beyond->Step(std::vector<float>(size, std::numeric_limits<float>::infinity()));
  for (const float value : FloatObs(beyond->obs())) EXPECT_TRUE(std::isfinite(value));
}

TEST_P(Conformance, LoadRefusesAnotherEnvironment) {
  StateWriter out;
  Make(4)->snapshots()->Save(out, "env");
  const StateReader saved(out.Encode());
  for (const EnvEntry& other : AllEnvs()) {
    if (other.spec.name == spec().name) continue;
    EXPECT_THROW(other.make(4)->snapshots()->Load(saved, "env"), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(AllEnvs, Conformance, testing::ValuesIn(AllEnvs()), [](const auto& info) {
  std::string name;
  for (const char c : info.param.spec.name) {
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  }
  return name;
});

}  // namespace
}  // namespace trireme
