#include "trireme/train/run_config.h"

#include <algorithm>
#include <bit>

#include "trireme/base/parse.h"
#include "trireme/codec/difference.h"
#include "trireme/split/network_parts.h"
#include "trireme/store/schedule.h"
#include "trireme/train/presets.h"

namespace trireme {

namespace {

OneOf NamesOfStores() {
  OneOf names;
  for (const StoreEntry& store : AllStores()) names.emplace_back(store.name);
  return names;
}

std::string CompressHelp() {
  std::string help = "gradients in fewer bytes, with error feedback: none";
  for (const CodecEntry& codec : Codecs())
    help +=
        fmt::format(", {}{}{}", codec.name, codec.argument ? "=" : "", codec.argument ? codec.argument : "");
  return help;
}

}  // namespace

std::string RunConfig::params_codec() const {
  if (compress == kNoCodec) return std::string(kNoCodec);
  if (compress_params != "same") return compress_params;
  return MakeCodec(compress)->memory(1) > 0 ? "int8" : compress;
}

void RunConfig::Fields(ConfigFields& field) {
  field("env", env, "environment; `trireme envs` lists them");
  field("env_args", env_args,
        "arguments of an environment that takes any, key=value each; --env-arg adds one");
  field("algo", algo, "algorithm; `trireme algos` lists them");
  field("store", store, "where parameters live; shared: one memory for workers that move on their own",
        NamesOfStores());
  field("share_moments", share_moments,
        "store shared: one memory of the optimizer for all workers, or each its own");
  field("schedule", schedule,
        "store shared: order of pulls and pushes, for reproducible runs, like \"0< 1< 0> 1>\"; empty: free");
  server.Fields(field);
  field("device", device,
        "what computes networks: fused (this processor), or by libtorch cpu, cuda, or several as in "
        "cuda:0,cuda:1, which are taken by the workers in turn; `trireme devices` lists them");
  field("precision", precision,
        "bits of weights in use, activations and their gradients; what is learned has 32. Products are of 32 "
        "bits on "
        "this processor, so 16 save memory there and no time",
        kPrecisionNames);
  field("compress", compress, CompressHelp());
  field("compress_params", compress_params,
        "store server: how parameters come back to compressed workers: same, none, or a codec (same: as "
        "gradients, or int8 for powersgd)");
  field(
      "local_steps", local_steps,
      "store allreduce: updates a worker makes on its own before all average their parameters; 0: gradients "
      "are summed at every update. The result then depends on the number of workers",
      Between(0, 1e6));
  field("model_parallel", model_parallel,
        "workers that compute one network together: tensor=2 (columns and rows of its layers) or "
        "pipeline=2,micro_batches=8 (layers); none");
  field("workers", workers, "threads that train, in each process; 0: as many as processors and shards allow",
        Between(0, 64));
  field("shards", shards,
        "parts the work is cut into; fixes the result, whatever the workers (store shared: of each worker's "
        "work)",
        Between(1, 64));
  field(
      "experience", experience,
      "how rollouts and replay keep observations that are floats; 16 bits take half the memory, and policies "
      "are given what is kept",
      kPrecisionNames);
  field("steps", steps, "environment steps to train for", Between(1, 1e15));
  field("seed", seed, "what all randomness of the run follows from");
  field("stop_at_target", stop_at_target, "stop at the first evaluation that reaches the target");
  field("target", target, "return to reach; auto: the environment's own threshold, if it has one", "auto");
  field("eval_every", eval_every, "steps between evaluations; 0: only at the end", Between(0, 1e15));
  field("eval_episodes", eval_episodes, "episodes of an evaluation, on seeds never trained on",
        Between(1, 100'000));
  field("eval_max_steps", eval_max_steps,
        "steps after which an episode of an evaluation is cut off, where the environment has no time limit",
        Between(1, 1e9));
  field("checkpoint_every_s", checkpoint_every_s, "seconds between checkpoints", NonNegative());
}

void ServerConfig::Fields(ConfigFields& field) {
  field("servers", addresses,
        "store server: how many to start on this machine, or where they are: host:port,host:port");
  field("pace", pace, "store server: workers in step, each on its own, or bounded staleness", kPaceNames);
  field("run_workers", run_workers,
        "store server, sync: workers of all processes together; 0: those of this process", Between(0, 1024));
  field("backup_workers", backup_workers,
        "store server, sync: a round does not wait for this many slowest workers", Between(0, 1023));
  field("staleness_bound", staleness_bound, "store server, ssp: pushes a worker may be ahead of the slowest",
        Between(0, 1e9));
  field("staleness_scaled", staleness_scaled,
        "store server, async, ssp: divide the step size by 1 + staleness");
  field("overlap", overlap, "store server, async, ssp: go on computing while a push is under way");
  field("lease_s", lease_s, "store server: seconds of silence after which a worker is given up",
        Between(0.1, 86400));
  field("round_s", round_s, "store server, sync: the longest wait for a worker that is alive",
        Between(0.1, 86400));
  field("server_wait_s", wait_s, "store server: seconds after which a silent server is lost",
        Between(0.1, 86400));
}

int ServerConfig::local() const {
  const auto digits = ParseWholeDigits(addresses);
  if (!digits) return 0;
  if (digits->size() > 4 || std::stoi(*digits) < 1 || std::stoi(*digits) > 64) {
    Fail("servers = {} is not a number of servers from 1 to 64, nor a list of host:port", addresses);
  }
  return std::stoi(*digits);
}

std::vector<std::string> ServerConfig::List() const {
  std::vector<std::string> list;
  std::string_view rest = addresses;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view address = Trim(rest.substr(0, comma));
    if (address.empty()) Fail("servers = {}: there is an empty address in the list", addresses);
    if (address.ends_with(":0")) {
      Fail("servers = {}: port 0 lets a server choose; write the one it printed when it started", addresses);
    }
    list.emplace_back(address);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (list.empty()) Fail("servers: say how many to start, or where they are: host:port,host:port");
  return list;
}

Computing RunConfig::ComputingOf(int worker) const {
  const std::vector<Device> devices = ParseDevices(device);
  return {devices[worker % devices.size()], precision};
}

std::string RunConfig::ComputedBy() const {
  return precision == Precision::kFp32 ? device : fmt::format("{} in {}", device, NameOf(precision));
}

std::string RunConfig::Name() const {
  std::string name = fmt::format("{}-{}-seed{}", env, algo, seed);
  std::ranges::replace_if(
      name, [](char c) { return c == '/' || c == ':'; }, '-');
  return name;
}

RunSettings::RunSettings(const std::string& env, const std::string& algo, const std::string& store, Pace pace)
    : env_options(FindEnvOptions(env)), algorithm(FindAlgorithm(algo).make_settings()) {
  run.env = env;
  run.algo = algo;
  fields.Add(run);
  first_option_ = fields.fields().size();
  fields.Add(*env_options, kEnvOptionPrefix);
  end_of_options_ = fields.fields().size();
  fields.Add(*algorithm);
  fields.Set("store", store, "--store");
  run.server.pace = pace;
  std::string file = env;  // gym:MyEnv-v0 has a preset in gym-MyEnv-v0.ppo.toml
  std::ranges::replace_if(
      file, [](char c) { return c == ':' || c == '/'; }, '-');
  const auto apply = [&](const std::string& name) {
    const auto& presets = AllPresets();
    const auto preset = std::ranges::find(presets, name, &Preset::name);
    if (preset == presets.end()) return false;
    fields.ApplyToml(preset->text, fmt::format("presets/{}.toml", name));
    return true;
  };
  if (!run.asynchronous() || !apply(fmt::format("{}.{}.shared", file, algo)))
    apply(fmt::format("{}.{}", file, algo));
}

namespace {

void ResolveServers(const RunConfig& run) {
  const ServerConfig& server = run.server;
  const int local = server.local();
  if (local == 0) server.List();
  if (server.run_workers > 0 && run.asynchronous()) {
    Fail("run_workers is for workers in step: others come and go as they like");
  }
  if (server.run_workers > 0 && local > 0 && run.workers > 0 && server.run_workers != run.workers) {
    Fail(
        "servers = {} are started for this process alone, so run_workers = {} must be its workers, {}: leave "
        "it "
        "out",
        local, server.run_workers, run.workers);
  }
  if (server.backup_workers > 0 &&
      (run.asynchronous() || server.backup_workers >= std::max(1, run.total_workers()))) {
    Fail("backup_workers = {} is for workers in step, and leaves at least one of them",
         server.backup_workers);
  }
}

void ResolveExchange(const RunConfig& run) {
  const auto checked = [](const char* name, const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      Fail("{}: {}", name, error.what());
    }
  };
  checked("compress", [&] { MakeCodecOrNone(run.compress); });
  checked("compress_params", [&] { CheckDifferenceCodec(run.params_codec()); });
  const StoreEntry& store = run.store_entry();
  if (run.compress != kNoCodec && !store.compresses) {
    Fail(
        "compress makes messages between processes smaller, and --store {} sends none: use --store server, "
        "or "
        "allreduce with mpirun",
        run.store);
  }
  if (run.local_steps > 0 && !store.averages)
    Fail("local_steps is for copies of the parameters in every worker: use it with --store allreduce");
  if (run.local_steps > 0 && run.compress != kNoCodec)
    Fail("with local_steps no gradients are exchanged that compress could make smaller: choose one of them");
}

// How many workers a process is to have, for groups of `members`: whole groups, or one of each group.
int WorkersOfGroups(const RunConfig& run, int members, int processors) {
  if (processors < members && run.processes % members == 0) return 1;
  const int groups =
      static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, processors / members))));
  return members * std::clamp(run.shards / run.processes, 1, groups);
}

void CheckGroups(const RunConfig& run, int members) {
  const bool inside = run.workers % members == 0;
  if (!inside && !(run.workers == 1 && run.processes % members == 0)) {
    Fail(
        "model_parallel = {} makes groups of {} workers: let every process have {}, {}, ... workers (it has "
        "{}), or start "
        "{}, {}, ... processes (there {}) with --workers 1",
        run.model_parallel, members, members, 2 * members, run.workers, members, 2 * members,
        run.processes == 1 ? "is 1" : fmt::format("are {}", run.processes));
  }
  const int groups = run.total_workers() / members;
  if (run.shards % groups != 0) {
    Fail(
        "{} groups of {} workers do not divide shards = {}: choose 1, 2, 4, ... groups up to {}, or change "
        "shards",
        groups, members, run.shards, run.shards);
  }
}

// What goes together with a split network, which is computed by this processor alone, of 32 bits.
ModelSplit ResolveSplit(RunConfig& run) {
  const ModelSplit split = run.split();
  run.model_parallel = split.text();
  if (!split.splits()) return split;
  if (!run.store_entry().splits) {
    Fail(
        "model_parallel = {} is for workers that hold parts of one network, and --store {} cannot: use "
        "--store allreduce",
        run.model_parallel, run.store);
  }
  const auto refuse = [&](const std::string& setting, std::string_view instead) {
    Fail("model_parallel = {} does not go together with {}: use {}, or leave out model_parallel",
         run.model_parallel, setting, instead);
  };
  if (run.precision != Precision::kFp32)
    refuse(fmt::format("precision = {}", NameOf(run.precision)), "--precision fp32");
  if (TextOf(ParseDevices(run.device)) != "fused") refuse("device = " + run.device, "--device fused");
  if (run.compress != kNoCodec) refuse("compress = " + run.compress, "--compress none");
  if (run.local_steps > 0) refuse(fmt::format("local_steps = {}", run.local_steps), "--local-steps 0");
  return split;
}

