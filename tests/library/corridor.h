// Corridor-v0: walk to the end of a corridor where the lamp is lit, left or right. Every step costs a little.
#pragma once

#include <array>

#include "trireme/base/rng.h"
#include "trireme/env/batch.h"
#include "trireme/env/env.h"
#include "trireme/env/vec.h"

// Four copies are stepped at once: a state is an array of vectors, and conditions are written as c ? a : b.
struct Corridor {
  static constexpr int kStateSize = 2;   // place, lamp
  static constexpr int kObsSize = 2;     // the same, from -1 to 1
  static constexpr int kActionSize = 1;  // 0: left, 1: right
  static constexpr double kEnd = 6;
  using State = std::array<trireme::Vec, kStateSize>;

  static trireme::EnvSpec Spec() {
    return {.name = "Corridor-v0",
            .help = "walk to the lamp; 2 actions",
            .obs = {{kObsSize}},
            .action = trireme::ActionSpace::Discrete(2),
            .max_episode_steps = 60,
            .reward_threshold = 0.9};
  }

  // One copy: it begins in the middle.
  static void Reset(std::array<double, kStateSize>& s, trireme::RandomStream& random) {
    s = {0, random.NextUniform() < 0.5 ? -1.0 : 1.0};
  }

  [[gnu::always_inline]] static trireme::StepResult Step(State& s, const trireme::Vec* action) {
    auto& [place, lamp] = s;
    place = trireme::Clamp(action[0] == 1.0 ? place + 1.0 : place - 1.0, -kEnd, kEnd);
    const trireme::Mask there = place == lamp * kEnd;
    return {.reward = there ? trireme::Broadcast(1.0) : trireme::Broadcast(-0.01), .terminated = there};
  }

  [[gnu::always_inline]] static void Observe(const State& s, trireme::Vec* obs) {
    obs[0] = s[0] * (1 / kEnd);
    obs[1] = s[1];
  }
};
