#include "trireme/env/checked_batch.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

// What a batch says of itself. It is CartPole's unless a test changes it.
struct Claims {
  explicit Claims(EnvBatch& inner)
      : spec(inner.spec()),
        size(inner.size()),
        obs(inner.obs()),
        final_obs(inner.final_obs()),
        rewards(inner.rewards()),
        terminated(inner.terminated()),
        truncated(inner.truncated()) {}

  EnvSpec spec;
  int size;
  std::span<const std::byte> obs, final_obs;
  std::span<const std::uint8_t> masks, final_masks;
  std::span<const float> rewards;
  std::span<const std::uint8_t> terminated, truncated;
};

class ClaimingBatch final : public ForwardingBatch {
 public:
  ClaimingBatch(std::unique_ptr<EnvBatch> inner, const std::function<void(Claims&)>& change)
      : ForwardingBatch(std::move(inner), {}), claims_(*inner_) {
    change(claims_);
  }
  const EnvSpec& spec() const override { return claims_.spec; }
  int size() const override { return claims_.size; }
  std::span<const std::byte> obs() const override { return claims_.obs; }
  std::span<const std::byte> final_obs() const override { return claims_.final_obs; }
  std::span<const std::uint8_t> masks() const override { return claims_.masks; }
  std::span<const std::uint8_t> final_masks() const override { return claims_.final_masks; }
  std::span<const float> rewards() const override { return claims_.rewards; }
  std::span<const std::uint8_t> terminated() const override { return claims_.terminated; }
  std::span<const std::uint8_t> truncated() const override { return claims_.truncated; }

 private:
  Claims claims_;
};

EnvEntry Claiming(std::function<void(Claims&)> change, const char* env = "CartPole-v1") {
  const EnvEntry real = FindEnv(env);
  return {.spec = real.spec, .make = [real, change](int size) {
            return std::make_unique<ClaimingBatch>(real.make(size), change);
          }};
}

