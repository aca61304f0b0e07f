// Settings that several algorithms have, and how an algorithm's config becomes its AlgorithmSettings.
//
// A config struct holds some of the parts below beside its own fields. Parts list their fields in pieces where
// algorithms have fields of their own in between.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/base/config.h"
#include "trireme/nn/network.h"
#include "trireme/nn/spec.h"
#include "trireme/optim/schedule.h"
#include "trireme/store/parameter_store.h"

namespace trireme {

// The environments, and how far they go at a stretch.
struct CollectConfig {
  int envs = 16;
  int horizon = 8;

  // `stretch` is what the algorithm calls it: "iteration" or "round"; `horizons` is how the horizon is searched.
  void Fields(ConfigFields& field, std::string_view stretch, Search horizons = Search::PowersOfTwo(8, 256));
  std::int64_t steps() const { return std::int64_t{envs} * horizon; }
};

// How gradients are applied over the course of a run.
struct StepConfig {
  double learning_rate = 3e-4;
  ScheduleKind learning_rate_schedule = ScheduleKind::kLinear;
  double final_fraction = 0.0;
  double max_grad_norm = 0.5;

  void RateField(ConfigFields& field);
  // `rates` are what follows the schedule: "step size" or "step sizes".
  void ScheduleFields(ConfigFields& field, std::string_view rates = "step size");
  void NormField(ConfigFields& field);

  // `initial` at `progress` of the run, along the schedule `kind`.
  double Scheduled(double initial, ScheduleKind kind, double progress) const {
    return initial * ScheduleFactor(kind, final_fraction, progress);
  }
  double Rate(double progress) const { return Scheduled(learning_rate, learning_rate_schedule, progress); }
  UpdateRule Rule(double rate) const { return {static_cast<float>(rate), max_grad_norm}; }
  // At `progress`, where the second tower of `network`, the value function, has an initial rate of its own; 0: it has not.
  UpdateRule RuleWithValueRate(double progress, double value_rate, const Network& network) const;
};

// The hidden layers that all towers of a network have alike.
struct HiddenConfig {
  std::vector<int> hidden = {64, 64};
  Activation activation = Activation::kTanh;
  Init init = Init::kOrthogonal;

  void Fields(ConfigFields& field);
  // Throws Error when the layers make no tower.
  TowerSpec Tower(std::string name, int inputs, int outputs, double head_gain) const;
};

// Throws Error unless setting `name`, which is `count`, can be split evenly over the shards.
void CheckSplitsEvenly(std::string_view name, int count, int shards);

// The settings of algorithm A from A::Config, which has Fields (its own, then its network's and optimizer's),
// Validate, ExperienceBytes, MakeNetwork and `optimizer`, as AlgorithmSettings has them, and may have
// NeedsWorkersInStep and MakeActing.
template <class A>
class SettingsOf final : public AlgorithmSettings {
 public:
  void Fields(ConfigFields& field) override { config_.Fields(field); }
  void Validate(const EnvSpec& env, int shards) const override { config_.Validate(env, shards); }
  std::string NeedsWorkersInStep() const override {
    if constexpr (requires { config_.NeedsWorkersInStep(); }) return config_.NeedsWorkersInStep();
    return "";
  }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const override { return config_.ExperienceBytes(env); }
  NetworkSpec MakeNetwork(const EnvSpec& env) const override { return config_.MakeNetwork(env); }
  const OptimizerSettings& optimizer() const override { return config_.optimizer; }
  std::unique_ptr<Algorithm> Make(const WorkerContext& context) const override {
    return std::make_unique<A>(config_, context);
  }
  StepsAndEnvs TrajectorySize(int shards) const override {
    if constexpr (requires { config_.collect; })
      return {config_.collect.horizon, config_.collect.envs / shards};
    return {};
  }
  std::optional<Replaying> RemembersElsewhere(int shards, int servers) const override {
    if constexpr (requires { config_.RemembersElsewhere(shards, servers); })
      return config_.RemembersElsewhere(shards, servers);
    return std::nullopt;
  }
  std::unique_ptr<Acting> MakeActing(const EnvSpec& env, const Executor& executor, int envs) const override {
    if constexpr (requires { config_.MakeActing(env, executor, envs); })
      return config_.MakeActing(env, executor, envs);
    return nullptr;
  }

 private:
  typename A::Config config_;
};

// For the registry row of A.
template <class A>
std::unique_ptr<AlgorithmSettings> MakeSettings() {
  return std::make_unique<SettingsOf<A>>();
}

}  // namespace trireme
