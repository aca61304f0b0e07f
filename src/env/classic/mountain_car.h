// MountainCar-v0: an underpowered car must swing itself out of a valley; push left (0), not (1), right (2).
// Moore, "Efficient memory-based learning for robot control", 1990. -1 per step until the flag is reached.
#pragma once

#include <array>

#include "trireme/base/rng.h"
#include "trireme/env/batch.h"
#include "trireme/env/sincos.h"
#include "trireme/env/vec.h"

namespace trireme {

struct MountainCar {
  static constexpr int kStateSize = 2;
  static constexpr int kObsSize = 2;
  static constexpr int kActionSize = 1;
  static constexpr double kGoal = 0.5;  // position of the flag
  using State = std::array<Vec, kStateSize>;

  static EnvSpec Spec() {
    return {.name = "MountainCar-v0",
            .help = "swing an underpowered car out of a valley; 3 actions, sparse reward",
            .obs = {{kObsSize}},
            .action = ActionSpace::Discrete(3),
            .max_episode_steps = 200,
            .reward_threshold = -110};
  }

  static void Reset(std::array<double, kStateSize>& s, RandomStream& random) {
    s = {-0.6 + 0.2 * random.NextUniform(), 0.0};
  }

  [[gnu::always_inline]] static StepResult Step(State& s, const Vec* action) {
    constexpr double kMinPosition = -1.2;
    constexpr double kMaxPosition = 0.6;
    constexpr double kMaxSpeed = 0.07;
    constexpr double kForce = 0.001;
    constexpr double kGravity = 0.0025;

    auto& [position, velocity] = s;
    velocity += (action[0] - 1.0) * kForce + SinCos(3.0 * position).cos * -kGravity;
    velocity = Clamp(velocity, -kMaxSpeed, kMaxSpeed);
    position = Clamp(position + velocity, kMinPosition, kMaxPosition);
    // The wall on the left stops the car.
    velocity = ((position == kMinPosition) & (velocity < 0.0)) ? Broadcast(0.0) : velocity;
    return {.reward = Broadcast(-1.0), .terminated = (position >= kGoal) & (velocity >= 0.0)};
  }

  [[gnu::always_inline]] static void Observe(const State& s, Vec* obs) {
    obs[0] = s[0];
    obs[1] = s[1];
  }

  static constexpr double kPicturesPerSecond = 30;
  static void Draw(const std::array<double, kStateSize>& s, Picture& out);  // in drawing/
};

}  // namespace trireme
