#include "trireme/algo/settings.h"

#include <utility>

namespace trireme {

void CollectConfig::Fields(ConfigFields& field, std::string_view stretch, Search horizons) {
  field("envs", envs, "environments stepped in parallel, over all shards", Between(1, 1'000'000))
      .Tune(Search::PowersOfTwo(8, 128).Shapes());
  field("horizon", horizon, fmt::format("steps per environment in one {}", stretch), Between(1, 1'000'000))
      .Tune(std::move(horizons));
}

void StepConfig::RateField(ConfigFields& field) {
  field("learning_rate", learning_rate, "initial step size", Between(1e-12, 1e30))
      .Tune(Search::Log(1e-4, 1e-2));
}

void StepConfig::ScheduleFields(ConfigFields& field, std::string_view rates) {
  field("learning_rate_schedule", learning_rate_schedule, fmt::format("course of the {} over the run", rates),
        kScheduleNames)
      .Tune(Search::Choices({"constant", "linear"}));
  field("final_fraction", final_fraction, "where linear and cosine schedules end, relative to their start",
        UnitInterval());
}

void StepConfig::NormField(ConfigFields& field) {
  field("max_grad_norm", max_grad_norm, "longest gradient, longer ones are scaled down; 0: no limit",
        NonNegative())
      .Tune(Search::Log(0.3, 5));
}

UpdateRule StepConfig::RuleWithValueRate(double progress, double value_rate, const Network& network) const {
  UpdateRule rule = Rule(Rate(progress));
  if (value_rate == 0) return rule;
  const double rate = Scheduled(value_rate, learning_rate_schedule, progress);
  const auto [begin, end] = network.TowerRange(1);
  rule.groups.Add({.begin = begin, .end = end, .learning_rate = static_cast<float>(rate)});
  return rule;
}

void HiddenConfig::Fields(ConfigFields& field) {
  field("hidden", hidden, "units of each hidden layer", Between(1, 4096)).Tune(Search::Layers(1, 2, 16, 128));
  field("activation", activation, "nonlinearity after each hidden layer", kActivationNames)
      .Tune(Search::Choices({"tanh", "relu"}).Shapes());
  field("init", init, "initial weights", kInitNames);
}

TowerSpec HiddenConfig::Tower(std::string name, int inputs, int outputs, double head_gain) const {
  if (hidden.empty() || hidden.size() > 16) Fail("hidden: expected 1 to 16 layers, not {}", hidden.size());
  return {.name = std::move(name),
          .inputs = inputs,
          .hidden = hidden,
          .outputs = outputs,
          .activation = activation,
          .init = init,
          .head_gain = head_gain};
}

void CheckSplitsEvenly(std::string_view name, int count, int shards) {
  if (count % shards == 0) return;
  Fail("{} = {} cannot be split evenly over shards = {}: choose a multiple, or fewer shards", name, count,
       shards);
}

}  // namespace trireme