std::string Refusal(const EnvEntry& env) {
  try {
    MakeBatch(env, 3, 1, Purpose::kEnvReset, 0);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(CheckedBatch, IsResetAndUsable) {
  const EnvEntry env = FindEnv("CartPole-v1");
  const auto batch = MakeBatch(env, 3, 7, Purpose::kEnvReset, 5), expected = env.make(3);
  expected->Reset(7, Purpose::kEnvReset, 5);
  EXPECT_TRUE(std::ranges::equal(batch->obs(), expected->obs()));
  for (const EnvEntry& entry : AllEnvs()) EXPECT_EQ(Refusal(entry), "");
  for (const EnvEntry& entry :
       {SoaEntry<Corridor>(), SoaEntry<Dials>(), BytesEntry("Bytes-v0"),
        ForwardingEntry<UnpredictableBatch>("Wild-v0", {}), Claiming([](Claims&) {})}) {
    EXPECT_EQ(Refusal(entry), "");
  }
}

TEST(CheckedBatch, RefusesABatchThatIsNotWhatItsEntrySays) {
  const std::vector<std::pair<std::function<void(Claims&)>, std::string>> lies = {
      {[](Claims& c) { c.size = 2; }, "has 2 copies, not 3"},
      {[](Claims& c) { c.spec.obs = {{3}}; }, "other observations, actions or masks"},
      {[](Claims& c) { c.spec.action = ActionSpace::Discrete(3); }, "other observations, actions or masks"},
      {[](Claims& c) { c.spec.action = ActionSpace::MultiDiscrete({2}); },
       "other observations, actions or masks"},
      {[](Claims& c) { c.spec.masks = true; }, "other observations, actions or masks"},
      {[](Claims& c) { c.obs = c.obs.first(36); }, "has 36 bytes of observations, not 48"},
      {[](Claims& c) { c.final_obs = {}; }, "has 0 bytes of final observations, not 48"},
      {[](Claims& c) { c.masks = c.terminated; }, "has 3 bytes of masks, not 0"},
      {[](Claims& c) { c.final_masks = c.terminated; }, "has 3 bytes of final masks, not 0"},
      {[](Claims& c) { c.rewards = c.rewards.first(2); }, "has 2 rewards, not 3"},
      {[](Claims& c) { c.terminated = c.terminated.first(1); }, "has 1 flags for terminated episodes, not 3"},
      {[](Claims& c) { c.truncated = {}; }, "has 0 flags for truncated episodes, not 3"}};
  for (const auto& [lie, complaint] : lies) {
    const std::string refusal = Refusal(Claiming(lie));
    EXPECT_TRUE(refusal.starts_with("CartPole-v1 is not what it says it is: ")) << refusal;
    EXPECT_NE(refusal.find(complaint), std::string::npos) << refusal;
  }
}

TEST(CheckedBatch, RefusesOtherBoundsOfActions) {
  const auto refusal = [](const std::function<void(ActionSpace&)>& change) {
    return Refusal(Claiming([&](Claims& c) { change(c.spec.action); }, "Pendulum-v1"));
  };
  EXPECT_EQ(refusal([](ActionSpace&) {}), "");
  for (const std::string& found : {refusal([](ActionSpace& action) { action.low[0] -= 1; }),
                                   refusal([](ActionSpace& action) { action.high[0] += 1; })}) {
    EXPECT_NE(found.find("other observations, actions or masks"), std::string::npos) << found;
  }
}

TEST(CheckedBatch, RefusesMissingMasksSnapshotsAndBatches) {
  EnvEntry env = SoaEntry<Corridor>();
  env.make = [make = env.make](int size) {
    return std::make_unique<ForwardingBatch>(make(size), SoaEntry<Corridor>().spec);
  };
  EXPECT_NE(Refusal(env).find("TestCorridor-v0 is not what it says it is: it can be saved"),
            std::string::npos);
  env.facts.snapshots = false;
  EXPECT_EQ(Refusal(env), "");
  env.make = [](int) { return nullptr; };
  EXPECT_NE(Refusal(env).find("it makes no batch"), std::string::npos);
  env.make = nullptr;
  EXPECT_NE(Refusal(env).find("it makes no batch"), std::string::npos);
  env = Claiming([](Claims& c) { c.spec.masks = true; });
  env.spec.masks = true;
  EXPECT_NE(Refusal(env).find("has 0 bytes of masks, not 6"), std::string::npos) << Refusal(env);
}

TEST(CheckedBatch, HasPicturesWhereTheyAreAskedFor) {
  const auto refusal = [](const EnvEntry& env) -> std::string {
    try {
      MakeDrawnBatch(env, 3, 1, Purpose::kEnvReset, 0);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EnvEntry env = SoaEntry<Corridor>();
  EXPECT_EQ(refusal(env), "");
  env.make_drawn = env.make;
  EXPECT_NE(refusal(env).find("TestCorridor-v0 is not what it says it is: its batches were to be drawn"),
            std::string::npos);
  for (const double rate : {0.0, 1001.0}) {
    env.make_drawn = [rate](int size) {
      return std::make_unique<SoaBatch<Corridor>>(size, Corridor::Spec(),
                                                  SoaDrawing<Corridor>{&Corridor::Draw, rate});
    };
    EXPECT_NE(refusal(env).find(fmt::format("it shows {} pictures in a second", rate)), std::string::npos);
  }
  env.make_drawn = [](int) { return nullptr; };
  EXPECT_NE(refusal(env).find("it makes no batch"), std::string::npos);
  EXPECT_NE(refusal(SoaEntry<Dials>()).find("TestDials-v0 has no pictures"), std::string::npos);
}

TEST(CheckedBatch, IsDrawnAsTheLastStepLeftIt) {
  const EnvEntry env = SoaEntry<Corridor>();
  const auto batch = MakeDrawnBatch(env, 9, 1, Purpose::kEnvReset, 0);
  const auto place = [&](int i) {
    Picture picture;
    batch->pictures()->Draw(i, picture);
    for (int x = 0; x < 5; ++x) {
      if (picture.At(x, 0) == Colour{255, 255, 255}) return x;
    }
    return -1;
  };
  const auto observed = [&](int i) { return static_cast<int>(2 * FloatObs(batch->obs())[2 * i] + 2); };
  const std::vector<float> right(9, 1.0f);
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 9; ++i) EXPECT_EQ(place(i), observed(i));
    batch->Step(right);
    if (!batch->finished().empty()) break;
  }
  ASSERT_FALSE(batch->finished().empty());
  for (const EpisodeEnd& end : batch->finished()) {
    EXPECT_EQ(place(end.env), 4);  // at the wall that it ran into
    EXPECT_LT(observed(end.env), 4);
  }
  batch->Reset(2, Purpose::kEnvReset, 0);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(place(i), observed(i));
}

TEST(CheckedBatch, EndsOfEpisodesMustBeListedAsTheirFlagsSay) {
  const std::vector<std::uint8_t> terminated = {1, 0, 1}, truncated = {0, 1, 1};
  const auto batch = Claiming([&](Claims& c) {
                       c.terminated = terminated;
                       c.truncated = truncated;
                     }).make(3);
  const auto refusal = [&](const std::vector<EpisodeEnd>& finished) -> std::string {
    try {
      CheckFinished(*batch, finished);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const EpisodeEnd first{.env = 0, .terminated = true}, second{.env = 1, .terminated = false};
  EXPECT_EQ(refusal({first, second}), "");
  EXPECT_NE(refusal({second, first}).find("the end of copy 0, where one from 2 to 2"), std::string::npos);
  EXPECT_NE(refusal({first, first}).find("the end of copy 0, where one from 1 to 2"), std::string::npos);
  EXPECT_NE(refusal({{.env = -1}}).find("the end of copy -1, where one from 0 to 2"), std::string::npos);
  EXPECT_NE(refusal({{.env = 3}}).find("the end of copy 3, where one from 0 to 2"), std::string::npos);
  EXPECT_NE(refusal({{.env = 0, .terminated = false}}).find("copy 0 is listed as truncated"),
            std::string::npos);
  EXPECT_NE(refusal({{.env = 1, .terminated = true}}).find("copy 1 is listed as terminated"),
            std::string::npos);
  for (const bool both_as : {false, true}) {
    EXPECT_NE(refusal({{.env = 2, .terminated = both_as}}).find("terminated true, truncated true"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace trireme
