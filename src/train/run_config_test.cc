#include "train/run_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <string>
#include <vector>

#include "base/system.h"
#include "train/presets.h"

namespace trireme {
namespace {

using Assignments = std::vector<std::string>;

std::unique_ptr<RunSettings> Resolved(const Assignments& assignments,
                                      const std::string& env = "CartPole-v1") {
  auto settings = std::make_unique<RunSettings>(env, "ppo");
  for (const std::string& assignment : assignments) settings->fields.ApplyAssignment(assignment, "--set");
  settings->Resolve();
  return settings;
}

// The message with which the settings are refused; empty when they are not.
std::string Refusal(const Assignments& assignments, const std::string& env = "CartPole-v1") {
  try {
    Resolved(assignments, env);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool Mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

std::pair<std::string, std::string> EnvAndAlgo(const Preset& preset) {
  const std::size_t dot = preset.name.rfind('.');
  return {preset.name.substr(0, dot), preset.name.substr(dot + 1)};
}

TEST(Presets, AllResolveAndAreApplied) {
  ASSERT_FALSE(AllPresets().empty());
  for (const Preset& preset : AllPresets()) {
    SCOPED_TRACE(preset.name);
    const auto [env, algo] = EnvAndAlgo(preset);
    RunSettings settings(env, algo);
    EXPECT_EQ(settings.run.env, env);
    EXPECT_EQ(settings.run.algo, algo);
    // A second application changes nothing: whatever the preset says is already there.
    const std::string before = settings.fields.ToToml();
    settings.fields.ApplyToml(preset.text, preset.name);
    EXPECT_EQ(settings.fields.ToToml(), before);
    settings.Resolve();
  }
}

TEST(Presets, AreSortedAndAPresetIsKnown) {
  std::vector<std::string> names;
  for (const Preset& preset : AllPresets()) names.push_back(preset.name);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_NE(std::find(names.begin(), names.end(), "CartPole-v1.ppo"), names.end());
}

// Every environment is usable without a preset, with nothing but the defaults.
TEST(RunSettings, EveryEnvironmentResolves) {
  for (const EnvEntry& env : AllEnvs()) {
    const auto settings = Resolved({}, env.spec.name);
    EXPECT_EQ(&settings->env(), &FindEnv(env.spec.name));
    EXPECT_EQ(settings->run.target, env.spec.reward_threshold);
  }
}

TEST(RunSettings, AutomaticWorkersFitProcessorsAndShards) {
  const int workers = Resolved({})->run.workers;
  EXPECT_TRUE(std::has_single_bit(static_cast<unsigned>(workers)));
  EXPECT_LE(workers, UsableProcessors());
  EXPECT_GT(2 * workers, std::min(8, UsableProcessors()));
  EXPECT_EQ(Resolved({"shards=1"})->run.workers, 1);
  EXPECT_EQ(Resolved({"store=local"})->run.workers, 1);
}

TEST(RunSettings, WorkersMustDivideShards) {
  for (const char* workers : {"1", "2", "4", "8"}) {
    EXPECT_EQ(Refusal({std::string("workers=") + workers}), "");
  }
  for (const char* workers : {"3", "5", "16", "64"}) {
    const std::string message = Refusal({std::string("workers=") + workers});
    EXPECT_TRUE(Mentions(message, std::string("workers = ") + workers + " does not divide shards = 8"))
        << message;
  }
  EXPECT_EQ(Refusal({"workers=16", "shards=16", "envs=64"}), "");
}

TEST(RunSettings, ShardsMustBeAPowerOfTwo) {
  for (const char* shards : {"3", "6", "12", "63"}) {
    const std::string message = Refusal({std::string("shards=") + shards, "workers=1"});
    EXPECT_TRUE(Mentions(message, "not a power of two")) << message;
  }
  for (const char* shards : {"1", "2", "16", "64"}) {
    EXPECT_EQ(Refusal({std::string("shards=") + shards, "workers=1", "envs=64"}), "");
  }
}

TEST(RunSettings, TheLocalStoreHasOneWorker) {
  EXPECT_EQ(Refusal({"store=local", "workers=1"}), "");
  EXPECT_TRUE(Mentions(Refusal({"store=local", "workers=2"}), "store = local"));
}

TEST(RunSettings, TheAlgorithmIsAsked) {
  EXPECT_TRUE(Mentions(Refusal({"envs=12"}), "envs = 12"));
  EXPECT_EQ(Refusal({"envs=12", "shards=4", "workers=1"}), "");
}

TEST(RunSettings, RangesAreChecked) {
  for (const char* bad :
       {"workers=-1", "workers=65", "shards=0", "shards=128", "steps=0", "steps=-5", "steps=1e16", "seed=-1",
        "eval_every=-1", "eval_episodes=0", "checkpoint_every_s=-1", "store=cloud", "target=nan",
        "stop_at_target=perhaps", "steps=many", "steps=1.5"}) {
    const std::string message = Refusal({bad});
    const std::string name = std::string(bad).substr(0, std::string(bad).find('='));
    EXPECT_TRUE(Mentions(message, name)) << bad << ": " << message;
  }
  EXPECT_EQ(Resolved({"steps=1e6"})->run.steps, 1'000'000);
  EXPECT_EQ(Resolved({"seed=18446744073709551615"})->run.seed, 18446744073709551615u);
}

TEST(RunSettings, UnknownNamesSuggestTheNearest) {
  const auto refusal = [](const std::string& env, const std::string& algo) -> std::string {
    try {
      RunSettings settings(env, algo);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_TRUE(Mentions(refusal("CartPole-v2", "ppo"), "Did you mean 'CartPole-v1'?"));
  EXPECT_TRUE(Mentions(refusal("CartPole-v1", "pppo"), "Did you mean 'ppo'?"));
  EXPECT_TRUE(Mentions(refusal("", "ppo"), "environment"));
  EXPECT_TRUE(Mentions(Refusal({"lerning_rate=1"}), "learning_rate"));
  EXPECT_TRUE(Mentions(Refusal({"eval_episode=1"}), "eval_episodes"));
}

class SavedSettings : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(path_); }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) /
      fmt::format("trireme_settings_{}_{}", testing::UnitTest::GetInstance()->current_test_info()->name(),
                  getpid());
};

TEST_F(SavedSettings, ReadBackAsTheyWere) {
  const auto settings = Resolved({"steps=12345", "gamma=0.9123", "hidden=[7,5]", "workers=2", "seed=77",
                                  "stop_at_target=true", "target=-3.25"},
                                 "MountainCar-v0");
  const RunFolder folder = RunFolder::Create(path_, "", settings->fields.ToToml());
  const auto read = ReadRunSettings(folder);
  EXPECT_EQ(read->fields.ToToml(), settings->fields.ToToml());
  EXPECT_EQ(read->run.env, "MountainCar-v0");
  EXPECT_EQ(read->run.seed, 77u);
  read->Resolve();
}

TEST_F(SavedSettings, DamagedOnesNameTheFile) {
  for (const char* text : {"env = \"CartPole-v1\"\nalgo = \"ppo\"\nsteps = -1\n",
                           "env = \"CartPole-v1\"\nalgo = \"ppo\"\nsteps = \n"}) {
    std::filesystem::remove_all(path_);
    const RunFolder folder = RunFolder::Create(path_, "", text);
    try {
      ReadRunSettings(folder);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_TRUE(Mentions(error.what(), (path_ / "config.toml").string() + ":3:")) << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme
