// Simulates training with many workers, one of the ways of ways.h.
//
// Every worker has a processor of its own, on as many hosts as that takes. Workers in step divide one worker's
// work among them, as `trireme train` does; on their own each brings as much as a lone worker. With `overlap`
// they do not wait for the answer to a push: they go on with the parameters they have, look for the answer
// before every round, and wait for it only before the next push.
//
// Pure: the same constants and scenario give the same outcome, bit for bit.
#pragma once

#include <cstdint>

#include "trireme/plan/constants.h"
#include "trireme/plan/ways.h"
#include "trireme/store/parameter_store.h"

namespace trireme {

// What makes workers slow.
struct Slowness {
  int worker = 1;  // this one is always so many times slower, where there is such a worker
  double factor = 1;
  double chance = 0;  // that a round of any worker is so many times slower
  double slowdown = 1;
};

enum class ServersOn { kOwn, kWorkers };

struct Scenario {
  const PlanWay* way = &kAllReduceWay;
  int workers = 1;  // groups of them, where the constants have members
  int cores = 1;
  int servers = 1;  // each has an equal part of the parameters
  ServersOn servers_on = ServersOn::kOwn;
  int bound = 3;
  bool overlap = false;  // of workers on their own, through servers
  Slowness slow = {};
  std::uint64_t seed = 1;
  int rounds = 0;  // of each worker on average; 0: enough for a steady figure
};

// Means per round are over workers and rounds, after a fifth of the rounds went by to forget the start.
struct Outcome {
  int hosts = 0;
  double steps_per_s = 0;
  // Of one worker: round = compute + communication + waiting.
  double round_s = 0;
  double compute_s = 0;        // with what it applies itself
  double communication_s = 0;  // what messages and servers would take if nobody else were there
  double waiting_s = 0;        // for slower workers; for links, servers and processors that others use
  Staleness staleness = {};    // of pushes by workers on their own
  double server_busy = 0;      // share of its time the first server works

  double idle() const { return round_s > 0 ? (communication_s + waiting_s) / round_s : 0; }
};

// Requires a way that is predicted; in the memory of one process: workers <= cores.
Outcome Simulate(const PlanConstants& constants, const Scenario& scenario);

}  // namespace trireme
