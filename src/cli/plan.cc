// `trireme plan`: how fast training would be with 1, 2, 4, ... 1024 workers, or with actors on other hosts, predicted from
// measured constants.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/config.h"
#include "trireme/base/file.h"
#include "trireme/base/system.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/json_output.h"
#include "trireme/cli/run_flags.h"
#include "trireme/plan/actors.h"
#include "trireme/plan/constants.h"
#include "trireme/plan/forecast.h"
#include "trireme/plan/runs.h"

namespace trireme {
namespace {

struct PlanFlags : RunFlags {
  std::map<std::string, std::string> plan;  // what was given of PlanConfig, by option
  std::string constants, save_constants, out;
  bool validate = false, json = false;
};

struct PlanConfig {
  ForecastQuestion question = {.scenario = {.cores = UsableProcessors()}, .straggler = ""};
  double latency_us = 30, bandwidth_gbit = 10;
  double seconds = 6;
  int actors = 0, actor_hosts = 0;

  // Each is an option, --workers-up-to and so on, and this is its help.
  void Fields(ConfigFields& field) {
    question.Fields(field);
    field("latency_us", latency_us, "microseconds of a message between hosts (30)", Positive());
    field("bandwidth_gbit", bandwidth_gbit, "gigabits per second of a host's link (10)", Positive());
    field("seconds", seconds, "time to measure for (6)", Between(0.1, 3600));
    field("actors", actors, "predict 1, 2, 4, ... actors up to this, and a learner that only learns",
          Between(0, 65'536));
    field("actor_hosts", actor_hosts, "hosts that the actors share (one for each --cores of them)",
          Between(0, 65'536));
  }
};

std::string OptionOf(std::string field) {
  std::ranges::replace(field, '_', '-');
  return "--" + field;
}

// "worker=1,factor=5" and "chance=0.01,slowdown=10", both or one of them.
Slowness ReadSlowness(const std::string& text) {
  Slowness slow;
  ConfigFields fields;
  fields("worker", slow.worker, "which one", Between(0, 65'535));
  fields("factor", slow.factor, "how many times slower", Between(1, 1e6));
  fields("chance", slow.chance, "that a round is slow", UnitInterval());
  fields("slowdown", slow.slowdown, "how many times slower then", Between(1, 1e6));
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    fields.ApplyAssignment(rest.substr(0, comma), "--straggler");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if ((slow.chance > 0) != (slow.slowdown > 1)) {
    Fail("--straggler {}: chance and slowdown go together, as in chance=0.01,slowdown=10", text);
  }
  if (!text.empty() && slow.factor == 1 && slow.chance == 0) {
    Fail("--straggler {}: say how slow, as in worker=1,factor=5 or chance=0.01,slowdown=10", text);
  }
  return slow;
}

PlanConfig ReadConfig(const PlanFlags& flags) {
  PlanConfig config;
  ConfigFields fields;
  fields.Add(config);
  for (const auto& [name, value] : flags.plan) fields.Set(name, value, OptionOf(name));
  config.question.scenario.slow = ReadSlowness(config.question.straggler);
  return config;
}

// Whatever the flags choose otherwise, the preset included.
std::unique_ptr<RunSettings> SettingsFor(const PlanFlags& flags, const PlanWay& way, int bound, int workers) {
  auto settings = SettingsOfNewRun(flags);
  RunConfig& run = settings->run;
  if (run.has_actors())
    Fail(
        "for a run whose workers only learn say how many actors: --actors 64, and leave out listen and "
        "replay_servers");
  run.store = way.store;
  run.server.addresses = "1";
  run.server.pace = way.pace;
  run.server.staleness_bound = bound;
  run.workers = workers * run.split().members;
  settings->Resolve();
  return settings;
}

// What was said about it.
void SetNetwork(const PlanFlags& flags, const PlanConfig& config, auto& constants) {
  if (flags.plan.contains("latency_us")) {
    constants.network.latency_s = 1e-6 * config.latency_us;
    constants.origins.emplace_back("network_latency", "--latency-us");
  }
  if (flags.plan.contains("bandwidth_gbit")) {
    constants.network.bytes_per_s = 1e9 / 8 * config.bandwidth_gbit;
    constants.origins.emplace_back("network_bytes", "--bandwidth-gbit");
  }
}

void ReadConstants(const PlanFlags& flags, const PlanConfig& config, const MakeSettings& make_settings,
                   const std::atomic<bool>& stop, PlanConstants& constants, std::vector<std::string>& notes) {
  if (!flags.constants.empty()) {
    const RunConfig run = make_settings(kAllReduceWay, 1)->run;
    constants.ReadFrom(flags.constants, run.env_identity(), run.algo, VariantOf(run));
    std::string missing;
    for (const PlanWay* const way : kPlanWays) {
      const bool known = constants.Knows(*way) || !way->not_predicted.empty();
      if (!known) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", way->name);
    }
    if (!missing.empty()) {
      notes.push_back(fmt::format("left out: {}: not measured for {}", missing, flags.constants));
    }
  } else {
    if (!flags.json) fmt::print(stderr, "measuring for about {:g} s\n", config.seconds);
    Calibrate(make_settings, config.seconds, stop, constants, notes);
  }
  if (stop) return;
  SetNetwork(flags, config, constants);
  if (!flags.save_constants.empty()) constants.WriteTo(flags.save_constants);
}

// Refused before anything is measured.
void CheckFolders(const PlanFlags& flags) {
  for (const auto& [flag, file] :
       {std::pair("--out", flags.out), {"--save-constants", flags.save_constants}}) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    std::error_code error;
    if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
      Fail("{} {}: there is no folder {}", flag, file, folder.string());
    }
  }
}

void PrintReport(const PlanFlags& flags, const JsonOutput& json, const CommandReport& report) {
  if (!flags.out.empty()) WriteFileAtomically(flags.out, report.plot.ToSvg());
  if (flags.json) {
    json.Print(report.ToJson());
    return;
  }
  fmt::print("{}", report.ToText());
  if (!flags.out.empty()) fmt::print("picture: {}\n", flags.out);
}

// What was asked that a prediction with actors has no answer to.
void CheckAboutActors(const PlanFlags& flags) {
  std::string about_workers;
  for (const char* name : {"workers_up_to", "servers", "servers_on", "ssp", "straggler"}) {
    if (flags.plan.contains(name)) about_workers = OptionOf(name);
  }
  if (!flags.constants.empty()) about_workers = "--constants";
  if (!flags.save_constants.empty()) about_workers = "--save-constants";
  if (flags.validate) about_workers = "--validate";
  if (!about_workers.empty())
    Fail("{} is about workers that collect for themselves: leave it out, or --actors", about_workers);
}

std::unique_ptr<RunSettings> SettingsWithActors(const PlanFlags& flags, const std::string& listen) {
  auto settings = SettingsOfNewRun(flags);
  RunConfig& run = settings->run;
  if (run.on_replay_servers()) {
    Fail(
        "plan does not know replay servers: leave out replay_servers, which predicts actors whose learner "
        "remembers "
        "for itself");
  }
  if (!run.schedule.empty()) Fail("plan does not know orders of actors and a learner: leave out schedule");
  run.actors = 0;  // all on other hosts
  run.listen = listen;
  settings->Resolve();
  return settings;
}

int PlanActors(const PlanFlags& flags, const PlanConfig& config, const JsonOutput& json) {
  CheckAboutActors(flags);
  const std::atomic<bool>& stop = StopOnSignals();
  std::vector<std::string> notes;
  const auto make_settings = [&](const std::string& listen) {
    auto settings = SettingsWithActors(flags, listen);
    if (settings->env().processes != nullptr) {
      notes.emplace_back(
          "environments step in processes of their own, whose processor time is not known: where a host has "
          "more actors "
          "than processors, it may be slower than predicted");
    }
    return settings;
  };
  ActorConstants constants;
  try {
    if (!flags.json) fmt::print(stderr, "measuring for about {:g} s\n", config.seconds);
    constants = MeasureActors(make_settings, config.seconds, stop);
  } catch (const Error&) {
    if (!stop) throw;
    return InterruptedCode();
  }
  SetNetwork(flags, config, constants);
  const ActorQuestion question{
      .up_to = config.actors, .hosts = config.actor_hosts, .cores = config.question.scenario.cores};
  PrintReport(flags, json, MakeActorReport(constants, question, std::move(notes)));
  return 0;
}

int RunPlan(const PlanFlags& flags) {
  const JsonOutput json(flags.json);
  PlanConfig config = ReadConfig(flags);
  CheckFolders(flags);
  if (config.actors > 0) return PlanActors(flags, config, json);
  if (config.actor_hosts > 0)
    Fail("--actor-hosts {}: say how many actors they share, as in --actors 64", config.actor_hosts);
  const MakeSettings make_settings = [&](const PlanWay& way, int workers) {
    return SettingsFor(flags, way, config.question.scenario.bound, workers);
  };
  const RunConfig run = make_settings(kAllReduceWay, 1)->run;
  if (run.split().members > config.question.scenario.cores) {
    Fail("--cores {}: a group of model_parallel = {} must have its {} workers on one host",
         config.question.scenario.cores, run.model_parallel, run.split().members);
  }
  config.question.scenario.seed = run.seed;
  config.question.scenario.overlap = run.server.overlap;
  const std::atomic<bool>& stop = StopOnSignals();
  PlanConstants constants;
  std::vector<std::string> notes;
  try {
    ReadConstants(flags, config, make_settings, stop, constants, notes);
  } catch (const Error&) {
    if (!stop) throw;
  }
  if (stop) return InterruptedCode();  // there is nothing to predict from

  Forecast forecast = MakeForecast(constants, config.question);
  forecast.notes = std::move(notes);
  if (flags.validate) {
    if (!flags.json) fmt::print(stderr, "running what this machine can run\n");
    Validate(constants, make_settings, config.seconds / 6, stop, forecast);
  }
  PrintReport(flags, json, MakeReport(forecast, constants));
  return stop ? InterruptedCode() : 0;
}

}  // namespace

Command AddPlanCommand(CommandLine& program) {
  CommandLine& command = program.AddCommand(
      "plan", "Predict the speed-up of up to 1024 workers by simulation, or what actors bring");
  auto flags = std::make_shared<PlanFlags>();
  AddEnvOptions(command, *flags);
  command.Option("--algo", flags->algo, "algorithm (ppo unless said); `trireme algos` lists them");
  command.Option("--store", flags->store, "whose preset to use; all ways are predicted");
  command.Option("--precision", flags->precision, "fp32, bf16 or fp16: its rounds are measured");
  command.Option("--compress", flags->compress,
                 "codec of gradients: its time is measured, its bytes are counted");
  command.Option("--local-steps", flags->local_steps,
                 "allreduce: updates between two averages of parameters");
  command.Option("--model-parallel", flags->model_parallel,
                 "workers that compute one network together: a group of them is measured");
  command.Option("--seed", flags->seed, "seed of the measured runs and of the simulation");
  command.Option("--config", flags->config, "settings from a TOML file, over the preset's");
  command.Option("--set", flags->assignments, "key=value, any setting; may be repeated");
  PlanConfig config;
  ConfigFields fields;
  fields.Add(config);
  for (const ConfigFields::Field& field : fields.fields()) {
    command.Option(
        OptionOf(field.name),
        [flags, name = field.name](const std::string& value) { flags->plan[name] = value; }, field.doc);
  }
  command.Option("--constants", flags->constants, "read the constants from this file instead of measuring");
  command.Option("--save-constants", flags->save_constants, "write the constants to this file");
  command.Flag("--validate", flags->validate, "run what this machine can run, and compare");
  command.Option("--out", flags->out, "write the picture to this file (SVG)");
  command.Flag("--json", flags->json, "print the result as one line of JSON and nothing else");
  command.Footer("docs/plan.md says what the columns mean and what the model leaves out.");
  return [flags] { return RunPlan(*flags); };
}

}  // namespace trireme
