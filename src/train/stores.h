// The table of stores: where the parameters of a run live, and with that how its workers are connected.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

class Network;
class RunFolder;
class RunSettings;
class Topology;
struct RunConfig;
struct TrainOptions;

// How the workers of a run move.
enum class Coordination {
  kInStep,   // an update waits for all, and all see the same parameters
  kFree,     // nobody waits for anybody, but all are there from the start to the end
  kElastic,  // nobody waits for anybody, and workers come and go
};

// What the workers of one process are to be connected for. All outlive the topology.
struct RunContext {
  const RunSettings& settings;
  const Network& network;
  const TrainOptions& options;
  const RunFolder* folder;         // null in processes that MPI connects, but for the first
  std::span<const float> initial;  // parameters that a new run starts from
};

struct StoreEntry {
  std::string_view name, help;
  bool one_worker = false;   // it holds the parameters of one worker
  bool one_process = false;  // it lives in the memory of one process
  bool on_servers = false;   // servers hold it; through them, not by MPI, processes find each other
  Coordination (*coordination)(const RunConfig& run) = nullptr;
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
