#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "trireme/cli/commands.h"
#include "trireme/env/registry.h"

namespace trireme {
namespace {

std::string ShapeText(const ObsSpec& obs) {
  std::string text;
  for (const int n : obs.shape) text += fmt::format("{}{}", text.empty() ? "" : "x", n);
  return text;
}

void ListEnvs() {
  fmt::print("{:<26} {:>4}  {:<14} {:>6}  {:>8}  {}\n", "name", "obs", "actions", "limit", "solved", "");
  for (const EnvEntry& entry : AllEnvs()) {
    const EnvSpec& spec = entry.spec;
    fmt::print("{:<26} {:>4}  {:<14} {:>6}  {:>8}  {}\n", spec.name, ShapeText(spec.obs),
               spec.action.Describe(), spec.max_episode_steps, spec.reward_threshold, spec.help);
  }
  for (const EnvSource& source : AllEnvSources()) {
    fmt::print("{:<26} {:>4}  {:<14} {:>6}  {:>8}  {}\n", source.prefix + "NAME", "", "", "", "",
               source.help);
  }
  fmt::print("\nMore about one, and its options: trireme envs NAME\n");
}

void PrintEnv(const EnvEntry& env) {
  const EnvSpec& spec = env.spec;
  const char* type = spec.obs.type == ObsType::kFloat32 ? "numbers" : "bytes";
  fmt::print("{}: {}\n", spec.name, spec.help);
  fmt::print("  observation    {} {}\n", ShapeText(spec.obs), type);
  fmt::print("  action         {}{}\n", spec.action.Describe(),
             spec.masks ? ", not all allowed everywhere" : "");
  fmt::print("  time limit     {} steps\n", spec.max_episode_steps);
  fmt::print("  solved         at a mean return of {}\n", spec.reward_threshold);
  fmt::print("  snapshots      {}\n", env.facts.snapshots ? "yes: an interrupted run resumes exactly" : "no");
  fmt::print("  reproducible   {}\n", env.facts.reproducible ? "yes: the same seed, the same bits" : "no");
  if (!env.options) return;
  const std::unique_ptr<EnvOptions> options = env.options();
  ConfigFields fields;
  fields.Add(*options, kEnvOptionPrefix);
  fmt::print("\nOptions, for --set:\n{}", fields.Help());
}

}  // namespace

Command AddEnvsCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand("envs", "List the environments, or tell about one");
  auto name = std::make_shared<std::string>();
  command.Option("name", *name, "tell about this environment and its options");
  return [name] {
    if (name->empty()) {
      ListEnvs();
    } else {
      PrintEnv(FindEnv(*name));
    }
    return 0;
  };
}

}  // namespace trireme
