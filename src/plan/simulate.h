// Simulates training with many workers, one of the ways of ways.h.
//
// With `split`, workers in step divide one worker's work among them, as `trireme train` does; without it each
// brings as much as a lone worker. Workers on their own always do the latter. With `overlap` they do not wait
// for the answer to a push: they go on with the parameters they have, look for the answer before every round,
// and wait for it only before the next push.
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
  int worker = -1;      // this one is always slow (none: -1, or where there is no such worker)
  double factor = 1;    // how many times
  double chance = 0;    // that a round of any worker is slow
  double slowdown = 1;  // how many times then
};

struct Scenario {
  const PlanWay* way = &kAllReduceWay;
  int workers = 1;
  int bound = 3;                    // rounds ahead of the slowest, where there is a bound
  int servers = 1;                  // each has an equal part of the parameters
  bool servers_on_workers = false;  // on the workers' hosts, in turn, instead of hosts of their own
  bool overlap = false;             // of workers on their own, through servers
  int hosts = 0;                    // for workers; 0: as many as there must be for one worker per processor
  int cores = 1;                    // processors of a host
  bool split = true;
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
  double bytes_per_round = 0;  // between processes, all workers together
  double messages_per_round = 0;
  double server_busy = 0;  // share of its time the first server works

  double idle() const { return round_s > 0 ? (communication_s + waiting_s) / round_s : 0; }
};

// Requires 1 <= workers; in the memory of one process: that they fit one host (hosts = 1, or workers <= cores).
Outcome Simulate(const PlanConstants& constants, const Scenario& scenario);
// The part of it where workers go to servers or to the memory that they share, given what a trip takes alone.
Outcome SimulateTrips(const PlanConstants& constants, const Scenario& scenario, double communication_s);

}  // namespace trireme
