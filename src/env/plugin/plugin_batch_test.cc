// Plug-ins that keep the rules pass the kit of every environment.
#include "trireme/env/plugin/plugin_batch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/env/conformance.h"
#include "trireme/env/plugin/library.h"
#include "trireme/env/plugin/option_pointers.h"
#include "trireme/env/plugin/plugin_test_util.h"

namespace trireme {
namespace {

// A class with state that is not plain bytes.
class Swing {
 public:
  static void Describe(const trireme_value*, trireme_spec& spec) {
    trireme_obs_floats(&spec, 2);
    trireme_box(&spec, 2, -1, 1);
    spec.max_episode_steps = 40;
    spec.reward_threshold = 3;
  }
  explicit Swing(const trireme_value*) {}
  void Reset(trireme_copy& copy) {
    history_.assign(1, trireme_normal(copy.random));
    Show(copy);
  }
  void Step(trireme_copy& copy) {
    history_.push_back(0.9 * history_.back() + copy.action[0] - 0.5 * copy.action[1]);
    if (history_.back() > 100) throw std::runtime_error("too high");
    copy.reward = static_cast<float>(-std::abs(history_.back()));
    Show(copy);
  }

 private:
  void Show(trireme_copy& copy) const {
    copy.obs[0] = static_cast<float>(history_.back());
    copy.obs[1] = static_cast<float>(history_.size());
  }
  std::vector<double> history_;
};

struct Still {
  static void Describe(const trireme_value*, trireme_spec& spec) {
    trireme_obs_floats(&spec, 1);
    trireme_discrete(&spec, 2);
  }
  explicit Still(const trireme_value*) {}
  void Reset(trireme_copy& copy) { copy.obs[0] = static_cast<float>(value = trireme_uniform(copy.random)); }
  void Step(trireme_copy& copy) { copy.obs[0] = static_cast<float>(value); }
  double value = 0;
};

TEST(Plugin, WhatKeepsTheRulesPassesTheKit) {
  CheckEnv(PluginEntry(walk, {}, kName));
  CheckEnv(PluginEntry(walk, {{"back", true}, {"length", std::int64_t{3}}}, kName));
  const EnvEntry swing = PluginEntry(trireme_class_env<Swing>("Swing-v0", "swing"), {}, kName);
  EXPECT_FALSE(swing.facts.snapshots);
  CheckEnv(swing);
  const EnvEntry still = PluginEntry(trireme_class_env<Still>("Still-v0", "wait"), {}, kName, 20);
  EXPECT_TRUE(still.facts.snapshots);
  EXPECT_FALSE(still.spec.reward_threshold);
  EXPECT_EQ(still.spec.max_episode_steps, 20);
  CheckEnv(still);
}

// Plain bytes, with a pointer to an option, and one to its text.
struct Reader {
  static void Describe(const trireme_value*, trireme_spec& spec) {
    trireme_obs_floats(&spec, 1);
    trireme_discrete(&spec, 2);
  }
  explicit Reader(const trireme_value* options) : number(&options[1]), word(options[3].text + 2) {}
  void Reset(trireme_copy& copy) { copy.obs[0] = static_cast<float>(number->number); }
  void Step(trireme_copy& copy) { copy.obs[0] = static_cast<float>(word[0]); }
  const trireme_value* number;
  const char* word;
};

TEST(Plugin, SnapshotsFollowTheOptions) {
  const trireme_env env = trireme_class_env<Reader>("Reader-v0", "reads", kWalkOptions, 4);
  const EnvArgs args = {{"pay", 7.0}, {"word", std::string("a word that is longer than most are")}};
  StateWriter out;
  {
    const EnvEntry entry = PluginEntry(env, args, kName, 3);
    MakeReset(entry, 2)->snapshots()->Save(out, "env");
  }
  const StateReader saved(out.Encode());
  const auto read = [&](const EnvArgs& others) {
    const EnvEntry entry = PluginEntry(env, others, kName, 3);
    const auto batch = MakeReset(entry, 2);
    batch->snapshots()->Load(saved, "env");
    std::vector<float> seen;
    for (int t = 0; t < 4; ++t) {  // with a reset after the third
      batch->Step(std::vector<float>(2));
      seen.push_back(ObsRow(*batch, batch->obs(), 1)[0]);
    }
    return seen;
  };
  EXPECT_EQ(read(args), (std::vector<float>{'w', 'w', 7, 'w'}));
  // Those of now, wherever they lie.
  EXPECT_EQ(read({{"pay", 8.0}, {"word", std::string("xyz")}}), (std::vector<float>{'z', 'z', 8, 'z'}));
  EXPECT_SAYS(MessageOf([&] { read({{"word", std::string("x")}}); }), "options that are not there");
}

TEST(Plugin, NotesOfPointersThatDoNotFitAreRefused) {
  const PluginValues values(walk, {}, kName);
  std::vector<std::byte> state(16);
  const auto refusal = [&](const OptionPointer& pointer) {
    return MessageOf([&] { SetOptionPointers(values.all(), std::span(&pointer, 1), state); });
  };
  constexpr std::uint64_t kFar = ~std::uint64_t{0};
  for (const OptionPointer& pointer : {OptionPointer{9, 0, 0},
                                       {16, 0, 0},
                                       {kFar, 0, 0},
                                       {0, 5, 0},
                                       {0, kFar, 0},
                                       {0, 1, 0},
                                       {0, 4, 6},
                                       {0, 0, kFar}}) {
    EXPECT_SAYS(refusal(pointer), "options that are not there");
  }
  EXPECT_EQ(refusal({8, 4, 5}), "no error");
}

TEST(Plugin, StreamsAreThoseOfTrireme) {
  static std::vector<trireme_random> streams;
  static trireme_env env = trireme_class_env<Still>("Still-v0", "wait");
  env.reset = [](void*, uint32_t count, const uint32_t* copies, const trireme_random* given,
                 const trireme_buffers* to) -> const char* {
    streams.assign(given, given + count);
    for (uint32_t k = 0; k < count; ++k) static_cast<float*>(to->obs)[copies[k]] = 0;
    return nullptr;
  };
  const auto batch = MakeReset(PluginEntry(env, {}, kName, 3), 4, 9, 100);
  for (int t = 0; t < 3; ++t) batch->Step(std::vector<float>(4));  // episode 1 begins
  ASSERT_EQ(streams.size(), 4u);
  RandomStream expected(9, Purpose::kEnvReset, 102, 1);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(trireme_bits(&streams[2]), expected.NextBits());
    EXPECT_EQ(trireme_uniform(&streams[2]), expected.NextUniform());
    EXPECT_EQ(trireme_below(&streams[2], 7), expected.NextBelow(7));
    EXPECT_EQ(trireme_normal(&streams[2]), expected.NextNormal());
  }
}

TEST(PluginOptionsOfAnEnvironment, AreTypedAndNamed) {
  const PluginValues values(walk, {{"back", true}, {"pay", std::int64_t{2}}, {"word", std::string("a")}},
                            kName);
  EXPECT_EQ(values.data()[0].whole, 6);
  EXPECT_EQ(values.data()[0].number, 6.0);
  EXPECT_EQ(values.data()[1].number, 2.0);
  EXPECT_EQ(values.data()[2].whole, 1);
  EXPECT_STREQ(values.data()[3].text, "a");
  const auto refusal = [](const EnvArg& arg) { return MessageOf([&] { PluginValues(walk, {arg}, kName); }); };
  EXPECT_SAYS(refusal({"lenght", std::int64_t{3}}), "has no option 'lenght'. Did you mean 'length'?");
  EXPECT_SAYS(refusal({"length", std::int64_t{51}}), "length=51: expected a whole number from 2 to 50");
  EXPECT_SAYS(refusal({"length", 3.5}), "expected a whole number");
  EXPECT_SAYS(refusal({"pay", std::string("much")}), "pay=much: expected a number");
  EXPECT_SAYS(refusal({"back", std::int64_t{1}}), "expected true or false");
  EXPECT_SAYS(refusal({"word", std::monostate()}), "expected a text");
  EXPECT_SAYS(MessageOf([] {
                PluginEntry(walk, {{"word", std::string("bad")}}, kName);
              }),
              "failed in describe: bad is no word");
  EXPECT_SAYS(DescribeOptions(walk), "a whole number from 2 to 50");
}

TEST(CrashNotesOfPlugins, LeaveHandlersAsTheyWere) {
  const auto handler = [] {
    struct sigaction action = {};
    sigaction(SIGBUS, nullptr, &action);
    return action.sa_sigaction;
  };
  const auto before = handler();
  {
    const EnvEntry entry = PluginEntry(walk, {}, kName);
    const EnvEntry second = entry;
    EXPECT_NE(handler(), before);
  }
  EXPECT_EQ(handler(), before);
}

}  // namespace
}  // namespace trireme
