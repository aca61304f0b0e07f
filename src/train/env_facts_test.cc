// Runs on environments with options, masks, actions of several parts and observations of bytes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/env/classic/cart_pole.h"
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
    AddEnvSource(HostedSource());
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
  EXPECT_EQ(result.facts.env, "CartPole-v1");
  EXPECT_EQ(result.facts.env_options, "max_steps=50");
  EXPECT_NE(ResultJson(result.facts).find(R"("env":"CartPole-v1","env_options":"max_steps=50",)"),
            std::string::npos);
  EXPECT_NE(ReadFile(folder.path() / "report.html").find("CartPole-v1 max_steps=50"), std::string::npos);
  const auto plain = Settings("CartPole-v1", "ppo", "allreduce", {"env_max_steps=500"});
  EXPECT_EQ(plain->run.env_options, "") << "a default that is said";

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

// What an environment is may be known only when its options are: it is asked once, with them, and what it keeps
// running ends with the run.
TEST_F(EnvFactsTest, AnEnvironmentIsFoundOnceWithItsArguments) {
  const auto begin = [] {
    auto settings = std::make_unique<RunSettings>("host:pole", "ppo");
    for (const char* a : {"hidden=[16]", "eval_episodes=4", "steps=2048", "envs=16", "env_hosts=2"}) {
      settings->fields.ApplyAssignment(a, "test");
    }
    return settings;
  };
  const int before = HostedOptions::started;
  EXPECT_EQ(Refusal("host:pole", "ppo", {}), "host:pole needs --env-arg steps=N");
  EXPECT_EQ(Refusal("host:pole", "ppo", {"workers=3"}).find("host:"), std::string::npos);
  auto settings = begin();
  settings->SetEnvArgs(Assignments{"steps=20", "Wind-Power=\"3\""}, "--env-arg");
  settings->Resolve();
  settings->Resolve();
  EXPECT_EQ(HostedOptions::started, before + 1);
  EXPECT_EQ(settings->env().spec.max_episode_steps, 20);
  EXPECT_EQ(settings->env().spec.help, "2 hosts");
  EXPECT_EQ(settings->run.target, 475.0);
  ASSERT_FALSE(HostedOptions::last.expired());
  EXPECT_EQ(*HostedOptions::last.lock(),
            (EnvArgs{{"Wind-Power", std::string("3")}, {"steps", std::int64_t{20}}}));
  const RunFolder folder = Folder(*settings);
  const TrainResult result = Train(*settings, folder, {.json = true, .started_s = MonotonicSeconds()});
  EXPECT_LE(result.facts.eval_return_mean, 20);
  EXPECT_EQ(HostedOptions::started, before + 1);
  settings.reset();
  EXPECT_TRUE(HostedOptions::last.expired()) << "its host outlives the run";

  // As saved, whatever the order and spelling; other arguments are another run.
  const auto saved = ReadRunSettings(folder);
  EXPECT_EQ(saved->run.env_args, (Assignments{"Wind-Power=\"3\"", "steps=20"}));
  saved->run.env_args = {"steps = 20", "Wind-Power='3'"};
  saved->fields.ApplyAssignment("steps=4096", "test");
  saved->Resolve();
  Train(*saved, folder, {.json = true, .started_s = MonotonicSeconds()});
  saved->SetEnvArgs(Assignments{"Wind-Power=3"}, "--env-arg");
  saved->fields.ApplyAssignment("steps=8192", "test");
  saved->Resolve();
  EXPECT_EQ(HostedOptions::started, before + 3);
  try {
    Train(*saved, folder, {.json = true, .started_s = MonotonicSeconds()});
    FAIL() << "went on with another environment";
  } catch (const Error& error) {
    const std::string found = R"(host:pole hosts=2 args=["Wind-Power=\"3\"", "steps=20"])",
                      other = R"(host:pole hosts=2 args=["Wind-Power=3", "steps=20"])";
    EXPECT_NE(std::string(error.what()).find(found + ", not " + other), std::string::npos) << error.what();
  }
}

