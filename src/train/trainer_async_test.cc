// Runs whose workers move on their own. Where chance decides the order of their updates, what is tested holds
// for every order.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <ranges>

#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/metrics/jsonl.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/test_runs.h"
#include "trireme/train/test_stop.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kIteration = 256;  // steps
constexpr const char* kInTurns = "schedule=0< 1< 0> 1>";

// Eight iterations of 256 steps, evaluated after every second.
const Assignments kSmall = {"hidden=[16]",     "steps=2048", "eval_every=512",
                            "eval_episodes=9", "shards=1",   "learning_rate=1e-3"};
// All in which presets of the two stores differ.
const Assignments kSmallA2c = {
    "envs=8",          "horizon=8",      "rounds=4",       "value_learning_rate=0", "gamma=0.99",
    "gae_lambda=0.95", "value_coef=0.5", "entropy_coef=0", "max_grad_norm=0.5"};
const Assignments kSmallDqn = {"envs=8",   "horizon=2",          "rounds=16",        "batch=32",
                               "n_step=3", "learning_starts=64", "prioritised=true", "replay=512"};

class AsyncTrainer : public RunsTest, public testing::WithParamInterface<const char*> {
 protected:
  static std::unique_ptr<RunSettings> Settings(int workers, const Assignments& extra = {},
                                               const std::string& store = "shared") {
    const std::string algo = GetParam();
    return SettingsOf(
        "CartPole-v1", algo, store,
        {kSmall, algo == "dqn" ? kSmallDqn : kSmallA2c, extra, {fmt::format("workers={}", workers)}});
  }
  // Gradients a worker has pushed in so many steps of its own. DQN learns once per 16 steps, from the 64th
  // on.
  static std::uint64_t Pushes(std::int64_t steps) {
    return static_cast<std::uint64_t>(GetParam() == std::string("dqn") ? steps / 16 - 3
                                                                       : steps / kIteration * 4);
  }
  static std::uint64_t Pushes(const RunFacts& facts) {
    std::uint64_t pushes = 0;
    for (const WorkerFacts& worker : facts.per_worker) pushes += Pushes(worker.steps);
    return pushes;
  }
};

INSTANTIATE_TEST_SUITE_P(Algos, AsyncTrainer, testing::Values("a2c", "dqn"),
                         [](const auto& info) { return std::string(info.param); });

double UpdatesInRows(const RunFolder& folder) {
  double updates = 0;
  for (const MetricRow& row : ReadJsonl(folder.metrics())) {
    if (std::isfinite(row.Get("updates"))) updates += row.Get("updates");
  }
  return updates;
}

// And with them experience of its own: random draws go by shard.
TEST_P(AsyncTrainer, EveryWorkerHasShardsOfItsOwn) {
  const auto settings = Settings(2, {"shards=2"});
  const RunFolder folder = Folder("run", *settings);
  Go(*settings, folder);
  const StateReader checkpoint = *ReadNewestCheckpoint(folder.path());
  for (int worker = 0; worker < 2; ++worker) {
    for (int shard = 0; shard < 4; ++shard) {
      const std::string name = fmt::format("worker/{}/shard/{}/seed", worker, shard);
      EXPECT_EQ(checkpoint.Has(name), shard / 2 == worker) << name;
    }
  }
}

TEST_P(AsyncTrainer, AccountsForEveryStepAndEveryMessage) {
  for (const int workers : {1, 2, 3, 5}) {
    SCOPED_TRACE(workers);
    const auto settings = Settings(workers);
    const RunFolder folder = Folder(std::to_string(workers), *settings);
    const TrainResult result = Go(*settings, folder);
    const RunFacts& facts = result.facts;
    EXPECT_FALSE(result.interrupted);
    EXPECT_GE(facts.steps, 2048);
    EXPECT_LT(facts.steps, 2048 + workers * kIteration);
    ASSERT_EQ(facts.per_worker.size(), static_cast<std::size_t>(workers));
    std::int64_t steps = 0;
    for (const WorkerFacts& worker : facts.per_worker) steps += worker.steps;
    EXPECT_EQ(steps, facts.steps);

    const std::uint64_t pushes = Pushes(facts);
    EXPECT_EQ(std::accumulate(facts.staleness.begin(), facts.staleness.end(), std::uint64_t{0}), pushes);
    EXPECT_EQ(UpdatesInRows(folder), Pushes(facts.per_worker[0].steps));
    // A pull and a push carry all parameters; at the end worker 0 sends two doubles to each of the others.
    const Network network(settings->algorithm->MakeNetwork(settings->env().spec));
    const std::uint64_t others = workers - 1;
    EXPECT_EQ(facts.messages_sent, 2 * pushes + others);
    EXPECT_EQ(facts.bytes_sent,
              2 * pushes * sizeof(float) * network.param_count() + 2 * sizeof(double) * others);
    EXPECT_EQ(facts.experience_bytes, workers * Settings(1)->ExperienceBytes());

    const RunFacts measured = EvaluateRun(*settings, folder, Which::kLast, 9, settings->run.seed).value();
    EXPECT_EQ(measured.eval_return_mean, facts.eval_return_mean);
    EXPECT_EQ(measured.eval_return_std, facts.eval_return_std);
    EXPECT_EQ(measured.params_sha256, facts.params_sha256);
    // All workers of a finished run find that it is over.
    EXPECT_EQ(ResultJson(Go(*settings, folder).facts), ResultJson(facts));
  }
}

