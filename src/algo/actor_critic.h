// A policy and a value function in one network: what every policy-gradient algorithm here shares.
//
// Discrete actions: the policy's outputs are logits of a categorical distribution. Continuous: they are the
// means of a diagonal Gaussian whose log standard deviations are a free vector of the network. Two towers, or
// one shared tower whose last output is the value.
//
// Thread safety: immutable, like Network; workspaces are per thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/env/env.h"
#include "trireme/nn/network.h"
#include "trireme/rollout/rollout.h"

namespace trireme {

struct ActorCriticSettings {
  std::vector<int> hidden = {64, 64};
  Activation activation = Activation::kTanh;
  Init init = Init::kOrthogonal;
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
  ActorCritic(const Network& network, const EnvSpec& env)
      : network_(network),
        shared_(network.towers().size() == 1),
        discrete_(env.action.discrete),
        policy_size_(env.action.discrete ? env.action.choices : env.action.size()) {}

  bool shared() const { return shared_; }
  bool discrete() const { return discrete_; }
  int policy_size() const { return policy_size_; }
  // Log standard deviations inside a buffer laid out like the parameters.
  template <class T>
  std::span<T> LogStd(std::span<T> params) const {
    return network_.FreeVector(params, 0);
  }

  // obs: [n, obs]. Each runs the tower it needs; with a shared tower the two views are of the same pass.
  OutputView Policy(std::span<const float> params, const float* obs, int n, Workspace& workspace) const;
  OutputView Value(std::span<const float> params, const float* obs, int n, Workspace& workspace) const;
  OutputView ValueOfLastPass(Workspace& workspace) const;

  // V of all observations of a rollout, in few large passes: cheaper than one small pass per step while
  // collecting. values: [T + 1, B]; final_values: [T, B], written where an episode was cut off.
  void RolloutValues(std::span<const float> params, const Rollout& rollout, Workspace& workspace,
                     std::span<float> values, std::span<float> final_values) const;

  // Adds the gradient of a loss over n samples, obs: [n, obs]. policy_loss(outputs, stride, d_outputs) and
  // value_loss(values, stride, d_values) see the outputs and write the loss's gradient with respect to them,
  // in the same places. Requires PrepareBackward of all towers, and n <= capacity.
  template <class PolicyLoss, class ValueLoss>
  void AddGradient(std::span<const float> params, const float* obs, int n, Workspace& workspace,
                   OutputGradients& d, std::span<float> gradient, PolicyLoss&& policy_loss,
                   ValueLoss&& value_loss) const {
    const auto [policy, stride] = Policy(params, obs, n, workspace);
    policy_loss(policy, stride, d.policy.data());
    if (shared_) {
      const auto [values, value_stride] = ValueOfLastPass(workspace);
      value_loss(values, value_stride, d.policy.data() + policy_size_);
    } else {
      const auto [values, value_stride] = Value(params, obs, n, workspace);
      value_loss(values, value_stride, d.value.data());
      network_.towers()[1].Backward(params.data(), obs, d.value.data(), n, workspace.tower(1),
                                    gradient.data());
    }
    network_.towers()[0].Backward(params.data(), obs, d.policy.data(), n, workspace.tower(0),
                                  gradient.data());
  }
  OutputGradients MakeOutputGradients(std::size_t capacity) const {
    return {std::vector<float>(capacity * (policy_size_ + (shared_ ? 1 : 0))), std::vector<float>(capacity)};
  }

  // Draws an action for each of n environments, numbered first_env, ..., at step `step` of the run, and its
  // log-probability.
  void Sample(std::span<const float> params, const float* obs, int n, std::uint64_t seed,
              std::uint32_t first_env, std::uint64_t step, Workspace& workspace, float* actions,
              float* log_probs) const;
  // The most probable action.
  void Greedy(std::span<const float> params, const float* obs, int n, Workspace& workspace,
              float* actions) const;

 private:
  const Network& network_;
  bool shared_, discrete_;
  int policy_size_;
};

}  // namespace trireme
