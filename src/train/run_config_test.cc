#include "trireme/train/run_config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/system.h"
#include "trireme/train/presets.h"

namespace trireme {
namespace {

using Assignments = std::vector<std::string>;

// What a run is about; its store decides about presets as well.
struct About {
  std::string env = "CartPole-v1", algo = "ppo", store = "allreduce";
};

std::unique_ptr<RunSettings> Resolved(const Assignments& assignments, const About& about = {}) {
  auto settings = std::make_unique<RunSettings>(about.env, about.algo, about.store);
  for (const std::string& assignment : assignments) settings->fields.ApplyAssignment(assignment, "--set");
  settings->Resolve();
  return settings;
}

// The message with which the settings are refused; empty when they are not.
std::string Refusal(const Assignments& assignments, const About& about = {}) {
  try {
    Resolved(assignments, about);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool Mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

// "CartPole-v1.a2c.shared", or without the store.
About Parse(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  EXPECT_TRUE(parts.size() == 2 || parts.size() == 3) << name;
  parts.resize(3);
  if (parts[0].starts_with("gym-")) parts[0][3] = ':';
  return {parts[0], parts[1], parts[2].empty() ? "allreduce" : parts[2]};
}

TEST(Presets, AllResolveAndAreApplied) {
  ASSERT_FALSE(AllPresets().empty());
  for (const Preset& preset : AllPresets()) {
    SCOPED_TRACE(preset.name);
    const About about = Parse(preset.name);
    RunSettings settings(about.env, about.algo, about.store);
    EXPECT_EQ(settings.run.env, about.env);
    EXPECT_EQ(settings.run.algo, about.algo);
    EXPECT_EQ(settings.run.store, about.store);
    // A second application changes nothing: whatever the preset says is already there.
    const std::string before = settings.fields.ToToml();
    settings.fields.ApplyToml(preset.text, preset.name);
    EXPECT_EQ(settings.fields.ToToml(), before);
    if (!about.env.starts_with("gym:")) settings.Resolve();  // others may not be installed
  }
}

// The name of a preset says for which store it is, so that its text need not and may not.
TEST(Presets, LeaveTheStoreToTheirName) {
  for (const Preset& preset : AllPresets()) {
    for (const char* key : {"env", "algo", "store"})
      EXPECT_EQ(ReadTomlText(preset.text, key, preset.name), "") << preset.name;
  }
}

TEST(Presets, AStoreWithoutOneOfItsOwnTakesThatOfTheAlgorithm) {
  RunSettings in_step("CartPole-v1", "ppo", "allreduce"), alone("CartPole-v1", "ppo", "shared");
  EXPECT_EQ(alone.run.store, "shared");
  alone.run.store = "allreduce";
  EXPECT_EQ(alone.fields.ToToml(), in_step.fields.ToToml());
}

TEST(Presets, AreSortedAsFilesAndAPresetIsKnown) {
  std::vector<std::string> names, files;
  for (const Preset& preset : AllPresets()) {
    names.push_back(preset.name);
    files.push_back(preset.name + ".toml");
  }
  EXPECT_TRUE(std::is_sorted(files.begin(), files.end()));
  EXPECT_NE(std::find(names.begin(), names.end(), "CartPole-v1.ppo"), names.end());
}

// Every environment is usable without a preset, with nothing but the defaults.
TEST(RunSettings, EveryEnvironmentResolves) {
  for (const EnvEntry& env : AllEnvs()) {
    const auto settings = Resolved({}, {.env = env.spec.name});
    EXPECT_EQ(settings->env().spec.name, env.spec.name);
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

// However few processors there are. None of them need be in this machine: whoever trains looks.
TEST(RunSettings, EachDeviceHasAWorker) {
  for (const auto& [device, processors, workers] :
       {std::tuple("fused", 1, 1), {"cuda", 2, 2}, {"cuda:0,cuda:1", 1, 2}, {"cuda:2,cuda:1,cuda:0", 1, 4}}) {
    RunSettings settings("CartPole-v1", "ppo");
    settings.fields.Set("device", device, "test");
    settings.Resolve(1, processors);
    EXPECT_EQ(settings.run.workers, workers) << device;
  }
  EXPECT_TRUE(Mentions(Refusal({"device=cuda:0,cuda:1", "workers=1"}), "2 devices for 1 worker"));
  EXPECT_EQ(Refusal({"device=cuda:0,cuda:1", "workers=2"}), "");
}

TEST(RunSettings, WorkersTakeDevicesInTurn) {
  const auto settings = Resolved({"device=cuda:2,cuda", "workers=4"});
  EXPECT_EQ(settings->run.device, "cuda:2,cuda:0");
  const char* const names[] = {"cuda:2", "cuda:0", "cuda:2", "cuda:0"};
  for (int worker = 0; worker < 4; ++worker)
    EXPECT_EQ(settings->run.ComputingOf(worker).device.name(), names[worker]);
  EXPECT_EQ(Resolved({})->run.ComputingOf(3).device, Device());
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

TEST(RunSettings, AsynchronousWorkersMayBeAnyNumber) {
  for (const std::string algo : {"ppo", "a2c", "dqn"}) {
    for (const char* workers : {"1", "3", "5", "64"}) {
      EXPECT_EQ(Refusal({std::string("workers=") + workers}, {.algo = algo, .store = "shared"}), "");
    }
    const About about{.algo = algo, .store = "shared"};
    EXPECT_EQ(Resolved({}, about)->run.workers, std::clamp(UsableProcessors(), 1, 64));
    EXPECT_TRUE(Resolved({}, about)->run.asynchronous());
    EXPECT_TRUE(Mentions(Refusal({"workers=65"}, about), "workers"));
    EXPECT_TRUE(Mentions(Refusal({"shards=3"}, about), "not a power of two"));
  }
  EXPECT_FALSE(Resolved({})->run.asynchronous());
  EXPECT_FALSE(Resolved({"store=local"})->run.asynchronous());
}

TEST(RunSettings, SchedulesFitTheirWorkers) {
  const About shared{.algo = "a2c", .store = "shared"};
  EXPECT_EQ(Refusal({"workers=2", "schedule=0< 1< 0> 1>"}, shared), "");
  EXPECT_TRUE(Mentions(Refusal({"workers=3", "schedule=0< 1< 0> 1>"}, shared), "worker 2 must have turns"));
  EXPECT_TRUE(Mentions(Refusal({"workers=1", "schedule=0< 1< 0> 1>"}, shared), "no worker 1"));
  EXPECT_TRUE(
      Mentions(Refusal({"workers=1", "schedule=first come, first served"}, shared), "expected entries"));
  EXPECT_TRUE(Mentions(Refusal({"workers=1", "schedule=0< 0>"}, {.algo = "a2c"}), "--store shared"));
}

TEST(RunSettings, ExperienceMustFitIntoMemory) {
  const About shared{.algo = "dqn", .store = "shared"};
  const Assignments small = {"replay=8000", "shards=8"};
  const auto bytes = [&](const Assignments& more, const About& about) {
    Assignments all = small;
    all.insert(all.end(), more.begin(), more.end());
    return Resolved(all, about)->ExperienceBytes();
  };
  const std::uint64_t one = bytes({"workers=1"}, shared);
  EXPECT_GE(one, 8000 * 2 * 4 * sizeof(float));  // two observations per transition
  EXPECT_EQ(bytes({"workers=5"}, shared), 5 * one);
  EXPECT_EQ(bytes({"workers=4"}, {.algo = "dqn"}), one);  // workers in step share the work
  EXPECT_GT(bytes({"workers=1", "prioritised=true"}, shared), one);

  // A replay that one worker has room for, but not eight of them.
  const std::uint64_t each = one / 8000;
  const std::uint64_t replay = MachineMemory() / each / 4 / 8 * 8;
  if (replay > 2'000'000'000) GTEST_SKIP() << "more memory than a replay can fill";
  const std::string quarter = fmt::format("replay={}", replay);
  EXPECT_EQ(Refusal({quarter, "workers=1"}, shared), "");
  const std::string message = Refusal({quarter, "workers=8"}, shared);
  EXPECT_TRUE(Mentions(message, "GiB")) << message;
  EXPECT_TRUE(Mentions(message, "replay")) << message;
}

TEST(RunSettings, AnAlgorithmMustHaveTheKindOfActions) {
  const std::string message = Refusal({}, {.env = "Pendulum-v1", .algo = "dqn"});
  EXPECT_TRUE(Mentions(message, "Pendulum-v1 has continuous actions, which dqn cannot drive")) << message;
  EXPECT_EQ(Refusal({}, {.env = "Pendulum-v1", .algo = "a2c"}), "");
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
                                 {.env = "MountainCar-v0"});
  const RunFolder folder = RunFolder::Create(path_, "", settings->fields.ToToml());
  const auto read = ReadRunSettings(folder);
  EXPECT_EQ(read->fields.ToToml(), settings->fields.ToToml());
  EXPECT_EQ(read->run.env, "MountainCar-v0");
  EXPECT_EQ(read->run.seed, 77u);
  read->Resolve();
}

// The store is read first, since the preset depends on it; the saved settings then override the preset.
TEST_F(SavedSettings, OfAnAsynchronousRunReadBackAsTheyWere) {
  const auto settings =
      Resolved({"workers=3", "shards=2", "schedule=0< 1< 2< 0> 1> 2>", "share_moments=false"},
               {.algo = "a2c", .store = "shared"});
  const RunFolder folder = RunFolder::Create(path_, "", settings->fields.ToToml());
  const auto read = ReadRunSettings(folder);
  EXPECT_EQ(read->fields.ToToml(), settings->fields.ToToml());
  EXPECT_TRUE(read->run.asynchronous());
  EXPECT_EQ(read->run.schedule, "0< 1< 2< 0> 1> 2>");
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
