// How workers in step exchange less: compressed gradients between processes, which are threads here, and averages of
// parameters now and then.
#include <gtest/gtest.h>

#include <atomic>

#include "trireme/comm/run_ranks.h"
#include "trireme/train/run_state.h"
#include "trireme/train/test_runs.h"

namespace trireme {
namespace {

struct Split {
  int processes, workers;
};

class Exchange : public RunsTest {
 protected:
  static std::unique_ptr<RunSettings> Settings(Split split, const Assignments& extra,
                                               const std::string& algo = "ppo") {
    auto settings = std::make_unique<RunSettings>("CartPole-v1", algo);
    Assignments all = {"envs=16", "hidden=[16]", "eval_every=1024", "eval_episodes=9", "steps=3072"};
    if (algo == "ppo") {
      all.insert(all.end(), {"horizon=32", "minibatches=2", "epochs=3", "normalise_obs=true",
                             "target_kl=0.02", "desired_kl=0.01"});
    } else if (algo == "a2c") {
      all.insert(all.end(), {"horizon=8", "rounds=3", "target_tau=0.1"});
    } else {
      all.insert(all.end(), {"horizon=8", "rounds=3", "updates=3", "learning_starts=256", "replay=2048"});
    }
    all.push_back(fmt::format("workers={}", split.workers));
    all.insert(all.end(), extra.begin(), extra.end());
    for (const std::string& a : all) settings->fields.ApplyAssignment(a, "test");
    settings->Resolve(split.processes, 1);
    return settings;
  }