TEST_F(EnvFactsTest, WithoutAThresholdThereIsNoTargetToReach) {
  EnvEntry open = SoaEntry<CartPole>();
  open.spec.name = "FactsTest.NoThreshold-v0";
  open.spec.reward_threshold.reset();
  open.make = [spec = open.spec](int size) { return std::make_unique<SoaBatch<CartPole>>(size, spec); };
  open.options = nullptr;
  AddEnv(open);
  const auto settings = Settings(open.spec.name, "ppo", "allreduce", {"steps=2048", "envs=16"});
  EXPECT_FALSE(settings->run.target.has_value());
  const RunFolder folder = Folder(*settings);
  const TrainResult result = Train(*settings, folder, {.json = true});
  EXPECT_GT(result.facts.eval_return_mean, 0);
  EXPECT_FALSE(result.facts.reached_target);
  EXPECT_FALSE(result.facts.target.has_value());
  EXPECT_NE(ResultJson(result.facts).find("\"target\":null,\"reached_target\":false"), std::string::npos);
  EXPECT_EQ(ReadFile(folder.path() / "report.html").find("Target"), std::string::npos);

  EXPECT_EQ(
      Refusal(open.spec.name, "ppo", {"stop_at_target=true"}),
      "stop_at_target needs a target: FactsTest.NoThreshold-v0 says no return at which it is solved, so give "
      "one with --target");
  // One that is given is judged by the evaluation there is; and can be given up again.
  const auto resume = [&](const char* target, const char* stops) {
    const auto saved = ReadRunSettings(folder);
    saved->fields.ApplyAssignment(target, "test");
    saved->fields.ApplyAssignment(stops, "test");
    saved->Resolve();
    return Train(*saved, folder, {.json = true}).facts;
  };
  const RunFacts reached = resume("target=1", "stop_at_target=true");
  EXPECT_TRUE(reached.reached_target);
  EXPECT_EQ(reached.steps_to_target, result.facts.steps);
  EXPECT_FALSE(resume("target=auto", "stop_at_target=false").reached_target);
}

TEST_F(EnvFactsTest, ArgumentsAreRefusedWhereTheyCannotBe) {
  RunSettings settings("CartPole-v1", "ppo");
  settings.SetEnvArgs(Assignments{"a=1", "b=2"}, "--env-arg");
  settings.SetEnvArgs(Assignments{"b=x"}, "--env-arg");
  EXPECT_EQ(settings.run.env_args, (Assignments{"a=1", "b=x"}));
  EXPECT_THROW(settings.Resolve(), Error);
  EXPECT_THROW(settings.SetEnvArgs(Assignments{"c=\xff"}, "--env-arg"), Error) << "it cannot be saved";
  EXPECT_THROW(settings.SetEnvArgs(Assignments{"c"}, "--env-arg"), Error);
  EXPECT_EQ(settings.run.env_args, (Assignments{"a=1", "b=x"}));
  settings.run.env_args.clear();
  settings.Resolve();
}

// Says of every terminated episode that it was truncated as well.
class BothBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  std::span<const std::uint8_t> truncated() const override { return inner_->terminated(); }
};

TEST_F(EnvFactsTest, AnEnvironmentThatContradictsItselfEndsTheRun) {
  AddEnv(ForwardingEntry<BothBatch>("FactsTest.Both-v0", {}));
  for (const char* algo : {"ppo", "dqn"}) {
    SCOPED_TRACE(algo);
    fs::remove_all(root_);
    const auto settings = Settings("FactsTest.Both-v0", algo, "allreduce", {"steps=4096", "envs=16"});
    try {
      Train(*settings, Folder(*settings), {.json = true});
      FAIL() << "trained on";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("FactsTest.Both-v0 is not what it says it is"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST_F(EnvFactsTest, AlgorithmsRefuseActionsTheyCannotDrive) {
  EXPECT_EQ(
      Refusal("TestDials-v0", "dqn", {}),
      "TestDials-v0 has multi-discrete actions, which dqn cannot drive; these can: ppo, a2c, impala, appo");
  EXPECT_EQ(Refusal(kBytes, "ppo", {"normalise_obs=true"}),
            "normalise_obs is for observations of floats; those of FactsTest.Bytes-v0 are bytes, scaled to 0 "
            "... 1");
  EXPECT_EQ(Refusal("Pendulum-v1", "dqn", {}),
            "Pendulum-v1 has continuous actions, which dqn cannot drive; these can: ppo, a2c, impala, appo");
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