// Stopped after every iteration and continued.
TEST_P(AsyncTrainer, OneWorkerEqualsTheLocalStoreWhateverTheInterruptions) {
  const auto local = Settings(1, {}, "local");
  const RunFolder local_folder = Folder("local", *local);
  const RunFacts expected = Go(*local, local_folder).facts;
  for (const std::string share : {"share_moments=true", "share_moments=false"}) {
    SCOPED_TRACE(share);
    const auto alone = Settings(1, {share});
    const RunFolder folder = Folder(share, *alone);
    for (int i = 1; i < 8; ++i) {
      const TrainResult part = TrainOneIteration(*alone, folder);
      EXPECT_TRUE(part.interrupted);
      EXPECT_EQ(part.facts.steps, i * kIteration);
    }
    const TrainResult last = Go(*alone, folder);
    EXPECT_FALSE(last.interrupted);
    EXPECT_EQ(last.facts.params_sha256, expected.params_sha256);
    EXPECT_EQ(last.facts.eval_return_mean, expected.eval_return_mean);
    EXPECT_EQ(last.facts.steps, expected.steps);
    EXPECT_EQ(last.facts.messages_sent, 2 * Pushes(2048));
    EXPECT_EQ(last.facts.staleness, std::vector<std::uint64_t>{Pushes(2048)});
    ExpectSameRows(folder, local_folder);
  }
}

TEST_P(AsyncTrainer, AScheduleMakesItReproducible) {
  for (const std::string share : {"share_moments=true", "share_moments=false"}) {
    SCOPED_TRACE(share);
    const auto settings = Settings(2, {kInTurns, share});
    const RunFolder first = Folder("first" + share, *settings), again = Folder("again" + share, *settings);
    const RunFacts expected = Go(*settings, first).facts, facts = Go(*settings, again).facts;
    EXPECT_EQ(facts.params_sha256, expected.params_sha256);
    EXPECT_EQ(facts.eval_return_mean, expected.eval_return_mean);
    EXPECT_EQ(facts.steps, 2048);
    const std::uint64_t each = Pushes(1024);
    EXPECT_EQ(facts.staleness, (std::vector<std::uint64_t>{each, each}));
    ExpectSameRows(first, again);
    // Checkpoints go by time, and a schedule must not.
    const auto often = Settings(2, {kInTurns, share, "checkpoint_every_s=0"});
    EXPECT_EQ(Go(*often, Folder("often" + share, *often)).facts.params_sha256, expected.params_sha256);
  }
}

// Turns need not be fair: the worker that has fewer goes on alone when the others have done their part.
TEST_P(AsyncTrainer, UnevenSchedulesComeToAnEnd) {
  std::string sha256;
  for (const char* name : {"first", "again"}) {
    const auto settings = Settings(3, {"schedule=0< 0> 0< 1< 2< 0> 2> 2< 1> 2>"});
    const RunFacts facts = Go(*settings, Folder(name, *settings)).facts;
    EXPECT_GE(facts.steps, 2048);
    if (sha256.empty()) sha256 = facts.params_sha256;
    EXPECT_EQ(facts.params_sha256, sha256);
  }
}

