// The settings every run has, whatever its algorithm.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "algo/algorithm.h"
#include "base/config.h"
#include "train/run_folder.h"

namespace trireme {

struct RunConfig {
  std::string env = "CartPole-v1";
  std::string algo = "ppo";
  std::string store = "allreduce";
  bool share_moments = true;
  std::string schedule;
  int workers = 0;  // 0: as many as the processors allow
  int shards = 8;
  std::int64_t steps = 1'000'000;
  std::uint64_t seed = 1;
  bool stop_at_target = false;
  double target = 0;
  std::int64_t eval_every = 100'000;
  int eval_episodes = 100;
  double checkpoint_every_s = 30;

  void Fields(ConfigFields& field);

  // Whether workers move on their own instead of in step.
  bool asynchronous() const { return store == "shared"; }
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
  // Defaults and a preset: that of (env, algo, store) or else of (env, algo), if there is one. Throws Error
  // for unknown names.
  RunSettings(const std::string& env, const std::string& algo, const std::string& store = "allreduce");
  RunSettings(const RunSettings&) = delete;
  RunSettings& operator=(const RunSettings&) = delete;

  RunConfig run;
  std::unique_ptr<AlgorithmSettings> algorithm;
  ConfigFields fields;  // over both

  const EnvEntry& env() const { return FindEnv(run.env); }
  // Memory for experience, over all workers.
  std::uint64_t ExperienceBytes() const;
  // Fills in what is chosen automatically and checks that everything fits together. Throws Error.
  void Resolve();
};

// The settings saved in the folder of a run. Throws Error.
std::unique_ptr<RunSettings> ReadRunSettings(const RunFolder& folder);

}  // namespace trireme
