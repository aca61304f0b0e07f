// Every kind of space, through every algorithm that can drive it: trained, evaluated, saved, resumed.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "trireme/base/scratch_folder.h"
#include "trireme/env/registry.h"
#include "trireme/env/test_env.h"
#include "trireme/env/test_spaces.h"
#include "trireme/train/test_stop.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

const std::vector<EnvEntry>& Spaces() {
  static const std::vector<EnvEntry> all = AllSpaces();
  return all;
}

class SpacesTest : public testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    for (const EnvEntry& env : Spaces()) AddEnv(env);
  }
  void SetUp() override { AnySpacesBatch::taken = AnySpacesBatch::wrong = 0; }

  const EnvSpec& spec() const { return Spaces()[GetParam()].spec; }

  std::unique_ptr<RunSettings> Settings(const std::string& algo, const char* store, int workers) const {
    auto settings = std::make_unique<RunSettings>(spec().name, algo, store);
    std::vector<std::string> all = {"hidden=[8]", "envs=16", "eval_episodes=20",
                                    fmt::format("workers={}", workers)};
    if (algo == "ppo") all.insert(all.end(), {"steps=768", "horizon=16", "epochs=2"});
    if (algo == "a2c") all.insert(all.end(), {"steps=640", "horizon=5", "rounds=4"});
    if (algo == "dqn")
      all.insert(all.end(), {"steps=384", "horizon=1", "rounds=8", "n_step=3", "learning_starts=64",
                             "replay=256", "dueling=true"});
    for (const std::string& a : all) settings->fields.ApplyAssignment(a, "test");
    settings->Resolve();
    return settings;
  }
  RunFolder Folder(const RunSettings& settings) const {
    fs::remove_all(root_.path() / "run");
    return RunFolder::Create((root_.path() / "run").string(), "", settings.fields.ToToml());
  }

  // Stopped after its first iteration and gone on with as many workers again: what an undisturbed run computes.
  void ExpectSameBits(const std::string& algo) const {
    const auto settings = Settings(algo, "allreduce", 1);
    const RunFacts whole = Train(*settings, Folder(*settings), {.json = true}).facts;
    EXPECT_TRUE(std::isfinite(whole.eval_return_mean));
    const auto first = Settings(algo, "allreduce", 2), then = Settings(algo, "allreduce", 4);
    const RunFolder folder = Folder(*first);
    const RunFacts begun = TrainOneIteration(*first, folder).facts;
    EXPECT_LT(begun.steps, whole.steps);
    const RunFacts resumed = Train(*then, folder, {.json = true}).facts;
    EXPECT_NE(begun.params_sha256, whole.params_sha256);
    EXPECT_EQ(resumed.params_sha256, whole.params_sha256);
    EXPECT_EQ(resumed.eval_return_mean, whole.eval_return_mean);
    const RunFacts evaluated = EvaluateRun(*then, folder, Which::kLast, 20, then->run.seed).value();
    EXPECT_EQ(evaluated.eval_return_mean, whole.eval_return_mean);
  }

  void ExpectTrainsOnItsOwn(const std::string& algo) const {
    const auto settings = Settings(algo, "shared", 2);
    const RunFolder folder = Folder(*settings);
    const std::int64_t steps = Train(*settings, folder, {.json = true}).facts.steps;
    settings->fields.ApplyAssignment(fmt::format("steps={}", steps + 500), "test");
    const RunFacts facts = Train(*settings, folder, {.json = true}).facts;
    EXPECT_GE(facts.steps, steps + 500);
    EXPECT_TRUE(std::isfinite(facts.eval_return_mean));
  }

  ScratchFolder root_;
};
INSTANTIATE_TEST_SUITE_P(All, SpacesTest, testing::Range(0, static_cast<int>(Spaces().size())),
                         [](const auto& info) {
                           const std::string name = Spaces()[info.param].spec.name;
                           return name.substr(name.find('.') + 1, name.rfind('-') - name.find('.') - 1);
                         });

