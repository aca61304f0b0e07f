// CartPole-v1: balance a pole on a cart by pushing the cart left (0) or right (1).
// Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning control
// problems", 1983. Explicit Euler with the time step of Gymnasium; +1 per step until the pole or the cart
// leaves its range.
//
// The upright pole is unstable: over the 500 steps of a full episode a difference in the last bit grows by
// 10^16. Operations are therefore in the same order as Gymnasium's, divisions included.
#pragma once

#include <array>
#include <numbers>

#include "trireme/base/rng.h"
#include "trireme/env/batch.h"
#include "trireme/env/sincos.h"
#include "trireme/env/vec.h"

namespace trireme {

struct CartPole {
  static constexpr int kStateSize = 4;
  static constexpr int kObsSize = 4;
  static constexpr int kActionSize = 1;
  using State = std::array<Vec, kStateSize>;

  static EnvSpec Spec() {
    return {.name = "CartPole-v1",
            .help = "balance a pole on a cart; 2 actions",
            .obs = {{kObsSize}},
            .action = ActionSpace::Discrete(2),
            .max_episode_steps = 500,
            .reward_threshold = 475};
  }

  static void Reset(std::array<double, kStateSize>& s, RandomStream& random) {
    for (double& value : s) value = -0.05 + 0.1 * random.NextUniform();
  }

  [[gnu::always_inline]] static StepResult Step(State& s, const Vec* action) {
    constexpr double kGravity = 9.8;
    constexpr double kPoleMass = 0.1;
    constexpr double kTotalMass = kPoleMass + 1.0;
    constexpr double kHalfLength = 0.5;
    constexpr double kPoleMassLength = kPoleMass * kHalfLength;
    constexpr double kForce = 10.0;
    constexpr double kTimeStep = 0.02;
    constexpr double kMaxX = 2.4;
    constexpr double kMaxTheta = 12 * 2 * std::numbers::pi / 360;

    auto& [x, x_dot, theta, theta_dot] = s;
    const Vec force = action[0] == 1.0 ? kForce : -kForce;
    const auto [sin, cos] = SinCosNearZero(theta);  // within 12 degrees, or the episode would be over
    const Vec push = (force + kPoleMassLength * (theta_dot * theta_dot) * sin) / kTotalMass;
    const Vec theta_acc =
        (kGravity * sin - cos * push) / (kHalfLength * (4.0 / 3.0 - kPoleMass * (cos * cos) / kTotalMass));
    const Vec x_acc = push - kPoleMassLength * theta_acc * cos / kTotalMass;

    x += kTimeStep * x_dot;
    x_dot += kTimeStep * x_acc;
    theta += kTimeStep * theta_dot;
    theta_dot += kTimeStep * theta_acc;
    return {.reward = Broadcast(1.0),
            .terminated = (x < -kMaxX) | (x > kMaxX) | (theta < -kMaxTheta) | (theta > kMaxTheta)};
  }

  [[gnu::always_inline]] static void Observe(const State& s, Vec* obs) {
    for (int k = 0; k < kObsSize; ++k) obs[k] = s[k];
  }

  static constexpr double kPicturesPerSecond = 50;
  static void Draw(const std::array<double, kStateSize>& s, Picture& out);  // in drawing/
};

}  // namespace trireme
