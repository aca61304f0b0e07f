// What the commands that start runs share: their flags, the settings these flags make, and a clean end on
// signals.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/cli/command_line.h"
#include "trireme/train/run_config.h"
#include "trireme/train/trainer.h"

namespace trireme {

// As typed. What is absent leaves the setting to the config file, the preset or the default.
struct RunFlags {
  std::string env, algo, config;
  std::optional<std::string> workers, actors, listen, replay, store, steps, target, seed, device, precision,
      servers, ssp, backup_workers, inference, compress, local_steps, env_hosts, env_timeout, model_parallel;
  bool sync = false, async = false;
  std::vector<std::string> assignments;  // of --set
  std::vector<std::string> env_args;     // of --env-arg
};

// --env, --env-arg, --env-hosts and --env-timeout.
void AddEnvOptions(CommandLine& command, RunFlags& flags);

// Flags and --set, over what the settings hold already. Throws Error.
void ApplyFlags(const RunFlags& flags, RunSettings& settings);

// Defaults < preset < --config < flags < --set. Not resolved yet. Throws Error.
std::unique_ptr<RunSettings> SettingsOfNewRun(const RunFlags& flags);

// "worker=3,factor=5" in a run of `workers`; empty: none. Throws Error.
Straggler ParseStraggler(const std::string& text, int workers);

// What `--parallel auto` chooses, unless it is given.
inline constexpr const char* kChosenByAuto[] = {"workers", "store", "compress", "model_parallel"};

// Whether --steps, --target, --workers, --store, --compress or --model-parallel, or --set for `key`, was typed.
bool IsGiven(const RunFlags& flags, std::string_view key);

// From this call on the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 sets the flag it returns, which asks for a
// clean end; a second one ends the process at once.
const std::atomic<bool>& StopOnSignals();
// Exit code of a command that such a signal has ended before it was done: 128 and the number of the signal,
// as shells have it for processes that a signal has killed.
int InterruptedCode();

}  // namespace trireme
