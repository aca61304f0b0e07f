// Acting by what was learned, without the environment it was learned in.
#include "trireme/train/trained_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/env/registry.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

int entries = 0;  // that were asked for

// Pendulum-v1 under another name, which counts how often it is looked for.
class CountedOptions final : public EnvOptions {
 public:
  void Fields(ConfigFields&) override {}
  EnvEntry Entry(const EnvArgs&) const override {
    ++entries;
    EnvEntry entry = FindEnv("Pendulum-v1");
    entry.spec.name = "trained_policy_test:pendulum";
    return entry;
  }
};

class TrainedPolicyTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    AddEnvSource({.prefix = "trained_policy_test:", .help = "", .options = [](const std::string&) {
                    return std::make_unique<CountedOptions>();
                  }});
  }

  void TrainSmall(const std::string& algo) {
    RunSettings settings("trained_policy_test:pendulum", algo);
    for (const char* a : {"hidden=[16]", "steps=8192", "envs=16", "horizon=16", "eval_every=2048",
                          "eval_episodes=8", "workers=1", "checkpoint_every_s=0"}) {
      settings.fields.ApplyAssignment(a, "test");
    }
    if (algo == "ppo") settings.fields.ApplyAssignment("normalise_obs=true", "test");
    settings.Resolve();
    const RunFolder folder = RunFolder::Create(path(), "", settings.fields.ToToml());
    result_ = Train(settings, folder, {.json = true});
  }
  std::filesystem::path path() const { return scratch_.path() / "run"; }

  // One action for the same observation in each of `steps` steps.
  static std::vector<float> Explored(TrainedPolicy& policy, std::vector<float> obs, int steps) {
    std::vector<float> actions;
    for (int step = 0; step < steps; ++step) {
      float action = 0, log_prob = 0;
      policy.algorithm().Explore({.seed = 5,
                                  .step = static_cast<std::uint64_t>(step),
                                  .n = 1,
                                  .obs = obs.data(),
                                  .actions = &action,
                                  .extra = &log_prob});
      actions.push_back(action);
    }
    return actions;
  }

  static std::vector<float> ActionsOf(const PolicyFiles& files, const RunFolder& folder) {
    const std::unique_ptr<RunSettings> settings = ReadRunSettings(folder);
    ResolveToAct(files, *settings);
    TrainedPolicy policy(*settings, files);
    std::vector<float> obs(3 * 32), actions(32);
    for (std::size_t i = 0; i < obs.size(); ++i) obs[i] = static_cast<float>(i % 13) / 6.0f - 1.0f;
    policy.algorithm().Act(obs, nullptr, 32, actions);
    return actions;
  }

  ScratchFolder scratch_;
  TrainResult result_;
};

TEST_F(TrainedPolicyTest, NeedsNoEnvironment) {
  TrainSmall("ppo");
  entries = 0;
  const RunFolder folder = RunFolder::Open(path());
  const PolicyFiles files = ReadPolicy(folder, Which::kLast);
  const std::unique_ptr<RunSettings> settings = ReadRunSettings(folder);
  ResolveToAct(files, *settings);
  EXPECT_EQ(settings->env().spec.obs, (ObsSpec{{3}}));
  EXPECT_TRUE(settings->env().spec.action.box());
  EXPECT_EQ(settings->env().spec.action.low, std::vector<float>{-2});
  EXPECT_THROW(settings->env().make(1), Error);
  const TrainedPolicy policy(*settings, files);
  EXPECT_EQ(std::vector<float>(policy.params().begin(), policy.params().end()), result_.params);
  EXPECT_EQ(policy.progress().steps, 8192);
  EXPECT_EQ(entries, 0);
}

// Also by its normaliser, which is not among the parameters.
TEST_F(TrainedPolicyTest, FilesOnTheirOwnActAsThoseOfTheFolder) {
  TrainSmall("ppo");
  const RunFolder folder = RunFolder::Open(path());
  const PolicyFiles best = ReadPolicy(folder, Which::kBest), last = ReadPolicy(folder, Which::kLast);
  ASSERT_TRUE(best.best.has_value());
  const auto file = [&](const char* prefix, std::int64_t steps) {
    return ReadPolicyFile(path() / StateFileName(prefix, steps));
  };
  EXPECT_EQ(ActionsOf(file("best-", *result_.facts.best_steps), folder), ActionsOf(best, folder));
  EXPECT_EQ(ActionsOf(file("checkpoint-", 8192), folder), ActionsOf(last, folder));
  const std::vector<std::filesystem::path> checkpoints = ListCheckpoints(path());
  ASSERT_EQ(checkpoints.size(), 2u);
  EXPECT_NE(ActionsOf(ReadPolicyFile(checkpoints[1]), folder), ActionsOf(last, folder));
}

// Around the best action, as far as the policy is unsure; by its normaliser too.
TEST_F(TrainedPolicyTest, ExploresAsItDidWhileItLearned) {
  TrainSmall("ppo");
  const RunFolder folder = RunFolder::Open(path());
  const PolicyFiles files = ReadPolicy(folder, Which::kLast);
  const std::unique_ptr<RunSettings> settings = ReadRunSettings(folder);
  ResolveToAct(files, *settings);
  TrainedPolicy policy(*settings, files);
  const std::vector<float> obs = {0.5f, 0.5f, -1.0f};
  float best = 0;
  policy.algorithm().Act(obs, nullptr, 1, {&best, 1});
  const std::vector<float> actions = Explored(policy, obs, 4000);
  double mean = 0, square = 0;
  for (const float action : actions) mean += action / 4000, square += action * action / 4000;
  const double deviation = std::sqrt(square - mean * mean);
  EXPECT_GT(deviation, 0.3);
  EXPECT_NEAR(mean, best, 5 * deviation / std::sqrt(4000));
  EXPECT_EQ(Explored(policy, obs, 4000), actions);
}

TEST_F(TrainedPolicyTest, FilesWithoutADescriptionAskTheEnvironment) {
  TrainSmall("a2c");
  const RunFolder folder = RunFolder::Open(path());
  PolicyFiles files = ReadPolicy(folder, Which::kLast);
  const std::vector<float> actions = ActionsOf(files, folder);
  std::string early = files.checkpoint->Encode();
  early.replace(early.find("spec/obs_shape"), 4, "none");
  files.checkpoint = StateReader(early);
  entries = 0;
  EXPECT_EQ(ActionsOf(files, folder), actions);
  EXPECT_EQ(entries, 1);
}

}  // namespace
}  // namespace trireme
