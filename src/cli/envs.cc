#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/plugin_header.h"
#include "trireme/cli/snapshot_check.h"
#include "trireme/env/env_check.h"
#include "trireme/env/registry.h"

namespace trireme {
namespace {

std::string ShapeText(const ObsSpec& obs) {
  std::string text;
  for (const int n : obs.shape) text += fmt::format("{}{}", text.empty() ? "" : "x", n);
  return text;
}

std::string LimitText(const EnvSpec& spec) {
  return spec.max_episode_steps == 0 ? "none" : fmt::format("{}", spec.max_episode_steps);
}
std::string ThresholdText(const EnvSpec& spec) {
  return spec.reward_threshold ? fmt::format("{}", *spec.reward_threshold) : "-";
}

constexpr const char* kRow = "{:<26} {:>4}  {:<14} {:>6}  {:>8}  {}\n";

void PrintSource(const EnvSource& source, bool all) {
  const auto row = [](const std::string& name, const std::string& help) {
    fmt::print(kRow, name, "", "", "", "", help);
  };
  row(source.prefix + "NAME", source.help);
  if (!all || !source.list) return;
  try {
    for (const EnvListing& env : source.list()) row(env.name, env.help);
  } catch (const Error& error) {  // of one source, which keeps nobody from hearing of the others
    row(source.prefix + "NAME", fmt::format("cannot be listed: {}", error.what()));
  }
}

void ListEnvs(bool all) {
  fmt::print(kRow, "name", "obs", "actions", "limit", "solved", "");
  for (const EnvEntry& entry : AllEnvs()) {
    const EnvSpec& spec = entry.spec;
    fmt::print(kRow, spec.name, ShapeText(spec.obs), spec.action.Describe(), LimitText(spec),
               ThresholdText(spec), spec.help);
  }
  for (const EnvSource& source : AllEnvSources()) PrintSource(source, all);
  fmt::print("\nMore about one, and its options: trireme envs NAME\n");
}

void PrintEnv(const std::string& name, const std::vector<std::string>& assignments) {
  const std::unique_ptr<EnvOptions> options = FindEnvOptions(name);
  const EnvEntry env = FindEnv(name, *options, ParseEnvArgs(assignments, "--env-arg"));
  const EnvSpec& spec = env.spec;
  const char* type = spec.obs.type == ObsType::kFloat32 ? "numbers" : "bytes";
  fmt::print("{}: {}\n", spec.name, spec.help);
  fmt::print("  observation    {} {}\n", ShapeText(spec.obs), type);
  if (!spec.note.empty()) fmt::print("                 {}\n", spec.note);
  fmt::print("  action         {}{}\n", spec.action.Describe(),
             spec.masks ? ", not all allowed everywhere" : "");
  fmt::print("  time limit     {}\n",
             spec.max_episode_steps == 0 ? "none" : fmt::format("{} steps", spec.max_episode_steps));
  fmt::print("  solved         {}\n", spec.reward_threshold
                                          ? fmt::format("at a mean return of {}", *spec.reward_threshold)
                                          : "nobody says when");
  fmt::print("  snapshots      {}\n", env.facts.snapshots ? "yes: an interrupted run resumes exactly" : "no");
  fmt::print("  reproducible   {}\n", env.facts.reproducible ? "yes: the same seed, the same bits" : "no");
  ConfigFields fields;
  fields.Add(*options, kEnvOptionPrefix);
  if (!fields.fields().empty()) fmt::print("\nOptions, for --set:\n{}", fields.Help());
  if (!options->takes_args()) return;
  if (const std::string known = options->ArgsHelp(); known.empty()) {
    fmt::print("\nTakes other arguments too: --env-arg key=value\n");
  } else {
    fmt::print("\nArguments, for --env-arg:\n{}", known);
  }
}

// Runs every check on an environment, for whoever writes one.
void RunChecks(const std::string& name, const std::vector<std::string>& assignments) {
  const std::unique_ptr<EnvOptions> options = FindEnvOptions(name);
  const EnvEntry env = FindEnv(name, *options, ParseEnvArgs(assignments, "--env-arg"));
  int failed = 0;
  const auto run = [&](const char* what, bool promised, const std::function<void()>& check) {
    fmt::print("{:<60} ", what);
    std::fflush(stdout);  // before what may take long, or crash
    if (!promised) {
      fmt::print("not promised\n");
      return;
    }
    try {
      check();
      fmt::print("ok\n");
    } catch (const std::exception& error) {
      fmt::print("FAILED\n  {}\n", error.what());
      ++failed;
    }
  };
  for (const EnvCheck& check : EnvChecks()) {
    run(check.what, check.promised == nullptr || env.facts.*check.promised, [&] { check.run(env); });
  }
  run("a snapshot goes on in another process", env.facts.snapshots,
      [&] { CheckSnapshotElsewhere(env, name, assignments); });
  if (failed > 0)
    Fail("{} is not right: {} of {} checks failed, see above", name, failed, EnvChecks().size() + 1);
  fmt::print("{} is right, as far as {} random steps can tell\n", name, LongRun(env));
}

}  // namespace

Command AddEnvsCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand("envs", "List the environments, or tell about one");
  struct Flags {
    std::string name, go_on_from;
    std::vector<std::string> args;
    bool all = false;
    bool check = false;
    bool plugin_header = false;
  };
  auto flags = std::make_shared<Flags>();
  command.Option("name", flags->name, "tell about this environment and its options");
  command.Option("--env-arg", flags->args,
                 "with this argument of the environment, key=value; may be repeated");
  command.Flag("--all", flags->all, "list what sources of environments have as well");
  command.Flag("--check", flags->check, "step this environment at random and say whether it keeps the rules");
  command.Flag("--plugin-header", flags->plugin_header,
               "print env_plugin.h, to write environments of your own in C and C++");
  command.HiddenOption(kGoOnFlag, flags->go_on_from);
  return [flags] {
    if (!flags->go_on_from.empty()) {
      const auto options = FindEnvOptions(flags->name);
      GoOnFrom(FindEnv(flags->name, *options, ParseEnvArgs(flags->args, "--env-arg")), flags->go_on_from);
    } else if (flags->plugin_header) {
      fmt::print("{}", PluginHeader());
    } else if (flags->check) {
      if (flags->name.empty()) Fail("--check needs the name of an environment: trireme envs NAME --check");
      RunChecks(flags->name, flags->args);
    } else if (flags->name.empty()) {
      ListEnvs(flags->all);
    } else {
      PrintEnv(flags->name, flags->args);
    }
    return 0;
  };
}

}  // namespace trireme
