// Runs without a folder.
#include "trireme/train/observer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/env/test_env.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

struct Recorder final : TrainObserver {
  void OnRow(const MetricRow& row) override {
    rows.push_back(row.step());
    if (static_cast<int>(rows.size()) == throw_at) throw std::runtime_error("enough");
  }
  void OnEvaluation(std::int64_t steps, const Evaluation& evaluation) override {
    evaluations.push_back(steps);
    last_mean = evaluation.mean;
  }
  void OnEnd(const TrainResult& result) override {
    ++ends;
    interrupted = result.interrupted;
  }

  std::vector<std::int64_t> rows, evaluations;
  double last_mean = 0;
  int ends = 0, throw_at = -1;
  bool interrupted = false;
};

// Ten iterations of 512 steps, evaluated after every fourth and at the end.
std::unique_ptr<RunSettings> Small(const std::string& store, int workers,
                                   const std::string& env = "CartPole-v1") {
  auto settings = std::make_unique<RunSettings>(env, "a2c", store);
  const auto set = [&](const char* key, const std::string& value) {
    settings->fields.Set(key, value, "test");
  };
  set("workers", std::to_string(workers));
  set("envs", "16");
  set("horizon", "8");
  set("rounds", "4");
  set("steps", "5120");
  set("eval_every", "2048");
  set("eval_episodes", "8");
  settings->Resolve();
  return settings;
}

// Counts how often its state is asked for.
class CountingBatch final : public ForwardingBatch, EnvSnapshots {
 public:
  using ForwardingBatch::ForwardingBatch;
  EnvSnapshots* snapshots() override { return this; }
  void Save(StateWriter& out, const std::string& scope) const override {
    saved.fetch_add(1);
    inner_->snapshots()->Save(out, scope);
  }
  void Load(const StateReader& in, const std::string& scope) override {
    inner_->snapshots()->Load(in, scope);
  }

  static std::atomic<int> saved;
};
std::atomic<int> CountingBatch::saved{0};

constexpr const char* kCounting = "ObserverTest.Counting-v0";

const std::vector<std::int64_t> kRows = {512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 4608, 5120};

class Observer : public testing::Test {
 protected:
  Observer() : before_(fs::current_path()) { fs::current_path(folder_.path()); }
  ~Observer() override { fs::current_path(before_); }

  ScratchFolder folder_;
  const fs::path before_;
};

TEST_F(Observer, HearsRowsEvaluationsAndTheEndAndNothingIsWritten) {
  Recorder recorder;
  const TrainResult result = Train(*Small("allreduce", 2), recorder);
  EXPECT_EQ(recorder.rows, kRows);
  EXPECT_EQ(recorder.evaluations, (std::vector<std::int64_t>{2048, 4096, 5120}));
  EXPECT_EQ(recorder.last_mean, result.facts.eval_return_mean);
  EXPECT_EQ(recorder.ends, 1);
  EXPECT_FALSE(recorder.interrupted);
  EXPECT_EQ(result.facts.steps, 5120);
  EXPECT_GT(result.facts.wall_s, 0);
  EXPECT_GE(result.facts.best_return_mean, result.facts.eval_return_mean);
  EXPECT_EQ(result.facts.per_worker.size(), 2u);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(Observer, TheRunIsTheOneAFolderWouldHold) {
  const auto settings = Small("allreduce", 1);
  Recorder alone, beside;
  const double begun_s = MonotonicSeconds(), begun_cpu_s = CpuSeconds();
  const TrainResult without = Train(*settings, alone);
  const RunFolder folder =
      RunFolder::Create((folder_.path() / "run").string(), "run", settings->fields.ToToml());
  const TrainResult with = Train(*settings, folder, {.observer = &beside, .json = true});
  EXPECT_EQ(without.facts.params_sha256, with.facts.params_sha256);
  // What is not said is the time since the options were made, not since the machine was started.
  const double since_s = MonotonicSeconds() - begun_s;
  for (const TrainResult* result : {&without, &with}) {
    EXPECT_GT(result->facts.wall_s, 0);
    EXPECT_LE(result->facts.wall_s, since_s);
    EXPECT_LE(result->facts.cpu_s, CpuSeconds() - begun_cpu_s);
  }
  EXPECT_EQ(without.params, with.params);
  EXPECT_FALSE(without.params.empty());
  EXPECT_EQ(alone.rows, beside.rows);
  EXPECT_EQ(alone.evaluations, beside.evaluations);
  EXPECT_EQ(beside.ends, 1);
}

// Nobody wants the experience, which may be most of the memory; the accounts of all workers are still known.
TEST_F(Observer, WithoutAFolderNoExperienceIsGathered) {
  AddEnv(ForwardingEntry<CountingBatch>(kCounting, {.snapshots = true, .reproducible = true}));
  for (const char* store : {"allreduce", "shared"}) {
    SCOPED_TRACE(store);
    const auto settings = Small(store, 2, kCounting);
    CountingBatch::saved = 0;
    Recorder recorder;
    const TrainResult result = Train(*settings, recorder);
    EXPECT_EQ(CountingBatch::saved, 0);
    ASSERT_EQ(result.facts.per_worker.size(), 2u);
    for (const WorkerFacts& worker : result.facts.per_worker) EXPECT_GT(worker.steps, 0);

    const RunFolder folder =
        RunFolder::Create((folder_.path() / store).string(), "run", settings->fields.ToToml());
    Train(*settings, folder, {.json = true});
    EXPECT_GT(CountingBatch::saved, 0);
  }
}

TEST_F(Observer, HearsAnAsynchronousRun) {
  Recorder recorder;
  const TrainResult result = Train(*Small("shared", 2), recorder);
  EXPECT_FALSE(recorder.rows.empty());
  EXPECT_FALSE(recorder.evaluations.empty());
  EXPECT_EQ(recorder.ends, 1);
  EXPECT_GE(result.facts.steps, 5120);
}

TEST_F(Observer, ARunThatIsStoppedSaysSo) {
  std::atomic<bool> stop{true};
  Recorder recorder;
  EXPECT_TRUE(Train(*Small("allreduce", 2), recorder, {.stop = &stop}).interrupted);
  EXPECT_TRUE(recorder.interrupted);
  EXPECT_EQ(recorder.rows.size(), 1u);
}

TEST_F(Observer, WhatItThrowsEndsTheRun) {
  Recorder recorder;
  recorder.throw_at = 3;
  EXPECT_THROW(Train(*Small("allreduce", 2), recorder), std::runtime_error);
  EXPECT_EQ(recorder.rows.size(), 3u);
  EXPECT_EQ(recorder.ends, 0);
}

}  // namespace
}  // namespace trireme
