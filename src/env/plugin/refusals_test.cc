// Plug-ins that break the rules are refused by name: tables, descriptions, and what is written in resets and steps.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/env/conformance.h"
#include "trireme/env/plugin/library.h"
#include "trireme/env/plugin/plugin_batch.h"
#include "trireme/env/plugin/plugin_test_util.h"

namespace trireme {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ---- Tables that are not whole

class Table : public testing::Test {
 protected:
  std::string Refusal() {
    return MessageOf([&] { CheckPlugin(&plugin_, kName); });
  }

  trireme_env env_ = walk;
  const trireme_env* envs_[2] = {&env_, &env_};
  trireme_plugin plugin_ = {
      TRIREME_PLUGIN_VERSION, sizeof(trireme_plugin), sizeof(trireme_env), sizeof(trireme_spec), envs_, 2, 0};
};

TEST_F(Table, AWholeOneIsTaken) { EXPECT_EQ(CheckPlugin(&plugin_, kName).size(), 2u); }

TEST_F(Table, OfAnotherVersionOrSizeIsRefused) {
  EXPECT_SAYS(MessageOf([] { CheckPlugin(nullptr, kName); }), "returns null");
  plugin_.version = 2;
  EXPECT_SAYS(Refusal(),
              "plugin:./libtest.so was made for version 2 of the plug-in interface, and this is version 1");
  plugin_.version = 1;
  plugin_.size -= 8;
  EXPECT_SAYS(Refusal(), "its trireme_plugin has");
  plugin_.size += 8;
  plugin_.env_size = 0;
  EXPECT_SAYS(Refusal(), "its trireme_env has 0 bytes");
  plugin_.env_size = sizeof(trireme_env);
  plugin_.spec_size = 0xFFFFFFFF;
  EXPECT_SAYS(Refusal(), "its trireme_spec has 4294967295 bytes");
}

TEST_F(Table, WithHolesIsRefused) {
  plugin_.env_count = 0;
  EXPECT_SAYS(Refusal(), "0 environments");
  plugin_.env_count = 4'000'000'000;
  EXPECT_SAYS(Refusal(), "4000000000 environments");
  plugin_.env_count = 2;
  plugin_.envs = nullptr;
  EXPECT_SAYS(Refusal(), "does not show them");
  plugin_.envs = envs_;
  envs_[1] = nullptr;
  EXPECT_SAYS(Refusal(), "one of its environments is null");
  envs_[1] = &env_;
  for (const char* name : {static_cast<const char*>(nullptr), "", "a:b", "a/b", "\x1b[2J"}) {
    env_.name = name;
    EXPECT_SAYS(Refusal(), "the name of an environment is");
  }
  env_.name = "Walk-v0";
  env_.help = nullptr;
  EXPECT_SAYS(Refusal(), "Walk-v0 has no help");
}

TEST_F(Table, WithoutAFunctionIsRefused) {
  const auto refusal = [&](auto trireme_env::*member) {
    env_ = walk;
    env_.*member = nullptr;
    return Refusal();
  };
  EXPECT_SAYS(refusal(&trireme_env::describe), "has no function describe");
  EXPECT_SAYS(refusal(&trireme_env::create), "has no function create");
  EXPECT_SAYS(refusal(&trireme_env::destroy), "has no function destroy");
  EXPECT_SAYS(refusal(&trireme_env::reset), "has no function reset");
  EXPECT_SAYS(refusal(&trireme_env::step), "has no function step");
  EXPECT_SAYS(refusal(&trireme_env::save), "all or none");
}

TEST_F(Table, WithOptionsThatAreNoneIsRefused) {
  trireme_option option = kWalkOptions[0];
  env_.options = &option;
  env_.option_count = 1;
  EXPECT_EQ(Refusal(), "no error");
  option.type = 4;
  EXPECT_SAYS(Refusal(), "unknown type 4");
  option.type = TRIREME_TEXT;
  EXPECT_SAYS(Refusal(), "without a default");
  option = kWalkOptions[0];
  option.default_number = 1;
  EXPECT_SAYS(Refusal(), "out of its range");
  option.default_number = kNan;
  EXPECT_SAYS(Refusal(), "out of its range");
  option.key = "Two Words";
  EXPECT_SAYS(Refusal(), "Two Words");
  env_.options = nullptr;
  EXPECT_SAYS(Refusal(), "says that it has 1 options");
  env_.option_count = 0xFFFFFFFF;
  EXPECT_SAYS(Refusal(), "says that it has 4294967295 options");
}

// ---- Lies about sizes

class Description : public testing::Test {
 protected:
  std::string Refusal(void (*change)(trireme_spec*)) {
    static void (*lie)(trireme_spec*);
    lie = change;
    trireme_env env = walk;
    env.describe = [](const trireme_value* options, trireme_spec* spec) -> const char* {
      walk_describe(options, spec);
      lie(spec);
      return nullptr;
    };
    return MessageOf([&] { PluginEntry(env, {}, kName); });
  }
};

TEST_F(Description, OfNoEnvironmentIsRefused) {
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->obs_shape[1] = -3; }), "its observation has no elements");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->obs_shape[1] = 0; }), "its observation has no elements");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->obs_shape[0] = s->obs_shape[1] = 2'000'000'000; }),
              "more than 2^28");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->obs_dims = 0; }), "0 dimensions");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->obs_dims = 1'000'000; }), "1000000 dimensions");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->obs_type = 7; }), "unknown type 7");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->action_type = -1; }), "unknown type -1");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->action_size = -1; }), "actions have -1 numbers");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->action_size = 257; }), "actions have 257 numbers");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->choices[1] = 0; }), "choices");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->max_episode_steps = -1; }), "time limit is negative");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { trireme_box(s, 2, 1, 1); }), "lower bound");
  EXPECT_SAYS(Refusal([](trireme_spec* s) { s->reward_threshold = INFINITY; }), "not finite");
}

