// `trireme plan`: how fast training would be with 1, 2, 4, ... 1024 workers, predicted from measured
// constants.
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
#include "trireme/cli/run_flags.h"
#include "trireme/plan/calibrate.h"
#include "trireme/plan/constants.h"
#include "trireme/plan/forecast.h"
#include "trireme/plan/runs.h"
#include "trireme/plan/units.h"

namespace trireme {
namespace {

struct PlanFlags : RunFlags {
  std::map<std::string, std::string> plan;  // what was given of PlanConfig, by option
  std::optional<std::string> latency, bandwidth;
  std::string straggler, constants, save_constants, out;
  bool validate = false, json = false;
};

struct PlanConfig {
  // The number of hosts is within its range until it is known whether it was given.
  ForecastQuestion question = {.scenario = {.hosts = 1, .cores = UsableProcessors()}};
  std::string batch = "split", servers_on = "own";
  double seconds = 6;

  // Each is an option, --workers-up-to and so on, and this is its help.
  void Fields(ConfigFields& field) {
    Scenario& scenario = question.scenario;
    field("workers_up_to", question.workers_up_to, "predict 1, 2, 4, ... workers up to this (1024)",
          Between(1, 65'536));
    field("cores", scenario.cores, "processors of a host (as this machine)", Between(1, 1024));
    field("hosts", scenario.hosts, "hosts for workers, who share them (as many as there must be)",
          Between(1, 65'536));
    field("servers", scenario.servers, "parameter servers (1)", Between(1, 1024));
    field("servers_on", servers_on,
          "where servers run, on hosts of their own or on the workers': own, workers (own)",
          OneOf{"own", "workers"});
    field("ssp", scenario.bound, "rounds a worker may be ahead of the slowest (3)", Between(0, 1e6));
    field("batch", batch, "workers in step split a batch, or let it grow: split, grow (split)",
          OneOf{"split", "grow"});
    field("seconds", seconds, "time to measure for (6)", Between(0.1, 3600));
  }
};

std::string OptionOf(std::string field) {
  std::ranges::replace(field, '_', '-');
  return "--" + field;
}

// "worker=1,factor=5" and "chance=0.01,slowdown=10", both or one of them.
Slowness ReadSlowness(const std::string& text) {
  Slowness slow{.worker = 1};
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
  if (slow.factor == 1) slow.worker = -1;
  return slow;
}

PlanConfig ReadConfig(const PlanFlags& flags) {
  PlanConfig config;
  ConfigFields fields;
  fields.Add(config);
  for (const auto& [name, value] : flags.plan) fields.Set(name, value, OptionOf(name));
  Scenario& scenario = config.question.scenario;
  if (!flags.plan.contains("hosts")) scenario.hosts = 0;
  scenario.split = config.batch == "split";
  scenario.servers_on_workers = config.servers_on == "workers";
  scenario.slow = ReadSlowness(flags.straggler);
  return config;
}

// Whatever the flags choose otherwise, the preset included.
std::unique_ptr<RunSettings> SettingsFor(const PlanFlags& flags, const PlanWay& way, int bound, int workers) {
  auto settings = SettingsOfNewRun(flags);
  RunConfig& run = settings->run;
  run.store = way.store;
  run.server.addresses = "1";
  run.server.pace = way.pace;
  run.server.staleness_bound = bound;
  run.workers = workers;
  settings->Resolve();
  return settings;
}

void ReadConstants(const PlanFlags& flags, double seconds, const MakeSettings& make_settings,
                   const std::atomic<bool>& stop, ConstantTable& table, std::vector<std::string>& notes) {
  if (!flags.constants.empty()) {
    const RunConfig run = make_settings(kAllReduceWay, 1)->run;
    table.ReadFrom(flags.constants, run.env, run.algo);
    std::string missing;
    for (const PlanWay* const way : kPlanWays) {
      if (!table.values.Knows(*way)) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", way->name);
    }
    if (!missing.empty()) {
      notes.push_back(fmt::format("left out: {}: not measured for {}", missing, flags.constants));
    }
  } else {
    if (!flags.json) fmt::print(stderr, "measuring for about {:g} s\n", seconds);
    Calibrate(make_settings, seconds, stop, table, notes);
  }
  if (stop) return;
  if (flags.latency) {
    table.values.network.latency_s = ParseSeconds(*flags.latency, "--latency");
    table.SetOrigin("network_latency", "--latency");
  }
  if (flags.bandwidth) {
    table.values.network.bytes_per_s = ParseBytesPerSecond(*flags.bandwidth, "--bandwidth");
    table.SetOrigin("network_bytes", "--bandwidth");
  }
  if (!flags.save_constants.empty()) table.WriteTo(flags.save_constants);
}

// Refused before anything is measured.
void CheckFlags(const PlanFlags& flags) {
  if (flags.latency) ParseSeconds(*flags.latency, "--latency");
  if (flags.bandwidth) ParseBytesPerSecond(*flags.bandwidth, "--bandwidth");
  for (const auto& [flag, file] :
       {std::pair("--out", flags.out), {"--save-constants", flags.save_constants}}) {
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    std::error_code error;
    if (!folder.empty() && !std::filesystem::is_directory(folder, error)) {
      Fail("{} {}: there is no folder {}", flag, file, folder.string());
    }
  }
}

int RunPlan(const PlanFlags& flags) {
  PlanConfig config = ReadConfig(flags);
  CheckFlags(flags);
  const MakeSettings make_settings = [&](const PlanWay& way, int workers) {
    return SettingsFor(flags, way, config.question.scenario.bound, workers);
  };
  const RunConfig run = make_settings(kAllReduceWay, 1)->run;
  config.question.scenario.seed = run.seed;
  config.question.scenario.overlap = run.server.overlap;
  const std::atomic<bool>& stop = StopOnSignals();
  ConstantTable table;
  std::vector<std::string> notes;
  try {
    ReadConstants(flags, config.seconds, make_settings, stop, table, notes);
  } catch (const Error&) {
    if (!stop) throw;
  }
  if (stop) return InterruptedCode();  // there is nothing to predict from

  Forecast forecast = MakeForecast(table.values, config.question);
  forecast.notes = std::move(notes);
  if (flags.validate) {
    if (!flags.json) fmt::print(stderr, "running what this machine can run\n");
    Validate(table.values, make_settings, config.seconds / 6, stop, forecast);
  }
  if (!flags.out.empty()) WriteFileAtomically(flags.out, ForecastPlot(forecast).ToSvg());
  if (flags.json) {
    fmt::print("{}\n", ForecastJson(forecast, table));
  } else {
    fmt::print("{}", ForecastTable(forecast, table));
    if (!flags.out.empty()) fmt::print("picture: {}\n", flags.out);
  }
  return stop ? InterruptedCode() : 0;
}

}  // namespace

Command AddPlanCommand(CommandLine& program) {
  CommandLine& command =
      program.AddCommand("plan", "Predict the speed-up of up to 1024 workers by simulation");
  auto flags = std::make_shared<PlanFlags>();
  AddEnvOptions(command, *flags);
  command.Option("--algo", flags->algo, "algorithm (ppo unless said); `trireme algos` lists them");
  command.Option("--store", flags->store, "whose preset to use; all ways are predicted");
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
  command.Option("--latency", flags->latency, "of a message between hosts, as in 50us (30us)");
  command.Option("--bandwidth", flags->bandwidth, "of a host's link, as in 1.2GB/s (10Gbit/s)");
  command.Option("--straggler", flags->straggler,
                 "slow workers: worker=1,factor=5 and/or chance=0.01,slowdown=10");
  command.Option("--constants", flags->constants, "read the constants from this file instead of measuring");
  command.Option("--save-constants", flags->save_constants, "write the constants to this file");
  command.Flag("--validate", flags->validate, "run what this machine can run, and compare");
  command.Option("--out", flags->out, "write the picture to this file (SVG)");
  command.Flag("--json", flags->json, "print the result as one line of JSON and nothing else");
  command.Footer("docs/plan.md says what the columns mean and what the model leaves out.");
  return [flags] { return RunPlan(*flags); };
}

}  // namespace trireme
