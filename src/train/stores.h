// The table of stores: where the parameters of a run live, and with that how its workers are connected.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

class Actors;
class Network;
class RunFolder;
class RunSettings;
class Topology;
struct RunConfig;
struct TrainOptions;

// What each worker leaves in a checkpoint, besides what is written once for the run.
enum class Leaves {
  kShards,      // its shards; all else all workers hold alike
  kEverything,  // its shards, its store and what its algorithm holds: as many workers must take it up
  kNothing,     // the parameters are all that goes on
};

// How the workers of a run move. Whoever acts on it asks for what is true of it, so that another way has to say
// all of this.
struct Coordination {
  std::string_view name;  // in checkpoints; those of the same name can take over from each other
  bool in_step;           // an update waits for all, and all see the same parameters
  bool schedulable;       // the order of pulls and pushes can be given
  Leaves leaves;
};

inline constexpr Coordination kInStep{
    .name = "synchronous", .in_step = true, .schedulable = false, .leaves = Leaves::kShards};
// Nobody waits for anybody, but all are there from the start to the end.
inline constexpr Coordination kFree{
    .name = "shared", .in_step = false, .schedulable = true, .leaves = Leaves::kEverything};
// Nobody waits for anybody, and workers come and go.
inline constexpr Coordination kElastic{
    .name = "server, asynchronous", .in_step = false, .schedulable = false, .leaves = Leaves::kNothing};

// What the workers of one process are to be connected for. All outlive the topology.
struct RunContext {
  const RunSettings& settings;
  const Network& network;
  const TrainOptions& options;
  const RunFolder* folder;         // null in processes that MPI connects, but for the first
  std::span<const float> initial;  // parameters that a new run starts from
  std::string run_id = {};         // for replay servers, see RunIdOf
  Actors* actors = nullptr;        // who collects for the workers; null: they do
};

struct StoreEntry {
  std::string_view name, help;
  bool one_worker = false;   // it holds the parameters of one worker
  bool one_process = false;  // it lives in the memory of one process
  bool on_servers = false;   // servers hold it; through them, not by MPI, processes find each other
  bool compresses = false;   // gradients may travel as a codec's messages
  bool averages = false;     // parameters may be averaged now and then instead of summing gradients
  bool splits = false;       // workers may hold parts of one network (model_parallel)
  const Coordination& (*coordination)(const RunConfig& run) = nullptr;
  std::unique_ptr<Topology> (*make)(const RunContext& context) = nullptr;  // throws Error
};

std::span<const StoreEntry> AllStores();
// Throws Error for unknown names.
const StoreEntry& FindStore(std::string_view name);
// The store whose parameters are on servers.
const StoreEntry& StoreOnServers();
// "local, allreduce, ..."
std::string StoreNames();
// For --help: what there is, and what each is.
std::string StoresHelp();

}  // namespace trireme
