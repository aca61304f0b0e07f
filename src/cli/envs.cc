#include <fmt/format.h>

#include <cstdio>

#include "trireme/cli/commands.h"
#include "trireme/env/env.h"

namespace trireme {

Command AddEnvsCommand(CommandLine& program) {
  program.AddCommand("envs", "List the environments");
  return [] {
    fmt::print("{:<26} {:>4}  {:<14} {:>6}  {:>8}  {}\n", "name", "obs", "actions", "limit", "solved", "");
    for (const EnvEntry& entry : AllEnvs()) {
      const EnvSpec& spec = entry.spec;
      const std::string actions = spec.action.discrete ? fmt::format("{} choices", spec.action.choices)
                                                       : fmt::format("{} continuous", spec.action.size());
      fmt::print("{:<26} {:>4}  {:<14} {:>6}  {:>8}  {}\n", spec.name, spec.obs_size, actions,
                 spec.max_episode_steps, spec.reward_threshold, spec.help);
    }
    return 0;
  };
}

}  // namespace trireme
