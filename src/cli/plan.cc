// `trireme plan`: how fast training would be with 1, 2, 4, ... 1024 workers, predicted from measured
// constants.
#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/config.h"
#include "base/file.h"
#include "base/system.h"
#include "cli/commands.h"
#include "cli/run_flags.h"
#include "plan/calibrate.h"
#include "plan/constants.h"
#include "plan/forecast.h"
#include "plan/units.h"
#include "plan/validate.h"

namespace trireme {
namespace {

struct PlanFlags : RunFlags {
  std::optional<std::string> workers_up_to, hosts, cores, servers, ssp, batch, seconds, latency, bandwidth;
  std::string straggler, constants, save_constants, out;
  bool validate = false, json = false;
};

struct PlanConfig {
  ForecastQuestion question;
  std::string batch = "split";
  double seconds = 6;

  void Fields(ConfigFields& field) {
    field("workers_up_to", question.workers_up_to, "most workers", Between(1, 65'536));
    field("hosts", question.hosts, "hosts for workers", Between(1, 65'536));
    field("cores", question.cores, "processors of a host", Between(1, 1024));
    field("servers", question.servers, "parameter servers", Between(1, 1024));
    field("ssp", question.bound, "rounds ahead of the slowest", Between(0, 1e6));
    field("batch", batch, "what workers in step do", OneOf{"split", "grow"});
    field("seconds", seconds, "time to measure for", Between(0.1, 3600));
  }
};

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
  config.question.hosts = 1;  // within its range until it is known whether it was given
  config.question.cores = UsableProcessors();
  ConfigFields fields;
  fields.Add(config);
  const auto apply = [&](const char* name, const std::optional<std::string>& value) {
    if (value) fields.Set(name, *value, fmt::format("--{}", name));
  };
  if (flags.workers_up_to) fields.Set("workers_up_to", *flags.workers_up_to, "--workers-up-to");
  apply("hosts", flags.hosts);
  apply("cores", flags.cores);
  apply("servers", flags.servers);
  apply("ssp", flags.ssp);
  apply("batch", flags.batch);
  apply("seconds", flags.seconds);
  if (!flags.hosts) config.question.hosts = 0;
  config.question.split = config.batch == "split";
  config.question.slow = ReadSlowness(flags.straggler);
  return config;
}

// With another store than the flags choose, everything else is the same, the preset included.
std::unique_ptr<RunSettings> SettingsFor(const PlanFlags& flags, const std::string& store, int workers) {
  auto settings = SettingsOfNewRun(flags);
  if (!store.empty()) settings->run.store = store;
  settings->run.workers = workers;
  settings->Resolve();
  return settings;
}

void ReadConstants(const PlanFlags& flags, double seconds, const RunSettings& settings,
                   ConstantTable& table) {
  if (!flags.constants.empty()) {
    table.ReadFrom(flags.constants, settings.run.env, settings.run.algo);
  } else {
    if (!flags.json) fmt::print(stderr, "measuring for about {:g} s\n", seconds);
    Calibrate(settings, seconds, table);
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

int RunPlan(const PlanFlags& flags) {
  PlanConfig config = ReadConfig(flags);
  if (flags.latency) ParseSeconds(*flags.latency, "--latency");  // refused before anything is measured
  if (flags.bandwidth) ParseBytesPerSecond(*flags.bandwidth, "--bandwidth");
  const auto settings = SettingsFor(flags, "", 1);
  config.question.seed = settings->run.seed;
  ConstantTable table;
  ReadConstants(flags, config.seconds, *settings, table);

  Forecast forecast = MakeForecast(table.values, config.question);
  if (!settings->algorithm->NeedsWorkersInStep().empty()) {
    forecast.notes.push_back(fmt::format("async, ssp and shared as if {} were off: it needs workers in step",
                                         settings->algorithm->NeedsWorkersInStep()));
  }
  if (flags.validate) {
    const auto make = [&](const std::string& store, int workers) {
      return SettingsFor(flags, store, workers);
    };
    if (!flags.json) fmt::print(stderr, "running what this machine can run\n");
    Validate(table.values, make, config.seconds / 6, StopOnSignals(), forecast);
  }
  if (!flags.out.empty()) WriteFileAtomically(flags.out, ForecastPlot(forecast).ToSvg());
  if (flags.json) {
    fmt::print("{}\n", ForecastJson(forecast, table));
  } else {
    fmt::print("{}", ForecastTable(forecast, table));
    if (!flags.out.empty()) fmt::print("picture: {}\n", flags.out);
  }
  return 0;
}

}  // namespace

Command AddPlanCommand(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "Predict the speed-up of up to 1024 workers by simulation");
  auto flags = std::make_shared<PlanFlags>();
  command->add_option("--env", flags->env, "environment; `trireme envs` lists them");
  command->add_option("--algo", flags->algo, "algorithm (ppo unless said); `trireme algos` lists them");
  command->add_option("--store", flags->store, "whose preset to use; all ways are predicted");
  command->add_option("--seed", flags->seed, "seed of the measured runs and of the simulation");
  command->add_option("--config", flags->config, "settings from a TOML file, over the preset's");
  command->add_option("--set", flags->assignments, "key=value, any setting; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--workers-up-to", flags->workers_up_to,
                      "predict 1, 2, 4, ... workers up to this (1024)");
  command->add_option("--cores", flags->cores, "processors of a host (as this machine)");
  command->add_option("--hosts", flags->hosts,
                      "hosts for workers, who share them (as many as there must be)");
  command->add_option("--servers", flags->servers, "parameter servers, each on a host of its own (1)");
  command->add_option("--ssp", flags->ssp, "rounds a worker may be ahead of the slowest (3)");
  command->add_option("--batch", flags->batch,
                      "workers in step split a batch, or let it grow: split, grow (split)");
  command->add_option("--latency", flags->latency, "of a message between hosts, as in 50us (the loopback's)");
  command->add_option("--bandwidth", flags->bandwidth, "of a host's link, as in 1.2GB/s (the loopback's)");
  command->add_option("--straggler", flags->straggler,
                      "slow workers: worker=1,factor=5 and/or chance=0.01,slowdown=10");
  command->add_option("--seconds", flags->seconds, "time to measure for (6)");
  command->add_option("--constants", flags->constants,
                      "read the constants from this file instead of measuring");
  command->add_option("--save-constants", flags->save_constants, "write the constants to this file");
  command->add_flag("--validate", flags->validate, "run what this machine can run, and compare");
  command->add_option("--out", flags->out, "write the picture to this file (SVG)");
  command->add_flag("--json", flags->json, "print the result as one line of JSON and nothing else");
  command->footer("docs/plan.md says what the columns mean and what the model leaves out.");
  return [flags] { return RunPlan(*flags); };
}

}  // namespace trireme
