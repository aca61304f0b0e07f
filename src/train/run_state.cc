#include "trireme/train/run_state.h"

#include <sstream>
#include <utility>
#include <vector>

#include "trireme/base/text.h"
#include "trireme/env/spec_state.h"
#include "trireme/metrics/progress.h"

namespace trireme {
namespace {

std::string_view NameOf(Activation activation) {
  for (const auto& [name, value] : kActivationNames) {
    if (value == activation) return name;
  }
  return "?";
}

// Whether each worker has a part of the checkpoint that holds all it needs.
bool EachHasAll(const RunConfig& run) { return run.coordination().leaves == Leaves::kEverything; }

// Of stores that can take over from each other.
std::string StoreIdentity(const RunConfig& run) {
  const std::string name(run.coordination().name);
  return EachHasAll(run) ? fmt::format("{}, {} workers", name, run.workers) : name;
}

constexpr const char* kPerWorker = "progress/per_worker";
constexpr const char* kEvalCutOff = "progress/eval_cut_off";
constexpr const char* kEvalPending = "progress/eval_pending";
constexpr const char* kPendingValues = "progress/pending_values";
constexpr const char* kWorkers = "workers";                       // how many held something of their own
constexpr const char* kPartial = "run/partial";                   // without the experience of its workers
constexpr const char* kArithmetic = "run/device";                 // where it was not the default
constexpr const char* kWithoutEpisodes = "run/without_episodes";  // of an environment that cannot be saved

// The names, a line each, and the values.
void SavePendingRow(const MetricRow& row, StateWriter& out) {
  std::string names;
  std::vector<double> values;
  for (const auto& [name, value] : row.values()) {
    names += name + "\n";
    values.push_back(value);
  }
  out.PutText(kEvalPending, names);
  out.Put<double>(kPendingValues, values);
}

MetricRow LoadPendingRow(const StateReader& in) {
  std::istringstream names(in.GetText(kEvalPending));
  std::vector<std::string> all;
  for (std::string name; std::getline(names, name);) {
    if (name == "step" || name == "wall_s") Fail("{} is no name of what was measured", name);
    all.push_back(name);
  }
  std::vector<double> values(all.size());
  in.Get<double>(kPendingValues, values);
  MetricRow row;
  for (std::size_t i = 0; i < all.size(); ++i) row.Set(all[i], values[i]);
  return row;
}

// What a checkpoint must have in common with the settings it is loaded into.
std::vector<std::pair<std::string, std::string>> Identity(const RunConfig& run, const Network& network) {
  return {{"env", run.env_identity()},
          {"algo", run.algo},
          {"seed", fmt::format("{}", run.seed)},
          {"shards", fmt::format("{}", run.shards)},
          {"network", DescribeNetwork(network.spec())},
          {"store", StoreIdentity(run)}};
}

}  // namespace

bool HoldsProgress(const StateReader& state) { return state.Has("progress/steps"); }

std::string DescribeNetwork(const NetworkSpec& spec) {
  std::string text;
  for (const TowerSpec& tower : spec.towers) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", tower.name, tower.inputs);
    for (const int units : tower.hidden) text += fmt::format("-{}", units);
    text += fmt::format("-{} {}", tower.outputs, NameOf(tower.activation));
  }
  return text;
}

std::string DescribeResumed(Resumed resumed, const std::string& env, std::int64_t steps) {
  const std::string after = fmt::format("goes on after {} steps", FormatCount(static_cast<double>(steps)));
  switch (resumed) {
    case Resumed::kExactly:
      return "";
    case Resumed::kNewEpisodes:
      return fmt::format("{}: {} begins new episodes, all else goes on", after, env);
    case Resumed::kNoExperience:
      return fmt::format("{} with what was learned: experience (episodes, replay) begins anew", after);
  }
  return "?";
}

std::string ArithmeticOf(const StateReader& checkpoint) {
  return checkpoint.Has(kArithmetic) ? checkpoint.GetText(kArithmetic) : RunConfig().Arithmetic();
}

