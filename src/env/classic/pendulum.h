// Pendulum-v1: swing a pendulum up and hold it there with a torque in [-2, 2]. Never terminates; the reward
// is minus the squared angle from upright, plus small costs of speed and torque.
//
// The torque is float32 in Gymnasium and stays so until it meets the (double) state; the roundings below say
// where.
#pragma once

#include <array>
#include <numbers>

#include "trireme/base/rng.h"
#include "trireme/env/batch.h"
#include "trireme/env/sincos.h"
#include "trireme/env/vec.h"

namespace trireme {

struct Pendulum {
  static constexpr int kStateSize = 2;
  static constexpr int kObsSize = 3;
  static constexpr int kActionSize = 1;
  using State = std::array<Vec, kStateSize>;

  static EnvSpec Spec() {
    return {.name = "Pendulum-v1",
            .help = "swing up and hold a pendulum; 1 torque in [-2, 2], dense reward",
            .obs = {{kObsSize}},
            .action = ActionSpace::Box(1, -2.0f, 2.0f),
            .max_episode_steps = 200,
            // Gymnasium names none; -200 is a policy that swings up without waste and holds.
            .reward_threshold = -200};
  }

  static void Reset(std::array<double, kStateSize>& s, RandomStream& random) {
    const double angle = std::numbers::pi * (2 * random.NextUniform() - 1);
    s = {angle, 2 * random.NextUniform() - 1};
  }

  [[gnu::always_inline]] static StepResult Step(State& s, const Vec* action) {
    constexpr double kMaxSpeed = 8;
    constexpr double kMaxTorque = 2;
    constexpr double kTimeStep = 0.05;

    auto& [theta, velocity] = s;
    const Vec torque = Clamp(action[0], -kMaxTorque, kMaxTorque);
    const Vec angle = WrapAngle(theta);
    const Vec torque_cost = RoundToFloat(static_cast<double>(0.001f) * RoundToFloat(torque * torque));
    const Vec cost = angle * angle + 0.1 * (velocity * velocity) + torque_cost;

    velocity += (15.0 * SinCos(theta).sin + RoundToFloat(3.0 * torque)) * kTimeStep;
    velocity = Clamp(velocity, -kMaxSpeed, kMaxSpeed);
    theta += velocity * kTimeStep;
    return {.reward = -cost, .terminated = Mask{}};
  }

  [[gnu::always_inline]] static void Observe(const State& s, Vec* obs) {
    const auto [sin, cos] = SinCos(s[0]);
    obs[0] = cos;
    obs[1] = sin;
    obs[2] = s[1];
  }

  static constexpr double kPicturesPerSecond = 30;
  static void Draw(const std::array<double, kStateSize>& s, Picture& out);  // in drawing/
};

}  // namespace trireme
