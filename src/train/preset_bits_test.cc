// Every preset computes what it has always computed: its parameters after some ten thousand steps, by their hash.
// Whoever changes the bits of a preset on purpose writes the new hashes here and says so in CHANGELOG.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/base/simd.h"
#include "trireme/base/system.h"
#include "trireme/train/presets.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

struct PresetBits {
  std::string_view env, algo, store;
  std::string_view hash;  // the beginning of params_sha256

  // As files are named.
  std::string Name() const {
    return fmt::format("{}.{}{}{}", env, algo, store == "allreduce" ? "" : ".",
                       store == "allreduce" ? "" : store);
  }
};

void PrintTo(const PresetBits& preset, std::ostream* out) { *out << preset.Name(); }

constexpr PresetBits kBits[] = {
    {"Acrobot-v1", "a2c", "allreduce", "f99438d7785e7f5d"},
    {"Acrobot-v1", "apex", "allreduce", "90c1042c01c1613d"},
    {"Acrobot-v1", "appo", "allreduce", "eb19f86d1d5e282d"},
    {"Acrobot-v1", "dqn", "allreduce", "b517e1fb7787da8e"},
    {"Acrobot-v1", "impala", "allreduce", "0e394958525b566f"},
    {"Acrobot-v1", "ppo", "allreduce", "45f1d9d5d31e539d"},
    {"CartPole-v1", "a2c", "shared", "cf3808444a66ebdb"},
    {"CartPole-v1", "a2c", "allreduce", "510027a2de17585d"},
    {"CartPole-v1", "apex", "allreduce", "a13dc1ad66d9e707"},
    {"CartPole-v1", "appo", "allreduce", "29f9f3bced8be412"},
    {"CartPole-v1", "dqn", "shared", "1a839f7cd42640d6"},
    {"CartPole-v1", "dqn", "allreduce", "933771e43fc2fdb9"},
    {"CartPole-v1", "impala", "allreduce", "a44c200fa9afacdc"},
    {"CartPole-v1", "ppo", "allreduce", "4b68672b85958266"},
    {"MountainCar-v0", "dqn", "allreduce", "5f9220170669e0d5"},
    {"MountainCarContinuous-v0", "ppo", "allreduce", "6d586f8ed83fbc4b"},
    {"Pendulum-v1", "ppo", "allreduce", "f27457e148f10c30"},
};

std::string HashAfterTraining(const PresetBits& preset) {
  RunSettings settings{std::string(preset.env), std::string(preset.algo), std::string(preset.store)};
  for (const char* assignment : {"workers=1", "steps=20000", "seed=7", "eval_every=0", "eval_episodes=1"}) {
    settings.fields.ApplyAssignment(assignment, "test");
  }
  settings.Resolve();
  const ScratchFolder scratch;
  const RunFolder folder = RunFolder::Create(scratch.path() / "run", "", settings.fields.ToToml());
  const TrainResult result = Train(settings, folder, {.json = true});
  return result.facts.params_sha256.substr(0, preset.hash.size());
}

// But for those of Gymnasium's environments, whose bits are not ours to keep.
TEST(PresetBitsTest, EveryPresetIsListed) {
  std::vector<std::string> ours;
  for (const Preset& preset : AllPresets()) {
    if (!preset.name.starts_with("gym-")) ours.push_back(preset.name);
  }
  ASSERT_EQ(std::size(kBits), ours.size());
  for (std::size_t i = 0; i < std::size(kBits); ++i) EXPECT_EQ(kBits[i].Name(), ours[i]);
}

class PresetTraining : public testing::TestWithParam<std::tuple<Isa, PresetBits>> {
 protected:
  void TearDown() override { OverrideIsa(Isa::kAvx512); }
};

TEST_P(PresetTraining, KeepsItsBits) {
#ifndef TRIREME_RELEASE
  GTEST_SKIP() << "compiled with other options than a release, which may fuse and round otherwise";
#endif
  const auto& [isa, preset] = GetParam();
  OverrideIsa(isa);
  if (CurrentIsa() != isa) GTEST_SKIP() << "this processor has no " << IsaName(isa);
  EXPECT_EQ(HashAfterTraining(preset), preset.hash);
}

std::string NameOf(const testing::TestParamInfo<std::tuple<Isa, PresetBits>>& info) {
  const auto& [isa, preset] = info.param;
  std::string name = fmt::format("{}_{}", IsaName(isa), preset.Name());
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Presets, PresetTraining,
                         testing::Combine(testing::Values(Isa::kAvx2, Isa::kAvx512),
                                          testing::ValuesIn(kBits)),
                         NameOf);

}  // namespace
}  // namespace trireme