void ResolveWorkers(RunConfig& run, int processors) {
  const auto is_power_of_two = [](int n) { return std::has_single_bit(static_cast<unsigned>(n)); };
  if (!is_power_of_two(run.shards)) {
    Fail("shards = {} is not a power of two (1, 2, 4, 8, ...), which the order of summation needs",
         run.shards);
  }
  const StoreEntry& store = run.store_entry();
  if (run.processes > 1 && store.one_process) {
    Fail(
        "store = {} lives in the memory of one process, and this run has {}: use --store allreduce, where "
        "workers go in step, or --store server without mpirun",
        run.store, run.processes);
  }
  if (run.processes > 1 && store.on_servers) {
    Fail(
        "workers of --store server find each other through their servers: start them without mpirun or "
        "srun's MPI, "
        "or use --store allreduce");
  }
  if (store.on_servers) ResolveServers(run);
  ResolveExchange(run);
  const ModelSplit split = ResolveSplit(run);
  // Each device has at least one worker, however few processors there are.
  const auto devices = static_cast<unsigned>(ParseDevices(run.device).size());
  processors = std::clamp(std::max(processors, static_cast<int>(std::bit_ceil(devices))), 1, 64);
  if (!run.schedule.empty() && !run.coordination().schedulable) {
    Fail("schedule is for asynchronous workers of one process: use it with --store shared");
  }
  if (run.asynchronous()) {
    if (run.workers == 0) run.workers = processors;
    if (!run.schedule.empty()) Schedule(run.schedule, run.workers);  // refuses what cannot work
    return;
  }
  if (run.workers == 0) {
    const int most = static_cast<int>(std::bit_floor(static_cast<unsigned>(processors)));
    run.workers = store.one_worker ? 1 : std::clamp(run.shards / run.processes, 1, most);
    if (split.splits()) run.workers = WorkersOfGroups(run, split.members, processors);
    if (run.server.run_workers > 0) run.workers = std::min(run.workers, run.server.run_workers);
  }
  if (split.splits()) return CheckGroups(run, split.members);
  if (run.shards % run.total_workers() != 0) {
    const std::string processes =
        run.processes == 1 ? "" : fmt::format(" in each of {} processes", run.processes);
    Fail("workers = {}{} does not divide shards = {}: choose 1, 2, 4, ... up to {}{}, or change shards",
         run.workers, processes, run.shards, run.shards, run.processes == 1 ? "" : " in all");
  }
  if (store.one_worker && run.workers > 1) {
    Fail("store = {} holds the parameters of one worker, not {}: use --workers 1 or --store allreduce",
         run.store, run.workers);
  }
}

