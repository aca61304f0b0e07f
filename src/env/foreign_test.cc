// The kit on environments that are not built in, and that it finds what is wrong with some.
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "trireme/env/conformance.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

TEST(Kit, TakesEnvironmentsOfEveryKind) {
  CheckEnv(ForwardingEntry<UnpredictableBatch>("Unpredictable-v0", {}));
  CheckEnv(ForwardingEntry<ThreadedBatch>("Threaded-v0", {.snapshots = true, .reproducible = true}));
  CheckEnv(BytesEntry("Bytes-v0"));
  CheckEnv(SoaEntry<Corridor>());
  CheckEnv(SoaEntry<Dials>());
}

TEST(Kit, FindsPromisesThatAreNotKept) {
  static const EnvEntry wild =
      ForwardingEntry<UnpredictableBatch>("Unpredictable-v0", {.reproducible = true});
  EXPECT_FATAL_FAILURE(CheckReproducible(wild), "SeenByAll");
  static const EnvEntry unsaved = ForwardingEntry<ForwardingBatch>("Unsaved-v0", {.snapshots = true});
  EXPECT_NONFATAL_FAILURE(CheckSpecAndViews(unsaved), "facts.snapshots");
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
  ::testing::TestPartResultArray found;
  {
    const ::testing::ScopedFakeTestPartResultReporter catcher(&found);
    CheckEpisodes(ForwardingEntry<BackwardsBatch>("Backwards-v0", {}), 64);
  }
  bool named = false;
  for (int i = 0; i < found.size(); ++i) {
    named |=
        std::string(found.GetTestPartResult(i).message()).find("order of the copies") != std::string::npos;
  }
  EXPECT_TRUE(named) << found.size() << " failures";
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
  EXPECT_FATAL_FAILURE(CheckStepsApart(late), "SeenByAll");
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
