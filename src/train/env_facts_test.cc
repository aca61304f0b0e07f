// Runs on environments with options, masks, actions of several parts and observations of bytes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/env/test_env.h"
#include "trireme/metrics/jsonl.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/run_state.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Assignments = std::vector<std::string>;

constexpr const char* kBytes = "FactsTest.Bytes-v0";

class EnvFactsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    AddEnv(BytesEntry(kBytes));
    AddEnv(SoaEntry<Corridor>());
    AddEnv(SoaEntry<Dials>());
  }
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / fmt::format("trireme_env_facts_{}", getpid());
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  static std::unique_ptr<RunSettings> Settings(const std::string& env, const std::string& algo,
                                               const std::string& store, const Assignments& assignments) {
    auto settings = std::make_unique<RunSettings>(env, algo, store);
    for (const char* a : {"hidden=[16]", "eval_episodes=4", "eval_every=0", "workers=2"}) {
      settings->fields.ApplyAssignment(a, "test");
    }
    for (const std::string& a : assignments) settings->fields.ApplyAssignment(a, "test");
    settings->Resolve();
    return settings;
  }
  static std::string Refusal(const std::string& env, const std::string& algo,
                             const Assignments& assignments) {
    try {
      Settings(env, algo, "allreduce", assignments);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  RunFolder Folder(const RunSettings& settings) const {
    return RunFolder::Create(root_ / "run", "", settings.fields.ToToml());
  }

  fs::path root_;
};

TEST_F(EnvFactsTest, WhatIsGivenUpIsSaidInOneLine) {
  EXPECT_EQ(DescribeLosses(FindEnv("CartPole-v1")), "");
  EnvEntry env = FindEnv("CartPole-v1");
  env.facts.reproducible = false;
  EXPECT_EQ(DescribeLosses(env), "CartPole-v1 is not reproducible: the same seed gives another run");
  env.facts.snapshots = false;
  EXPECT_EQ(DescribeLosses(env),
            "CartPole-v1 cannot be saved: a resumed run keeps what it learned and begins new episodes; it is "
            "not reproducible: the same seed gives another run");
}

TEST_F(EnvFactsTest, OptionsAreSettingsOfTheRun) {
  const auto settings = Settings("CartPole-v1", "ppo", "allreduce", {"env_max_steps=50", "steps=2048"});
  EXPECT_EQ(settings->env().spec.max_episode_steps, 50);
  const RunFolder folder = Folder(*settings);
  const TrainResult result = Train(*settings, folder, {.json = true});
  EXPECT_LE(result.facts.eval_return_mean, 50);

  const auto saved = ReadRunSettings(folder);
  saved->Resolve();
  EXPECT_EQ(saved->env().spec.max_episode_steps, 50);
  EXPECT_EQ(saved->env().make(1)->spec().max_episode_steps, 50);

  // Another environment is another run.
  saved->fields.ApplyAssignment("env_max_steps=60", "test");
  saved->fields.ApplyAssignment("steps=4096", "test");
  saved->Resolve();
  try {
    Train(*saved, folder, {.json = true});
    FAIL() << "went on with another environment";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("CartPole-v1 max_steps=50, not CartPole-v1 max_steps=60"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(EnvFactsTest, AlgorithmsRefuseActionsTheyCannotDrive) {
  EXPECT_EQ(Refusal("TestDials-v0", "dqn", {}),
            "TestDials-v0 has multi-discrete actions, which dqn cannot drive");
  EXPECT_EQ(Refusal(kBytes, "ppo", {"normalise_obs=true"}),
            "normalise_obs is for observations of floats; those of FactsTest.Bytes-v0 are bytes, scaled to 0 "
            "... 1");
  EXPECT_EQ(Refusal("Pendulum-v1", "dqn", {}), "Pendulum-v1 has continuous actions, which dqn cannot drive");
}

// The mean return of who knows the corridor, on the episodes of the evaluation.
double BestInCorridor(std::uint64_t seed, int episodes) {
  const auto batch = SoaEntry<Corridor>().make(episodes);
  batch->Reset(seed, Purpose::kEvalReset, 0);
  double sum = 0;
  for (int t = 0; t < 20; ++t) {
    std::vector<float> actions;
    for (int b = 0; b < episodes; ++b) actions.push_back(batch->masks()[4 * b + 1] != 0 ? 1.0f : 2.0f);
    batch->Step(actions);
    for (const EpisodeEnd& end : batch->finished()) sum += end.episode_return / episodes;
  }
  return sum;
}

// Whoever takes a forbidden choice ends the episode at once: with masks every episode lasts 20 steps.
TEST_F(EnvFactsTest, MasksAreKeptToWhileLearningTheBestPolicy) {
  const std::vector<std::pair<std::string, Assignments>> algos = {
      {"ppo", {"steps=100000", "learning_rate=2e-3", "horizon=32"}},
      {"a2c", {"steps=100000"}},
      {"dqn", {"steps=30000"}}};
  for (const auto& [algo, assignments] : algos) {
    SCOPED_TRACE(algo);
    fs::remove_all(root_);
    Assignments all = {"envs=16", "eval_episodes=32"};
    all.insert(all.end(), assignments.begin(), assignments.end());
    const auto settings = Settings("TestCorridor-v0", algo, "allreduce", all);
    const RunFolder folder = Folder(*settings);
    const TrainResult result = Train(*settings, folder, {.json = true});
    EXPECT_NEAR(result.facts.eval_return_mean, BestInCorridor(settings->run.seed, 32), 1e-6);
    int episodes = 0;
    for (const MetricRow& row : ReadJsonl(folder.path() / "metrics.jsonl")) {
      if (row.Get("episodes") == 0) continue;
      EXPECT_EQ(row.Get("episode_length_mean"), 20)
          << "a forbidden choice was taken before step " << row.step();
      ++episodes;
    }
    EXPECT_GT(episodes, 0);
  }
}

TEST_F(EnvFactsTest, ActionsOfSeveralPartsAreLearned) {
  for (const auto& [algo, steps] : {std::pair{"ppo", 100'000}, {"a2c", 200'000}}) {
    SCOPED_TRACE(algo);
    fs::remove_all(root_);
    const auto settings =
        Settings("TestDials-v0", algo, "allreduce", {fmt::format("steps={}", steps), "envs=16"});
    const RunFolder folder = Folder(*settings);
    const TrainResult result = Train(*settings, folder, {.json = true});
    EXPECT_EQ(result.facts.eval_return_mean, 10);
  }
}

// The same bits for any number of workers, with masks, parts and bytes as with anything else.
TEST_F(EnvFactsTest, TheNumberOfWorkersDoesNotMatter) {
  for (const auto& [env, algo] : {std::pair{"TestCorridor-v0", "ppo"},
                                  {"TestCorridor-v0", "dqn"},
                                  {"TestDials-v0", "a2c"},
                                  {kBytes, "ppo"},
                                  {kBytes, "dqn"}}) {
    SCOPED_TRACE(fmt::format("{} {}", env, algo));
    std::vector<std::string> hashes;
    for (const char* workers : {"workers=1", "workers=2"}) {
      fs::remove_all(root_);
      const auto settings = Settings(env, algo, "allreduce", {"steps=6000", "envs=16", workers});
      hashes.push_back(Train(*settings, Folder(*settings), {.json = true}).facts.params_sha256);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  }
}

}  // namespace
}  // namespace trireme