// After the workers.
void ResolveDevices(RunConfig& run) {
  const std::vector<Device> devices = ParseDevices(run.device);
  run.device = TextOf(devices);
  if (static_cast<int>(devices.size()) > run.total_workers()) {
    Fail("device = {} are {} devices for {} worker{}: name fewer, or say more --workers", run.device,
         devices.size(), run.total_workers(), run.total_workers() == 1 ? "" : "s");
  }
}

}  // namespace

std::uint64_t RunSettings::ExperienceBytes() const {
  return algorithm->ExperienceBytes(env().spec) * (run.asynchronous() ? run.workers : 1);
}

void RunSettings::SetEnvArgs(std::span<const std::string> assignments, const std::string& origin) {
  EnvArgs args = ParseEnvArgs(assignments, origin);
  for (const EnvArg& old : ParseEnvArgs(run.env_args, "env_args")) {
    if (std::ranges::find(args, old.key, &EnvArg::key) == args.end()) args.push_back(old);
  }
  std::ranges::sort(args, {}, &EnvArg::key);
  const std::vector<std::string> before = std::exchange(run.env_args, {});
  for (const EnvArg& arg : args) run.env_args.push_back(EnvArgText(arg));
  try {
    fields.Set("env_args", fields.Get("env_args"), origin);  // refuses what cannot be saved
  } catch (const Error&) {
    run.env_args = before;
    throw;
  }
}

void RunSettings::ResolveEnv(const EnvSpec* known) {
  if (known == nullptr) env_options->FillIn();
  const EnvArgs args = ParseEnvArgs(run.env_args, "env_args");
  run.env_args.clear();
  for (const EnvArg& arg : args) run.env_args.push_back(EnvArgText(arg));
  std::string chosen, asked;  // what it is; and how it is run, too
  const auto add = [&](const ConfigFields::Field& field) {
    if (field.get() == field.default_text) return;
    const std::string name = field.name.substr(std::string_view(kEnvOptionPrefix).size());
    for (std::string* text : {&chosen, &asked}) {
      if (text == &asked || env_options->identifies(name)) {
        *text += fmt::format("{}{}={}", text->empty() ? "" : " ", name, field.get());
      }
    }
  };
  for (std::size_t i = first_option_; i < end_of_options_; ++i) add(fields.fields()[i]);
  add(*std::ranges::find(fields.fields(), "env_args", &ConfigFields::Field::name));
  if (known != nullptr) {
    env_ = EnvEntry{.spec = *known, .make = [](int) -> std::unique_ptr<EnvBatch> {
                      Fail("there is no environment: it was only asked what it shows and takes");
                    }};
  } else if (!env_ || asked != asked_) {
    env_.reset();  // what it has captured first
    env_ = FindEnv(run.env, *env_options, args);
    asked_ = asked;
  }
  env_->spec.kept = run.experience;
  run.env_options = chosen;
  run.env_spec = env_->spec;
  run.env_snapshots = env_->facts.snapshots;
  if (!run.target) run.target = env_->spec.reward_threshold;
  if (run.stop_at_target && !run.target) {
    Fail("stop_at_target needs a target: {} says no return at which it is solved, so give one with --target",
         run.env);
  }
}

namespace {

const char* NameOf(ActionKind kind) {
  switch (kind) {
    case ActionKind::kDiscrete:
      return "discrete";
    case ActionKind::kBox:
      return "continuous";
    case ActionKind::kMultiDiscrete:
      return "multi-discrete";
  }
  return "unknown";
}

bool CanDrive(const AlgorithmEntry& algo, ActionKind kind) {
  switch (kind) {
    case ActionKind::kDiscrete:
      return algo.discrete;
    case ActionKind::kBox:
      return algo.continuous;
    case ActionKind::kMultiDiscrete:
      return algo.multi_discrete;
  }
  return false;
}

void CheckActions(const EnvSpec& env, const AlgorithmEntry& algo) {
  const auto heeds = [&](const AlgorithmEntry& entry) { return !env.masks || entry.masks; };
  const bool drives = CanDrive(algo, env.action.kind);
  if (drives && heeds(algo)) return;
  std::string others;
  for (const AlgorithmEntry& entry : AllAlgorithms()) {
    if (!CanDrive(entry, env.action.kind) || !heeds(entry)) continue;
    others += (others.empty() ? "; these can: " : ", ") + entry.name;
  }
  if (!drives) {
    Fail("{} has {} actions, which {} cannot drive{}", env.name, NameOf(env.action.kind), algo.name, others);
  }
  Fail("{} forbids some of its actions, which {} cannot heed{}", env.name, algo.name, others);
}

}  // namespace

