// The settings every run has, whatever its algorithm.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/base/config.h"
#include "trireme/base/system.h"
#include "trireme/env/registry.h"
#include "trireme/nn/device.h"
#include "trireme/server/protocol.h"
#include "trireme/split/model_split.h"
#include "trireme/train/evaluator.h"
#include "trireme/train/run_folder.h"
#include "trireme/train/stores.h"

namespace trireme {

// "host:port,host:port" of a setting. Throws Error.
std::vector<std::string> AddressList(std::string_view setting, std::string_view text);

// Of store `server`.
struct ServerConfig {
  std::string addresses = "1";
  Pace pace = Pace::kSync;
  int run_workers = 0;  // of all processes, in step; 0: those of this process
  int backup_workers = 0;
  std::int64_t staleness_bound = 4;
  bool staleness_scaled = false;
  bool overlap = true;
  double lease_s = 5, round_s = 300, wait_s = 60;

  void Fields(ConfigFields& field);

  // How many servers are to be started here; 0: `addresses` says where they are.
  int local() const;
  std::vector<std::string> List() const;
};

// Who evaluates the network for actors: each its own, or all have theirs evaluated together.
enum class Inference { kLocal, kCentral };
inline constexpr EnumName<Inference> kInferenceNames[] = {{"local", Inference::kLocal},
                                                          {"central", Inference::kCentral}};

// `compress`: gradients are sent with as many bits as networks are computed with.
inline constexpr std::string_view kAsPrecision = "auto";

struct RunConfig {
  std::string env = "CartPole-v1";
  std::vector<std::string> env_args = {};  // "key=value" each
  std::string algo = "ppo";
  std::string store = "allreduce";
  bool share_moments = true;
  std::string schedule;
  ServerConfig server;
  std::string device = "fused";
  Precision precision = Precision::kFp32;
  std::string compress = std::string(kAsPrecision);
  std::string compress_params = "same";
  int local_steps = 0;
  std::string model_parallel = "none";
  int workers = 0;                  // of each process; 0: as many as the processors allow
  int actors = 0;                   // of each process
  std::string listen = "";          // where actors of other processes may join; empty: nowhere
  std::string replay_servers = "";  // that remember what actors collect; empty: the workers do
  double replay_slack = 4;          // rounds
  int queue = 0;                    // 0: as many as one update takes
  int max_lag = 0;
  Inference inference = Inference::kLocal;  // of actors; the next two are about kCentral
  int inference_batch = 256;                // environments
  double inference_wait_us = 1000;
  int shards = 8;
  Precision experience = Precision::kFp32;
  std::int64_t steps = 1'000'000;
  std::uint64_t seed = 1;
  bool stop_at_target = false;
  std::optional<double> target = {};  // Resolve takes the environment's threshold, if that has one
  std::int64_t eval_every = 100'000;
  int eval_episodes = 100;
  int eval_max_steps = 10'000;
  double checkpoint_every_s = 30;
  double predicted_steps_per_s = 0;  // by --parallel auto, which has chosen the settings; 0: nobody has

  // Not settings: how the run was started, and what Resolve finds out about its environment.
  int processes = 1;
  std::string env_options = {};  // those that are not the defaults: "max_steps=200 args=["wind=1.5"]"
  bool env_snapshots = true;     // checkpoints hold the environments
  EnvSpec env_spec = {};         // of checkpoints, for whoever acts by them without the environment

  void Fields(ConfigFields& field);

