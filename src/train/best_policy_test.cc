#include "trireme/train/best_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/metrics/jsonl.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/test_runs.h"
#include "trireme/train/test_stop.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int kEpisodes = 9;

// A checkpoint without the sections that start with `prefix`: the file is read and written again.
void DropSections(const fs::path& file, const std::string& prefix) {
  const std::string encoded = ReadCheckpoint(file).Encode();
  std::istringstream in(encoded);
  const std::string kept = PickSections(
      in, encoded.size(), [&](std::string_view section) { return !section.starts_with(prefix); });
  StateWriter state;
  state.Merge(kept);
  WriteStateFile(file, std::move(state));
}

class BestPolicyTest : public RunsTest {
 protected:
  // Eight iterations of 512 steps, each evaluated. So large a rate learns and forgets again.
  static std::unique_ptr<RunSettings> Settings(const Assignments& extra = {}) {
    return SettingsOf("CartPole-v1", "ppo", "allreduce",
                      {{"envs=16", "horizon=32", "hidden=[16]", "steps=4096", "eval_every=512",
                        "eval_episodes=9", "minibatches=2", "normalise_obs=true", "learning_rate=0.05",
                        "workers=2", "checkpoint_every_s=1000"},
                       extra});
  }
  static RunFacts Measure(const RunSettings& settings, const RunFolder& folder, Which which) {
    return EvaluateRun(settings, folder, which, kEpisodes, settings.run.seed).value();
  }
  static std::vector<fs::path> BestFiles(const RunFolder& folder) {
    std::vector<fs::path> files;
    for (const fs::path& path : ListFolder(folder.path()))
      if (path.filename().string().starts_with("best-")) files.push_back(path);
    return files;
  }
  static fs::path FileOf(const RunFolder& folder, const RunFacts& facts) {
    return folder.path() / StateFileName("best-", facts.best_steps.value());
  }
};

// What the rows say: of equal evaluations the latest.
std::pair<double, std::int64_t> BestOfRows(const RunFolder& folder) {
  std::pair<double, std::int64_t> best{-1, -1};
  for (const MetricRow& row : ReadJsonl(folder.metrics())) {
    if (row.Get("eval_return_mean") >= best.first) best = {row.Get("eval_return_mean"), row.step()};
  }
  return best;
}

TEST_F(BestPolicyTest, IsKeptBesideTheLastAndEvaluatesAsItDid) {
  int forgotten = 0;  // runs whose last policy is worse than their best
  for (const char* seed : {"seed=1", "seed=2", "seed=3", "seed=4"}) {
    const auto settings = Settings({seed});
    const RunFolder folder = Folder(seed, *settings);
    const RunFacts facts = Go(*settings, folder).facts;
    ASSERT_TRUE(facts.best_steps.has_value());
    EXPECT_EQ(std::pair(facts.best_return_mean, *facts.best_steps), BestOfRows(folder));
    EXPECT_EQ(BestFiles(folder), std::vector{FileOf(folder, facts)});

    const RunFacts best = Measure(*settings, folder, Which::kBest);
    EXPECT_EQ(best.which, "best");
    EXPECT_EQ(best.steps, *facts.best_steps);
    EXPECT_EQ(best.eval_return_mean, facts.best_return_mean);
    EXPECT_EQ(best.eval_return_std, facts.best_return_std);
    const RunFacts last = Measure(*settings, folder, Which::kLast);
    EXPECT_EQ(last.which, "last");
    EXPECT_EQ(last.steps, facts.steps);
    EXPECT_EQ(last.eval_return_mean, facts.eval_return_mean);
    EXPECT_EQ(last.params_sha256, facts.params_sha256);
    forgotten += best.eval_return_mean > last.eval_return_mean ? 1 : 0;
    EXPECT_EQ(best.params_sha256 == last.params_sha256, *facts.best_steps == facts.steps);
  }
  EXPECT_GT(forgotten, 0) << "this test compares nothing";
}

TEST_F(BestPolicyTest, HoldsNoExperienceAndFewFiles) {
  const auto settings = Settings({"checkpoint_every_s=0"});
  const RunFolder folder = Folder("run", *settings);
  const RunFacts facts = Go(*settings, folder).facts;
  EXPECT_LE(BestFiles(folder).size(), 2u);
  const StateReader file = ReadCheckpoint(FileOf(folder, facts));
  EXPECT_EQ(file.GetValue<double>("best/mean"), facts.best_return_mean);
  EXPECT_EQ(file.GetValue<std::int64_t>("best/steps"), facts.best_steps);
  EXPECT_EQ(file.Encode().find("shard/"), std::string::npos);
}

TEST_F(BestPolicyTest, InterruptionsChangeNothing) {
  const auto settings = Settings();
  const RunFolder whole = Folder("whole", *settings), parts = Folder("parts", *settings);
  const RunFacts expected = Go(*settings, whole).facts;
  for (int i = 0; i < 7; ++i) TrainOneIteration(*settings, parts);
  const RunFacts facts = Go(*settings, parts).facts;
  EXPECT_EQ(facts.best_return_mean, expected.best_return_mean);
  EXPECT_EQ(facts.best_return_std, expected.best_return_std);
  EXPECT_EQ(facts.best_steps, expected.best_steps);
  EXPECT_EQ(ReadFile(FileOf(parts, facts)), ReadFile(FileOf(whole, expected)));
  EXPECT_EQ(facts.params_sha256, expected.params_sha256);
  EXPECT_EQ(ResultJson(Go(*settings, parts).facts), ResultJson(facts)) << "a finished run knows its best";
}

