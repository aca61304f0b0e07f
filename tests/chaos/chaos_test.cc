// Four workers and two servers, and every few seconds something is killed, frozen or cut off. Trainings must
// end well all the same, no update may be lost or applied twice, and memory must not grow.
//
// Each test runs for CHAOS_SECONDS (20 unless set): one training after the other, each slowed down so that it
// takes about half a minute. CHAOS_SEED chooses what happens.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <thread>

#include "training.h"
#include "trireme/train/checkpoint.h"

namespace trireme::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Of one training: on a machine that is busy workers that are killed again and again come to nothing.
constexpr int kMostStrikes = 20;

class ChaosTest : public CliTest {
 protected:
  // One training after the other; `check` looks at each when it has ended.
  void Run(const TrainingKind& kind, int strike_every_s,
           const std::function<void(Training&, const std::vector<Json>&)>& check) {
    const auto end = Clock::now() + seconds(FromEnvironment("CHAOS_SECONDS", 20));
    std::mt19937 random(static_cast<unsigned>(FromEnvironment("CHAOS_SEED", 1)));
    long first_memory = 0, last_memory = 0;
    for (int run = 0; run == 0 || Clock::now() < end; ++run) {
      std::cout << "training " << run << std::endl;
      Training training(kind, folder_ / std::to_string(run), random);
      const auto deadline = Clock::now() + seconds(300);
      for (auto strike = Clock::now() + seconds(2); !training.Continue();
           std::this_thread::sleep_for(milliseconds(20))) {
        ASSERT_LT(Clock::now(), deadline) << "the training does not end";
        if (Clock::now() < strike || training.strikes() >= kMostStrikes) continue;
        training.Strike();
        strike += seconds(strike_every_s);
      }
      const std::vector<Json> results = training.Finish();
      ASSERT_NO_FATAL_FAILURE(training.Audit());
      ASSERT_NO_FATAL_FAILURE(check(training, results));
      last_memory = training.most_memory();
      if (run == 0) first_memory = last_memory;
      std::cout << "  ended: " << training.strikes() << " strikes, " << training.updates() << " updates, "
                << training.acknowledged() << " acknowledged, servers at most " << last_memory / 1024
                << " MiB" << std::endl;
    }
    EXPECT_LT(last_memory, first_memory + (32 << 10))
        << "the servers' memory grows from training to training";
  }
};

TEST_F(ChaosTest, WorkersOnTheirOwnReachTheirTargetAndNoUpdateIsLostOrDoubled) {
  const TrainingKind kind{
      .args = Set({"--env", "CartPole-v1", "--algo", "a3c", "--steps", "20000000", "--target", "475",
                   "--audit", "--straggler", "worker=0,factor=200"},
                  {"learning_rate=1e-4", "value_learning_rate=1e-3", "checkpoint_every_s=2"})};
  Run(kind, 5, [](Training&, const std::vector<Json>& results) {
    EXPECT_TRUE(std::ranges::any_of(results, [](const Json& result) {
      return result.value("reached_target", false);
    })) << "no worker has seen the target reached";
  });
}

// Evaluations and checkpoints take a good part of the time, so that much of what happens, happens there.
Args InStep(int steps) {
  return Set({"--env", "CartPole-v1", "--algo", "ppo", "--steps", std::to_string(steps)},
             {"envs=16", "horizon=32", "epochs=4", "minibatches=4", "hidden=[64,64]", "normalise_obs=true",
              "normalise_rewards=true", "eval_every=1024", "eval_episodes=64", "checkpoint_every_s=0.2"});
}
Args OneOfFour(int steps) {
  return InStep(steps) + Args{"--straggler", "worker=0,factor=30", "--set", "run_workers=4"};
}