  // The environment and those of its options that are not the defaults: what must agree for one run to go on
  // with what another has learned.
  std::string env_identity() const { return env_options.empty() ? env : env + ' ' + env_options; }
  EvaluationPlan EvaluationOf(std::uint64_t with_seed, int episodes) const {
    return {.seed = with_seed, .episodes = episodes, .groups = shards, .max_steps = eval_max_steps};
  }
  const StoreEntry& store_entry() const { return FindStore(store); }
  const Coordination& coordination() const { return store_entry().coordination(*this); }
  bool in_step() const { return coordination().in_step; }
  bool asynchronous() const { return !in_step(); }
  // Of worker `worker`, counted through all processes.
  Computing ComputingOf(int worker) const;
  // "fused", "cuda:0,cuda:1 in bf16".
  std::string ComputedBy() const;
  // All that rounding depends on: ComputedBy, a split whose sums have another order, local steps.
  std::string Arithmetic() const;
  // What multiplies the numbers of such a network in this process: "fp32", "avx512_bf16", "libtorch". It changes the time
  // a run takes and nothing else (nn/bf16_products.h).
  std::string ProductsFor(const NetworkSpec& network) const;
  // The codec that gradients leave this process with: compress, with what it stands for.
  std::string gradient_codec() const;
  // The codec that parameters on their way back to workers have: compress_params, with what it stands for. kNoCodec
  // where there is no compression.
  std::string params_codec() const;
  // Whether gradients leave this process, so that there is something to compress.
  bool sends_gradients() const { return store_entry().on_servers || processes > 1; }
  // Throws Error unless Resolve has been there before.
  ModelSplit split() const { return ModelSplit::Parse(model_parallel); }
  // Whether others collect for the workers; if not, they do.
  bool has_actors() const { return actors > 0 || !listen.empty() || on_replay_servers(); }
  bool on_replay_servers() const { return !replay_servers.empty(); }
  bool central_inference() const { return inference == Inference::kCentral; }
  // Trajectories that may wait for one worker.
  std::size_t QueueOfWorker() const { return queue > 0 ? queue : shards / total_workers(); }
  // For folders: "CartPole-v1-ppo-seed1".
  std::string Name() const;
  // Of all processes; of an elastic run, of this one.
  int total_workers() const {
    const bool elsewhere = store_entry().on_servers && in_step() && server.run_workers > 0;
    return elsewhere ? server.run_workers : processes * workers;
  }
};

// Systems of the field that are an algorithm with a certain store.
struct System {
  std::string_view name, algo, store, help;
};
inline constexpr System kSystems[] = {
    {"a3c", "a2c", "shared", "asynchronous advantage actor-critic"},
    {"async_dqn", "dqn", "shared", "asynchronous double Q-learning"},
};

// The settings of one run, from all their sources.
class RunSettings {
 public:
  // Defaults and a preset: that of asynchronous runs of (env, algo) or else that of (env, algo), if there is
  // one. Starts nothing of the environment. Throws Error for unknown names.
  RunSettings(const std::string& env, const std::string& algo, const std::string& store = "allreduce",
              Pace pace = Pace::kSync);
  RunSettings(const RunSettings&) = delete;
  RunSettings& operator=(const RunSettings&) = delete;

  RunConfig run;
  std::unique_ptr<EnvOptions> env_options;
  std::unique_ptr<AlgorithmSettings> algorithm;
  ConfigFields fields;  // over all; options of the environment have kEnvOptionPrefix

  // Adds arguments of the environment, "key=value" each, in place of those it has under the same keys. Throws Error
  // that begins with `origin`.
  void SetEnvArgs(std::span<const std::string> assignments, const std::string& origin);

  // With the options as they were when Resolve was last called, which it requires. What it has captured ends with
  // the settings.
  const EnvEntry& env() const {
    TRIREME_CHECK(env_.has_value());
    return *env_;
  }
  // Memory for experience, over all workers.
  std::uint64_t ExperienceBytes() const;
  // Fills in what is chosen automatically, finds the environment unless it is the one there is already, and
  // checks that everything fits together, for a run of `processes` with `processors` each. Throws Error.
  void Resolve(int processes = 1, int processors = UsableProcessors());
  // For whoever computes the network alone, whatever the run did. Before Resolve.
  void ForgetSplit();
  // The same for whoever only acts by what was learned: the environment is not looked for, and cannot be made.
  void ResolveWithout(const EnvSpec& spec);

 private:
  void Resolve(int processes, int processors, const EnvSpec* known);
  void ResolveEnv(const EnvSpec* known);

  std::size_t first_option_ = 0, end_of_options_ = 0;  // of the environment, among the fields
  std::optional<EnvEntry> env_;
  std::string asked_;  // options it was found with
};

// Whether asynchronous runs of (env, algo) begin with a preset of their own, so with other settings than those in step.
bool HasAsynchronousPreset(const std::string& env, const std::string& algo);

// What decides which defaults and preset a run begins with. Empty: not chosen.
struct RunChoice {
  std::string env, algo, store, pace;  // algo may be one of kSystems
};
// The settings a run so chosen begins with. Throws Error.
std::unique_ptr<RunSettings> SettingsFor(RunChoice choice);

// The settings saved in the folder of a run, and from their text, where `origin` is the file it is from.
// Throw Error.
std::unique_ptr<RunSettings> ReadRunSettings(const RunFolder& folder);
std::unique_ptr<RunSettings> ParseRunSettings(const std::string& text, const std::string& origin);

}  // namespace trireme