// ---- Steps that break the rules

using Fault = std::function<const char*(const trireme_buffers&)>;

// Observations of two floats, masks of three choices. All is well until the third step, when `fault` happens.
struct Faulty {
  static inline Fault fault;
  static inline const char* in = "step";

  static trireme_env Env() {
    trireme_env env = {};
    env.name = "Faulty-v0";
    env.help = "breaks";
    env.describe = [](const trireme_value*, trireme_spec* spec) -> const char* {
      trireme_obs_floats(spec, 2);
      trireme_discrete(spec, 3);
      spec->masks = 1;
      return nullptr;
    };
    env.create = [](const trireme_value*, uint32_t copies, void** batch) -> const char* {
      *batch = new Faulty{.copies = copies};
      return nullptr;
    };
    env.destroy = [](void* batch) { delete static_cast<Faulty*>(batch); };
    env.reset = [](void* batch, uint32_t, const uint32_t*, const trireme_random*, const trireme_buffers* to) {
      static_cast<Faulty*>(batch)->Write(*to);
      return std::strcmp(in, "reset") == 0 ? fault(*to) : nullptr;
    };
    env.step = [](void* batch, const float*, const trireme_buffers* to) -> const char* {
      Faulty& self = *static_cast<Faulty*>(batch);
      self.Write(*to);
      return ++self.steps < 3 ? nullptr : fault(*to);
    };
    env.state_bytes = [](void*) { return uint64_t{16}; };
    env.save = [](void*, void* to) -> const char* {
      std::memset(to, 1, 17);
      return nullptr;
    };
    env.load = [](void*, const void*, uint64_t) -> const char* { return "never"; };
    return env;
  }
  void Write(const trireme_buffers& to) const {
    for (uint32_t i = 0; i < 2 * copies; ++i) static_cast<float*>(to.obs)[i] = 0.5f;
    std::memset(to.masks, 1, 3 * copies);
  }
  uint32_t copies;
  int steps = 0;
};

constexpr int kCopies = 5;

std::string FaultInStep(const Fault& fault) {
  Faulty::fault = fault;
  Faulty::in = "step";
  const auto batch = MakeReset(PluginEntry(Faulty::Env(), {}, kName), kCopies);
  std::string message;
  for (int t = 0; t < 2; ++t) batch->Step(std::vector<float>(kCopies));
  return MessageOf([&] { batch->Step(std::vector<float>(kCopies)); });
}
std::string FaultInStep(const std::function<void(const trireme_buffers&)>& fault) {
  return FaultInStep(Fault([&](const trireme_buffers& to) -> const char* {
    fault(to);
    return nullptr;
  }));
}

float* Obs(const trireme_buffers& to) { return static_cast<float*>(to.obs); }

TEST(Step, ThatKeepsTheRulesIsTaken) {
  EXPECT_EQ(FaultInStep([](const trireme_buffers&) {}), "no error");
}

TEST(Step, WithNumbersThatAreNoneIsRefused) {
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { Obs(to)[7] = kNan; }),
              "plugin:./libtest.so breaks the rules in step 3: number 1 of the observation of copy 3 is nan");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { Obs(to)[0] = -INFINITY; }),
              "number 0 of the observation");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.rewards[4] = kNan; }),
              "the reward of copy 4 is nan");
}

TEST(Step, WithStrangeFlagsIsRefused) {
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.terminated[1] = 2; }),
              "flags of copy 1 are terminated 2");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.truncated[4] = 255; }), "truncated 255");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.terminated[2] = to.truncated[2] = 1; }),
              "terminated 1, truncated 1");
}

