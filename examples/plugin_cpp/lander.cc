// A lander falls towards the ground and is to touch it gently: one continuous action, the thrust. One copy at a time, as a
// class.
//
//   c++ -O2 -shared -fPIC lander.cc -o liblander.so
//   trireme train --env plugin:./liblander.so --env-arg gravity=1.6
#include <algorithm>
#include <cmath>

#include "env_plugin.h"

namespace {

const trireme_option kOptions[] = {
    {"gravity", TRIREME_FLOAT, 1.6, nullptr, 0.1, 3.0, "m/s2; full thrust is 4"},
};
enum { kGravity };

class Lander {
 public:
  static void Describe(const trireme_value*, trireme_spec& spec) {
    trireme_obs_floats(&spec, 2);
    trireme_box(&spec, 1, -1.0f, 1.0f);
    spec.max_episode_steps = 200;
    spec.reward_threshold = 0.8;
  }

  explicit Lander(const trireme_value* options) : gravity_(options[kGravity].number) {}

  void Reset(trireme_copy& copy) {
    height_ = 8 + 4 * trireme_uniform(copy.random);
    speed_ = -2 * trireme_uniform(copy.random);
    Observe(copy);
  }

  // -1 is no thrust, 1 is full thrust. Landing pays 1, less what it was faster than a walk.
  void Step(trireme_copy& copy) {
    const double thrust = 2.0 * (1.0 + std::clamp(copy.action[0], -1.0f, 1.0f));
    constexpr double kTimeStep = 0.1;
    speed_ += kTimeStep * (thrust - gravity_);
    height_ += kTimeStep * speed_;
    copy.terminated = height_ <= 0 || height_ > 20;
    copy.reward = -0.001f;
    if (height_ <= 0) copy.reward = static_cast<float>(1 - std::min(2.0, std::max(0.0, -speed_ - 0.5)));
    if (height_ > 20) copy.reward = -1;
    Observe(copy);
  }

 private:
  void Observe(trireme_copy& copy) const {
    copy.obs[0] = static_cast<float>(height_ / 10);
    copy.obs[1] = static_cast<float>(speed_ / 5);
  }

  double gravity_;
  double height_ = 0;
  double speed_ = 0;
};

const trireme_env kLander =
    trireme_class_env<Lander>("Lander-v0", "touch the ground gently; thrust", kOptions, 1);

}  // namespace

TRIREME_PLUGIN(&kLander)