// A process that dies between the two files leaves a policy that no checkpoint names.
TEST_F(BestPolicyTest, WhatNoCheckpointNamesIsNotUsedAndGoes) {
  const auto settings = Settings();
  const RunFolder whole = Folder("whole", *settings), cut = Folder("cut", *settings);
  const RunFacts expected = Go(*settings, whole).facts;
  const RunFacts first = TrainOneIteration(*settings, cut).facts;
  const fs::path stray = cut.path() / "best-999999.trireme";
  fs::copy_file(FileOf(cut, first), stray);
  WriteFileAtomically(cut.path() / "best-512.trireme.tmp", "half");
  EXPECT_EQ(Measure(*settings, cut, Which::kBest).steps, 512);
  const RunFacts facts = Go(*settings, cut).facts;
  EXPECT_EQ(facts.best_steps, expected.best_steps);
  EXPECT_EQ(ReadFile(FileOf(cut, facts)), ReadFile(FileOf(whole, expected)));
  EXPECT_FALSE(fs::exists(stray));
  EXPECT_FALSE(fs::exists(cut.path() / "best-512.trireme.tmp"));
}

// Who removes a damaged checkpoint goes back to the one before, and finds that one's best policy.
TEST_F(BestPolicyTest, TheEarlierCheckpointHasItsOwn) {
  const auto settings = Settings({"checkpoint_every_s=0"});
  const RunFolder folder = Folder("run", *settings);
  for (int i = 0; i < 8; ++i) {
    TrainOneIteration(*settings, folder);
    const std::vector<fs::path> checkpoints = ListCheckpoints(folder.path());
    for (const fs::path& checkpoint : checkpoints) {
      const auto steps = ReadCheckpoint(checkpoint).GetValue<std::int64_t>("best/steps");
      EXPECT_TRUE(fs::exists(folder.path() / StateFileName("best-", steps))) << checkpoint << " " << steps;
    }
    EXPECT_LE(BestFiles(folder).size(), checkpoints.size());
  }
}

TEST_F(BestPolicyTest, MissingOrDamagedFilesAreNotTakenForTheBest) {
  const auto settings = Settings();
  const RunFolder folder = Folder("run", *settings);
  const RunFacts first = TrainOneIteration(*settings, folder).facts;
  const fs::path file = FileOf(folder, first);
  const std::string content = ReadFile(file);

  std::string damaged = content;
  damaged[damaged.size() / 2] ^= 1;
  WriteFileAtomically(file, damaged);
  std::string message = RefusalOf([&] { Measure(*settings, folder, Which::kBest); });
  EXPECT_TRUE(Mentions(message, file.string()) && Mentions(message, "--which last")) << message;
  message = RefusalOf([&] { Go(*settings, folder); });
  EXPECT_TRUE(Mentions(message, file.string()) && Mentions(message, "remove it and resume")) << message;

  fs::remove(file);
  message = RefusalOf([&] { Measure(*settings, folder, Which::kBest); });
  EXPECT_TRUE(Mentions(message, file.string()) && Mentions(message, "--which last")) << message;
  EXPECT_EQ(Measure(*settings, folder, Which::kLast).steps, 512);
  const RunFacts facts = Go(*settings, folder).facts;
  EXPECT_EQ(Measure(*settings, folder, Which::kBest).eval_return_mean, facts.best_return_mean);
}

TEST_F(BestPolicyTest, OfARunThatKeptNoneTheLastIsUsed) {
  const auto settings = Settings();
  const RunFolder folder = Folder("run", *settings);
  const RunFacts facts = Go(*settings, folder).facts;
  for (const fs::path& checkpoint : ListCheckpoints(folder.path())) DropSections(checkpoint, "best/");
  for (const fs::path& file : BestFiles(folder)) fs::remove(file);
  const RunFacts measured = Measure(*settings, folder, Which::kBest);
  EXPECT_EQ(measured.which, "last");
  EXPECT_EQ(measured.params_sha256, facts.params_sha256);
  EXPECT_FALSE(measured.best_steps.has_value());
  // It goes on, and has one from then on.
  const auto longer = Settings({"steps=4608"});
  EXPECT_EQ(Go(*longer, folder).facts.best_steps, 4608);
}

// Workers that move on their own: the policy that was evaluated is kept, whatever the others do meanwhile.
TEST_F(BestPolicyTest, OfAsynchronousWorkersToo) {
  for (const char* algo : {"a2c", "dqn"}) {
    auto settings = std::make_unique<RunSettings>("CartPole-v1", algo, "shared", Pace::kAsync);
    for (const char* a : {"envs=8", "hidden=[16]", "steps=16384", "eval_every=1024", "eval_episodes=9",
                          "workers=3", "shards=1", "store=shared"}) {
      settings->fields.ApplyAssignment(a, "test");
    }
    settings->Resolve();
    const RunFolder folder = Folder(algo, *settings);
    const RunFacts facts = Go(*settings, folder).facts;
    EXPECT_EQ(std::pair(facts.best_return_mean, facts.best_steps.value()), BestOfRows(folder));
    const RunFacts best = Measure(*settings, folder, Which::kBest);
    EXPECT_EQ(best.eval_return_mean, facts.best_return_mean);
    EXPECT_EQ(best.eval_return_std, facts.best_return_std);
    EXPECT_EQ(best.steps, facts.best_steps);
  }
}

}  // namespace
}  // namespace trireme
