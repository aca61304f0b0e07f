// A policy and a value function in one network: what every policy-gradient algorithm here shares.
//
// Discrete actions: the policy's outputs are logits of a categorical distribution; of actions with several
// parts, of one distribution for each part, one after the other. Choices that a mask ([n, all choices]) does
// not allow have probability 0. Continuous: they are the means of a diagonal Gaussian whose log standard
// deviations are a free vector of the network. Two towers, or one shared tower whose last output is the value.
//
// Thread safety: immutable, like Network; tapes are per thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/algo/settings.h"
#include "trireme/base/config.h"
#include "trireme/env/env.h"
#include "trireme/nn/executor.h"
#include "trireme/rollout/rollout.h"

namespace trireme {

struct ActorCriticSettings {
  HiddenConfig layers;
  bool shared_tower = false;
  double policy_gain = 0.01;
  double initial_log_std = 0.0;

  void Fields(ConfigFields& field);
};

NetworkSpec MakeActorCriticNetwork(const ActorCriticSettings& settings, const EnvSpec& env);

// One column block of a tower's outputs: sample b's start at data + b * stride.
struct OutputView {
  const float* data;
  int stride;
};

// Gradients at the outputs of one pass: scratch memory for ActorCritic::AddGradient.
struct OutputGradients {
  std::vector<float> policy, value;
};

class ActorCritic {
 public:
  // What the policy's outputs are; a single choice without masks has the fastest code.
  enum class Head { kCategorical, kParts, kGaussian };

  // `executor` outlives it.
  ActorCritic(const Executor& executor, const EnvSpec& env)
      : executor_(executor),
        shared_(executor.network().spec().towers.size() == 1),
        parts_(env.action.parts),
        head_(env.action.box()                      ? Head::kGaussian
              : env.action.discrete() && !env.masks ? Head::kCategorical
                                                    : Head::kParts),
        policy_size_(env.action.box() ? env.action.size() : env.action.choices()) {}

  bool shared() const { return shared_; }
  Head head() const { return head_; }
  std::span<const int> parts() const { return parts_; }
  int policy_size() const { return policy_size_; }
  // Log standard deviations inside a buffer laid out like the parameters.
  template <class T>
  std::span<T> LogStd(std::span<T> params) const {
    return executor_.network().FreeVector(params, 0);
  }

  // Everything below runs with the parameters of the tape. obs: [n, obs], n <= its capacity.
  OutputView Policy(const float* obs, int n, Tape& tape) const;
  OutputView Value(const float* obs, int n, Tape& tape) const;

  // V of all observations of a rollout, in few large passes: cheaper than one small pass per step while
  // collecting. values: [T + 1, B]; final_values: [T, B], written where an episode was cut off.
  void RolloutValues(const Rollout& rollout, Tape& tape, std::span<float> values,
                     std::span<float> final_values) const;

  // Adds the gradient of a loss over n samples. policy_loss(outputs, stride, d_outputs) and value_loss(values,
  // stride, d_values) see the outputs and write the loss's gradient with respect to them, in the same places.
  template <class PolicyLoss, class ValueLoss>
  void AddGradient(const float* obs, int n, Tape& tape, OutputGradients& d, std::span<float> gradient,
                   PolicyLoss&& policy_loss, ValueLoss&& value_loss) const {
    const OutputView policy = Policy(obs, n, tape);
    policy_loss(policy.data, policy.stride, d.policy.data());
    if (shared_) {
      value_loss(policy.data + policy_size_, policy.stride, d.policy.data() + policy_size_);
    } else {
      const OutputView value = Value(obs, n, tape);
      value_loss(value.data, value.stride, d.value.data());
      tape.Backward(1, d.value.data(), gradient);
    }
    tape.Backward(0, d.policy.data(), gradient);
  }
  OutputGradients MakeOutputGradients(std::size_t capacity) const {
    return {std::vector<float>(capacity * (policy_size_ + (shared_ ? 1 : 0))), std::vector<float>(capacity)};
  }

  // Draws actions, and their log-probabilities as `extra`.
  void Sample(const ActionRequest& request, Tape& tape) const;
  // The policy of a rollout that does so. Both outlive it.
  auto Sampler(Tape& tape) const {
    return [this, &tape](const ActionRequest& request) { Sample(request, tape); };
  }
  // The most probable action.
  void Greedy(const float* obs, const std::uint8_t* masks, int n, Tape& tape, float* actions) const;

 private:
  const Executor& executor_;
  bool shared_;
  std::vector<int> parts_;
  Head head_;
  int policy_size_;
};

}  // namespace trireme
