#include <algorithm>
#include <bit>

#include "trireme/codec/difference.h"
#include "trireme/experience/sent_experience.h"
#include "trireme/nn/make_executor.h"
#include "trireme/split/network_parts.h"
#include "trireme/store/schedule.h"
#include "trireme/train/run_config.h"

// Settings that are to be run: what was left open is filled in, and what does not fit together is refused.
namespace trireme {
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
  const std::string codec = run.gradient_codec();
  checked("compress", [&] { MakeCodecOrNone(codec); });
  checked("compress_params", [&] { CheckDifferenceCodec(run.params_codec()); });
  const StoreEntry& store = run.store_entry();
  if (codec != kNoCodec && !store.compresses) {
    Fail(
        "compress makes messages between processes smaller, and --store {} sends none: use --store server, "
        "or "
        "allreduce with mpirun",
        run.store);
  }
  if (codec == kNoCodec && run.compress_params != "same" && run.compress_params != kNoCodec) {
    Fail(
        "compress_params = {} is how parameters come back to workers that send compressed gradients: say "
        "compress, "
        "too",
        run.compress_params);
  }
  if (run.local_steps > 0 && !store.averages)
    Fail("local_steps is for copies of the parameters in every worker: use it with --store allreduce");
  if (run.local_steps > 0 && codec != kNoCodec)
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
  if (run.gradient_codec() != kNoCodec) refuse("compress = " + run.compress, "--compress none");
  if (run.local_steps > 0) refuse(fmt::format("local_steps = {}", run.local_steps), "--local-steps 0");
  return split;
}

// Before the workers: with actors, processors are for those.
void ResolveActors(RunConfig& run) {
  if (!run.has_actors()) {
    if (run.queue > 0 || run.max_lag > 0)
      Fail(
          "queue and max_lag are about experience of actors: set them to 0, or say --actors or --listen, "
          "too");
    if (run.central_inference())
      Fail(
          "inference = central is how actors choose: say --actors or --listen, too, or use --inference "
          "local");
    return;
  }
  if (!FindAlgorithm(run.algo).actors) {
    std::string names;
    for (const AlgorithmEntry& entry : AllAlgorithms()) {
      if (entry.actors) names += (names.empty() ? "" : ", ") + entry.name;
    }
    Fail("{} learns only from what its own policy has just collected; these learn from actors: {}", run.algo,
         names);
  }
  if (run.on_replay_servers()) {
    if (!FindAlgorithm(run.algo).replays)
      Fail("{} remembers nothing that replay servers could: leave out replay_servers", run.algo);
    if (!run.listen.empty())
      Fail("actors join the replay servers, not the learner: leave out listen = {}", run.listen);
    if (!run.schedule.empty())
      Fail("schedule is an order of actors and a learner of one process: leave out replay_servers");
    if (run.queue > 0 || run.max_lag > 0)
      Fail(
          "queue and max_lag are about trajectories that wait for a learner: leave them out with "
          "replay_servers");
    AddressList("replay_servers", run.replay_servers);
  }
  if (run.asynchronous()) {
    Fail(
        "actors collect for workers that move in step: use them with --store allreduce, local, or server "
        "--sync");
  }
  if (run.split().splits()) Fail("actors do not go together with model_parallel: leave out one of them");
  if (run.workers == 0) run.workers = 1;
  if (!run.on_replay_servers() && run.actors % run.workers != 0) {
    Fail("actors = {} cannot be shared evenly by workers = {}: choose {}, {}, ...", run.actors, run.workers,
         run.workers, 2 * run.workers);
  }
}

// After the workers.
void CheckActors(const RunConfig& run) {
  if (!run.has_actors() || run.schedule.empty()) return;
  if (!run.listen.empty()) Fail("schedule is an order of actors of this process: leave out --listen");
  if (run.total_workers() > 1)
    Fail("schedule is for the actors of one worker in one process: use --workers 1, and no mpirun");
  if (run.max_lag > 0) Fail("schedule says how old a policy may be: leave out max_lag");
  if (run.central_inference()) {
    Fail(
        "schedule orders what actors take and send, and with inference = central chance decides by which "
        "policy they choose: use --inference local");
  }
  CheckExperienceSchedule(Schedule(run.schedule, run.actors + 1), run.actors, run.shards,
                          run.QueueOfWorker());
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
  if (!run.schedule.empty() && !run.coordination().schedulable && !run.has_actors()) {
    Fail(
        "schedule is for asynchronous workers of one process, and for actors: use it with --store shared or "
        "--actors");
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

// Refuses layers that make no network, or cannot be split, before anything is written.
void CheckNetwork(const AlgorithmSettings& algorithm, const EnvSpec& env, const RunConfig& run) {
  const NetworkSpec spec = algorithm.MakeNetwork(env);
  if (!run.split().splits()) return;
  const Network network(spec);
  const NetworkParts parts(network, run.split());
}

// What is said of whole trajectories needs the network where these are.
void CheckInference(const AlgorithmSettings& algorithm, const EnvSpec& env, const RunConfig& run) {
  if (!run.central_inference()) return;
  const Network network(algorithm.MakeNetwork(env));
  const auto executor = MakeExecutor(network);
  const auto acting = algorithm.MakeActing(env, *executor, /*envs=*/1);
  if (acting == nullptr || !acting->notes()) return;
  Fail(
      "actors of {} need its network for more than to choose, so inference = central does not go together "
      "with it: use --inference local",
      run.algo);
}

}  // namespace

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
  run.env_snapshots = env_->facts.snapshots && !run.has_actors();
  if (!run.target) run.target = env_->spec.reward_threshold;
  if (run.stop_at_target && !run.target) {
    Fail("stop_at_target needs a target: {} says no return at which it is solved, so give one with --target",
         run.env);
  }
}
void RunSettings::Resolve(int processes, int processors) { Resolve(processes, processors, nullptr); }

void RunSettings::ForgetSplit() {
  if (!run.split().splits()) return;
  run.model_parallel = ModelSplit().text();
  run.workers = 1;
}

void RunSettings::ResolveWithout(const EnvSpec& spec) { Resolve(1, UsableProcessors(), &spec); }

void RunSettings::Resolve(int processes, int processors, const EnvSpec* known) {
  run.processes = processes;
  ResolveActors(run);
  ResolveWorkers(run, processors);
  CheckActors(run);
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
  const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  if (run.has_actors() && ExperienceBytes() > MachineMemory()) {
    Fail(
        "the experience of this run needs {:.1f} GiB and the machine has {:.1f}: reduce envs, horizon, "
        "actors or "
        "queue",
        gib(ExperienceBytes()), gib(MachineMemory()));
  }
  // A checkpoint holds the experience twice more while it is written.
  if (!run.has_actors() && 3 * ExperienceBytes() > MachineMemory()) {
    Fail(
        "the experience of this run needs {:.1f} GiB, and three times that while a checkpoint is written; "
        "the machine has {:.1f}: reduce envs, horizon, epochs or replay{}",
        gib(ExperienceBytes()), gib(MachineMemory()),
        run.split().splits() ? ", or leave out model_parallel, whose workers each hold all of it" : "");
  }
  CheckNetwork(*algorithm, spec, run);
  CheckInference(*algorithm, spec, run);
}

}  // namespace trireme