namespace {

// Refuses layers that make no network, or cannot be split, before anything is written.
void CheckNetwork(const AlgorithmSettings& algorithm, const EnvSpec& env, const RunConfig& run) {
  const NetworkSpec spec = algorithm.MakeNetwork(env);
  if (!run.split().splits()) return;
  const Network network(spec);
  const NetworkParts parts(network, run.split());
}

}  // namespace

void RunSettings::Resolve(int processes, int processors) { Resolve(processes, processors, nullptr); }

void RunSettings::ForgetSplit() {
  if (!run.split().splits()) return;
  run.model_parallel = ModelSplit().text();
  run.workers = 1;
}

void RunSettings::ResolveWithout(const EnvSpec& spec) { Resolve(1, UsableProcessors(), &spec); }

void RunSettings::Resolve(int processes, int processors, const EnvSpec* known) {
  run.processes = processes;
  ResolveWorkers(run, processors);
  ResolveDevices(run);
  if (run.asynchronous() && !algorithm->NeedsWorkersInStep().empty()) {
    Fail(
        "{} needs workers that move in step and agree on statistics: switch it off, or use --store allreduce",
        algorithm->NeedsWorkersInStep());
  }
  ResolveEnv(known);  // after what can be refused without: it may start processes
  const EnvSpec& spec = env().spec;
  if (run.split().splits() && !env().facts.reproducible) {
    Fail(
        "model_parallel = {}: the workers of a group each step copies of the environment, which must then do "
        "the same, "
        "and {} is not reproducible",
        run.model_parallel, run.env);
  }
  CheckActions(spec, FindAlgorithm(run.algo));
  algorithm->Validate(spec, run.shards);
  // A checkpoint holds the experience twice more while it is written.
  if (3 * ExperienceBytes() > MachineMemory()) {
    const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
    Fail(
        "the experience of this run needs {:.1f} GiB, and three times that while a checkpoint is written; "
        "the "
        "machine has {:.1f}: reduce envs, horizon, epochs or replay",
        gib(ExperienceBytes()), gib(MachineMemory()));
  }
  CheckNetwork(*algorithm, spec, run);
}

std::unique_ptr<RunSettings> SettingsFor(RunChoice choice) {
  auto& [env, algo, store, pace] = choice;
  if (algo.empty()) algo = RunConfig().algo;
  for (const System& system : kSystems) {
    if (system.name != algo) continue;
    const bool other = !store.empty() && store != system.store && !FindStore(store).on_servers;
    if (other || pace == "sync") {
      Fail(
          "--algo {} is {} with workers that move on their own, on --store {} or server: say --algo {} for "
          "others",
          algo, system.algo, system.store, system.algo);
    }
    algo = system.algo;
    if (store.empty()) store = system.store;
    if (pace.empty()) pace = "async";
  }
  if (store.empty()) store = RunConfig().store;
  const bool own_pace =
      FindStore(store).on_servers && !pace.empty() && pace != "sync";  // decides which preset
  return std::make_unique<RunSettings>(env, algo, store, own_pace ? Pace::kAsync : Pace::kSync);
}

std::unique_ptr<RunSettings> ReadRunSettings(const RunFolder& folder) {
  return ParseRunSettings(folder.ReadConfig(), (folder.path() / "config.toml").string());
}

std::unique_ptr<RunSettings> ParseRunSettings(const std::string& text, const std::string& origin) {
  const std::string env = ReadTomlText(text, "env", origin), algo = ReadTomlText(text, "algo", origin),
                    store = ReadTomlText(text, "store", origin);
  for (const auto& [key, value] : {std::pair("env", &env), std::pair("algo", &algo)}) {
    if (value->empty()) Fail("{} is not whole, or was changed: it does not say {} = \"...\"", origin, key);
  }
  auto settings = std::make_unique<RunSettings>(env, algo, store.empty() ? RunConfig().store : store);
  settings->fields.ApplyToml(text, origin);
  return settings;
}

}  // namespace trireme
