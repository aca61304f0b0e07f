#include "trireme/env/gym/description.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using nlohmann::json;

ActionSpace Actions(const json& action) {
  if (action.at("kind") == "box") {
    return ActionSpace::Box(action.at("low").get<std::vector<float>>(),
                            action.at("high").get<std::vector<float>>());
  }
  auto parts = action.at("parts").get<std::vector<int>>();
  if (action.value("single", false)) return ActionSpace::Discrete(parts.at(0));
  return ActionSpace::MultiDiscrete(std::move(parts));
}

}  // namespace

HostedEnv ParseDescription(const std::string& name, const std::string& text) {
  HostedEnv env;
  try {
    const json said = json::parse(text);
    env.spec = {.name = name,
                .help = said.at("help"),
                .note = said.at("note"),
                .obs = {said.at("obs").at("shape").get<std::vector<int>>(),
                        said.at("obs").at("bytes").get<bool>() ? ObsType::kUint8 : ObsType::kFloat32},
                .action = Actions(said.at("action")),
                .masks = said.at("masks"),
                .max_episode_steps = said.at("max_episode_steps")};
    if (const json& threshold = said.at("reward_threshold"); !threshold.is_null()) {
      env.spec.reward_threshold = threshold.get<double>();
    }
    env.facts = {
        .snapshots = said.at("snapshots"), .reproducible = said.at("reproducible"), .steps_elsewhere = true};
    env.pictures_per_second = said.value("pictures_per_second", 0.0);
    env.bounds = {said.at("bounds").at("low").get<std::vector<float>>(),
                  said.at("bounds").at("high").get<std::vector<float>>()};
  } catch (const std::exception& error) {
    Fail("{}: what its host says of it cannot be understood: {}", name, error.what());
  }
  CheckSpec(env.spec);
  const std::size_t expected =
      env.spec.obs.type == ObsType::kFloat32 ? static_cast<std::size_t>(env.spec.obs.size()) : 0;
  for (std::vector<float>* bound : {&env.bounds.low, &env.bounds.high}) {
    if (bound->size() == 1) bound->resize(expected, bound->front());
  }
  if (env.bounds.low.size() != expected || env.bounds.high.size() != expected) {
    Fail("{}: its host says bounds of {} elements of observations that have {}", name, env.bounds.low.size(),
         expected);
  }
  return env;
}

}  // namespace trireme
