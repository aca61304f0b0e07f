#include "trireme/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/metrics/jsonl.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/test_runs.h"
#include "trireme/train/test_stop.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Four iterations of 512 steps, evaluated after the second and the fourth.
const Assignments kSmall = {"envs=16",         "horizon=32",      "hidden=[16]",  "steps=2048",
                            "eval_every=1024", "eval_episodes=9", "minibatches=2"};
constexpr int kIterations = 4;

class Trainer : public RunsTest {
 protected:
  static std::unique_ptr<RunSettings> Settings(int workers, const Assignments& extra = {},
                                               const std::string& env = "CartPole-v1") {
    return SettingsOf(env, "ppo", "allreduce", {kSmall, {fmt::format("workers={}", workers)}, extra});
  }
};

TEST_F(Trainer, ARunLeavesItsResultMetricsAndReport) {
  const auto settings = Settings(2);
  const RunFolder folder = Folder("run", *settings);
  const TrainResult result = Go(*settings, folder);
  const RunFacts& facts = result.facts;
  EXPECT_FALSE(result.interrupted);
  EXPECT_EQ(facts.env, "CartPole-v1");
  EXPECT_EQ(facts.algo, "ppo");
  EXPECT_EQ(facts.store, "allreduce");
  EXPECT_EQ(facts.workers, 2);
  EXPECT_EQ(facts.steps, 2048);
  EXPECT_EQ(facts.eval_episodes, 9);
  EXPECT_GE(facts.eval_return_mean, 8);  // no episode of CartPole is shorter
  EXPECT_LE(facts.eval_return_mean, 500);
  EXPECT_EQ(facts.params_sha256.size(), 64u);
  EXPECT_GT(facts.wall_s, 0);
  EXPECT_GT(facts.bytes_sent, 0u);
  EXPECT_GT(facts.messages_sent, 0u);

  const std::vector<MetricRow> rows = ReadJsonl(folder.metrics());
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(kIterations));
  for (int i = 0; i < kIterations; ++i) {
    EXPECT_EQ(rows[i].step(), 512 * (i + 1));
    EXPECT_TRUE(std::isfinite(rows[i].Get("policy_loss")));
    EXPECT_TRUE(std::isfinite(rows[i].Get("steps_per_s")));
    EXPECT_EQ(std::isfinite(rows[i].Get("eval_return_mean")), i % 2 == 1) << "row " << i;
  }
  EXPECT_EQ(rows.back().Get("eval_return_mean"), facts.eval_return_mean);

  EXPECT_EQ(ReadFile(folder.result()), ResultJson(facts) + "\n");
  EXPECT_TRUE(Mentions(ReadFile(folder.path() / "report.html"), facts.params_sha256));
  EXPECT_TRUE(fs::exists(folder.path() / "learning_curve.svg"));
  ASSERT_EQ(ListCheckpoints(folder.path()).size(), 1u);
  EXPECT_EQ(ListCheckpoints(folder.path())[0].filename(), "checkpoint-2048.trireme");
  bool events = false;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    events |= Mentions(entry.path().filename().string(), "tfevents");
  }
  EXPECT_TRUE(events);
}

TEST_F(Trainer, TheSameForAnyNumberOfWorkers) {
  for (const std::string env : {"CartPole-v1", "Pendulum-v1"}) {
    const auto one = Settings(1, {"normalise_obs=true"}, env);
    const RunFolder folder = Folder(env + "-1", *one);
    const RunFacts expected = Go(*one, folder).facts;
    EXPECT_EQ(expected.bytes_sent, 0u);
    for (const int workers : {2, 4}) {
      const auto many = Settings(workers, {"normalise_obs=true"}, env);
      const RunFolder other = Folder(fmt::format("{}-{}", env, workers), *many);
      const RunFacts facts = Go(*many, other).facts;
      EXPECT_EQ(facts.params_sha256, expected.params_sha256) << workers << " workers";
      EXPECT_EQ(facts.eval_return_mean, expected.eval_return_mean);
      ExpectSameRows(other, folder);
    }
    const auto seeded = Settings(1, {"normalise_obs=true", "seed=2"}, env);
    EXPECT_NE(Go(*seeded, Folder(env + "-seed2", *seeded)).facts.params_sha256, expected.params_sha256);
  }
}