std::string DescribeOtherArithmetic(const std::string& before, const std::string& now) {
  if (before == now) return "";
  return fmt::format(
      "goes on with device {} after {}: rounding differs, so the result is not, bit for bit, that of one of "
      "them",
      now, Printable(before));
}

std::string DescribeLosses(const EnvEntry& env) {
  std::string text;
  if (!env.facts.snapshots) {
    text = "cannot be saved: a resumed run keeps what it learned and begins new episodes";
  }
  if (!env.facts.reproducible) {
    text +=
        fmt::format("{}is not reproducible: the same seed gives another run", text.empty() ? "" : "; it ");
  }
  return text.empty() ? "" : fmt::format("{} {}", env.spec.name, text);
}

std::string DescribeExchange(const RunConfig& run) {
  const std::string codec = run.gradient_codec();
  if (codec != kNoCodec && !run.sends_gradients()) {
    return fmt::format("compress = {} does nothing here: the gradients of one process do not leave it",
                       codec);
  }
  if (codec != run.compress && codec != kNoCodec) {
    return fmt::format(
        "gradients are sent in {}, as precision is: the result depends on the number of {} (--compress none "
        "sends 32 bits)",
        codec, run.store_entry().on_servers ? "servers and workers" : "processes");
  }
  if (run.local_steps > 0) {
    return fmt::format(
        "workers average their parameters every {} updates: the result depends on the number of workers",
        run.local_steps);
  }
  return "";
}

void SaveIdentity(const RunConfig& run, const Network& network, StateWriter& out) {
  for (const auto& [name, value] : Identity(run, network)) out.PutText("run/" + name, value);
  SaveSpec(run.env_spec, out);
}

void RequireIdentity(const StateReader& checkpoint, const RunConfig& run, const Network& network) {
  for (const auto& [name, value] : Identity(run, network)) {
    const std::string& saved = checkpoint.GetText("run/" + name);
    if (saved != value) Fail("it was made with {} {}, not {}", name, saved, value);
  }
}

namespace {

// Between averages of parameters, what all workers would hold alike may follow each one's own.
std::string LocalPrefix(int rank) { return fmt::format("local/{}/", rank); }

}  // namespace

void SaveWorkerState(const RunConfig& run, int rank, const ParameterStore& store, const Algorithm& algorithm,
                     StateWriter& out) {
  switch (run.coordination().leaves) {
    case Leaves::kNothing:
      return;
    case Leaves::kShards:
      algorithm.SaveShards(out);
      store.SaveOwn(out);
      if (run.local_steps > 1) {
        StateWriter common;
        algorithm.SaveCommon(common);
        out.Merge(std::move(common), LocalPrefix(rank));
        out.PutValue<std::int32_t>(LocalPrefix(rank) + kWorkers, run.total_workers());
      }
      return;
    case Leaves::kEverything:
      algorithm.SaveShards(out);
      algorithm.SaveCommon(out);
      store.Save(out);
      return;
  }
}

// Shards are numbered over the whole run, so that those of workers in step need no prefix, and can be loaded
// by any number of workers.
std::string WorkerPrefix(const RunConfig& run, int rank) {
  return EachHasAll(run) ? fmt::format("worker/{}/", rank) : "";
}

StateWriter LearnedState(const RunConfig& run, const ParameterStore& store, const Algorithm& algorithm) {
  StateWriter learned;
  switch (run.coordination().leaves) {
    case Leaves::kEverything:
      break;
    case Leaves::kShards:
      store.Save(learned);
      algorithm.SaveCommon(learned);
      break;
    case Leaves::kNothing:
      store.Save(learned);
      break;
  }
  return learned;
}

