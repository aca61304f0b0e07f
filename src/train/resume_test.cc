// Runs that go on from a checkpoint which does not hold everything, or in an environment that cannot take it up.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/env/test_env.h"
#include "trireme/metrics/jsonl.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Assignments = std::vector<std::string>;

constexpr const char* kWild = "ResumeTest.Unpredictable-v0";
constexpr const char* kChanging = "ResumeTest.Changing-v0";

// Can be saved as long as `can_be_saved` says so.
class ChangingBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  EnvSnapshots* snapshots() override { return can_be_saved ? inner_->snapshots() : nullptr; }

  static std::atomic<bool> can_be_saved;
};
std::atomic<bool> ChangingBatch::can_be_saved{true};

struct ChangingOptions final : EnvOptions {
  void Fields(ConfigFields&) override {}
  EnvEntry Entry(const EnvArgs&) const override {
    EnvEntry entry = ForwardingEntry<ChangingBatch>(
        kChanging, {.snapshots = ChangingBatch::can_be_saved, .reproducible = true});
    entry.options = [] { return std::make_unique<ChangingOptions>(); };
    return entry;
  }
};

class Resume : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    AddEnv(ForwardingEntry<UnpredictableBatch>(kWild, {}));
    AddEnv(ChangingOptions().Entry({}));
  }

  // Of DQN: 512 steps in an iteration, and updates after 1024.
  static std::unique_ptr<RunSettings> Settings(const std::string& env, const std::string& algo,
                                               const std::string& store, std::int64_t steps) {
    auto settings = std::make_unique<RunSettings>(env, algo, store);
    Assignments all = {"hidden=[16]", "eval_episodes=4", "eval_every=0", "workers=2", "envs=16", "horizon=4"};
    if (algo == "dqn") all.insert(all.end(), {"rounds=8", "learning_starts=1024", "n_step=3"});
    all.push_back(fmt::format("steps={}", steps));
    for (const std::string& a : all) settings->fields.ApplyAssignment(a, "test");
    settings->Resolve();
    return settings;
  }
  // Both return what was said to people.
  std::string Begin(const RunSettings& settings) {
    folder_.emplace(RunFolder::Create((root_.path() / "run").string(), "", settings.fields.ToToml()));
    return GoOn(settings);
  }
  std::string GoOn(const RunSettings& settings) const {
    testing::internal::CaptureStderr();
    Train(settings, *folder_, {.json = false});
    return testing::internal::GetCapturedStderr();
  }
  StateReader Newest() const { return *ReadNewestCheckpoint(folder_->path()); }
  // Of each iteration after `steps`.
  std::vector<double> UpdatesAfter(std::int64_t steps) const {
    std::vector<double> updates;
    for (const MetricRow& row : ReadJsonl(folder_->path() / "metrics.jsonl")) {
      if (row.step() > steps) updates.push_back(row.Get("updates"));
    }
    return updates;
  }

  ScratchFolder root_;
  std::optional<RunFolder> folder_;
};

bool Says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(Resume, WhatCannotBeSavedBeginsNewEpisodesAndKeepsTheRest) {
  for (const auto& [algo, store] :
       {std::pair{"ppo", "allreduce"}, {"a2c", "shared"}, {"dqn", "allreduce"}, {"dqn", "shared"}}) {
    SCOPED_TRACE(fmt::format("{} {}", algo, store));
    fs::remove_all(root_.path() / "run");
    const std::string announced = Begin(*Settings(kWild, algo, store, 4096));
    EXPECT_TRUE(Says(announced, "cannot be saved")) << announced;
    EXPECT_TRUE(Says(announced, "not reproducible")) << announced;
    EXPECT_FALSE(Says(announced, "goes on after")) << announced;
    const StateReader first = Newest();
    const auto steps = first.GetValue<std::int64_t>("progress/steps");
    const std::string shard = std::string(store == std::string("shared") ? "worker/0/" : "") + "shard/0/";
    EXPECT_FALSE(first.Has("run/partial"));
    EXPECT_FALSE(first.Has(shard + "seed"));

    const std::string said = GoOn(*Settings(kWild, algo, store, steps + 1024));
    EXPECT_TRUE(Says(said, "steps: ResumeTest.Unpredictable-v0 begins new episodes")) << said;
    const StateReader second = Newest();
    EXPECT_GE(second.GetValue<std::int64_t>("progress/steps"), steps + 1024);
    EXPECT_NE(second.GetText(shard + "step_number"), first.GetText(shard + "step_number"));
    if (algo != std::string("dqn")) continue;
    const auto added = [&](const StateReader& state) {
      return state.GetValue<std::uint64_t>(shard + "replay/added");
    };
    EXPECT_GT(added(first), 0u);
    EXPECT_GT(added(second), added(first));
    if (store == std::string("shared")) continue;  // who has collected how much is a matter of time
    for (const double updates : UpdatesAfter(steps)) EXPECT_GT(updates, 0);
  }
}

// As if a worker had been missing when the checkpoint was written.
TEST_F(Resume, WithoutExperienceLearningStartsAnew) {
  Begin(*Settings("CartPole-v1", "dqn", "allreduce", 4096));
  StateWriter partial;
  partial.Merge(Newest().Encode());
  partial.PutValue<std::uint8_t>("run/partial", 1);
  WriteCheckpoint(folder_->path(), 4096, std::move(partial));

  const std::string said = GoOn(*Settings("CartPole-v1", "dqn", "allreduce", 4096 + 3 * 512));
  EXPECT_TRUE(Says(said, "after 4.1k steps with what was learned: experience (episodes, replay) begins anew"))
      << said;
  EXPECT_EQ(UpdatesAfter(4096), (std::vector<double>{0, 1, 8}));
}

TEST_F(Resume, AnEnvironmentThatCannotBeSavedAnyMoreBeginsNewEpisodes) {
  for (const bool before : {true, false}) {
    SCOPED_TRACE(before);
    fs::remove_all(root_.path() / "run");
    ChangingBatch::can_be_saved = before;
    Begin(*Settings(kChanging, "dqn", "allreduce", 4096));
    EXPECT_EQ(Newest().Has("shard/0/seed"), before);
    ChangingBatch::can_be_saved = !before;
    const std::string said = GoOn(*Settings(kChanging, "dqn", "allreduce", 4096 + 512));
    EXPECT_TRUE(Says(said, "ResumeTest.Changing-v0 begins new episodes")) << said;
    EXPECT_EQ(Newest().Has("shard/0/seed"), !before);
  }
}

TEST_F(Resume, WhatGoesOnExactlySaysNothing) {
  Begin(*Settings("CartPole-v1", "dqn", "allreduce", 1024));
  const std::string said = GoOn(*Settings("CartPole-v1", "dqn", "allreduce", 2048));
  EXPECT_FALSE(Says(said, "goes on")) << said;
}

}  // namespace
}  // namespace trireme
