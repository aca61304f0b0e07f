// What a worker tells the leader about its part of the run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/env/env.h"
#include "trireme/experience/central_inference.h"
#include "trireme/metrics/report.h"
#include "trireme/store/parameter_store.h"
#include "trireme/train/topology.h"

namespace trireme {

struct WorkerAccount {
  WorkerFacts facts;
  Traffic traffic;
  Staleness staleness;
  Staleness lag = {};         // of the policies that its experience is by
  std::uint64_t too_old = 0;  // trajectories that were left out for it
  // Of its process, of those that step environments for it, and of what chooses for actors. The first thread tells them.
  double cpu_s = 0;
  EnvFailures env = {};
  CentralInference::Facts inference = {};
  SplitFacts split = {};
  std::vector<ProcessLink> links = {};

  // As it travels between processes of the same program.
  std::string Encode() const;
  static WorkerAccount Decode(std::string_view bytes);
};

// Updates of the parameters that `accounts` tell of: every push of workers on their own is one; in step,
// those of all workers together are.
std::uint64_t RoundsOf(const std::vector<WorkerAccount>& accounts, bool asynchronous);

void AddAccounts(const std::vector<WorkerAccount>& accounts, bool asynchronous, RunFacts& facts);

}  // namespace trireme
