// Whole runs of workers that compute one network together.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "trireme/comm/run_ranks.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/test_runs.h"

namespace trireme {
namespace {

struct SplitCase {
  const char* name;
  const char* algo;
  const char* env;
  Assignments assignments;
};

const SplitCase kCases[] = {
    {"Ppo",
     "ppo",
     "CartPole-v1",
     {"envs=16", "horizon=32", "minibatches=2", "max_grad_norm=0.3", "hidden=[16,12]", "steps=2048",
      "eval_every=1024"}},
    {"PpoContinuous",
     "ppo",
     "Pendulum-v1",
     {"envs=16", "horizon=24", "minibatches=1", "shards=2", "hidden=[40,36,20]", "normalise_obs=true",
      "normalise_rewards=true", "desired_kl=0.01", "steps=1536", "eval_every=768", "eval_max_steps=50"}},
    {"PpoShared",
     "ppo",
     "CartPole-v1",
     {"envs=16", "horizon=32", "shared_tower=true", "hidden=[16,12]", "steps=1024", "eval_every=0"}},
    {"A2c",
     "a2c",
     "Pendulum-v1",
     {"envs=16", "rounds=4", "hidden=[16,12]", "target_tau=0.3", "value_learning_rate=0.01", "steps=1536",
      "eval_every=512"}},
    {"Dqn",
     "dqn",
     "CartPole-v1",
     {"envs=8", "hidden=[16,12]", "rounds=16", "learning_starts=64", "updates=2", "target_every=3",
      "batch=160", "epsilon_start=0.3", "prioritised=true", "dueling=true", "steps=1536", "eval_every=512"}},
};

// Of one process, or of several that are threads here.
struct Way {
  const char* split;
  int workers, processes = 1;
};

class SplitRuns : public RunsTest, public testing::WithParamInterface<SplitCase> {
 protected:
  static std::unique_ptr<RunSettings> SettingsOfWay(const SplitCase& c, const Way& way,
                                                    const Assignments& extra = {}) {
    auto settings = std::make_unique<RunSettings>(c.env, c.algo);
    for (const std::string& a : c.assignments) settings->fields.ApplyAssignment(a, "test");
    for (const std::string& a : {std::string("eval_episodes=9"), fmt::format("workers={}", way.workers)}) {
      settings->fields.ApplyAssignment(a, "test");
    }
    settings->fields.Set("model_parallel", way.split, "test");
    for (const std::string& a : extra) settings->fields.ApplyAssignment(a, "test");
    settings->Resolve(way.processes, 1);
    return settings;
  }
  static TrainResult GoOn(const RunSettings& settings, const RunFolder& folder,
                          const std::atomic<bool>* stop = nullptr) {
    const int processes = settings.run.processes;
    if (processes == 1) return Go(settings, folder, stop);
    TrainResult result;
    RunRanks(processes, [&](PeerCommunicator& comm) {
      const TrainOptions options{.json = true, .stop = stop, .processes = &comm};
      if (comm.rank() == 0) {
        result = Train(settings, folder, options);
      } else {
        TrainAlong(settings, options);
      }
    });
    return result;
  }
  TrainResult Run(const Way& way) {
    const auto settings = SettingsOfWay(GetParam(), way);
    return GoOn(*settings, Folder(fmt::format("{}-{}-{}", way.split, way.workers, way.processes), *settings));
  }
};
INSTANTIATE_TEST_SUITE_P(Cases, SplitRuns, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// Threads, processes and both; with and without data parallelism around them.
TEST_P(SplitRuns, APipelineHasTheBitsOfAWorkerThatComputesAlone) {
  const auto alone = SettingsOfWay(GetParam(), {"none", 1});
  const RunFolder expected_folder = Folder("alone", *alone);
  const RunFacts expected = GoOn(*alone, expected_folder).facts;
  for (const Way way : {Way{"pipeline=2", 2}, Way{"pipeline=2,micro_batches=2", 4}, Way{"pipeline=2", 1, 2},
                        Way{"pipeline=2", 1, 4}, Way{"pipeline=2", 2, 2}}) {
    SCOPED_TRACE(fmt::format("{} with {} workers in {} processes", way.split, way.workers, way.processes));
    const auto settings = SettingsOfWay(GetParam(), way);
    const RunFolder folder =
        Folder(fmt::format("{}-{}-{}", way.split, way.workers, way.processes), *settings);
    const RunFacts found = GoOn(*settings, folder).facts;
    EXPECT_EQ(found.params_sha256, expected.params_sha256);
    EXPECT_EQ(found.eval_return_mean, expected.eval_return_mean);
    EXPECT_EQ(found.best_steps, expected.best_steps);
    EXPECT_EQ(found.rounds, expected.rounds);
    ExpectSameRows(folder, expected_folder);
    const auto workers = static_cast<std::size_t>(way.workers * way.processes);
    ASSERT_EQ(found.model_bytes.size(), workers);
    ASSERT_EQ(found.bubbles.size(), workers);
    for (const double bubble : found.bubbles) EXPECT_TRUE(bubble >= 0 && bubble < 1) << bubble;
    EXPECT_GT(found.expected_bubble, 0);
  }
}

TEST_P(SplitRuns, ATensorSplitHasItsOwnBits) {
  const auto alone = SettingsOfWay(GetParam(), {"none", 1});
  const RunFolder folder = Folder("alone", *alone);
  const RunFacts expected = GoOn(*alone, folder).facts;
  const RunFacts first = Run({"tensor=2", 2}).facts;
  EXPECT_TRUE(std::isfinite(first.eval_return_mean));
  for (const Way way :
       {Way{"tensor=2", 4}, Way{"tensor=2", 1, 2}, Way{"tensor=2", 2, 2}, Way{"tensor=2", 4, 2}}) {
    SCOPED_TRACE(fmt::format("{} workers in {} processes", way.workers, way.processes));
    if (way.workers * way.processes / 2 > alone->run.shards) continue;
    const RunFacts found = Run(way).facts;
    EXPECT_EQ(found.params_sha256, first.params_sha256);
    EXPECT_EQ(found.eval_return_mean, first.eval_return_mean);
  }
  const RunFacts four = Run({"tensor=4", 4}).facts;
  EXPECT_TRUE(std::isfinite(four.eval_return_mean));
  EXPECT_NE(first.params_sha256, four.params_sha256);
  EXPECT_NE(first.params_sha256, expected.params_sha256);
  // What is learned from the first experience is the same but for rounding.
  const auto found = SettingsOfWay(GetParam(), {"tensor=2", 2});
  const RunFolder split_folder = Folder("tensor", *found);
  GoOn(*found, split_folder);
  const MetricRow row = ReadJsonl(split_folder.metrics())[0], other = ReadJsonl(folder.metrics())[0];
  EXPECT_NEAR(row.Get("grad_norm"), other.Get("grad_norm"), 0.02 * std::fabs(other.Get("grad_norm")));
}

TEST_P(SplitRuns, ARunGoesOnWithAnotherSplit) {
  const auto alone = SettingsOfWay(GetParam(), {"none", 1});
  const RunFolder whole = Folder("whole", *alone), parts = Folder("parts", *alone);
  const RunFacts expected = GoOn(*alone, whole).facts;
  const std::atomic<bool> stop{true};
  for (const Way way : {Way{"pipeline=2", 2}, Way{"none", 2}, Way{"pipeline=2", 1, 2}}) {
    GoOn(*SettingsOfWay(GetParam(), way), parts, &stop);
  }
  const TrainResult last = GoOn(*SettingsOfWay(GetParam(), {"pipeline=2", 4}), parts);
  EXPECT_FALSE(last.interrupted);
  EXPECT_EQ(last.facts.params_sha256, expected.params_sha256);
  ExpectSameRows(parts, whole);
  // The best policy of a run in parts is whole, too.
  if (expected.best_steps) {
    const auto best = EvaluateRun(*alone, parts, Which::kBest, 9, alone->run.seed);
    ASSERT_TRUE(best.has_value());
    EXPECT_EQ(best->eval_return_mean, expected.best_return_mean);
  }
}

TEST_P(SplitRuns, ATensorSplitIsSavedWhole) {
  const Way way{"tensor=2", 2};
  const auto settings = SettingsOfWay(GetParam(), way);
  const RunFolder whole = Folder("whole", *settings), parts = Folder("parts", *settings);
  const RunFacts expected = GoOn(*settings, whole).facts;
  const std::atomic<bool> stop{true};
  const TrainResult first = GoOn(*settings, parts, &stop);
  const StateReader checkpoint = ReadNewestCheckpoint(parts.path()).value();
  std::vector<float> params(first.params.size());
  checkpoint.Get<float>("params", std::span(params));
  EXPECT_TRUE(params == first.params);
  EXPECT_EQ(GoOn(*SettingsOfWay(GetParam(), {"tensor=2", 4}), parts).facts.params_sha256,
            expected.params_sha256);
  // And without a split it goes on as well.
  const RunFolder others = Folder("others", *settings);
  GoOn(*settings, others, &stop);
  for (const Way then : {Way{"none", 1}, Way{"pipeline=2", 2}}) {
    const TrainResult result = GoOn(*SettingsOfWay(GetParam(), then), others, &stop);
    EXPECT_TRUE(std::isfinite(result.params[0]));
  }
}

class SplitRun : public SplitRuns {
 protected:
  static const SplitCase& Example() { return kCases[0]; }
  static std::string RefusalOfWay(const Way& way, const Assignments& extra = {}) {
    return RefusalOf([&] { SettingsOfWay(Example(), way, extra); });
  }
};

TEST_F(SplitRun, MemoryFallsAsItShould) {
  const Assignments wide = {"hidden=[256,256]", "steps=512", "eval_every=0"};
  const auto bytes = [&](const char* split, int workers) {
    const auto settings = SettingsOfWay(Example(), {split, workers}, wide);
    return Go(*settings, Folder(split, *settings)).facts.model_bytes;
  };
  const double whole = 2.0 * (256 * 256 + 256 * 8) * 3 * sizeof(float);  // of both towers, about
  for (const auto& [split, workers, share] :
       {std::tuple{"tensor=2", 2, 0.5}, {"tensor=4", 4, 0.25}, {"pipeline=2", 2, 0.98}}) {
    const std::vector<std::uint64_t> found = bytes(split, workers);
    ASSERT_EQ(found.size(), static_cast<std::size_t>(workers));
    EXPECT_NEAR(static_cast<double>(*std::ranges::max_element(found)) / whole, share, 0.05) << split;
  }
}

TEST_F(SplitRun, WhatCannotWorkIsRefused) {
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=3", 3}), "does not divide hidden layer 0 of tower policy"));
  EXPECT_TRUE(
      Mentions(RefusalOfWay({"pipeline=4", 4}), "more stages than tower policy has hidden layers, 2"));
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=2", 1}), "makes groups of 2 workers"));
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=2", 3}), "makes groups of 2 workers"));
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=2", 1, 3}), "there are 3"));
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=4", 2, 2}), "makes groups of 4 workers"));
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=2", 6}), "3 groups of 2 workers do not divide shards = 8"));
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=2", 2}, {"store=local"}), "use --store allreduce"));
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=2", 2}, {"store=shared"}), "use --store allreduce"));
  for (const auto& [setting, instead] :
       std::vector<std::pair<std::string, std::string>>{{"precision=bf16", "use --precision fp32"},
                                                        {"device=cpu", "use --device fused"},
                                                        {"compress=int8", "use --compress none"},
                                                        {"local_steps=2", "use --local-steps 0"}}) {
    EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=2", 2}, {setting}), instead)) << setting;
    EXPECT_TRUE(Mentions(RefusalOfWay({"pipeline=2", 2}, {setting}), instead)) << setting;
  }
  EXPECT_EQ(RefusalOfWay({"tensor=2", 2}, {"device=fused", "compress=none"}), "");
  EXPECT_TRUE(Mentions(RefusalOfWay({"tensor=two", 2}), "expected none, tensor=2 or pipeline=2"));
  EXPECT_EQ(RefusalOfWay({"tensor=2", 2}), "");
}

// Each member of a group holds all experience.
TEST_F(SplitRun, ExperienceIsCountedAsOftenAsItIsHeld) {
  const auto bytes = [](const char* split) {
    RunSettings settings("CartPole-v1", "dqn");
    settings.fields.Set("model_parallel", split, "test");
    settings.Resolve(1, 4);
    return settings.ExperienceBytes();
  };
  EXPECT_EQ(bytes("tensor=2"), 2 * bytes("none"));
  EXPECT_EQ(bytes("tensor=4"), 4 * bytes("none"));
}

TEST_F(SplitRun, WorkersAreChosenInGroups) {
  const auto workers = [](const char* split, int processes, int processors) {
    RunSettings settings("CartPole-v1", "ppo");
    settings.fields.Set("model_parallel", split, "test");
    settings.fields.Set("hidden", "[32, 32]", "test");
    settings.Resolve(processes, processors);
    return settings.run.workers;
  };
  EXPECT_EQ(workers("tensor=2", 1, 1), 2);
  EXPECT_EQ(workers("tensor=2", 1, 8), 8);
  EXPECT_EQ(workers("tensor=2", 1, 64), 16);
  EXPECT_EQ(workers("pipeline=2", 1, 7), 4);
  EXPECT_EQ(workers("tensor=2", 2, 1), 1);
  EXPECT_EQ(workers("tensor=2", 2, 4), 4);
}

// One worker fails: all end, with its message, and the run goes on from the last checkpoint.
TEST_F(SplitRun, AWorkerThatFailsEndsItsGroupAndTheRunCanGoOn) {
  struct Failing final : TrainObserver {
    void OnRow(const MetricRow& row) override {
      if (row.step() >= 1024) Fail("this worker fails");
    }
    void OnEvaluation(std::int64_t, const Evaluation&) override {}
    void OnEnd(const TrainResult&) override {}
  };
  for (const Way way : {Way{"tensor=2", 2}, Way{"pipeline=2", 2}, Way{"pipeline=2", 4}}) {
    SCOPED_TRACE(way.split);
    const auto settings = SettingsOfWay(Example(), way, {"checkpoint_every_s=0", "eval_every=0"});
    const RunFolder whole = Folder(fmt::format("whole-{}-{}", way.split, way.workers), *settings);
    const RunFolder failed = Folder(fmt::format("failed-{}-{}", way.split, way.workers), *settings);
    const RunFacts expected = Go(*settings, whole).facts;
    Failing failing;
    EXPECT_EQ(RefusalOf([&] { Train(*settings, failed, {.observer = &failing, .json = true}); }),
              "this worker fails");
    const TrainResult resumed = Go(*settings, failed);
    EXPECT_EQ(resumed.facts.params_sha256, expected.params_sha256);
  }
}

}  // namespace
}  // namespace trireme
