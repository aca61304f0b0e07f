// The checks on environments that are not built in, and that each finds what is wrong with one.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "trireme/env/classic/cart_pole.h"
#include "trireme/env/classic/pendulum.h"
#include "trireme/env/conformance.h"
#include "trireme/env/test_env.h"
#include "trireme/env/test_spaces.h"

namespace trireme {
namespace {

std::string Finding(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Kit, TakesEnvironmentsOfEveryKind) {
  CheckEnv(ForwardingEntry<UnpredictableBatch>("Unpredictable-v0", {}));
  CheckEnv(ForwardingEntry<ThreadedBatch>("Threaded-v0", {.snapshots = true, .reproducible = true}));
  CheckEnv(BytesEntry("Bytes-v0"));
  CheckEnv(SoaEntry<Corridor>());
  CheckEnv(SoaEntry<Dials>());
  for (const EnvEntry& env : AllSpaces()) {
    SCOPED_TRACE(env.spec.name);
    if (env.spec.obs.size() < 1000) CheckEnv(env);
  }
  EXPECT_EQ(AnySpacesBatch::wrong, 0) << "the kit takes actions that are none";
}

// One copy that is started anew in its fifth step, as if its process had died.
class DyingBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void StepEnd() override {
    inner_->StepEnd();
    died_ = ++steps_ == 5;
    if (!died_) return;
    ASSERT_EQ(size(), 1);
    ASSERT_TRUE(inner_->finished().empty());
    reward_ = inner_->rewards()[0];
    final_obs_.assign(inner_->obs().begin(), inner_->obs().end());
    end_ = {.env = 0, .length = 5, .episode_return = 5, .terminated = false};
    inner_->Reset(9, Purpose::kTest, 9);
  }
  std::span<const float> rewards() const override {
    return died_ ? std::span(&reward_, 1) : inner_->rewards();
  }
  std::span<const std::byte> final_obs() const override { return died_ ? final_obs_ : inner_->final_obs(); }
  std::span<const std::uint8_t> truncated() const override {
    return died_ ? std::span(&kYes, 1) : inner_->truncated();
  }
  std::span<const EpisodeEnd> finished() const override {
    return died_ ? std::span(&end_, 1) : inner_->finished();
  }

 private:
  static constexpr std::uint8_t kYes = 1;
  int steps_ = 0;
  bool died_ = false;
  float reward_ = 0;
  EpisodeEnd end_;
  std::vector<std::byte> final_obs_;
};

TEST(Kit, EpisodesMayBeCutOffBeforeTheLimit) {
  CheckEpisodes(ForwardingEntry<DyingBatch>("Dying-v0", {}), 1);
}

TEST(Kit, TakesEnvironmentsWithoutALimitAndThreshold) {
  EnvEntry endless = SoaEntry<Pendulum>(0);
  endless.spec.reward_threshold.reset();
  CheckEnv(endless);
  CheckEnv(SoaEntry<CartPole>(0));
  const auto batch = MakeReset(endless, 9);
  for (int t = 0; t < 3000; ++t) {
    StepRandomly(*batch, 0, t);
    ASSERT_TRUE(batch->finished().empty());
  }
}

// Goes on at the time limit: says nothing of it.
class TimelessBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  std::span<const std::uint8_t> truncated() const override { return none_; }
  std::span<const EpisodeEnd> finished() const override { return {}; }

 private:
  std::vector<std::uint8_t> none_ = std::vector<std::uint8_t>(size());
};

TEST(Kit, FindsEpisodesThatGoOnBeyondTheLimit) {
  static const EnvEntry timeless = [] {
    EnvEntry entry = SoaEntry<Pendulum>();
    entry.facts.snapshots = false;
    entry.make = [spec = entry.spec](int size) {
      return std::make_unique<TimelessBatch>(SoaEntry<Pendulum>().make(size), spec);
    };
    return entry;
  }();
  EXPECT_NE(Finding([&] { CheckEpisodes(timeless); }).find("beyond its time limit"), std::string::npos);
}

TEST(Kit, FindsPromisesThatAreNotKept) {
  static const EnvEntry wild =
      ForwardingEntry<UnpredictableBatch>("Unpredictable-v0", {.reproducible = true});
  EXPECT_EQ(Finding([&] { CheckReproducible(wild); }),
            "two batches with the same seed and actions: in step 0 copy 0 differs");
  static const EnvEntry unsaved = ForwardingEntry<ForwardingBatch>("Unsaved-v0", {.snapshots = true});
  EXPECT_NE(Finding([&] { CheckSpecAndViews(unsaved); }).find("no snapshots"), std::string::npos);
}

// Lists what ended in the wrong order.
class BackwardsBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void StepEnd() override {
    inner_->StepEnd();
    finished_.assign(inner_->finished().rbegin(), inner_->finished().rend());
  }
  std::span<const EpisodeEnd> finished() const override { return finished_; }

 private:
  std::vector<EpisodeEnd> finished_;
};

TEST(Kit, FindsAWrongOrderOfFinishedEpisodes) {
  const EnvEntry backwards = ForwardingEntry<BackwardsBatch>("Backwards-v0", {});
  EXPECT_NE(Finding([&] { CheckEpisodes(backwards, 64); }).find("order of the copies"), std::string::npos);
}

// Reads its actions when the step ends, when they have changed.
class LateBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void StepBegin(std::span<const float> actions) override { actions_ = actions; }
  void StepEnd() override { inner_->Step(actions_); }

 private:
  std::span<const float> actions_;
};

TEST(Kit, FindsActionsThatAreReadTooLate) {
  static const EnvEntry late = ForwardingEntry<LateBatch>("Late-v0", {.reproducible = true});
  EXPECT_NE(Finding([&] { CheckStepsApart(late); }).find("overlap"), std::string::npos);
  EXPECT_NONFATAL_FAILURE(CheckEnv(late), "overlap");
}