// Stopped after every iteration and continued with another number of workers each time.
TEST_F(Trainer, AResumedRunEqualsTheUninterruptedOne) {
  const auto whole = Settings(2);
  const RunFolder whole_folder = Folder("whole", *whole);
  const RunFacts expected = Go(*whole, whole_folder).facts;

  const RunFolder parts = Folder("parts", *whole);
  for (int i = 0; i < kIterations - 1; ++i) {
    const auto settings = Settings(1 << i);
    const TrainResult result = TrainOneIteration(*settings, parts);
    EXPECT_TRUE(result.interrupted);
    EXPECT_EQ(result.facts.steps, 512 * (i + 1));
    EXPECT_EQ(ReadJsonl(parts.metrics()).size(), static_cast<std::size_t>(i + 1));
  }
  EXPECT_EQ(ListCheckpoints(parts.path()).size(), 2u);
  const TrainResult last = Go(*whole, parts);
  EXPECT_FALSE(last.interrupted);
  EXPECT_EQ(last.facts.params_sha256, expected.params_sha256);
  EXPECT_EQ(last.facts.eval_return_mean, expected.eval_return_mean);
  EXPECT_EQ(last.facts.eval_return_std, expected.eval_return_std);
  EXPECT_EQ(last.facts.steps, expected.steps);
  ExpectSameRows(parts, whole_folder);
}

// Counters and times are of the whole run, not of its last process.
TEST_F(Trainer, AResumedRunAddsUpItsCosts) {
  const auto settings = Settings(2);
  const RunFacts expected = Go(*settings, Folder("whole", *settings)).facts;
  const RunFolder parts = Folder("parts", *settings);
  const RunFacts half = TrainOneIteration(*settings, parts).facts;
  const RunFacts facts = Go(*settings, parts).facts;
  EXPECT_EQ(facts.bytes_sent, expected.bytes_sent);
  EXPECT_EQ(facts.messages_sent, expected.messages_sent);
  EXPECT_GT(facts.wall_s, half.wall_s);
  EXPECT_GT(facts.cpu_s, half.cpu_s);
}

// What a killed process wrote after its last checkpoint is not there twice after the resume.
TEST_F(Trainer, RowsAfterTheCheckpointAreWrittenAnew) {
  const auto settings = Settings(1);
  const RunFolder whole = Folder("whole", *settings), parts = Folder("parts", *settings);
  Go(*settings, whole);
  TrainOneIteration(*settings, parts);
  const std::string later = ReadFile(whole.metrics()).substr(ReadFile(whole.metrics()).find('\n') + 1);
  WriteFileAtomically(parts.metrics(), ReadFile(parts.metrics()) + later.substr(0, later.size() - 10));
  Go(*settings, parts);
  ExpectSameRows(parts, whole);
}

TEST_F(Trainer, AFinishedRunStaysAsItIs) {
  const auto settings = Settings(2);
  const RunFolder folder = Folder("run", *settings);
  const RunFacts first = Go(*settings, folder).facts;
  const RunFacts again = Go(*settings, folder).facts;
  EXPECT_EQ(ResultJson(again), ResultJson(first));
  EXPECT_EQ(ReadJsonl(folder.metrics()).size(), static_cast<std::size_t>(kIterations));

  const auto longer = Settings(2, {"steps=3072"});
  EXPECT_EQ(Go(*longer, folder).facts.steps, 3072);
  EXPECT_EQ(ReadRunSettings(folder)->run.steps, 3072);
  EXPECT_EQ(ReadJsonl(folder.metrics()).size(), 6u);
}

