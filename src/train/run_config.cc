#include "train/run_config.h"

#include <algorithm>
#include <bit>

#include "base/system.h"
#include "store/schedule.h"
#include "train/presets.h"

namespace trireme {

void RunConfig::Fields(ConfigFields& field) {
  field("env", env, "environment; `trireme envs` lists them");
  field("algo", algo, "algorithm; `trireme algos` lists them");
  field("store", store, "where parameters live; shared: workers move on their own, all others in step",
        OneOf{"local", "allreduce", "shared"});
  field("share_moments", share_moments,
        "store shared: one memory of the optimizer for all workers, or each its own");
  field("schedule", schedule,
        "store shared: order of pulls and pushes, for reproducible runs, like \"0< 1< 0> 1>\"; empty: free");
  field("workers", workers, "threads that train; 0: as many as processors and shards allow", Between(0, 64));
  field("shards", shards,
        "parts the work is cut into; fixes the result, whatever the workers (store shared: of each worker's "
        "work)",
        Between(1, 64));
  field("steps", steps, "environment steps to train for", Between(1, 1e15));
  field("seed", seed, "what all randomness of the run follows from");
  field("stop_at_target", stop_at_target, "stop at the first evaluation that reaches the target");
  field("target", target, "return to reach; a run starts from the environment's own threshold");
  field("eval_every", eval_every, "steps between evaluations; 0: only at the end", Between(0, 1e15));
  field("eval_episodes", eval_episodes, "episodes of an evaluation, on seeds never trained on",
        Between(1, 100'000));
  field("checkpoint_every_s", checkpoint_every_s, "seconds between checkpoints", NonNegative());
}

RunSettings::RunSettings(const std::string& env, const std::string& algo, const std::string& store)
    : algorithm(FindAlgorithm(algo).make_settings()) {
  run.env = FindEnv(env).spec.name;
  run.algo = algo;
  run.target = FindEnv(env).spec.reward_threshold;
  fields.Add(run);
  fields.Add(*algorithm);
  fields.Set("store", store, "--store");
  const auto apply = [&](const std::string& name) {
    const auto& presets = AllPresets();
    const auto preset = std::ranges::find(presets, name, &Preset::name);
    if (preset == presets.end()) return false;
    fields.ApplyToml(preset->text, fmt::format("presets/{}.toml", name));
    return true;
  };
  if (!apply(fmt::format("{}.{}.{}", env, algo, store))) apply(fmt::format("{}.{}", env, algo));
}

namespace {

void ResolveWorkers(RunConfig& run) {
  const auto is_power_of_two = [](int n) { return std::has_single_bit(static_cast<unsigned>(n)); };
  if (!is_power_of_two(run.shards)) {
    Fail("shards = {} is not a power of two (1, 2, 4, 8, ...), which the order of summation needs",
         run.shards);
  }
  const int processors = std::clamp(UsableProcessors(), 1, 64);
  if (run.asynchronous()) {
    if (run.workers == 0) run.workers = processors;
    if (!run.schedule.empty()) Schedule(run.schedule, run.workers);  // refuses what cannot work
    return;
  }
  if (!run.schedule.empty()) Fail("schedule is for asynchronous runs: use it with --store shared");
  if (run.workers == 0) {
    const int most = static_cast<int>(std::bit_floor(static_cast<unsigned>(processors)));
    run.workers = run.store == "local" ? 1 : std::min(run.shards, most);
  }
  if (run.shards % run.workers != 0) {
    Fail("workers = {} does not divide shards = {}: choose 1, 2, 4, ... up to {}, or change shards",
         run.workers, run.shards, run.shards);
  }
  if (run.store == "local" && run.workers > 1) {
    Fail("store = local holds the parameters of one worker, not {}: use --workers 1 or --store allreduce",
         run.workers);
  }
}

}  // namespace

std::uint64_t RunSettings::ExperienceBytes() const {
  return algorithm->ExperienceBytes(env().spec) * (run.asynchronous() ? run.workers : 1);
}

void RunSettings::Resolve() {
  ResolveWorkers(run);
  const EnvSpec& spec = env().spec;
  const AlgorithmEntry& entry = FindAlgorithm(run.algo);
  if (!(spec.action.discrete ? entry.discrete : entry.continuous)) {
    Fail("{} has {} actions, which {} cannot drive", spec.name,
         spec.action.discrete ? "discrete" : "continuous", run.algo);
  }
  algorithm->Validate(spec, run.shards);
  if (run.asynchronous() && !algorithm->NeedsWorkersInStep().empty()) {
    Fail(
        "{} needs workers that move in step and agree on statistics: switch it off, or use --store allreduce",
        algorithm->NeedsWorkersInStep());
  }
  // A checkpoint holds the experience twice more while it is written.
  if (3 * ExperienceBytes() > MachineMemory()) {
    const auto gib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
    Fail(
        "the experience of this run needs {:.1f} GiB, and three times that while a checkpoint is written; "
        "the "
        "machine has {:.1f}: reduce envs, horizon, epochs or replay",
        gib(ExperienceBytes()), gib(MachineMemory()));
  }
  algorithm->MakeNetwork(spec);  // refuses layers that make no network, before anything is written
}

std::unique_ptr<RunSettings> ReadRunSettings(const RunFolder& folder) {
  const std::string origin = (folder.path() / "config.toml").string();
  const std::string text = folder.ReadConfig();
  const std::string store = ReadTomlText(text, "store", origin);
  auto settings =
      std::make_unique<RunSettings>(ReadTomlText(text, "env", origin), ReadTomlText(text, "algo", origin),
                                    store.empty() ? RunConfig().store : store);
  settings->fields.ApplyToml(text, origin);
  return settings;
}

}  // namespace trireme