// Draws by where a copy is in its batch, not by its number in the run.
class PlacedBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t) override { inner_->Reset(seed, purpose, 0); }
};

TEST(Kit, FindsCopiesThatDependOnTheirBatch) {
  const EnvEntry placed = ForwardingEntry<PlacedBatch>("Placed-v0", {.reproducible = true});
  EXPECT_EQ(Finding([&] { CheckReproducible(placed); }), "nothing");
  EXPECT_EQ(Finding([&] { CheckBatching(placed); }),
            "the same copies in one batch and in several: in step 1 copy 8 differs");
}

// Begins new episodes when it is loaded.
class ForgetfulBatch final : public ForwardingBatch, private EnvSnapshots {
 public:
  using ForwardingBatch::ForwardingBatch;
  EnvSnapshots* snapshots() override { return this; }

 private:
  void Save(StateWriter& out, const std::string& scope) const override {
    inner_->snapshots()->Save(out, scope);
  }
  void Load(const StateReader& in, const std::string& scope) override {
    inner_->snapshots()->Load(in, scope);
    inner_->Reset(1, Purpose::kEnvReset, 0);
  }
};

TEST(Kit, FindsSnapshotsThatForget) {
  const EnvEntry forgetful = ForwardingEntry<ForgetfulBatch>("Forgetful-v0", {.snapshots = true});
  EXPECT_NE(Finding([&] { CheckSnapshots(forgetful); }).find("observations or masks differ"),
            std::string::npos);
}

// Says that episodes had a return of 0.
class SilentBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void StepEnd() override {
    inner_->StepEnd();
    finished_.assign(inner_->finished().begin(), inner_->finished().end());
    for (EpisodeEnd& end : finished_) end.episode_return = 0;
  }
  std::span<const EpisodeEnd> finished() const override { return finished_; }

 private:
  std::vector<EpisodeEnd> finished_;
};

TEST(Kit, FindsReturnsThatAreNotTheSumOfTheRewards) {
  const EnvEntry silent = ForwardingEntry<SilentBatch>("Silent-v0", {});
  EXPECT_NE(Finding([&] { CheckEpisodes(silent); }).find("says that its return was 0"), std::string::npos);
}

// Its pictures grow.
class GrowingBatch final : public ForwardingBatch, private EnvPictures {
 public:
  using ForwardingBatch::ForwardingBatch;
  EnvPictures* pictures() override { return this; }

 private:
  double per_second() const override { return 10; }
  void Draw(int, Picture& out) override {
    out.width = ++drawn_;
    out.height = 1;
    out.rgb.assign(static_cast<std::size_t>(3 * drawn_), 0);
  }
  int drawn_ = 0;
};

TEST(Kit, FindsPicturesOfSeveralSizes) {
  EnvEntry growing = ForwardingEntry<ForwardingBatch>("Growing-v0", {});
  growing.make_drawn = [spec = growing.spec](int size) {
    return std::make_unique<GrowingBatch>(FindEnv("CartPole-v1").make(size), spec);
  };
  EXPECT_NE(Finding([&] { CheckPictures(growing); }).find("another size"), std::string::npos);
  growing.make = growing.make_drawn;
  EXPECT_EQ(Finding([&] { CheckPictures(growing); }), "a batch has pictures that was not made to be drawn");
}

TEST(RandomActions, AreWithinBoundsAllowedAndRepeatThemselves) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const ActionSpace box = ActionSpace::Box({-1, 3, -kInf, -kInf}, {1, kInf, 2, kInf});
  const ActionSpace parts = ActionSpace::MultiDiscrete({2, 3});
  const std::uint8_t mask[] = {0, 1, 1, 0, 1};
  std::vector<int> seen(5);
  for (std::uint64_t step = 0; step < 100; ++step) {
    float action[4], again[4];
    RandomAction(box, {}, 3, step, action);
    RandomAction(box, {}, 3, step, again);
    EXPECT_TRUE(std::ranges::equal(action, again));
    EXPECT_TRUE(action[0] >= -1 && action[0] <= 1 && action[1] >= 3 && action[2] <= 2);
    for (const float value : action) EXPECT_TRUE(std::isfinite(value));
    RandomAction(parts, mask, 3, step, action);
    ++seen[static_cast<std::size_t>(action[0])];
    ++seen[2 + static_cast<std::size_t>(action[1])];
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(seen[i] > 0, mask[i] == 1) << i;
}

TEST(Corridor, MasksSayWhereTheWallsAre) {
  const auto batch = MakeReset(SoaEntry<Corridor>(), 9);
  SettableBatch& settable = dynamic_cast<SettableBatch&>(*batch);
  const auto mask = [&](int i) {
    return std::vector<int>(batch->masks().begin() + 4 * i, batch->masks().begin() + 4 * (i + 1));
  };
  for (const int i : {0, 8}) {
    for (const auto& [place, expected] : std::vector<std::pair<double, std::vector<int>>>{
             {0, {0, 1, 1, 0}}, {1, {1, 1, 1, 0}}, {4, {1, 0, 1, 0}}}) {
      settable.SetState(i, {&place, 1});
      EXPECT_EQ(mask(i), expected);
    }
  }
  // One step left of place 1, in a whole block and in the padded one.
  const double one = 1;
  for (int i = 0; i < 9; ++i) settable.SetState(i, {&one, 1});
  batch->Step(std::vector<float>(9, 0.0f));
  for (int i = 0; i < 9; ++i) EXPECT_EQ(mask(i), (std::vector<int>{0, 1, 1, 0})) << i;
}

}  // namespace
}  // namespace trireme
