// What a host says of its environment: JSON with
//   obs {shape, bytes}, bounds {low, high} (of each element, or one for all; empty for bytes), action {kind "choices", single, parts}
//   or {kind "box", low, high}, masks, max_episode_steps, reward_threshold or null, help, note, snapshots, reproducible,
//   pictures_per_second (0: none)
#pragma once

#include <string>

#include "trireme/env/env.h"
#include "trireme/env/host/batch.h"

namespace trireme {

struct HostedEnv {
  EnvSpec spec;
  EnvFacts facts;
  ObsBounds bounds;
  double pictures_per_second = 0;  // 0: it cannot be drawn
};

// Throws Error when it is no description.
HostedEnv ParseDescription(const std::string& name, const std::string& text);

}  // namespace trireme
