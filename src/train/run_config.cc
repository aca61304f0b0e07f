#include "trireme/train/run_config.h"

#include <algorithm>

#include "trireme/base/parse.h"
#include "trireme/codec/difference.h"
#include "trireme/nn/bf16_products.h"
#include "trireme/train/presets.h"

namespace trireme {

namespace {

OneOf NamesOfStores() {
  OneOf names;
  for (const StoreEntry& store : AllStores()) names.emplace_back(store.name);
  return names;
}

std::string CompressHelp() {
  std::string help =
      "gradients between processes in fewer bytes, with error feedback: auto (bf16 or fp16 where precision "
      "is "
      "so), none";
  for (const CodecEntry& codec : Codecs())
    help +=
        fmt::format(", {}{}{}", codec.name, codec.argument ? "=" : "", codec.argument ? codec.argument : "");
  return help;
}

constexpr const char* kAsynchronous = ".shared";

// Null where there is none.
const Preset* FindPreset(const std::string& env, const std::string& algo, const std::string& kind = "") {
  std::string name = env;  // gym:MyEnv-v0 has a preset in gym-MyEnv-v0.ppo.toml
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '/'; }, '-');
  const auto& presets = AllPresets();
  const auto found = std::ranges::find(presets, fmt::format("{}.{}{}", name, algo, kind), &Preset::name);
  return found == presets.end() ? nullptr : &*found;
}

}  // namespace

std::string RunConfig::gradient_codec() const {
  if (compress != kAsPrecision) return compress;
  const bool sent = sends_gradients() && store_entry().compresses && local_steps == 0;
  return std::string(sent && precision != Precision::kFp32 ? NameOf(precision) : kNoCodec);
}

std::string RunConfig::params_codec() const {
  const std::string codec = gradient_codec();
  if (codec == kNoCodec) return codec;
  if (compress_params != "same") return compress_params;
  return MakeCodec(codec)->memory(1) > 0 ? "int8" : codec;
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
        "store shared: order of pulls and pushes, for reproducible runs, like \"0< 1< 0> 1>\"; with actors: "
        "order "
        "in which these take policies and send, and the learner takes and publishes; empty: free");
  server.Fields(field);
  field("device", device,
        "what computes networks: fused (this processor), or by libtorch cpu, cuda, or several as in "
        "cuda:0,cuda:1, which are taken by the workers in turn; `trireme devices` lists them");
  field(
      "precision", precision,
      "bits of weights in use, activations, their gradients and gradients that are sent; what is learned has "
      "32. Products of bf16 numbers are computed as such by processors that can (AVX512-BF16; the result "
      "says "
      "products = avx512_bf16), all others in 32 bits, where 16 save memory and no time",
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
  field(
      "actors", actors,
      "threads that only collect, in each process, for workers that then only learn; 0: workers collect for "
      "themselves",
      Between(0, 256));
  field("listen", listen,
        "host:port, or shm:/path for this host, where actors of other processes may join (trireme actor "
        "--learner); each process of the run has its own; empty: nowhere");
  field("replay_servers", replay_servers,
        "where what actors collect is remembered: host:port,host:port of `trireme replay`; actors join "
        "there. Empty: "
        "workers remember");
  field("replay_slack", replay_slack,
        "replay servers: rounds of learning by which collecting may be ahead or behind", Between(0, 1e9));
  field("queue", queue, "actors: trajectories that may wait for a worker; 0: as many as an update takes",
        Between(0, 1e6));
  field("max_lag", max_lag,
        "actors: how many versions the policy of a trajectory may be behind; older ones are not learned "
        "from; 0: any",
        Between(0, 1e9));
  field(
      "inference", inference,
      "actors: each evaluates the network for itself (local), or the learner's process does for all of them "
      "together (central)",
      kInferenceNames);
  field("inference_batch", inference_batch, "inference central: the most environments in one evaluation",
        Between(1, 65536));
  field("inference_wait_us", inference_wait_us,
        "inference central: microseconds that a request may wait for those of other actors", Between(0, 1e6));
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
  field("predicted_steps_per_s", predicted_steps_per_s,
        "written by --parallel auto, which chose workers, store, compress and model_parallel: what it "
        "expects of them, for the report; 0: they were not chosen so",
        NonNegative());
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

std::vector<std::string> AddressList(std::string_view setting, std::string_view text) {
  std::vector<std::string> list;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view address = Trim(rest.substr(0, comma));
    if (address.empty()) Fail("{} = {}: there is an empty address in the list", setting, text);
    if (address.ends_with(":0")) {
      Fail("{} = {}: port 0 lets a server choose; write the one it printed when it started", setting, text);
    }
    list.emplace_back(address);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return list;
}

std::vector<std::string> ServerConfig::List() const {
  std::vector<std::string> list = AddressList("servers", addresses);
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

std::string RunConfig::Arithmetic() const {
  std::string text = ComputedBy();
  if (split().kind == ModelSplit::Kind::kTensor) text += ", " + model_parallel;
  if (local_steps > 0) text += fmt::format(", local_steps={}", local_steps);
  return text;
}

std::string RunConfig::ProductsFor(const NetworkSpec& network) const {
  if (ParseDevices(device).front().by_torch()) return "libtorch";
  return trireme::NameOf(ProductsOf(network, precision));
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
  const Preset* preset = run.asynchronous() ? FindPreset(env, algo, kAsynchronous) : nullptr;
  if (preset == nullptr) preset = FindPreset(env, algo);
  if (preset != nullptr) fields.ApplyToml(preset->text, fmt::format("presets/{}.toml", preset->name));
}

bool HasAsynchronousPreset(const std::string& env, const std::string& algo) {
  return FindPreset(env, algo, kAsynchronous) != nullptr;
}
std::uint64_t RunSettings::ExperienceBytes() const {
  const std::uint64_t bytes = algorithm->ExperienceBytes(env().spec);
  if (run.on_replay_servers()) {  // one draw that is learned from, and one that has come, for each shard
    const auto what = algorithm->RemembersElsewhere(run.shards, 1);
    return what ? 2 * run.shards *
                      ReplayBuffer::Bytes(what->part, RowLayout(env().spec), env().spec.action.size())
                : 0;
  }
  if (run.has_actors()) {  // two in each actor of this process, and those that wait
    const std::uint64_t trajectories = 2 * run.actors + run.workers * run.QueueOfWorker();
    const auto [steps, envs] = algorithm->TrajectorySize(run.shards);
    return bytes +
           trajectories * Trajectory::Bytes(RowLayout(env().spec), env().spec.action.size(), steps, envs);
  }
  return bytes * (run.asynchronous() ? run.workers : run.split().members);
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
