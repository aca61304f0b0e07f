// What an environment shows and takes: observations, actions, limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/half.h"

namespace trireme {

enum class ObsType { kFloat32, kUint8 };

// One observation: an array of this shape, elements of the last dimension next to each other.
struct ObsSpec {
  std::vector<int> shape = {};
  ObsType type = ObsType::kFloat32;

  int size() const;           // elements
  std::size_t bytes() const;  // of all elements

  bool operator==(const ObsSpec&) const = default;
};

// What a network is given of a byte: byte * kByteScale, from 0 to 1.
inline constexpr float kByteScale = 1.0f / 255.0f;
// `rows` observations as a network reads them: floats as they are, bytes scaled. to: [rows, size].
void ObsToFloat(const ObsSpec& spec, const std::byte* from, std::size_t rows, float* to);
// Observations of an environment that gives floats, as floats.
inline std::span<const float> FloatObs(std::span<const std::byte> rows) {
  return {reinterpret_cast<const float*>(rows.data()), rows.size() / sizeof(float)};
}

enum class ActionKind {
  kDiscrete,       // one of n choices
  kBox,            // a vector of real numbers within bounds
  kMultiDiscrete,  // several parts, each one of its own number of choices
};

// An action is a row of size() floats; a choice is its index stored as a float.
struct ActionSpace {
  ActionKind kind = ActionKind::kDiscrete;
  std::vector<int> parts = {};             // choices of each part: one part if discrete, none of a box
  std::vector<float> low = {}, high = {};  // box: bounds of each dimension

  static ActionSpace Discrete(int choices);
  static ActionSpace MultiDiscrete(std::vector<int> parts);
  static ActionSpace Box(std::vector<float> low, std::vector<float> high);
  static ActionSpace Box(int size, float low, float high);  // the same bounds in every dimension

  bool discrete() const { return kind == ActionKind::kDiscrete; }
  bool box() const { return kind == ActionKind::kBox; }
  // Floats that one action takes.
  int size() const { return static_cast<int>(box() ? low.size() : parts.size()); }
  // Of all parts together: the bytes of a mask, the logits of a policy; 0 for a box.
  int choices() const;
  // "2 choices", "1 continuous", "3 x 4 choices".
  std::string Describe() const;
};

struct EnvSpec {
  std::string name = {};
  std::string help = {};  // one line for `trireme envs`
  std::string note = {};  // what else a person should know: how an observation is put together
  ObsSpec obs = {};
  ActionSpace action = {};
  bool masks = false;         // not every choice is allowed in every state: EnvBatch::masks() says which
  int max_episode_steps = 0;  // the time limit: an episode that is so long is cut off; 0: none
  std::optional<double> reward_threshold = {};  // return at which the task counts as solved
  // Of a run, not of the environment: how its experience keeps observations of floats (env/row.h).
  Precision kept = Precision::kFp32;
};

// Throws Error when this describes no environment: no name, an empty observation, bounds the wrong way round.
void CheckSpec(const EnvSpec& spec);

}  // namespace trireme
