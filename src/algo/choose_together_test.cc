// What is chosen for an environment has the same bits in any company: together with the requests of others, or alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "trireme/algo/actor_critic.h"
#include "trireme/base/rng.h"
#include "trireme/nn/make_executor.h"

namespace trireme {
namespace {

constexpr int kObs = 5;

EnvSpec Env(ActionSpace action, bool masks) {
  EnvSpec env;
  env.obs.shape = {kObs};
  env.action = std::move(action);
  env.masks = masks;
  return env;
}

// Requests of actors with `envs` environments each, and what they are answered.
struct Requests {
  Requests(const EnvSpec& env, const std::vector<int>& envs) {
    RandomStream random(3, Purpose::kTest, 0, 0);
    std::uint32_t actor = 0;
    for (const int n : envs) {
      Memory& memory = memories.emplace_back();
      memory.obs.resize(n * kObs);
      for (float& x : memory.obs) x = static_cast<float>(random.NextNormal());
      if (env.masks) {
        for (int i = 0; i < n * env.action.choices(); ++i)
          memory.masks.push_back(i % 2 == 0 || random.NextUniform() < 0.5);
      }
      memory.actions.resize(n * env.action.size());
      memory.extra.resize(n);
      requests.push_back({.seed = 7 + actor % 2,
                          .step = 100 + actor,
                          .first_env = 1000 * actor,
                          .n = n,
                          .obs = memory.obs.data(),
                          .masks = env.masks ? memory.masks.data() : nullptr,
                          .actions = memory.actions.data(),
                          .extra = memory.extra.data()});
      ++actor;
    }
  }
  // All answers; they are then forgotten.
  std::vector<float> Answers() {
    std::vector<float> all;
    for (Memory& memory : memories) {
      for (auto* answers : {&memory.actions, &memory.extra}) {
        all.insert(all.end(), answers->begin(), answers->end());
        std::ranges::fill(*answers, -1e9f);
      }
    }
    return all;
  }

  struct Memory {
    std::vector<float> obs, actions, extra;
    std::vector<std::uint8_t> masks;
  };
  std::vector<Memory> memories;
  std::vector<ActionRequest> requests;
};

struct Case {
  std::string name;
  EnvSpec env;
};

std::vector<Case> Cases() {
  return {{"discrete", Env(ActionSpace::Discrete(3), false)},
          {"parts with masks", Env(ActionSpace::MultiDiscrete({2, 4}), true)},
          {"box", Env(ActionSpace::Box(2, -1, 1), false)}};
}

TEST(ChooseTogether, GivesTheBitsOfChoosingAlone) {
  const std::vector<int> sizes = {1, 4, 1, 16, 3, 2, 63, 65, 5};  // 160 environments
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    for (const auto& [name, env] : Cases()) {
      for (const std::vector<int>& hidden :
           std::vector<std::vector<int>>{{1}, {7, 16}, {16, 17}, {32, 32}, {64, 64}, {130, 70}, {512, 512}}) {
        for (const bool shared : {false, true}) {
          SCOPED_TRACE(testing::Message() << name << " " << NameOf(precision) << " hidden " << hidden[0]
                                          << " x " << hidden.size() << " shared " << shared);
          ActorCriticSettings settings;
          settings.layers.hidden = hidden;
          settings.shared_tower = shared;
          settings.policy_gain = 1;
          const Network network(MakeActorCriticNetwork(settings, env));
          const auto executor = MakeExecutor(network, {.precision = precision});
          std::vector<float> params(network.param_count());
          network.Initialise(5, params);
          Requests requests(env, sizes);
          ActorCriticActing alone(env, *executor, 160), together(env, *executor, 160);
          alone.SetParams(params);
          together.SetParams(params);
          for (const ActionRequest& request : requests.requests) alone.Choose(request);
          const std::vector<float> expected = requests.Answers();
          together.ChooseTogether(requests.requests);
          const std::vector<float> found = requests.Answers();
          ASSERT_EQ(expected.size(), found.size());
          ASSERT_EQ(0, std::memcmp(expected.data(), found.data(), found.size() * sizeof(float)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme
