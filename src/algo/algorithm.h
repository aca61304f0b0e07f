// An algorithm is what one worker does: collect experience from its own environments, compute gradients, hand
// them to the store. It knows its shards and its store, and nothing of threads, ranks or networks of
// machines.
//
// The work of workers that move in step is cut into a fixed number of shards; a worker owns some of them.
// Whatever crosses shards goes through a ShardSum and then the store, so results do not depend on who owns
// which shard. A worker that moves on its own (in an asynchronous store) owns all shards of its step.
//
// An algorithm collects and learns. Those that can learn from what others have collected (AlgorithmEntry::actors) also say how
// actors choose (Acting), and may be given a source of what these send.
//
// Thread safety: an Algorithm and its settings belong to one worker, an Acting to one actor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/base/state.h"
#include "trireme/env/env.h"
#include "trireme/experience/replay_source.h"
#include "trireme/experience/source.h"
#include "trireme/metrics/metric_row.h"
#include "trireme/nn/executor.h"
#include "trireme/optim/optimizer.h"
#include "trireme/rollout/rollout.h"
#include "trireme/store/parameter_store.h"

namespace trireme {

// What a worker is given. References outlive the algorithm.
struct WorkerContext {
  const EnvEntry& env;
  const Executor& executor;
  ParameterStore& store;
  std::uint64_t seed = 0;  // of shards that begin with this worker; loaded ones bring their own
  int shards = 1;          // whose gradients make one step, over all workers that move in step
  int first_shard = 0;  // this worker's are first_shard, ..., first_shard + own_shards - 1 of the whole run
  // 0: it is only to act as it has learned: no environments are made, and nobody calls Iterate or SaveShards.
  int own_shards = 1;
  // Where actors collect for this worker: what they send, a trajectory for each of its shards. It has no environments
  // then. Null: it collects for itself.
  ExperienceSource* experience = nullptr;
  // Where what actors collect is remembered elsewhere: draws for the worker's shards. Null: it remembers for itself, what it
  // collects or is sent.
  ReplaySource* replay = nullptr;
};

// How those choose who collect for learners elsewhere, and what they tell of it.
class Acting {
 public:
  virtual ~Acting() = default;
  // Of all choices from now on. They stay as they are until the next call.
  virtual void SetParams(std::span<const float> params) = 0;
  // Writes actions, and `extra`, which learners may need.
  virtual void Choose(const ActionRequest& request) = 0;
  // The same for several at once, of so many environments together, which may be cheaper.
  virtual void ChooseTogether(std::span<const ActionRequest> requests) {
    for (const ActionRequest& request : requests) Choose(request);
  }
  // Whether there is anything more to say of a whole trajectory, which Note then writes to its `extra`.
  virtual bool notes() const { return false; }
  virtual void Note(Trajectory& /*trajectory*/) {}
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // One stretch of collecting and learning. `progress` is the share of the run's steps done before it. Adds
  // what it measured, over all workers that move in step, to `row`. Throws Error when training has diverged.
  virtual void Iterate(double progress, MetricRow& row) = 0;
  // Environment steps of one Iterate, over all workers that move in step.
  virtual std::int64_t steps_per_iteration() const = 0;
  // Pushes of one Iterate, once it learns, unless something ends it early. 0: not known before.
  virtual std::int64_t updates_per_iteration() const { return 0; }

  // The actions the learned policy would choose without exploring. obs: [n, obs] as the environment gives
  // them (bytes scaled: ObsToFloat), masks: [n, choices] or null where it gives none, actions: [n, action_size];
  // n <= kMostActed.
  virtual void Act(std::span<const float> obs, const std::uint8_t* masks, int n,
                   std::span<float> actions) = 0;
  static constexpr int kMostActed = 128;
  // The actions it would choose while it learns, with as much exploring as is left at the end of a run. The same
  // conditions; `extra` is given.
  virtual void Explore(const ActionRequest& request) = 0;

  // State beyond the store's: of this worker's shards, and what all workers that move in step hold alike. A
  // worker that joins others takes over their common state and has shards of its own. Loading throws Error.
  virtual void SaveShards(StateWriter& out) const = 0;
  virtual void SaveCommon(StateWriter& out) const = 0;
  virtual void LoadShards(const StateReader& in) = 0;
  virtual void LoadCommon(const StateReader& in) = 0;
  // After LoadCommon, where all workers begin with fresh shards though the run has made steps: what counts
  // experience starts at 0.
  virtual void BeginWithoutExperience() {}
};

// The settings of one algorithm, and what can be built from them.
class AlgorithmSettings {
 public:
  virtual ~AlgorithmSettings() = default;

  virtual void Fields(ConfigFields& field) = 0;
  // Throws Error when the settings do not fit together, this environment or this number of shards.
  virtual void Validate(const EnvSpec& env, int shards) const = 0;
  // The setting, if any, that only works when all workers share their statistics; empty: none.
  virtual std::string NeedsWorkersInStep() const { return ""; }
  // Memory for experience (rollouts, replay), over all workers that move in step.
  virtual std::uint64_t ExperienceBytes(const EnvSpec& env) const = 0;
  virtual NetworkSpec MakeNetwork(const EnvSpec& env) const = 0;
  virtual const OptimizerSettings& optimizer() const = 0;
  virtual std::unique_ptr<Algorithm> Make(const WorkerContext& context) const = 0;
  // Of a trajectory, where a step learns from `shards` of them; zeros unless AlgorithmEntry::actors.
  struct StepsAndEnvs {
    int steps = 0, envs = 0;
  };
  virtual StepsAndEnvs TrajectorySize(int /*shards*/) const { return {}; }
  // How what actors collect is remembered where the worker does not do it, by so many servers together; nothing unless it
  // can learn by drawing from there (WorkerContext::replay).
  struct Replaying {
    ReplayRules rules = {};  // of one of the servers
    double least = 0;        // transitions that must be there before the first draw, on all servers together
    double draws_per_insert = 1;
    std::uint64_t part = 0;  // transitions of one draw: one shard's part of a batch
    double round = 0;        // transitions that a round of learning draws, over all shards
  };
  virtual std::optional<Replaying> RemembersElsewhere(int /*shards*/, int /*servers*/) const {
    return std::nullopt;
  }
  // For one actor, who chooses for up to `envs` environments at a time. Null unless AlgorithmEntry::actors. `executor`
  // outlives it.
  virtual std::unique_ptr<Acting> MakeActing(const EnvSpec& /*env*/, const Executor& /*executor*/,
                                             int /*envs*/) const {
    return nullptr;
  }
};

// Throws Error when training has diverged: `what` ("the gradient") is not finite.
void CheckFinite(double value, const char* what);
// The same for all parameters.
void CheckFinite(std::span<const float> params);

// A row of the registry.
struct AlgorithmEntry {
  std::string name;
  std::string help;       // one line for `trireme algos`
  bool discrete = false;  // action spaces it can drive
  bool continuous = false;
  bool multi_discrete = false;
  bool masks = false;   // keeps to the actions that an environment allows
  bool actors = false;  // learns from what others have collected with older parameters
  bool replays =
      false;  // draws from what replay servers remember of that (AlgorithmSettings::RemembersElsewhere)
  std::string metrics;  // names it adds to a MetricRow
  std::function<std::unique_ptr<AlgorithmSettings>()> make_settings;
};

// The table of algorithms is open. All three may be called from several threads at once; entries stay where they
// are until the program ends.
//
// Throws Error when the name is taken or none, or when there is nothing that the algorithm can drive.
void AddAlgorithm(AlgorithmEntry entry);
// As it stands, in the order in which they were added; built-in ones come first.
std::vector<AlgorithmEntry> AllAlgorithms();
// Throws Error with the nearest name when there is no such algorithm.
const AlgorithmEntry& FindAlgorithm(const std::string& name);

}  // namespace trireme