void SaveRunState(const RunConfig& run, const Network& network, RunProgress& progress, StateWriter&& learned,
                  bool complete, StateWriter& out) {
  if (!complete) out.PutValue<std::uint8_t>(kPartial, 1);
  if (!run.env_snapshots) out.PutValue<std::uint8_t>(kWithoutEpisodes, 1);
  if (run.Arithmetic() != RunConfig().Arithmetic()) out.PutText(kArithmetic, run.Arithmetic());
  SaveIdentity(run, network, out);
  progress.Visit([&](const char* name, auto& value) { out.PutValue(name, value); });
  if (progress.eval_cut_off > 0) out.PutValue<std::int32_t>(kEvalCutOff, progress.eval_cut_off);
  if (progress.eval_pending) SavePendingRow(progress.pending_row, out);
  progress.best.Visit([&](const char* name, auto& value) { out.PutValue(name, value); });
  out.Put<WorkerFacts>(kPerWorker, progress.per_worker);
  out.Merge(std::move(learned));
}

namespace {

template <class Load>
void FromCheckpoint(const std::string& origin, Load&& load) {
  try {
    load();
  } catch (const Error& error) {
    Fail("the checkpoint in {} does not fit the settings: {}", origin, error.what());
  }
}

}  // namespace

void LoadProgress(const StateReader& checkpoint, const std::string& origin, const RunConfig& run,
                  const Network& network, RunProgress& progress) {
  FromCheckpoint(origin, [&] {
    RequireIdentity(checkpoint, run, network);
    const auto load = [&](const char* name, auto& value) {
      value = checkpoint.GetValue<std::decay_t<decltype(value)>>(name);
    };
    progress.Visit(load);
    progress.eval_cut_off = checkpoint.Has(kEvalCutOff) ? checkpoint.GetValue<std::int32_t>(kEvalCutOff) : 0;
    progress.eval_pending = checkpoint.Has(kEvalPending);
    if (progress.eval_pending) progress.pending_row = LoadPendingRow(checkpoint);
    if (checkpoint.Has("best/steps")) progress.best.Visit(load);  // not so in early runs
    if (checkpoint.GetText(kPerWorker).size() == sizeof(WorkerFacts) * run.total_workers()) {
      progress.per_worker.resize(run.total_workers());
      checkpoint.Get<WorkerFacts>(kPerWorker, progress.per_worker);
    }
  });
}

void LoadStore(const StateReader& checkpoint, const std::string& origin, const RunConfig& run, int rank,
               ParameterStore& store) {
  FromCheckpoint(origin, [&] { store.Load(checkpoint.Below(WorkerPrefix(run, rank))); });
}

void LoadParams(const StateReader& checkpoint, const std::string& origin, const std::string& prefix,
                std::span<float> params) {
  FromCheckpoint(origin, [&] { checkpoint.Below(prefix).Get<float>("params", params); });
}

Resumed LoadAlgorithm(const StateReader& checkpoint, const std::string& origin, const RunConfig& run,
                      int rank, Algorithm& algorithm) {
  if (run.coordination().leaves == Leaves::kNothing) return Resumed::kNoExperience;
  const StateReader own = checkpoint.Below(WorkerPrefix(run, rank));
  const bool partial = checkpoint.Has(kPartial);
  FromCheckpoint(origin, [&] {
    if (!partial) algorithm.LoadShards(own);
    const StateReader local = checkpoint.Below(LocalPrefix(rank));
    const bool as_many = !partial && run.local_steps > 1 && local.Has(kWorkers) &&
                         local.GetValue<std::int32_t>(kWorkers) == run.total_workers();
    algorithm.LoadCommon(as_many ? local : own);
  });
  if (partial) return Resumed::kNoExperience;
  return run.env_snapshots && !checkpoint.Has(kWithoutEpisodes) ? Resumed::kExactly : Resumed::kNewEpisodes;
}

std::string LoadOwn(const StateReader& checkpoint, const std::string& origin, const RunConfig& run,
                    ParameterStore& store) {
  if (run.coordination().leaves != Leaves::kShards) return "";
  std::string line;
  FromCheckpoint(origin, [&] { line = store.LoadOwn(checkpoint); });
  return line;
}

bool IsExperience(std::string_view section) {
  constexpr std::string_view kWorker = "worker/";  // see WorkerPrefix
  if (section.starts_with(kWorker)) section.remove_prefix(section.find('/', kWorker.size()) + 1);
  return section.starts_with("shard/") || section.starts_with("residual/") || section.starts_with("local/");
}

}  // namespace trireme