TEST_P(AsyncTrainer, SeveralWorkersAreInterruptedAndGoOn) {
  for (const std::string schedule : {"schedule=", "schedule=0< 1< 2< 0> 1> 2>"}) {
    SCOPED_TRACE(schedule);
    const auto endless = Settings(3, {"steps=1000000000000", schedule});
    const RunFolder folder = Folder(schedule, *endless);
    const std::atomic<bool> stop{true};
    std::int64_t steps = 0;
    for (int i = 0; i < 3; ++i) {
      const RunFacts part = Go(*endless, folder, &stop).facts;
      EXPECT_GT(part.steps, steps);
      steps = part.steps;
      EXPECT_EQ(ListCheckpoints(folder.path()).at(0).filename(), fmt::format("checkpoint-{}.trireme", steps));
    }
    steps += 4096;
    const auto settings = Settings(3, {fmt::format("steps={}", steps), schedule});
    const TrainResult last = Go(*settings, folder);
    EXPECT_FALSE(last.interrupted);
    EXPECT_GE(last.facts.steps, steps);
    EXPECT_EQ(std::accumulate(last.facts.staleness.begin(), last.facts.staleness.end(), std::uint64_t{0}),
              Pushes(last.facts));
    EXPECT_EQ(UpdatesInRows(folder), Pushes(last.facts.per_worker[0].steps));
    const std::vector<MetricRow> rows = ReadJsonl(folder.metrics());
    for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_GT(rows[i].step(), rows[i - 1].step());
  }
}

TEST_P(AsyncTrainer, FrequentCheckpointsLeaveEveryIterationOnce) {
  const auto settings = Settings(3, {"checkpoint_every_s=0"});
  for (int i = 0; i < 5; ++i) {
    const RunFolder folder = Folder(std::to_string(i), *settings);
    const RunFacts facts = Go(*settings, folder).facts;
    EXPECT_EQ(UpdatesInRows(folder), Pushes(facts.per_worker[0].steps));
  }
}

// The evaluation takes worker 0 so long that the others do the rest of the run meanwhile.
TEST_P(AsyncTrainer, KeepsTheParametersThatReachedTheTarget) {
  for (const char* episodes : {"eval_episodes=9", "eval_episodes=5000"}) {
    SCOPED_TRACE(episodes);
    const auto settings =
        Settings(3, {"stop_at_target=true", "target=1", "eval_every=256", "steps=8192", episodes});
    const RunFolder folder = Folder(episodes, *settings);
    const RunFacts facts = Go(*settings, folder).facts;
    EXPECT_TRUE(facts.reached_target);
    const std::vector<MetricRow> rows = ReadJsonl(folder.metrics());
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].step(), facts.steps_to_target);
    EXPECT_EQ(rows[0].Get("eval_return_mean"), facts.eval_return_mean);
    const RunFacts measured =
        EvaluateRun(*settings, folder, Which::kLast, settings->run.eval_episodes, settings->run.seed).value();
    EXPECT_EQ(measured.eval_return_mean, facts.eval_return_mean);
    EXPECT_EQ(measured.params_sha256, facts.params_sha256);
  }
}

TEST_P(AsyncTrainer, AnotherTopologyIsRefusedAndNamed) {
  const auto settings = Settings(3);
  const RunFolder folder = Folder("run", *settings);
  const std::atomic<bool> stop{true};
  Go(*settings, folder, &stop);
  std::string message = Refusal(*Settings(2), folder);
  EXPECT_TRUE(Mentions(message, folder.path().string())) << message;
  EXPECT_TRUE(Mentions(message, "store shared, 3 workers, not shared, 2 workers")) << message;
  message = Refusal(*Settings(1, {}, "allreduce"), folder);
  EXPECT_TRUE(Mentions(message, "store shared, 3 workers, not synchronous")) << message;
  message = Refusal(*Settings(3, {"share_moments=false"}), folder);
  EXPECT_TRUE(Mentions(message, "share_moments = true")) << message;
  EXPECT_EQ(folder.ReadConfig(), settings->fields.ToToml()) << "a refused resume changed the run";
  EXPECT_EQ(Refusal(*settings, folder), "");
}

// Only rank 0 notices; the others must not go on for ever.
TEST_P(AsyncTrainer, AFailureOfOneWorkerEndsTheRunWithItsCause) {
  for (const std::string schedule : {"schedule=", "schedule=0< 1< 2< 3< 0> 1> 2> 3>"}) {
    const auto settings = Settings(4, {schedule, "steps=1000000000000"});
    const RunFolder folder = Folder(schedule, *settings);
    fs::create_directories(folder.metrics());
    const std::string message = Refusal(*settings, folder);
    EXPECT_TRUE(Mentions(message, "metrics.jsonl")) << message;
  }
}

TEST_P(AsyncTrainer, DivergenceIsReported) {
  for (const std::string schedule : {"schedule=", kInTurns}) {
    const auto settings = Settings(2, {schedule, "learning_rate=1e30", "learning_rate_schedule=constant"});
    const std::string message = Refusal(*settings, Folder(schedule, *settings));
    EXPECT_TRUE(Mentions(message, "training diverged")) << message;
  }
}

}  // namespace
}  // namespace trireme
