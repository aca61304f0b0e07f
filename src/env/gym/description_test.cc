#include "trireme/env/gym/description.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using nlohmann::json;

// What a host says of an environment with three numbers and two choices.
json Plain() {
  return {{"obs", {{"shape", {3}}, {"bytes", false}}},
          {"bounds", {{"low", {-1, -2, -3}}, {"high", {1, 2, 3}}}},
          {"action", {{"kind", "choices"}, {"single", true}, {"parts", {2}}}},
          {"masks", false},
          {"max_episode_steps", 20},
          {"reward_threshold", 9.5},
          {"help", "a test"},
          {"note", "as it is"},
          {"snapshots", true},
          {"reproducible", true},
          {"pictures_per_second", 12}};
}

std::string Refusal(const json& said) {
  try {
    ParseDescription("gym:Test-v0", said.is_string() ? said.get<std::string>() : said.dump());
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(HostDescription, SaysWhatTheEnvironmentIs) {
  const HostedEnv env = ParseDescription("gym:Test-v0", Plain().dump());
  EXPECT_EQ(env.spec.name, "gym:Test-v0");
  EXPECT_EQ(env.spec.help, "a test");
  EXPECT_EQ(env.spec.note, "as it is");
  EXPECT_EQ(env.spec.obs, (ObsSpec{{3}}));
  EXPECT_TRUE(env.spec.action.discrete());
  EXPECT_EQ(env.spec.action.parts, std::vector<int>{2});
  EXPECT_EQ(env.spec.max_episode_steps, 20);
  EXPECT_EQ(env.spec.reward_threshold, 9.5);
  EXPECT_TRUE(env.facts.snapshots && env.facts.reproducible && env.facts.steps_elsewhere);
  EXPECT_EQ(env.bounds.low, (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(env.bounds.high, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(env.pictures_per_second, 12);
}

TEST(HostDescription, OfOtherSpaces) {
  json said = Plain();
  said["action"] = {{"kind", "box"}, {"low", {-1, 0}}, {"high", {1, 5}}};
  said["reward_threshold"] = nullptr;
  said.erase("pictures_per_second");
  const HostedEnv box = ParseDescription("gym:Test-v0", said.dump());
  EXPECT_EQ(box.spec.action.high, (std::vector<float>{1, 5}));
  EXPECT_FALSE(box.spec.reward_threshold);
  EXPECT_EQ(box.pictures_per_second, 0);

  // A single part is another space than one choice; bytes have no bounds, and one bound is that of all.
  said["action"] = {{"kind", "choices"}, {"parts", {2}}};
  said["masks"] = true;
  said["bounds"] = {{"low", {-4}}, {"high", {4}}};
  const HostedEnv parts = ParseDescription("gym:Test-v0", said.dump());
  EXPECT_EQ(parts.spec.action.kind, ActionKind::kMultiDiscrete);
  EXPECT_TRUE(parts.spec.masks);
  EXPECT_EQ(parts.bounds.high, (std::vector<float>{4, 4, 4}));
  said["obs"] = {{"shape", {2, 2, 1}}, {"bytes", true}};
  said["bounds"] = {{"low", json::array()}, {"high", json::array()}};
  EXPECT_EQ(ParseDescription("gym:Test-v0", said.dump()).spec.obs, (ObsSpec{{2, 2, 1}, ObsType::kUint8}));
}

TEST(HostDescription, WhatIsNoneIsRefusedByName) {
  const std::string begin = "gym:Test-v0: what its host says of it cannot be understood: ";
  EXPECT_TRUE(Refusal("no JSON").starts_with(begin));
  EXPECT_TRUE(Refusal(json::array()).starts_with(begin));
  const json plain = Plain();
  for (const auto& [key, value] : plain.items()) {
    if (key == "pictures_per_second") continue;
    json said = plain;
    said.erase(key);
    EXPECT_TRUE(Refusal(said).starts_with(begin)) << key;
    said[key] = json::array({"nonsense"});
    EXPECT_NE(Refusal(said), "no error") << key;
  }
  json said = Plain();
  said["obs"]["shape"] = {0};
  EXPECT_NE(Refusal(said).find("its observation has no elements"), std::string::npos) << Refusal(said);
  said = Plain();
  said["bounds"]["low"] = {-1, -1};
  EXPECT_EQ(Refusal(said), "gym:Test-v0: its host says bounds of 2 elements of observations that have 3");
}

}  // namespace
}  // namespace trireme