  // `stop` ends it after one iteration.
  static TrainResult GoSplit(const RunSettings& settings, const RunFolder& folder,
                             const std::atomic<bool>* stop = nullptr) {
    TrainResult result;
    RunRanks(settings.run.processes, [&](PeerCommunicator& processes) {
      const TrainOptions options{.json = true, .stop = stop, .processes = &processes};
      if (processes.rank() == 0) {
        result = Train(settings, folder, options);
      } else {
        TrainAlong(settings, options);
      }
    });
    return result;
  }
  TrainResult Whole(const std::string& name, const RunSettings& settings) {
    return GoSplit(settings, Folder(name, settings));
  }
  // Stopped after every iteration, and resumed with the settings that `next` gives for it.
  TrainResult InPieces(const std::string& name, const std::function<const RunSettings&(int)>& next) {
    const RunFolder folder = Folder(name, next(0));
    const std::atomic<bool> stop{true};
    for (int piece = 0; piece < 4; ++piece) EXPECT_TRUE(GoSplit(next(piece), folder, &stop).interrupted);
    return GoSplit(next(4), folder);
  }
};

TEST_F(Exchange, CompressedRunsGoOnExactly) {
  for (const char* codec : {"compress=int8", "compress=topk=0.01", "compress=powersgd=2"}) {
    const auto settings = Settings({2, 2}, {codec});
    const TrainResult whole = Whole("whole", *settings);
    const TrainResult pieces = InPieces("pieces", [&](int) -> const RunSettings& { return *settings; });
    EXPECT_FALSE(pieces.interrupted);
    EXPECT_EQ(pieces.facts.params_sha256, whole.facts.params_sha256) << codec;
    EXPECT_EQ(pieces.facts.eval_return_mean, whole.facts.eval_return_mean);
    // Threads of a process are added as they are.
    EXPECT_EQ(Whole("threads", *Settings({2, 4}, {codec})).facts.params_sha256, whole.facts.params_sha256);
    EXPECT_NE(Whole("processes", *Settings({4, 1}, {codec})).facts.params_sha256, whole.facts.params_sha256);
    EXPECT_NE(Whole("plain", *Settings({2, 2}, {})).facts.params_sha256, whole.facts.params_sha256);
    std::int64_t saved = 0;
    for (const WorkerFacts& worker : whole.facts.per_worker) saved += worker.bytes_saved;
    EXPECT_GT(saved, 0);
    for (const char* name : {"whole", "pieces", "threads", "processes", "plain"})
      std::filesystem::remove_all(PathOf(name));
  }
}

TEST_F(Exchange, CompressedRunsMayBeSplitOtherwise) {
  const std::vector<std::unique_ptr<RunSettings>> settings = [] {
    std::vector<std::unique_ptr<RunSettings>> all;
    for (const Split split : {Split{2, 1}, Split{4, 1}, Split{1, 2}, Split{2, 2}, Split{2, 2}})
      all.push_back(Settings(split, {"compress=topk=0.05"}));
    return all;
  }();
  const TrainResult last = InPieces("run", [&](int piece) -> const RunSettings& { return *settings[piece]; });
  EXPECT_EQ(last.facts.steps, 3072);
}

TEST_F(Exchange, OneProcessHasNothingToCompress) {
  const auto plain = Settings({1, 2}, {}), compressed = Settings({1, 2}, {"compress=onebit"});
  EXPECT_EQ(Whole("plain", *plain).facts.params_sha256, Whole("compressed", *compressed).facts.params_sha256);
  EXPECT_EQ(DescribeExchange(plain->run), "");
  EXPECT_EQ(DescribeExchange(compressed->run),
            "compress = onebit does nothing here: the gradients of one process do not leave it");
  EXPECT_EQ(DescribeExchange(Settings({2, 2}, {"compress=onebit"})->run), "");
}

// Unless it is said otherwise, gradients leave a process with the bits that networks are computed with.
TEST_F(Exchange, GradientsAreSentWithTheBitsOfThePrecision) {
  for (const std::string format : {"bf16", "fp16"}) {
    const std::string precision = "precision=" + format;
    const auto settings = Settings({2, 2}, {precision});
    EXPECT_EQ(settings->run.gradient_codec(), format);
    EXPECT_EQ(settings->run.params_codec(), format);
    const TrainResult whole = Whole("whole", *settings);
    EXPECT_EQ(whole.facts.compress, format);
    const auto sha = [&](const char* name, Split split, const Assignments& extra) {
      return Whole(name, *Settings(split, extra)).facts.params_sha256;
    };
    EXPECT_EQ(sha("said", {2, 2}, {precision, "compress=" + format}), whole.facts.params_sha256);
    EXPECT_EQ(sha("threads", {2, 4}, {precision}), whole.facts.params_sha256);
    EXPECT_EQ(InPieces("pieces", [&](int) -> const RunSettings& { return *settings; }).facts.params_sha256,
              whole.facts.params_sha256);
    const std::string alone = sha("alone", {1, 2}, {precision});
    EXPECT_NE(alone, whole.facts.params_sha256);
    EXPECT_EQ(sha("plain", {2, 2}, {precision, "compress=none"}), alone) << "32 bits between processes";
    EXPECT_EQ(sha("one", {1, 1}, {precision}), alone);
    EXPECT_NE(sha("other", {2, 2}, {precision, "compress=int8"}), whole.facts.params_sha256);
    for (const char* name : {"whole", "said", "threads", "pieces", "alone", "plain", "one", "other"})
      std::filesystem::remove_all(PathOf(name));
  }
}

TEST_F(Exchange, WhereGradientsStayInAProcessThePrecisionCompressesNothing) {
  const auto codec = [](Split split, const Assignments& extra) {
    return Settings(split, extra, "a2c")->run.gradient_codec();
  };
  EXPECT_EQ(codec({1, 2}, {"precision=bf16"}), "none");
  EXPECT_EQ(codec({2, 2}, {}), "none");
  EXPECT_EQ(codec({2, 2}, {"precision=bf16", "local_steps=4"}), "none");
  EXPECT_EQ(codec({1, 2}, {"precision=bf16", "store=shared"}), "none");
  EXPECT_EQ(codec({1, 2}, {"precision=fp16", "store=server"}), "fp16");
  EXPECT_EQ(codec({1, 2}, {"precision=fp16", "store=server", "compress=none"}), "none");
  EXPECT_EQ(Settings({1, 2}, {"precision=fp16", "store=server", "compress_params=none"})->run.params_codec(),
            "none");
  EXPECT_EQ(DescribeExchange(Settings({1, 2}, {"precision=bf16"})->run), "");
  EXPECT_TRUE(Mentions(DescribeExchange(Settings({2, 2}, {"precision=bf16"})->run),
                       "sent in bf16, as precision is: the result depends on the number of processes"));
  EXPECT_EQ(DescribeExchange(Settings({2, 2}, {"precision=bf16", "compress=bf16"})->run), "");
}

// Gradients that overflow on the way are left out by all processes, not the end of the run.
TEST_F(Exchange, AnOverflowIsSkippedByAllProcesses) {
  for (const char* codec : {"compress=auto", "compress=onebit", "compress=none"}) {
    const auto settings = Settings({2, 2}, {"precision=fp16", "value_coef=10000", codec});
    const RunFolder folder = Folder("run", *settings);
    GoSplit(*settings, folder);
    double updates = 0, skipped = 0;
    for (const MetricRow& row : ReadJsonl(folder.metrics())) {
      updates += row.Get("updates");
      skipped += row.Get("skipped_updates");
    }
    EXPECT_GT(skipped, 0) << codec;
    EXPECT_GT(updates, skipped) << codec;
    std::filesystem::remove_all(PathOf("run"));
  }
}

TEST_F(Exchange, LocalStepsGoOnExactly) {
  for (const char* algo : {"ppo", "a2c", "dqn"}) {
    for (const char* every : {"local_steps=1", "local_steps=4"}) {
      SCOPED_TRACE(fmt::format("{} {}", algo, every));
      const auto settings = Settings({1, 2}, {every}, algo), processes = Settings({2, 1}, {every}, algo);
      const TrainResult whole = Whole("whole", *settings);
      EXPECT_EQ(Whole("again", *processes).facts.params_sha256, whole.facts.params_sha256);
      const TrainResult pieces = InPieces(
          "pieces", [&](int piece) -> const RunSettings& { return piece % 2 == 0 ? *settings : *processes; });
      EXPECT_EQ(pieces.facts.params_sha256, whole.facts.params_sha256);
      EXPECT_EQ(pieces.facts.eval_return_mean, whole.facts.eval_return_mean);
      EXPECT_NE(Whole("four", *Settings({1, 4}, {every}, algo)).facts.params_sha256,
                whole.facts.params_sha256);
      for (const char* name : {"whole", "again", "pieces", "four"}) std::filesystem::remove_all(PathOf(name));
    }
  }
}

TEST_F(Exchange, LocalStepsMayGoOnWithOtherWorkers) {
  const std::vector<std::unique_ptr<RunSettings>> settings = [] {
    std::vector<std::unique_ptr<RunSettings>> all;
    for (const int workers : {2, 4, 1, 8, 2}) all.push_back(Settings({1, workers}, {"local_steps=5"}));
    return all;
  }();
  const TrainResult last = InPieces("run", [&](int piece) -> const RunSettings& { return *settings[piece]; });
  EXPECT_EQ(last.facts.steps, 3072);
}

// One worker has nobody to average with: its updates are the plain ones.
TEST_F(Exchange, LocalStepsOfOneWorkerAreItsUpdates) {
  EXPECT_EQ(Whole("local", *Settings({1, 1}, {"local_steps=4"})).facts.params_sha256,
            Whole("plain", *Settings({1, 1}, {})).facts.params_sha256);
}

TEST_F(Exchange, WhatCannotWorkIsRefused) {
  const auto refusal = [](const Assignments& extra) { return RefusalOf([&] { Settings({1, 2}, extra); }); };
  EXPECT_TRUE(Mentions(refusal({"compress=gzip"}), "compress: there is no way to compress called 'gzip'"));
  EXPECT_TRUE(Mentions(refusal({"compress=topk"}), "compress: 'topk': say topk=N"));
  EXPECT_TRUE(
      Mentions(refusal({"compress=int8", "compress_params=gzip"}), "compress_params: there is no way"));
  EXPECT_TRUE(Mentions(refusal({"compress=int8", "compress_params=powersgd=2"}), "choose another for them"));
  EXPECT_TRUE(Mentions(refusal({"compress=int8", "store=shared"}), "--store shared sends none"));
  EXPECT_TRUE(Mentions(refusal({"local_steps=4", "store=server"}), "use it with --store allreduce"));
  EXPECT_TRUE(Mentions(refusal({"local_steps=4", "compress=int8"}), "choose one of them"));
  EXPECT_EQ(Settings({2, 1}, {"compress=powersgd=4"})->run.params_codec(), "int8");
  EXPECT_EQ(Settings({2, 1}, {"compress=onebit"})->run.params_codec(), "onebit");
  EXPECT_EQ(Settings({2, 1}, {"compress=onebit", "compress_params=fp16"})->run.params_codec(), "fp16");
  EXPECT_EQ(Settings({2, 1}, {})->run.params_codec(), "none");
}

}  // namespace
}  // namespace trireme
