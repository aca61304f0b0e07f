#include "trireme/env/spec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

int ObsSpec::size() const { return std::accumulate(shape.begin(), shape.end(), 1, std::multiplies<>()); }

std::size_t ObsSpec::bytes() const {
  return static_cast<std::size_t>(size()) * (type == ObsType::kFloat32 ? sizeof(float) : 1);
}

void ObsToFloat(const ObsSpec& spec, const std::byte* from, std::size_t rows, float* to) {
  if (spec.type == ObsType::kFloat32) {
    std::memcpy(to, from, rows * spec.bytes());
    return;
  }
  const std::size_t count = rows * static_cast<std::size_t>(spec.size());
  for (std::size_t i = 0; i < count; ++i)
    to[i] = kByteScale * static_cast<float>(std::to_integer<int>(from[i]));
}

ActionSpace ActionSpace::Discrete(int choices) { return {.kind = ActionKind::kDiscrete, .parts = {choices}}; }

ActionSpace ActionSpace::MultiDiscrete(std::vector<int> parts) {
  return {.kind = ActionKind::kMultiDiscrete, .parts = std::move(parts)};
}

ActionSpace ActionSpace::Box(std::vector<float> low, std::vector<float> high) {
  return {.kind = ActionKind::kBox, .low = std::move(low), .high = std::move(high)};
}

ActionSpace ActionSpace::Box(int size, float low, float high) {
  return Box(std::vector<float>(size, low), std::vector<float>(size, high));
}

int ActionSpace::choices() const { return std::accumulate(parts.begin(), parts.end(), 0); }

std::string ActionSpace::Describe() const {
  if (box()) return fmt::format("{} continuous", size());
  std::string text;
  for (const int n : parts) text += fmt::format("{}{}", text.empty() ? "" : " x ", n);
  return text + " choices";
}

void CheckSpec(const EnvSpec& spec) {
  if (spec.name.empty()) Fail("an environment has no name");
  const auto require = [&](bool condition, const char* what) {
    if (!condition) Fail("environment {}: {}", spec.name, what);
  };
  const std::vector<int>& shape = spec.obs.shape;
  require(!shape.empty() && std::ranges::all_of(shape, [](int n) { return n > 0; }),
          "its observation has no elements");
  std::int64_t elements = 1;
  for (const int n : shape) {
    elements *= n;
    require(elements <= 1 << 28, "its observation has more than 2^28 elements");
  }
  const ActionSpace& action = spec.action;
  if (action.box()) {
    require(!action.low.empty() && action.low.size() == action.high.size(),
            "each dimension of its actions needs two bounds");
    for (std::size_t k = 0; k < action.low.size(); ++k) {
      require(action.low[k] < action.high[k], "a lower bound of its actions is not below the upper one");
    }
    require(!spec.masks, "masks are for choices, and it has none");
  } else {
    require(!action.parts.empty() && (!action.discrete() || action.parts.size() == 1),
            "it needs one number of choices, or one for each part of its actions");
    require(std::ranges::all_of(action.parts, [](int n) { return n > 0 && n <= 1 << 20; }),
            "each part of its actions needs from 1 to 2^20 choices");
    const std::int64_t all = std::accumulate(action.parts.begin(), action.parts.end(), std::int64_t{0});
    require(all <= 1 << 28, "its actions have more than 2^28 choices altogether");
  }
  require(spec.max_episode_steps >= 0, "its time limit is negative; 0 is none");
  require(!spec.reward_threshold || std::isfinite(*spec.reward_threshold),
          "the return at which it is solved is not finite");
}

}  // namespace trireme