TEST_F(Trainer, StopsAtTheFirstEvaluationThatReachesTheTarget) {
  const auto easy = Settings(2, {"stop_at_target=true", "target=1"});
  const RunFacts facts = Go(*easy, Folder("easy", *easy)).facts;
  EXPECT_TRUE(facts.reached_target);
  EXPECT_EQ(facts.steps, 1024);
  EXPECT_EQ(facts.steps_to_target, 1024);
  EXPECT_GT(facts.time_to_target_s.value_or(0), 0);

  const auto hard = Settings(2, {"stop_at_target=true", "target=500"});
  const RunFacts missed = Go(*hard, Folder("hard", *hard)).facts;
  EXPECT_FALSE(missed.reached_target);
  EXPECT_EQ(missed.steps, 2048);
  EXPECT_FALSE(missed.time_to_target_s.has_value());
  EXPECT_FALSE(missed.steps_to_target.has_value());
}

TEST_F(Trainer, WithoutAnIntervalItIsEvaluatedOnceAtTheEnd) {
  const auto settings = Settings(1, {"eval_every=0"});
  const RunFolder folder = Folder("run", *settings);
  EXPECT_TRUE(std::isfinite(Go(*settings, folder).facts.eval_return_mean));
  int evaluations = 0;
  for (const MetricRow& row : ReadJsonl(folder.metrics())) {
    evaluations += std::isfinite(row.Get("eval_return_mean"));
  }
  EXPECT_EQ(evaluations, 1);
}

TEST_F(Trainer, CheckpointsByTimeDoNotChangeTheResult) {
  const auto rare = Settings(2), often = Settings(2, {"checkpoint_every_s=0"});
  const RunFolder folder = Folder("often", *often);
  EXPECT_EQ(Go(*often, folder).facts.params_sha256, Go(*rare, Folder("rare", *rare)).facts.params_sha256);
  EXPECT_EQ(ListCheckpoints(folder.path()).size(), 2u);
}

TEST_F(Trainer, ACheckpointOfAnotherNetworkIsRefused) {
  const auto settings = Settings(2);
  const RunFolder folder = Folder("run", *settings);
  TrainOneIteration(*settings, folder);
  const std::string metrics = ReadFile(folder.metrics());

  std::string message = Refusal(*Settings(2, {"hidden=[32]"}), folder);
  EXPECT_TRUE(Mentions(message, folder.path().string())) << message;
  EXPECT_TRUE(Mentions(message, "network policy 4-16-2")) << message;
  EXPECT_TRUE(Mentions(message, "not policy 4-32-2")) << message;
  // As many parameters, of another meaning.
  message = Refusal(*Settings(2, {"activation=relu"}), folder);
  EXPECT_TRUE(Mentions(message, "network policy 4-16-2 tanh")) << message;
  message = Refusal(*Settings(2, {"seed=9"}), folder);
  EXPECT_TRUE(Mentions(message, "seed 1, not 9")) << message;
  message = Refusal(*Settings(2, {"envs=32"}), folder);
  EXPECT_TRUE(Mentions(message, "2 copies of CartPole-v1 were saved where there are 4 now")) << message;
  message = Refusal(*Settings(2, {"optimizer=sgd"}), folder);
  EXPECT_TRUE(Mentions(message, "optimizer 'adam'")) << message;
  EXPECT_EQ(folder.ReadConfig(), settings->fields.ToToml()) << "a refused resume changed the run";
  EXPECT_EQ(ReadFile(folder.metrics()), metrics) << "a refused resume changed the run";
  EXPECT_EQ(Refusal(*settings, folder), "");
}

