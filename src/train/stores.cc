#include "trireme/train/stores.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/communicator_topology.h"
#include "trireme/train/run_config.h"
#include "trireme/train/server_topology.h"
#include "trireme/train/shared_topology.h"

namespace trireme {
namespace {

const Coordination& InStep(const RunConfig&) { return kInStep; }
const Coordination& Free(const RunConfig&) { return kFree; }
const Coordination& AsPaced(const RunConfig& run) {
  return run.server.pace == Pace::kSync ? kInStep : kElastic;
}

constexpr StoreEntry kStores[] = {
    {.name = "local",
     .help = "in the worker, which is alone",
     .one_worker = true,
     .one_process = true,
     .coordination = InStep,
     .make = MakeCommunicatorTopology},
    {.name = "allreduce",
     .help = "a copy in every worker; gradients are summed over threads and processes",
     .compresses = true,
     .averages = true,
     .splits = true,
     .coordination = InStep,
     .make = MakeCommunicatorTopology},
    {.name = "shared",
     .help = "one memory for workers that move on their own",
     .one_process = true,
     .coordination = Free,
     .make = MakeSharedTopology},
    {.name = "server",
     .help = "on parameter servers, for workers of any process, in step or on their own",
     .on_servers = true,
     .compresses = true,
     .coordination = AsPaced,
     .make = MakeServerTopology},
};

}  // namespace

std::span<const StoreEntry> AllStores() { return kStores; }

const StoreEntry& FindStore(std::string_view name) {
  const auto* const found = std::ranges::find(kStores, name, &StoreEntry::name);
  if (found == std::end(kStores)) Fail("--store: expected one of {}, not '{}'", StoreNames(), name);
  return *found;
}

const StoreEntry& StoreOnServers() { return *std::ranges::find(kStores, true, &StoreEntry::on_servers); }

std::string StoresHelp() {
  std::string help = "where parameters live.";
  for (const StoreEntry& store : kStores) help += fmt::format(" {}: {}.", store.name, store.help);
  return help;
}

std::string StoreNames() {
  std::string names;
  for (const StoreEntry& store : kStores) names += fmt::format("{}{}", names.empty() ? "" : ", ", store.name);
  return names;
}

}  // namespace trireme