TEST_P(SpacesTest, IsDrivenByEveryAlgorithmThatCan) {
  for (const std::string algo : {"ppo", "a2c", "dqn"}) {
    SCOPED_TRACE(algo);
    if (algo == "dqn" && !spec().action.discrete()) {
      try {
        Settings(algo, "allreduce", 1);
        ADD_FAILURE() << "not refused";
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()),
                  fmt::format("{} has {} actions, which dqn cannot drive; these can: ppo, a2c, impala, appo",
                              spec().name, spec().action.box() ? "continuous" : "multi-discrete"));
      }
      continue;
    }
    ExpectSameBits(algo);
    if (algo != "ppo") ExpectTrainsOnItsOwn(algo);
  }
  EXPECT_GT(AnySpacesBatch::taken, 2000);
  EXPECT_EQ(AnySpacesBatch::wrong, 0);
}

// Allows nothing any more: while training, in evaluations, or where an episode was cut off.
enum class Closed { kTraining, kEvaluation, kCutOff };
class ClosedBatch final : public ForwardingBatch {
 public:
  ClosedBatch(std::unique_ptr<EnvBatch> inner, EnvSpec spec, Closed closed)
      : ForwardingBatch(std::move(inner), std::move(spec)), closed_(closed), none_(inner_->masks().size()) {}
  void Reset(std::uint64_t seed, Purpose purpose, std::uint32_t first_id) override {
    inner_->Reset(seed, purpose, first_id);
    purpose_ = purpose;
    steps_ = 0;
  }
  void StepEnd() override {
    inner_->StepEnd();
    ++steps_;
  }
  std::span<const std::uint8_t> masks() const override {
    const Purpose open = closed_ == Closed::kTraining ? Purpose::kEvalReset : Purpose::kEnvReset;
    return closed_ == Closed::kCutOff || purpose_ == open || steps_ < 3 ? inner_->masks() : none_;
  }
  std::span<const std::uint8_t> final_masks() const override {
    return closed_ == Closed::kCutOff ? none_ : inner_->final_masks();
  }

 private:
  Closed closed_;
  std::vector<std::uint8_t> none_;
  Purpose purpose_ = Purpose::kEnvReset;
  int steps_ = 0;
};

TEST(Spaces, AMaskThatAllowsNothingEndsTheRun) {
  for (const auto& [closed, algo] : {std::pair{Closed::kTraining, "ppo"},
                                     {Closed::kTraining, "dqn"},
                                     {Closed::kEvaluation, "ppo"},
                                     {Closed::kCutOff, "dqn"}}) {
    EnvEntry env = AnySpacesEntry(fmt::format("SpacesTest.Closed-v{}{}", static_cast<int>(closed), algo),
                                  {{3}}, ActionSpace::MultiDiscrete({1, 2}), true);
    if (algo == std::string("dqn")) env.spec.action = ActionSpace::Discrete(2);
    env.facts.snapshots = false;
    env.make = [spec = env.spec, closed = closed](int size) {
      return std::make_unique<ClosedBatch>(std::make_unique<AnySpacesBatch>(size, spec), spec, closed);
    };
    AddEnv(env);
    RunSettings settings(env.spec.name, algo, "allreduce");
    for (const char* a : {"steps=4096", "envs=16", "hidden=[8]", "eval_episodes=8", "workers=2"}) {
      settings.fields.ApplyAssignment(a, "test");
    }
    settings.Resolve();
    try {
      SilentObserver observer;
      Train(settings, observer);
      ADD_FAILURE() << env.spec.name << " trained on";
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_TRUE(said.starts_with(env.spec.name + " is not what it says it is: the mask of copy ")) << said;
      const char* what = algo == std::string("dqn") ? " allows no choice. " : " allows no choice of part 0. ";
      EXPECT_NE(said.find(what), std::string::npos) << said;
    }
  }
}

}  // namespace
}  // namespace trireme
