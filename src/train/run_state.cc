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

constexpr const char* kPerWorker = "progress/per_worker";

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
          {"network", Describe(network.spec())},
          {"store", run.asynchronous() ? fmt::format("shared, {} workers", run.workers) : "synchronous"}};
}

}  // namespace

void SaveWorkerState(const RunConfig& run, const ParameterStore& store, const Algorithm& algorithm,
                     StateWriter& out) {
  algorithm.SaveShards(out);
  if (!run.asynchronous()) return;
  algorithm.SaveCommon(out);
  store.Save(out);
}

// Shards are numbered over the whole run, so that those of workers in step need no prefix, and can be loaded
// by any number of workers.
std::string WorkerPrefix(const RunConfig& run, int rank) {
  return run.asynchronous() ? fmt::format("worker/{}/", rank) : "";
}

void SaveRunState(const RunConfig& run, const Network& network, RunProgress& progress,
                  const ParameterStore& store, const Algorithm& algorithm, StateWriter& out) {
  for (const auto& [name, value] : Identity(run, network)) out.PutText("run/" + name, value);
  progress.Visit([&](const char* name, auto& value) { out.PutValue(name, value); });
  out.Put<WorkerFacts>(kPerWorker, progress.per_worker);
  if (run.asynchronous()) return;
  store.Save(out);
  algorithm.SaveCommon(out);
}

void LoadRunState(const StateReader& checkpoint, const RunFolder& folder, const RunConfig& run,
                  const Network& network, int rank, RunProgress& progress, ParameterStore& store,
                  Algorithm& algorithm) {
  try {
    for (const auto& [name, value] : Identity(run, network)) {
      const std::string& saved = checkpoint.GetText("run/" + name);
      if (saved != value) Fail("it was made with {} {}, not {}", name, saved, value);
    }
    progress.Visit([&](const char* name, auto& value) {
      value = checkpoint.GetValue<std::decay_t<decltype(value)>>(name);
    });
    if (checkpoint.GetText(kPerWorker).size() == sizeof(WorkerFacts) * run.workers) {
      progress.per_worker.resize(run.workers);
      checkpoint.Get<WorkerFacts>(kPerWorker, progress.per_worker);
    }
    const StateReader own = checkpoint.Below(WorkerPrefix(run, rank));
    store.Load(own);
    algorithm.Load(own);
  } catch (const Error& error) {
    Fail("the checkpoint in {} does not fit the settings: {}", folder.path().string(), error.what());
  }
}

}  // namespace trireme
