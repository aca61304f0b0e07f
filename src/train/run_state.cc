#include "train/run_state.h"

#include <utility>
#include <vector>

namespace trireme {
namespace {

std::string_view NameOf(Activation activation) {
  for (const auto& [name, value] : kActivationNames) {
    if (value == activation) return name;
  }
  return "?";
}

// "policy 4-64-64-2 tanh, value 4-64-64-1 tanh": the same parameters mean something else in another network,
// even where their number is the same.
std::string Describe(const NetworkSpec& spec) {
  std::string text;
  for (const TowerSpec& tower : spec.towers) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", tower.name, tower.inputs);
    for (const int units : tower.hidden) text += fmt::format("-{}", units);
    text += fmt::format("-{} {}", tower.outputs, NameOf(tower.activation));
  }
  return text;
}

// What a checkpoint must have in common with the settings it is loaded into.
std::vector<std::pair<std::string, std::string>> Identity(const RunConfig& run, const Network& network) {
  return {{"env", run.env},
          {"algo", run.algo},
          {"seed", fmt::format("{}", run.seed)},
          {"shards", fmt::format("{}", run.shards)},
          {"network", Describe(network.spec())}};
}

}  // namespace

void SaveRunState(const RunConfig& run, const Network& network, RunProgress& progress,
                  const ParameterStore& store, const Algorithm& algorithm, StateWriter& out) {
  for (const auto& [name, value] : Identity(run, network)) out.PutText("run/" + name, value);
  progress.Visit([&](const char* name, auto& value) { out.PutValue(name, value); });
  store.Save(out);
  algorithm.SaveCommon(out);
}

void LoadRunState(const StateReader& checkpoint, const RunFolder& folder, const RunConfig& run,
                  const Network& network, RunProgress& progress, ParameterStore& store,
                  Algorithm& algorithm) {
  try {
    for (const auto& [name, value] : Identity(run, network)) {
      const std::string& saved = checkpoint.GetText("run/" + name);
      if (saved != value) Fail("it was made with {} {}, not {}", name, saved, value);
    }
    progress.Visit([&](const char* name, auto& value) {
      value = checkpoint.GetValue<std::decay_t<decltype(value)>>(name);
    });
    store.Load(checkpoint);
    algorithm.Load(checkpoint);
  } catch (const Error& error) {
    Fail("the checkpoint in {} does not fit the settings: {}", folder.path().string(), error.what());
  }
}

}  // namespace trireme
