#include "trireme/env/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <thread>

#include "trireme/env/batch.h"
#include "trireme/env/classic/cart_pole.h"
#include "trireme/env/classic/pendulum.h"
#include "trireme/env/conformance.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

template <class Act>
std::string ErrorOf(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A spec under another name, for what tests add: names stay taken until the program ends.
EnvEntry Renamed(EnvEntry entry, const std::string& name) {
  entry.spec.name = name;
  entry.make = [spec = entry.spec](int size) { return std::make_unique<SoaBatch<CartPole>>(size, spec); };
  entry.options = nullptr;
  return entry;
}

TEST(Registry, SuggestsTheNearestName) {
  EXPECT_EQ(FindEnv("CartPole-v1").spec.name, "CartPole-v1");
  const std::string error = ErrorOf([] { FindEnv("CartPole-v0"); });
  EXPECT_NE(error.find("Did you mean 'CartPole-v1'?"), std::string::npos) << error;
}

TEST(Registry, AddedEnvironmentsAreFound) {
  for (int i = 0; i < 100; ++i) {
    AddEnv(Renamed(SoaEntry<CartPole>(), "Registry.Added-v" + std::to_string(i)));
  }
  CheckEnv(FindEnv("Registry.Added-v7"));
  std::set<std::string> names;
  for (const EnvEntry& entry : AllEnvs()) names.insert(entry.spec.name);
  EXPECT_EQ(names.size(), AllEnvs().size());
  EXPECT_TRUE(names.contains("Registry.Added-v99"));
}

TEST(Registry, RefusesDuplicatesAndWhatIsNoEnvironment) {
  EXPECT_NE(ErrorOf([] { AddEnv(SoaEntry<CartPole>()); }).find("'CartPole-v1' already"), std::string::npos);
  const auto refused = [](auto&& spoil) {
    EnvEntry entry = Renamed(SoaEntry<CartPole>(), "Registry.Bad-v0");
    spoil(entry.spec);
    return ErrorOf([&] { AddEnv(entry); });
  };
  const auto expect = [](const std::string& error, const char* part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect(refused([](EnvSpec& spec) { spec.name = ""; }), "no name");
  expect(refused([](EnvSpec& spec) { spec.obs.shape = {}; }), "no elements");
  expect(refused([](EnvSpec& spec) { spec.obs.shape = {84, 0, 4}; }), "no elements");
  expect(refused([](EnvSpec& spec) { spec.obs.shape = {1 << 20, 1 << 20}; }), "2^28");
  // Their sum has no room in 32 bits.
  expect(refused([](EnvSpec& spec) {
           spec.action = ActionSpace::MultiDiscrete(std::vector<int>(4097, 1 << 20));
         }),
         "more than 2^28 choices");
  expect(refused([](EnvSpec& spec) { spec.action = ActionSpace::Discrete(0); }), "from 1 to 2^20 choices");
  expect(refused([](EnvSpec& spec) { spec.action = ActionSpace::Discrete((1 << 20) + 1); }),
         "from 1 to 2^20 choices");
  expect(refused([](EnvSpec& spec) { spec.action = ActionSpace::MultiDiscrete({}); }), "each part");
  expect(refused([](EnvSpec& spec) { spec.action.parts = {2, 3}; }), "one number of choices");
  expect(refused([](EnvSpec& spec) { spec.action = ActionSpace::Box(0, 0, 1); }), "two bounds");
  expect(refused([](EnvSpec& spec) { spec.action = ActionSpace::Box({0, 0}, {1}); }), "two bounds");
  expect(refused([](EnvSpec& spec) { spec.action = ActionSpace::Box(2, 1, 1); }), "not below");
  expect(refused([](EnvSpec& spec) {
           spec.action = ActionSpace::Box(1, 0, 1);
           spec.masks = true;
         }),
         "masks are for choices");
  expect(refused([](EnvSpec& spec) { spec.max_episode_steps = -1; }), "time limit");
  expect(refused([](EnvSpec& spec) { spec.reward_threshold = std::nan(""); }), "not finite");
}

// Environments test:1, test:2, ...: CartPole with that many steps.
class TestOptions final : public EnvOptions {
 public:
  explicit TestOptions(const std::string& name) : name_(name) {
    if (name.empty() || name.find_first_not_of("123456789") != std::string::npos) {
      Fail("test: has the environments 1, 2, 3, ..., not '{}'", name);
    }
  }
  void Fields(ConfigFields&) override {}
  EnvEntry Entry(const EnvArgs&) const override {
    return Renamed(SoaEntry<CartPole>(std::stoi(name_)), "test:" + name_);
  }

 private:
  std::string name_;
};

template <class Options>
std::unique_ptr<EnvOptions> Make(const std::string& name) {
  return std::make_unique<Options>(name);
}

TEST(Registry, ASourceFindsWhatBeginsWithItsPrefix) {
  const std::string nobody = ErrorOf([] { FindEnv("nobody:CartPole"); });
  EXPECT_NE(nobody.find("no source claims 'nobody:'"), std::string::npos) << nobody;

  AddEnvSource({.prefix = "test:", .help = "CartPole, so many steps long", .options = Make<TestOptions>});
  const EnvEntry env = FindEnv("test:12");
  EXPECT_EQ(env.spec.name, "test:12");
  EXPECT_EQ(env.spec.max_episode_steps, 12);
  CheckEnv(env);
  EXPECT_NE(ErrorOf([] { FindEnv("test:x"); }).find("1, 2, 3"), std::string::npos);
  const std::string other = ErrorOf([] { FindEnv("nobody:CartPole"); });
  EXPECT_NE(other.find("gym: py: test:"), std::string::npos) << other;

  const auto claim = [](const std::string& prefix) {
    return ErrorOf([&] { AddEnvSource({.prefix = prefix, .help = "", .options = Make<TestOptions>}); });
  };
  EXPECT_NE(claim("test:").find("claimed"), std::string::npos);
  for (const char* prefix : {"", ":", "test", "a:b", "a:b:"}) {
    EXPECT_NE(claim(prefix).find("no prefix"), std::string::npos);
  }
  AddEnvSource({.prefix = "liar:", .help = "", .options = [](const std::string&) {
                  return std::make_unique<SoaOptions<Pendulum>>(200);
                }});
  EXPECT_NE(ErrorOf([] { FindEnv("liar:x"); }).find("'Pendulum-v1' was found where 'liar:x'"),
            std::string::npos);
}

TEST(Registry, ManyThreadsAddAndFind) {
  AddEnvSource({.prefix = "threads:", .help = "", .options = [](const std::string&) {
                  return std::make_unique<SoaOptions<CartPole>>(500);
                }});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int n = 0; n < 50; ++n) {
        const std::string name = fmt::format("Registry.Thread{}-v{}", i, n);
        AddEnv(Renamed(SoaEntry<CartPole>(), name));
        EXPECT_EQ(FindEnv(name).spec.name, name);
        EXPECT_NE(FindEnvOptions("threads:same"), nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Registry, WhatAnEnvironmentIsMayDependOnItsArguments) {
  AddEnvSource(HostedSource());
  const auto options = FindEnvOptions("host:a");  // though what it needs is missing
  EXPECT_EQ(ErrorOf([] { FindEnv("host:a"); }), "host:a needs --env-arg steps=N");
  EXPECT_EQ(HostedOptions::started, 0);
  const EnvArgs args = {{"steps", std::int64_t{7}}, {"Wind-Power", 1.5}};
  {
    ConfigFields fields;
    fields.Add(*options);
    fields.Set("hosts", "3", "");
    const EnvEntry env = FindEnv("host:a", *options, args);
    EXPECT_EQ(HostedOptions::started, 1);
    EXPECT_EQ(env.spec.max_episode_steps, 7);
    EXPECT_EQ(env.spec.help, "3 hosts");
    ASSERT_FALSE(HostedOptions::last.expired());
    EXPECT_EQ(*HostedOptions::last.lock(), args);
  }
  EXPECT_TRUE(HostedOptions::last.expired()) << "its host outlives the last entry";
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(FindEnv("host:b", Pairs{{"hosts", "2"}}, args).spec.help, "2 hosts");
  for (const EnvSource& source : AllEnvSources()) {
    if (source.prefix != "host:") continue;
    ASSERT_TRUE(source.list);
    EXPECT_EQ(source.list()[1].name, "host:b");
  }
}

TEST(Registry, ArgumentsAreForWhomTakesThem) {
  const EnvArgs args = {{"gravity", 9.8}};
  EXPECT_EQ(ErrorOf([&] { FindEnv("CartPole-v1", {}, args); }),
            "CartPole-v1 takes no --env-arg, so gravity=9.8 cannot be given; its options are --set "
            "env_max_steps=VALUE");
  AddEnv(Renamed(SoaEntry<CartPole>(), "Args.None-v0"));
  EXPECT_EQ(ErrorOf([&] { FindEnv("Args.None-v0", {}, args); }),
            "Args.None-v0 takes no --env-arg, so gravity=9.8 cannot be given; its options are none");
}

TEST(Options, ChangeTheEnvironmentAndRefuseUnknownNames) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const EnvEntry shorter = FindEnv("CartPole-v1", Pairs{{"max_steps", "20"}});
  EXPECT_EQ(shorter.spec.max_episode_steps, 20);
  EXPECT_EQ(shorter.spec.name, "CartPole-v1");
  CheckEnv(shorter);
  EXPECT_EQ(FindEnv("CartPole-v1", Pairs{}).spec.max_episode_steps, 500);
  const std::string unknown = ErrorOf([] { FindEnv("CartPole-v1", Pairs{{"max_step", "20"}}); });
  EXPECT_NE(unknown.find("Did you mean 'max_steps'?"), std::string::npos) << unknown;
  const std::string negative = ErrorOf([] { FindEnv("CartPole-v1", Pairs{{"max_steps", "-1"}}); });
  EXPECT_NE(negative.find("expected a whole number"), std::string::npos) << negative;
  AddEnv(Renamed(SoaEntry<CartPole>(), "Options.None-v0"));
  const std::string has_none = ErrorOf([] { FindEnv("Options.None-v0", Pairs{{"max_steps", "20"}}); });
  EXPECT_NE(has_none.find("has no options"), std::string::npos) << has_none;
}

TEST(Spec, SizesAndWords) {
  const ObsSpec image{{84, 84, 4}, ObsType::kUint8}, vector{{3}};
  EXPECT_EQ(image.size(), 84 * 84 * 4);
  EXPECT_EQ(image.bytes(), 84u * 84 * 4);
  EXPECT_EQ(vector.bytes(), 12u);
  const ActionSpace several = ActionSpace::MultiDiscrete({3, 2});
  EXPECT_EQ(several.size(), 2);
  EXPECT_EQ(several.choices(), 5);
  EXPECT_EQ(several.Describe(), "3 x 2 choices");
  EXPECT_EQ(ActionSpace::Box(2, -1, 1).Describe(), "2 continuous");
  const std::byte bytes[] = {std::byte{0}, std::byte{51}, std::byte{255}};
  float scaled[3];
  ObsToFloat({{3}, ObsType::kUint8}, bytes, 1, scaled);
  EXPECT_EQ(scaled[0], 0.0f);
  EXPECT_FLOAT_EQ(scaled[1], 0.2f);
  EXPECT_EQ(scaled[2], 1.0f);
}

TEST(Registry, RefusesFunctionsThatAreNull) {
  const auto expect = [](const std::string& error, const char* part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  EnvEntry entry = Renamed(SoaEntry<CartPole>(), "Registry.Null-v0");
  entry.make = nullptr;
  expect(ErrorOf([&] { AddEnv(entry); }), "'Registry.Null-v0' has no function that makes batches");
  expect(ErrorOf([] { AddEnvSource({.prefix = "null:", .help = "", .options = nullptr}); }),
         "the source of 'null:' has no function that finds environments");

  struct NullOptions final : EnvOptions {
    void Fields(ConfigFields&) override {}
    EnvEntry Entry(const EnvArgs&) const override {
      EnvEntry entry = Renamed(SoaEntry<CartPole>(), "nulls:make");
      entry.make = nullptr;
      return entry;
    }
  };
  AddEnvSource({.prefix = "nulls:", .help = "", .options = [](const std::string& name) {
                  return name == "make" ? std::make_unique<NullOptions>() : nullptr;
                }});
  expect(ErrorOf([] { FindEnv("nulls:make"); }), "'nulls:make' has no function that makes batches");
  expect(ErrorOf([] { FindEnv("nulls:options"); }), "'nulls:options' gives no options");
}

}  // namespace
}  // namespace trireme
