// MountainCarContinuous-v0: the valley of MountainCar with a force in [-1, 1]. +100 at the flag, minus a
// tenth of the squared action per step. As in Gymnasium the cost is that of the action before it is clipped.
//
// Gymnasium keeps this state in float32, except that reset leaves it in double until the first step. What
// follows computes in double and rounds where Gymnasium's types round. A state that float32 cannot hold is a
// fresh one.
#pragma once

#include <array>

#include "trireme/base/rng.h"
#include "trireme/env/batch.h"
#include "trireme/env/sincos.h"
#include "trireme/env/vec.h"

namespace trireme {

struct MountainCarContinuous {
  static constexpr int kStateSize = 2;
  static constexpr int kObsSize = 2;
  static constexpr int kActionSize = 1;
  static constexpr double kGoal = 0.45;  // position of the flag
  using State = std::array<Vec, kStateSize>;

  static EnvSpec Spec() {
    return {.name = "MountainCarContinuous-v0",
            .help = "swing an underpowered car out of a valley; 1 force in [-1, 1]",
            .obs = {{kObsSize}},
            .action = ActionSpace::Box(1, -1.0f, 1.0f),
            .max_episode_steps = 999,
            .reward_threshold = 90};
  }

  static void Reset(std::array<double, kStateSize>& s, RandomStream& random) {
    s = {-0.6 + 0.2 * random.NextUniform(), 0.0};
  }

  [[gnu::always_inline]] static StepResult Step(State& s, const Vec* action) {
    constexpr double kMinPosition = -1.2;
    constexpr double kMaxPosition = 0.6;
    constexpr double kMaxSpeed = 0.07;
    constexpr double kPower = 0.0015;
    constexpr double kGravity = 0.0025;

    auto& [position, velocity] = s;
    const Mask single = position == RoundToFloat(position);
    const auto round = [single](Vec x) __attribute__((always_inline)) {
      return single ? RoundToFloat(x) : x;
    };
    const Vec min_position = round(Broadcast(kMinPosition));
    const Vec max_position = round(Broadcast(kMaxPosition));
    const Vec max_speed = round(Broadcast(kMaxSpeed));
    const Vec goal = round(Broadcast(kGoal));

    const Vec wanted = action[0];
    const Vec force = Clamp(wanted, -1.0, 1.0);
    const Vec pull = kGravity * SinCos(round(3.0 * position)).cos;
    // A force within bounds is a float32 and makes the sum one; a clipped force is a double.
    const Vec free_push = RoundToFloat(RoundToFloat(force * static_cast<double>(static_cast<float>(kPower))) -
                                       RoundToFloat(pull));
    const Vec clipped_push = force * kPower - pull;
    const Vec push = force == wanted ? free_push : clipped_push;

    velocity = Clamp(round(velocity + round(push)), -max_speed, max_speed);
    position = Clamp(round(position + velocity), min_position, max_position);
    velocity = ((position == min_position) & (velocity < 0.0)) ? Broadcast(0.0) : velocity;
    const Mask terminated = (position >= goal) & (velocity >= 0.0);
    const Vec reward = (terminated ? 100.0 : 0.0) - wanted * wanted * 0.1;

    position = RoundToFloat(position);
    velocity = RoundToFloat(velocity);
    return {.reward = reward, .terminated = terminated};
  }

  [[gnu::always_inline]] static void Observe(const State& s, Vec* obs) {
    obs[0] = s[0];
    obs[1] = s[1];
  }

  static constexpr double kPicturesPerSecond = 30;
  static void Draw(const std::array<double, kStateSize>& s, Picture& out);  // in drawing/
};

}  // namespace trireme