TEST_F(Trainer, ADamagedCheckpointIsRefusedByName) {
  const auto settings = Settings(2);
  const RunFolder folder = Folder("run", *settings);
  TrainOneIteration(*settings, folder);
  TrainOneIteration(*settings, folder);
  const std::vector<fs::path> files = ListCheckpoints(folder.path());
  ASSERT_EQ(files.size(), 2u);
  fs::resize_file(files[0], fs::file_size(files[0]) / 2);
  const std::string message = Refusal(*settings, folder);
  EXPECT_TRUE(Mentions(message, files[0].string())) << message;
  EXPECT_TRUE(Mentions(message, files[1].string())) << message;
  // Following the advice gives the whole run.
  fs::remove(files[0]);
  EXPECT_EQ(Go(*settings, folder).facts.params_sha256,
            Go(*settings, Folder("whole", *settings)).facts.params_sha256);
}

// Only rank 0 notices; the others must not wait for it for ever.
TEST_F(Trainer, AFailureOfOneWorkerEndsTheRunWithItsCause) {
  const auto settings = Settings(4);
  const RunFolder folder = Folder("run", *settings);
  fs::create_directories(folder.metrics());
  const std::string message = Refusal(*settings, folder);
  EXPECT_TRUE(Mentions(message, "metrics.jsonl")) << message;
}

TEST_F(Trainer, DivergenceIsReported) {
  const auto settings = Settings(2, {"learning_rate=1e30", "learning_rate_schedule=constant"});
  const std::string message = Refusal(*settings, Folder("run", *settings));
  EXPECT_TRUE(Mentions(message, "training diverged")) << message;
}

TEST_F(Trainer, EvaluateRunMeasuresTheNewestCheckpoint) {
  const auto settings = Settings(2, {"normalise_obs=true"});
  const RunFolder folder = Folder("run", *settings);
  EXPECT_THROW(EvaluateRun(*settings, folder, Which::kLast, 9, 1), Error);
  const RunFacts trained = Go(*settings, folder).facts;
  const RunFacts same = EvaluateRun(*settings, folder, Which::kLast, 9, settings->run.seed).value();
  EXPECT_EQ(same.eval_return_mean, trained.eval_return_mean);
  EXPECT_EQ(same.eval_return_std, trained.eval_return_std);
  EXPECT_EQ(same.params_sha256, trained.params_sha256);
  EXPECT_EQ(same.steps, 2048);
  const RunFacts more = EvaluateRun(*settings, folder, Which::kLast, 40, 99).value();
  EXPECT_EQ(more.eval_episodes, 40);
  EXPECT_NE(more.eval_return_mean, trained.eval_return_mean);
}

TEST(ResultJson, HoldsTheContractAndNoNan) {
  RunFacts facts;
  facts.env = "A \"quoted\" name";
  facts.seed = 18446744073709551615u;
  facts.eval_return_mean = std::nan("");
  const std::string text = ResultJson(facts);
  EXPECT_FALSE(Mentions(text, "\n"));
  const auto json = nlohmann::json::parse(text);
  for (const char* name : {"env",
                           "algo",
                           "store",
                           "workers",
                           "seed",
                           "steps",
                           "wall_s",
                           "cpu_s",
                           "steps_per_s",
                           "eval_return_mean",
                           "eval_return_std",
                           "eval_episodes",
                           "reached_target",
                           "time_to_target_s",
                           "steps_to_target",
                           "params_sha256",
                           "bytes_sent",
                           "messages_sent",
                           "best_return_mean",
                           "best_return_std",
                           "best_steps"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(json["env"], "A \"quoted\" name");
  EXPECT_EQ(json["seed"].get<std::uint64_t>(), 18446744073709551615u);
  EXPECT_TRUE(json["eval_return_mean"].is_null());
  EXPECT_TRUE(json["time_to_target_s"].is_null());
  EXPECT_TRUE(json["best_return_mean"].is_null());
  EXPECT_TRUE(json["best_steps"].is_null());
  EXPECT_EQ(json["reached_target"], false);
}

}  // namespace
}  // namespace trireme
