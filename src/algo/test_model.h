// A small policy with a value function, for tests.
#pragma once

#include <memory>
#include <vector>

#include "trireme/algo/actor_critic.h"
#include "trireme/nn/make_executor.h"

namespace trireme {

// A network with lively outputs, its parameters and its scratch memory.
struct TestModel {
  static constexpr int kCapacity = 64;

  TestModel(const EnvSpec& spec, bool shared)
      : env(spec),
        network(MakeActorCriticNetwork(
            {.layers = {.hidden = {16, 8}}, .shared_tower = shared, .policy_gain = 2.0}, env)),
        executor(MakeExecutor(network)),
        actor_critic(*executor, env),
        tape(executor->MakeTape(kCapacity)),
        params(network.param_count()) {
    network.Initialise(4, params);
    tape->SetParams(params);
  }

  // Logits or means, [n, policy_size].
  std::vector<float> PolicyOf(const std::vector<float>& obs, int n) {
    const auto [data, stride] = actor_critic.Policy(obs.data(), n, *tape);
    std::vector<float> out;
    for (int b = 0; b < n; ++b) {
      out.insert(out.end(), data + b * stride, data + b * stride + actor_critic.policy_size());
    }
    return out;
  }
  std::vector<float> ValueOf(const std::vector<float>& obs, int n) {
    const auto [data, stride] = actor_critic.Value(obs.data(), n, *tape);
    std::vector<float> out;
    for (int b = 0; b < n; ++b) out.push_back(data[b * stride]);
    return out;
  }

  EnvSpec env;
  Network network;
  std::unique_ptr<Executor> executor;
  ActorCritic actor_critic;
  std::unique_ptr<Tape> tape;
  std::vector<float> params;
};

}  // namespace trireme
