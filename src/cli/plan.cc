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
#include "trireme/plan/units.h"
#include "trireme/plan/validate.h"

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
  ForecastQuestion question = {.hosts = 1, .cores = UsableProcessors()};
  std::string batch = "split", servers_on = "own";
  double seconds = 6;

  // Each is an option, --workers-up-to and so on, and this is its help.
  void Fields(ConfigFields& field) {
    field("workers_up_to", question.workers_up_to, "predict 1, 2, 4, ... workers up to this (1024)",
          Between(1, 65'536));
    field("cores", question.cores, "processors of a host (as this machine)", Between(1, 1024));
    field("hosts", question.hosts, "hosts for workers, who share them (as many as there must be)",
          Between(1, 65'536));
    field("servers", question.servers, "parameter servers (1)", Between(1, 1024));
    field("servers_on", servers_on,
          "where servers run, on hosts of their own or on the workers': own, workers (own)",
          OneOf{"own", "workers"});
    field("ssp", question.bound, "rounds a worker may be ahead of the slowest (3)", Between(0, 1e6));
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
  if (!flags.plan.contains("hosts")) config.question.hosts = 0;
  config.question.split = config.batch == "split";
  config.question.servers_on_workers = config.servers_on == "workers";
  config.question.slow = ReadSlowness(flags.straggler);
  return config;
}

// With another store than the flags choose (null: as they do), everything else is the same, the preset
// included.
std::unique_ptr<RunSettings> SettingsFor(const PlanFlags& flags, const RunnableWay* way, int bound,
                                         int workers) {
  auto settings = SettingsOfNewRun(flags);
  RunConfig& run = settings->run;
  if (way != nullptr) {
    run.store = way->store;
    run.server.addresses = "1";
    run.server.pace = way->pace;
    run.server.staleness_bound = bound;
  }
  run.workers = workers;
  settings->Resolve();
  return settings;
}

constexpr const char* kNoTrips =
    "server-sync, async and ssp are left out, because trips to servers were not measured";

// Whatever else fails ends the command; without servers there is still much to say.
void Measure(const RunSettings& settings, double seconds, ConstantTable& table,
             std::vector<std::string>& notes) {
  Calibrate(settings, 5 * seconds / 6, table);
  try {
    CalibrateTrips(settings, seconds / 6, table);
  } catch (const Error& error) {
    notes.push_back(fmt::format("{}: {}", kNoTrips, error.what()));
  }
}

void ReadConstants(const PlanFlags& flags, double seconds, const RunSettings& settings, ConstantTable& table,
                   std::vector<std::string>& notes) {
  if (!flags.constants.empty()) {
    table.ReadFrom(flags.constants, settings.run.env, settings.run.algo);
    if (!table.values.knows_trips()) notes.push_back(fmt::format("{} for {}", kNoTrips, flags.constants));
  } else {
    if (!flags.json) fmt::print(stderr, "measuring for about {:g} s\n", seconds);
    Measure(settings, seconds, table, notes);
  }
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
  const auto settings = SettingsFor(flags, nullptr, 0, 1);
  config.question.seed = settings->run.seed;
  config.question.overlap = settings->run.server.overlap;
  ConstantTable table;
  std::vector<std::string> notes;
  ReadConstants(flags, config.seconds, *settings, table, notes);

  Forecast forecast = MakeForecast(table.values, config.question);
  forecast.notes = std::move(notes);
  if (!settings->algorithm->NeedsWorkersInStep().empty()) {
    forecast.notes.push_back(fmt::format("async, ssp and shared as if {} were off: it needs workers in step",
                                         settings->algorithm->NeedsWorkersInStep()));
  }
  bool interrupted = false;
  if (flags.validate) {
    const auto make = [&](const RunnableWay& way, int workers) {
      return SettingsFor(flags, &way, config.question.bound, workers);
    };
    if (!flags.json) fmt::print(stderr, "running what this machine can run\n");
    const std::atomic<bool>& stop = StopOnSignals();
    Validate(table.values, make, config.seconds / 6, stop, forecast);
    interrupted = stop.load();
  }
  if (!flags.out.empty()) WriteFileAtomically(flags.out, ForecastPlot(forecast).ToSvg());
  if (flags.json) {
    fmt::print("{}\n", ForecastJson(forecast, table));
  } else {
    fmt::print("{}", ForecastTable(forecast, table));
    if (!flags.out.empty()) fmt::print("picture: {}\n", flags.out);
  }
  return interrupted ? InterruptedCode() : 0;
}

}  // namespace

Command AddPlanCommand(CommandLine& program) {
  CommandLine& command =
      program.AddCommand("plan", "Predict the speed-up of up to 1024 workers by simulation");
  auto flags = std::make_shared<PlanFlags>();
  command.Option("--env", flags->env, "environment; `trireme envs` lists them");
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
  command.Option("--latency", flags->latency, "of a message between hosts, as in 50us (the loopback's)");
  command.Option("--bandwidth", flags->bandwidth, "of a host's link, as in 1.2GB/s (the loopback's)");
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