// Every iteration has added its samples to the statistics once, and every update was made once, whoever was
// there.
auto LosesAndDoublesNothing(int steps) {
  return [steps](Training& training, const std::vector<Json>& results) {
    for (const Json& result : results) EXPECT_EQ(result["steps"], steps);
    int whole = 0;
    std::string kept;
    for (const std::filesystem::path& folder : training.WorkerFolders()) {
      const std::optional<StateReader> state = ReadNewestCheckpoint(folder);
      kept += fmt::format(" {}: {}", folder.filename().string(),
                          state ? state->GetValue<std::int64_t>("progress/steps") : -1);
      if (!state || state->GetValue<std::int64_t>("progress/steps") != steps) continue;
      ++whole;
      EXPECT_EQ(state->GetValue<std::uint64_t>("ppo/iteration"), steps / 512);
      EXPECT_EQ(state->GetValue<std::int64_t>("optimizer/steps"), steps / 512 * 16);
      EXPECT_NEAR(state->GetValue<double>("ppo/obs_normaliser/count"), steps, 1e-3);
      EXPECT_NEAR(state->GetValue<double>("ppo/return_normaliser/count"), steps, 1e-3);
    }
    EXPECT_GE(whole, 1) << "nobody has kept the end of the run:" << kept;
  };
}

TEST_F(ChaosTest, WorkersInStepLoseAndDoubleNothing) {
  constexpr int kSteps = 128 * 512;
  Run({.args = OneOfFour(kSteps)}, 3, LosesAndDoublesNothing(kSteps));
}

// Whatever was made of an iteration when all are gone is undone.
TEST_F(ChaosTest, WorkersInStepThatAllDieLoseAndDoubleNothing) {
  constexpr int kSteps = 64 * 512;
  Run({.args = OneOfFour(kSteps), .kills_all = true}, 3, LosesAndDoublesNothing(kSteps));
}

// Two threads in each process, one of which may lead; rounds do without the two that are slowest.
TEST_F(ChaosTest, WorkersInStepWithBackupsLoseAndDoubleNothing) {
  constexpr int kSteps = 64 * 512;
  const Args args = InStep(kSteps) + Args{"--straggler", "worker=0,factor=30", "--backup-workers", "2"};
  Run({.args = Set(args, {"run_workers=8"}), .threads = 2}, 3, LosesAndDoublesNothing(kSteps));
}

// Nobody is given up: the bits are those of a run to which nothing happened.
TEST_F(ChaosTest, WorkersInStepThatAllSurviveHaveTheBitsOfAnUndisturbedRun) {
  constexpr int kSteps = 48 * 512;
  const Json expected = ResultOf(
      RunTrireme(Args{"train", "--json", "--workers", "2", "--out", Path("undisturbed")} + InStep(kSteps)));
  Run({.args = OneOfFour(kSteps), .lease_s = 60, .kills_workers = false}, 2,
      [&](Training&, const std::vector<Json>& results) {
        ASSERT_EQ(results.size(), Training::kWorkers);
        for (const Json& result : results) EXPECT_EQ(result["params_sha256"], expected["params_sha256"]);
      });
}

// The same with what is sent compressed, and with what workers hold remembered by servers that die.
TEST_F(ChaosTest, CompressedWorkersInStepHaveTheBitsOfAnUndisturbedRun) {
  constexpr int kSteps = 32 * 512;
  const Args compressed = InStep(kSteps) + Args{"--compress", "int8"};
  const Json expected = ResultOf(RunTrireme(Args{"train", "--json", "--workers", "4", "--store", "server",
                                                 "--servers", "2", "--out", Path("undisturbed")} +
                                            compressed));
  Run({.args = OneOfFour(kSteps) + Args{"--compress", "int8"}, .lease_s = 60, .kills_workers = false}, 2,
      [&](Training&, const std::vector<Json>& results) {
        ASSERT_EQ(results.size(), Training::kWorkers);
        for (const Json& result : results) EXPECT_EQ(result["params_sha256"], expected["params_sha256"]);
      });
}

// Workers on their own are killed too: what they had not sent dies with them, what was acknowledged does not.
TEST_F(ChaosTest, CompressedWorkersOnTheirOwnLoseAndDoubleNoUpdate) {
  const TrainingKind kind{
      .args = Set({"--env", "CartPole-v1", "--algo", "a3c", "--steps", "20000000", "--target", "475",
                   "--audit", "--straggler", "worker=0,factor=200", "--compress", "int8"},
                  {"learning_rate=1e-4", "value_learning_rate=1e-3", "checkpoint_every_s=2"})};
  Run(kind, 3, [](Training&, const std::vector<Json>& results) {
    EXPECT_TRUE(std::ranges::any_of(results, [](const Json& result) {
      return result.value("reached_target", false);
    })) << "no worker has seen the target reached";
  });
}

}  // namespace
}  // namespace trireme::testing
