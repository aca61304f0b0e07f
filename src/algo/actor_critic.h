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

#include "base/config.h"
#include "env/env.h"
#include "nn/network.h"

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
