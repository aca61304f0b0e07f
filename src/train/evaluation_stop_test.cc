// A request to stop ends an evaluation; a run that is resumed makes it up and goes on as if nothing had happened.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>

#include "trireme/base/file.h"
#include "trireme/env/test_env.h"
#include "trireme/metrics/jsonl.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnv = "EvaluationStopTest.CartPole-v0";

std::atomic<bool> stop{false};
std::atomic<int> steps_until_stop{0};  // of evaluations; 0: never

// Asks to stop while it is evaluated.
class StoppingBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    evaluated_ = purpose == Purpose::kEvalReset;
    ForwardingBatch::Reset(seed, purpose, first_id);
  }
  void StepEnd() override {
    if (evaluated_ && steps_until_stop > 0 && --steps_until_stop == 0) stop = true;
    ForwardingBatch::StepEnd();
  }
  EnvSnapshots* snapshots() override { return inner_->snapshots(); }

 private:
  bool evaluated_ = false;
};

struct Case {
  const char *algo, *store;
  int workers;
};

class EvaluationStopTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kIteration = 1024, kIterations = 6;

  static void SetUpTestSuite() {
    AddEnv(ForwardingEntry<StoppingBatch>(kEnv, {.snapshots = true, .reproducible = true}));
  }
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / fmt::format("trireme_evaluation_stop_{}", getpid());
    fs::remove_all(root_);
    steps_until_stop = 0;
    stop = false;
  }
  void TearDown() override { fs::remove_all(root_); }

  TrainResult Run(const std::string& name) const {
    RunSettings settings(kEnv, GetParam().algo, GetParam().store);
    for (const std::string& a :
         {std::string("hidden=[16]"), std::string("envs=16"), fmt::format("workers={}", GetParam().workers),
          std::string("horizon=64"), std::string("eval_episodes=12"),
          fmt::format("eval_every={}", 2 * kIteration), fmt::format("steps={}", kIterations * kIteration)}) {
      settings.fields.ApplyAssignment(a, "test");
    }
    if (std::string(GetParam().algo) == "a2c") settings.fields.ApplyAssignment("rounds=1", "test");
    settings.Resolve();
    const fs::path path = root_ / name;
    const RunFolder folder =
        fs::exists(path) ? RunFolder::Resume(path) : RunFolder::Create(path, "", settings.fields.ToToml());
    return Train(settings, folder, {.json = true, .stop = &stop});
  }

  // Means of evaluations, by steps.
  std::map<std::int64_t, double> Evaluations(const std::string& name) const {
    std::map<std::int64_t, double> means;
    for (const MetricRow& row : ReadJsonl(root_ / name / "metrics.jsonl")) {
      if (!std::isnan(row.Get("eval_return_mean"))) means[row.step()] = row.Get("eval_return_mean");
    }
    return means;
  }

  // Without what depends on the clock.
  std::vector<std::string> Rows(const std::string& name) const {
    std::vector<std::string> rows;
    for (const MetricRow& row : ReadJsonl(root_ / name / "metrics.jsonl")) {
      std::string& text = rows.emplace_back(fmt::format("{}", row.step()));
      for (const auto& [key, value] : row.values()) {
        if (key != "steps_per_s") text += fmt::format(" {}={}", key, value);
      }
    }
    return rows;
  }

  fs::path root_;
};

TEST_P(EvaluationStopTest, TheEvaluationIsMadeUp) {
  const TrainResult whole = Run("whole");
  const auto expected = Evaluations("whole");
  ASSERT_EQ(expected.size(), 3u);
  // In the first step of the first evaluation, somewhere, and so late that it is the last one.
  const int last = GetParam().workers == 1 ? 8 * 30 : 8 * 20;
  for (const int steps : {1, 20, last}) {
    SCOPED_TRACE(steps);
    const std::string name = fmt::format("after_{}", steps);
    steps_until_stop = steps;
    const TrainResult stopped = Run(name);
    EXPECT_TRUE(stopped.interrupted);
    EXPECT_FALSE(fs::exists(root_ / name / "result.json"));
    EXPECT_LT(Evaluations(name).size(), expected.size());
    stop = false;
    const TrainResult resumed = Run(name);
    EXPECT_FALSE(resumed.interrupted);
    EXPECT_FALSE(resumed.nothing_to_do);
    EXPECT_EQ(resumed.facts.params_sha256, whole.facts.params_sha256);
    EXPECT_EQ(resumed.facts.eval_return_mean, whole.facts.eval_return_mean);
    EXPECT_EQ(resumed.facts.steps, whole.facts.steps);
    EXPECT_EQ(resumed.facts.best_return_mean, whole.facts.best_return_mean);
    EXPECT_EQ(Evaluations(name), expected);
    EXPECT_EQ(Rows(name), Rows("whole"));
    EXPECT_TRUE(Run(name).nothing_to_do);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, EvaluationStopTest,
                         testing::Values(Case{"ppo", "allreduce", 1}, Case{"ppo", "allreduce", 2},
                                         Case{"a2c", "allreduce", 4}, Case{"a2c", "shared", 1}),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", info.param.algo, info.param.store,
                                              info.param.workers);
                         });

}  // namespace
}  // namespace trireme
