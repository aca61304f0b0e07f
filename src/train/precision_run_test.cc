// Runs with numbers of 16 bits: the same bits on any number of workers and across a resume, the loss scale included.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "trireme/nn/bf16_products.h"
#include "trireme/optim/loss_scale.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/test_runs.h"
#include "trireme/train/test_stop.h"

namespace trireme {
namespace {

struct Case {
  const char *algo, *precision, *experience;
};

class PrecisionRun : public RunsTest, public testing::WithParamInterface<Case> {
 protected:
  static std::unique_ptr<RunSettings> Settings(int workers, int steps, const Assignments& more = {}) {
    const Case& c = GetParam();
    Assignments all = {"hidden=[16]",
                       "eval_episodes=4",
                       "eval_every=0",
                       "envs=16",
                       "horizon=8",
                       fmt::format("precision={}", c.precision),
                       fmt::format("experience={}", c.experience),
                       fmt::format("workers={}", workers),
                       fmt::format("steps={}", steps)};
    if (std::string(c.algo) == "dqn") all.insert(all.end(), {"learning_starts=256", "rounds=2"});
    return SettingsOf("CartPole-v1", c.algo, "allreduce", {all, more});
  }
};

INSTANTIATE_TEST_SUITE_P(Cases, PrecisionRun,
                         testing::Values(Case{"ppo", "bf16", "fp32"}, Case{"ppo", "fp16", "bf16"},
                                         Case{"a2c", "fp16", "fp16"}, Case{"dqn", "bf16", "bf16"},
                                         Case{"dqn", "fp16", "fp32"}),
                         [](const auto& info) {
                           return fmt::format("{}_{}_{}", info.param.algo, info.param.precision,
                                              info.param.experience);
                         });

TEST_P(PrecisionRun, HasTheSameBitsForAnyWorkersAndAcrossAResume) {
  const auto whole = Settings(1, 4096), first = Settings(2, 4096), second = Settings(4, 4096);
  const std::string expected = Go(*whole, Folder("whole", *whole)).facts.params_sha256;
  const RunFolder folder = Folder("parts", *first);
  EXPECT_TRUE(TrainOneIteration(*first, folder).interrupted);
  const TrainResult end = Go(*second, folder);
  EXPECT_EQ(end.facts.params_sha256, expected);
  EXPECT_EQ(end.facts.precision, GetParam().precision);

  const auto plain = Settings(1, 4096, {"precision=fp32", "experience=fp32"});
  EXPECT_NE(Go(*plain, Folder("plain", *plain)).facts.params_sha256, expected) << "16 bits must be seen";
}

// What multiplies changes the time and nothing else.
TEST_P(PrecisionRun, HasTheSameBitsWithAnyProducts) {
  const auto settings = Settings(2, 2048, {"hidden=[64,64]"});
  const bool bf16 = std::string(GetParam().precision) == "bf16";
  const TrainResult best = Go(*settings, Folder("best", *settings));
  EXPECT_EQ(best.facts.products, NameOf(bf16 ? CurrentProducts() : Products::kFp32));
  OverrideProducts(Products::kFp32);
  const TrainResult plain = Go(*settings, Folder("plain", *settings));
  OverrideProducts(Products::kAvx512Bf16);
  EXPECT_EQ(plain.facts.products, "fp32");
  EXPECT_EQ(plain.facts.params_sha256, best.facts.params_sha256);
}

// A scale that is too large costs updates, which are counted, until it fits; a resume goes on with the one found.
TEST_P(PrecisionRun, ALossScaleFindsItsSize) {
  const auto settings = Settings(2, 4096, {"learning_rate=1e-3"});
  const RunFolder folder = Folder("run", *settings);
  Go(*settings, folder);
  const bool scaled = std::string(GetParam().precision) == "fp16";  // bf16 has the range of fp32
  double updates = 0, skipped = 0;
  for (const MetricRow& row : ReadJsonl(folder.metrics())) {
    ASSERT_EQ(std::isnan(row.Get("loss_scale")), !scaled);
    if (!scaled) continue;
    updates += row.Get("updates");
    skipped += row.Get("skipped_updates");
    EXPECT_GE(row.Get("loss_scale"), LossScale::kLeast);
  }
  if (!scaled) return;
  EXPECT_GT(updates, skipped);
  const float scale = ReadNewestCheckpoint(folder.path())
                          ->GetValue<float>(std::string(GetParam().algo) + "/loss_scale/scale");
  EXPECT_EQ(scale, LossScale::kFirst * std::exp2(-skipped)) << skipped;
}

using PrecisionSettings = RunsTest;

TEST_F(PrecisionSettings, WhatDoesNotFitIsRefused) {
  EXPECT_TRUE(Mentions(RefusalOf([] { SettingsOf("CartPole-v1", "ppo", "allreduce", {{"precision=fp8"}}); }),
                       "fp32, bf16, fp16"));
  EXPECT_TRUE(
      Mentions(RefusalOf([] {
                 SettingsOf("CartPole-v1", "ppo", "allreduce", {{"normalise_obs=true", "experience=bf16"}});
               }),
               "experience=fp32"));
}

TEST_F(PrecisionSettings, WhatChangesTheBitsAfterAResumeIsSaid) {
  const Assignments small = {"hidden=[8,8]", "eval_episodes=2", "eval_every=0",
                             "envs=8",       "horizon=8",       "minibatches=1"};
  struct Case {
    Assignments before, after;
    const char* line;  // null: nothing changes
  };
  const Case cases[] = {
      {{}, {"precision=bf16"}, "goes on with device fused in bf16 after fused:"},
      {{"model_parallel=tensor=2", "workers=2"},
       {"workers=2"},
       "goes on with device fused after fused, tensor=2:"},
      {{"local_steps=2", "workers=2"},
       {"workers=2"},
       "goes on with device fused after fused, local_steps=2:"},
      {{"workers=2"},
       {"local_steps=2", "workers=2"},
       "goes on with device fused, local_steps=2 after fused:"},
      {{"model_parallel=pipeline=2", "workers=2"}, {"workers=1"}, nullptr},
  };
  for (const Case& c : cases) {
    const auto first = SettingsOf("CartPole-v1", "ppo", "allreduce", {small, {"steps=512"}, c.before});
    const RunFolder folder = Folder(fmt::format("run-{}", &c - cases), *first);
    Go(*first, folder);
    const auto second = SettingsOf("CartPole-v1", "ppo", "allreduce", {small, {"steps=1024"}, c.after});
    testing::internal::CaptureStderr();
    Train(*second, folder, {.json = false});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(Mentions(said, "rounding differs"), c.line != nullptr) << said;
    if (c.line != nullptr) {
      EXPECT_TRUE(Mentions(said, c.line)) << said;
    }
  }
}

}  // namespace
}  // namespace trireme
