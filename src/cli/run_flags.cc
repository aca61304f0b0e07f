#include "trireme/cli/run_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "trireme/base/file.h"
#include "trireme/base/parse.h"

namespace trireme {
namespace {

std::atomic<bool> stop_requested{false};
std::atomic<int> stop_signal{SIGTERM};

extern "C" void RequestStop(int signal) {
  if (!stop_requested.load()) stop_signal.store(signal);
  stop_requested.store(true);
  std::signal(signal, SIG_DFL);
}

// Some settings decide which preset applies, so they are looked for before the rest; empty: not chosen.
std::string Chosen(const char* name, const std::optional<std::string>& flag, const RunFlags& flags,
                   const std::string& config) {
  std::string value = flag.value_or(ReadTomlText(config, name, flags.config));
  for (const std::string& assignment : flags.assignments) {
    const std::size_t equals = assignment.find('=');
    if (equals != std::string::npos && Trim(std::string_view(assignment).substr(0, equals)) == name) {
      value = Trim(std::string_view(assignment).substr(equals + 1));
    }
  }
  return value;
}

std::optional<std::string> PaceFlag(const RunFlags& flags) {
  if (flags.sync + flags.async + flags.ssp.has_value() > 1) Fail("choose one of --sync, --async and --ssp");
  if (flags.sync) return "sync";
  if (flags.async) return "async";
  if (flags.ssp) return "ssp";
  return std::nullopt;
}

}  // namespace

void AddEnvOptions(CommandLine& command, RunFlags& flags) {
  command.Option("--env", flags.env, "environment; `trireme envs` lists them");
  command.Option("--env-arg", flags.env_args,
                 "key=value, an argument of an environment that takes any; may be repeated");
  command.Option("--env-hosts", flags.env_hosts,
                 "gym:, py: processes that step environments (one for each processor)");
  command.Option(
      "--env-timeout", flags.env_timeout,
      "gym:, py: seconds after which an environment that does not answer is made anew (60; 0: never)");
}

void ApplyFlags(const RunFlags& flags, RunSettings& settings) {
  const auto apply = [&](const char* name, const std::optional<std::string>& value) {
    if (value) settings.fields.Set(name, *value, fmt::format("--{}", name));
  };
  apply("workers", flags.workers);
  apply("actors", flags.actors);
  apply("listen", flags.listen);
  if (flags.replay) settings.fields.Set("replay_servers", *flags.replay, "--replay");
  apply("inference", flags.inference);
  apply("store", flags.store);
  if (flags.model_parallel) settings.fields.Set("model_parallel", *flags.model_parallel, "--model-parallel");
  apply("steps", flags.steps);
  apply("seed", flags.seed);
  apply("device", flags.device);
  apply("precision", flags.precision);
  const std::optional<std::string> pace = PaceFlag(flags);
  apply("servers", flags.servers);
  apply("pace", pace);
  if (flags.ssp) settings.fields.Set("staleness_bound", *flags.ssp, "--ssp");
  apply("compress", flags.compress);
  if (flags.local_steps) settings.fields.Set("local_steps", *flags.local_steps, "--local-steps");
  if (flags.backup_workers) settings.fields.Set("backup_workers", *flags.backup_workers, "--backup-workers");
  if (flags.target) {
    apply("target", flags.target);
    settings.run.stop_at_target = true;
  }
  settings.SetEnvArgs(flags.env_args, "--env-arg");
  for (const auto& [value, setting, flag] : {std::tuple{flags.env_hosts, "env_hosts", "--env-hosts"},
                                             {flags.env_timeout, "env_timeout_s", "--env-timeout"}}) {
    if (!value) continue;
    const std::vector<std::string> names = settings.fields.Names();
    if (std::ranges::find(names, setting) == names.end()) {
      Fail("{} is for environments in host processes, and {} is not in one", flag, settings.run.env);
    }
    settings.fields.Set(setting, *value, flag);
  }
  std::set<std::string_view> keys;
  for (const std::string& assignment : flags.assignments) {
    const std::string_view key = Trim(std::string_view(assignment).substr(0, assignment.find('=')));
    if (key == "env" || key == "algo") Fail("--set {}: {} is chosen by --{}", assignment, key, key);
    if (!keys.insert(key).second) Fail("--set {}: {} was set before: give each key once", assignment, key);
    settings.fields.ApplyAssignment(assignment, "--set");
  }
  // What was predicted was so for the settings as they were chosen.
  const auto changed = [&](const char* key) { return IsGiven(flags, key); };
  if (std::ranges::any_of(kChosenByAuto, changed)) settings.run.predicted_steps_per_s = 0;
}

std::unique_ptr<RunSettings> SettingsOfNewRun(const RunFlags& flags) {
  const std::string text = flags.config.empty() ? "" : ReadFile(flags.config);
  const std::string env = flags.env.empty() ? ReadTomlText(text, "env", flags.config) : flags.env;
  const std::string algo = flags.algo.empty() ? ReadTomlText(text, "algo", flags.config) : flags.algo;
  if (env.empty()) Fail("say which environment: --env NAME (`trireme envs` lists them)");
  std::string store = Chosen("store", flags.store, flags, text);
  if (store.empty() && flags.servers) store = StoreOnServers().name;
  auto settings = SettingsFor({env, algo, store, Chosen("pace", PaceFlag(flags), flags, text)});
  const RunConfig chosen = settings->run;
  if (!chosen.store_entry().on_servers && (flags.servers || PaceFlag(flags) || flags.backup_workers)) {
    Fail("--servers, --sync, --async, --ssp and --backup-workers are for --store server");
  }
  settings->fields.ApplyToml(text, flags.config);
  settings->run.env = chosen.env;
  settings->run.algo = chosen.algo;
  settings->run.store = chosen.store;
  ApplyFlags(flags, *settings);
  return settings;
}

Straggler ParseStraggler(const std::string& text, int workers) {
  if (text.empty()) return {};
  ConfigFields fields;
  Straggler asked{.worker = 0, .factor = 1};
  fields("worker", asked.worker, "which one", Between(0, workers - 1));
  fields("factor", asked.factor, "how many times slower", Between(1, 1e6));
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    fields.ApplyAssignment(rest.substr(0, comma), "--straggler");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  for (const char* key : {"worker", "factor"}) {
    if (text.find(key) == std::string::npos)
      Fail("--straggler {}: say {} too, as in worker=1,factor=5", text, key);
  }
  return asked;
}

bool IsGiven(const RunFlags& flags, std::string_view key) {
  for (const auto& [name, flag] : {std::pair("steps", &flags.steps),
                                   {"target", &flags.target},
                                   {"workers", &flags.workers},
                                   {"store", &flags.store},
                                   {"compress", &flags.compress},
                                   {"model_parallel", &flags.model_parallel}}) {
    if (key == name && *flag) return true;
  }
  return std::ranges::any_of(flags.assignments, [&](std::string_view assignment) {
    return Trim(assignment.substr(0, assignment.find('='))) == key;
  });
}

const std::atomic<bool>& StopOnSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(signal, RequestStop);
  return stop_requested;
}

int InterruptedCode() { return 128 + stop_signal.load(); }

}  // namespace trireme