TEST(Step, WithStrangeMasksIsRefused) {
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.masks[14] = 3; }),
              "mask of copy 4 is not made of 0 and 1");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { std::memset(to.masks + 3, 0, 3); }),
              "mask of copy 1 allows none of 3 choices");
}

TEST(Step, ThatWritesBesideItsBuffersIsRefused) {
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { Obs(to)[2 * kCopies] = 1; }),
              "beside the obs of its 5 copies");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { Obs(to)[-1] = 1; }), "beside the obs");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.masks[3 * kCopies] = 1; }), "beside the masks");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.rewards[kCopies] = 1; }), "beside the rewards");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.terminated[kCopies] = 0; }),
              "beside the terminated");
  EXPECT_SAYS(FaultInStep([](const trireme_buffers& to) { to.truncated[kCopies + 40] = 0; }),
              "beside the truncated");
}

TEST(Step, ThatWritesNothingIsRefused) {
  trireme_env env = Faulty::Env();
  env.step = [](void*, const float*, const trireme_buffers*) -> const char* { return nullptr; };
  Faulty::in = "step";
  const auto batch = MakeReset(PluginEntry(env, {}, kName), 2);
  EXPECT_SAYS(MessageOf([&] { batch->Step(std::vector<float>(2)); }), "was not written");
}

TEST(Step, ThatFailsIsToldInItsOwnWords) {
  EXPECT_EQ(FaultInStep(Fault([](const trireme_buffers&) { return "no more\x1b[2J"; })),
            "plugin:./libtest.so failed in step: no more\\x1b[2J");
  EXPECT_EQ(
      FaultInStep(Fault([](const trireme_buffers&) -> const char* { throw std::runtime_error("broken"); })),
      "plugin:./libtest.so failed in step: it threw broken");
  EXPECT_SAYS(FaultInStep(Fault([](const trireme_buffers&) -> const char* { throw 7; })),
              "no std::exception");
}

TEST(Step, LeavesRoundingAsItWas) {
  const unsigned before = _mm_getcsr();
  EXPECT_EQ(FaultInStep([](const trireme_buffers&) { _mm_setcsr(_mm_getcsr() | 0x8040); }), "no error");
  EXPECT_EQ(_mm_getcsr() & 0xFFC0, before & 0xFFC0);
}

TEST(ResetOfAPlugin, IsHeldToTheSameRules) {
  const auto refusal = [](const Fault& fault) {
    Faulty::fault = fault;
    Faulty::in = "reset";
    return MessageOf([] { MakeReset(PluginEntry(Faulty::Env(), {}, kName), kCopies); });
  };
  EXPECT_SAYS(refusal([](const trireme_buffers& to) -> const char* {
                Obs(to)[2] = kNan;
                return nullptr;
              }),
              "breaks the rules in reset: number 0 of the observation of copy 1 is nan");
  EXPECT_SAYS(refusal([](const trireme_buffers& to) -> const char* {
                to.masks[-1] = 1;
                return nullptr;
              }),
              "beside the obs");
  EXPECT_SAYS(refusal([](const trireme_buffers& to) -> const char* {
                return to.rewards == nullptr && to.terminated == nullptr && to.truncated == nullptr
                           ? "as it should be"
                           : "";
              }),
              "failed in reset: as it should be");
}

TEST(CreateOfAPlugin, MustMakeABatch) {
  trireme_env env = Faulty::Env();
  env.create = [](const trireme_value*, uint32_t, void**) -> const char* { return nullptr; };
  EXPECT_SAYS(MessageOf([&] { PluginEntry(env, {}, kName).make(2); }), "made no batch");
  env.create = [](const trireme_value*, uint32_t, void**) -> const char* { return "no licence"; };
  EXPECT_SAYS(MessageOf([&] { PluginEntry(env, {}, kName).make(2); }), "failed in create: no licence");
}

TEST(SnapshotOfAPlugin, MayNotBeLongerThanItSays) {
  Faulty::in = "step";
  trireme_env env = Faulty::Env();
  const auto batch = MakeReset(PluginEntry(env, {}, kName), 2);
  StateWriter out;
  EXPECT_SAYS(MessageOf([&] { batch->snapshots()->Save(out, "a"); }), "more than the 16 bytes");
  env.save = [](void*, void*) -> const char* { return nullptr; };
  const auto other = MakeReset(PluginEntry(env, {}, kName), 2);
  other->snapshots()->Save(out, "b");
  EXPECT_SAYS(MessageOf([&] { other->snapshots()->Load(StateReader(out.Encode()), "b"); }),
              "failed in load: never");
  env.state_bytes = [](void*) { return ~uint64_t{0}; };
  const auto huge = MakeReset(PluginEntry(env, {}, kName), 2);
  EXPECT_SAYS(MessageOf([&] { huge->snapshots()->Save(out, "c"); }), "bytes of state");
}

}  // namespace
}  // namespace trireme
