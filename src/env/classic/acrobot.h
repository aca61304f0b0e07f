// Acrobot-v1: swing the tip of a two-link pendulum above the bar with a torque of -1 (0), 0 (1) or +1 (2) at
// the joint between the links. Sutton and Barto, "Reinforcement Learning", 2018, section on the acrobot (the
// book's equations, not those of the 1996 paper). One Runge-Kutta step of 0.2 s; -1 per step, 0 at the last.
#pragma once

#include <array>
#include <numbers>

#include "trireme/base/rng.h"
#include "trireme/env/batch.h"
#include "trireme/env/sincos.h"
#include "trireme/env/vec.h"

namespace trireme {

struct Acrobot {
  static constexpr int kStateSize = 4;  // the angles of both links, then their velocities
  static constexpr int kObsSize = 6;
  static constexpr int kActionSize = 1;
  using State = std::array<Vec, kStateSize>;

  static EnvSpec Spec() {
    return {.name = "Acrobot-v1",
            .help = "swing up a two-link pendulum by its joint; 3 actions, sparse reward",
            .obs = {{kObsSize}},
            .action = ActionSpace::Discrete(3),
            .max_episode_steps = 500,
            .reward_threshold = -100};
  }

  // Gymnasium rounds the initial state to float32.
  static void Reset(std::array<double, kStateSize>& s, RandomStream& random) {
    for (double& value : s) value = static_cast<float>(-0.1 + 0.2 * random.NextUniform());
  }

  [[gnu::always_inline]] static StepResult Step(State& s, const Vec* action) {
    constexpr double kMaxVelocity1 = 4 * std::numbers::pi;
    constexpr double kMaxVelocity2 = 9 * std::numbers::pi;
    constexpr double kTimeStep = 0.2;

    const Vec torque = action[0] - 1.0;
    const State k1 = Derivative(s, torque);
    const State k2 = Derivative(Advance(s, k1, kTimeStep / 2), torque);
    const State k3 = Derivative(Advance(s, k2, kTimeStep / 2), torque);
    const State k4 = Derivative(Advance(s, k3, kTimeStep), torque);
    const State slope = {k1[0] + 2.0 * k2[0] + 2.0 * k3[0] + k4[0], k1[1] + 2.0 * k2[1] + 2.0 * k3[1] + k4[1],
                         k1[2] + 2.0 * k2[2] + 2.0 * k3[2] + k4[2],
                         k1[3] + 2.0 * k2[3] + 2.0 * k3[3] + k4[3]};
    s = Advance(s, slope, kTimeStep / 6);

    auto& [theta1, theta2, velocity1, velocity2] = s;
    theta1 = WrapAngle(theta1);
    theta2 = WrapAngle(theta2);
    velocity1 = Clamp(velocity1, -kMaxVelocity1, kMaxVelocity1);
    velocity2 = Clamp(velocity2, -kMaxVelocity2, kMaxVelocity2);

    const auto [sin1, cos1] = SinCos(theta1);
    const auto [sin2, cos2] = SinCos(theta2);
    const Vec height = -cos1 - (cos1 * cos2 - sin1 * sin2);
    const Mask terminated = height > 1.0;
    return {.reward = terminated ? 0.0 : -1.0, .terminated = terminated};
  }

  [[gnu::always_inline]] static void Observe(const State& s, Vec* obs) {
    const auto [sin1, cos1] = SinCos(s[0]);
    const auto [sin2, cos2] = SinCos(s[1]);
    obs[0] = cos1;
    obs[1] = sin1;
    obs[2] = cos2;
    obs[3] = sin2;
    obs[4] = s[2];
    obs[5] = s[3];
  }

  static constexpr double kPicturesPerSecond = 15;
  static void Draw(const std::array<double, kStateSize>& s, Picture& out);  // in drawing/

 private:
  [[gnu::always_inline]] static State Advance(const State& s, const State& slope, double time) {
    return {s[0] + time * slope[0], s[1] + time * slope[1], s[2] + time * slope[2], s[3] + time * slope[3]};
  }

  // Both links have mass 1, length 1, centre of mass at half the length and moment of inertia 1.
  [[gnu::always_inline]] static State Derivative(const State& s, Vec torque) {
    constexpr double kGravity = 9.8;
    const auto& [theta1, theta2, velocity1, velocity2] = s;
    const auto [sin1, cos1] = SinCos(theta1);
    const auto [sin2, cos2] = SinCos(theta2);
    const Vec sin12 = sin1 * cos2 + cos1 * sin2;  // of theta1 + theta2

    const Vec d1 = 0.25 + (1.25 + cos2) + 2.0;
    const Vec d2 = (0.25 + 0.5 * cos2) + 1.0;
    const Vec phi2 = 0.5 * kGravity * sin12;
    const Vec phi1 =
        -0.5 * (velocity2 * velocity2) * sin2 - velocity2 * velocity1 * sin2 + 1.5 * kGravity * sin1 + phi2;
    const Vec ratio = d2 / d1;
    const Vec acceleration2 =
        (torque + ratio * phi1 - 0.5 * (velocity1 * velocity1) * sin2 - phi2) / (1.25 - d2 * ratio);
    const Vec acceleration1 = -(d2 * acceleration2 + phi1) / d1;
    return {velocity1, velocity2, acceleration1, acceleration2};
  }
};

}  // namespace trireme
