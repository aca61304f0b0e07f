// Simulates training with many workers, for each way to place the parameters:
//
//   allreduce     every worker has a replica; gradients are summed over all. Threads of a host add theirs in
//                 shared memory, then one of them exchanges with the other hosts.
//   server-sync   workers push gradients to the servers; when all have, the servers apply the sum and send
//                 the parameters back.
//   async         a server applies each push at once and answers with the parameters as they then are.
//   ssp           the same, but a worker that is more than `bound` rounds ahead of the slowest waits for its
//                 answer.
//                 With `overlap` the worker of async and ssp does not wait: it goes on with the parameters it
//                 has, looks for the answer before every round (for `poll_s`), and waits for it only before
//                 its next push.
//   shared        async in the memory of one process: workers are threads and apply their gradients
//                 themselves.
//
// With `split`, workers in step divide one worker's work among them, as `trireme train` does; without it each
// brings as much as a lone worker. Workers on their own always do the latter.
//
// Workers and servers run on the processors of their hosts, which those of one host share. A request to a
// server and its answer take processor time at both ends, besides what the link takes.
//
// Pure: the same constants and scenario give the same outcome, bit for bit.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/config.h"
#include "trireme/plan/constants.h"
#include "trireme/store/parameter_store.h"

namespace trireme {

enum class Way { kAllReduce, kServerSync, kAsync, kSsp, kShared };
inline constexpr EnumName<Way> kWayNames[] = {
    {"allreduce", Way::kAllReduce}, {"server-sync", Way::kServerSync},
    {"async", Way::kAsync},         {"ssp", Way::kSsp},
    {"shared", Way::kShared},
};
std::string WayName(Way way);
inline bool InStep(Way way) { return way == Way::kAllReduce || way == Way::kServerSync; }
inline bool ThroughServers(Way way) { return way != Way::kAllReduce && way != Way::kShared; }

// What makes workers slow.
struct Slowness {
  int worker = -1;      // this one is always slow (none: -1, or where there is no such worker)
  double factor = 1;    // how many times
  double chance = 0;    // that a round of any worker is slow
  double slowdown = 1;  // how many times then
};

struct Scenario {
  Way way = Way::kAllReduce;
  int workers = 1;
  int bound = 3;                    // of ssp
  int servers = 1;                  // each has an equal part of the parameters
  bool servers_on_workers = false;  // on the workers' hosts, in turn, instead of hosts of their own
  bool overlap = false;             // of async and ssp
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
  double compute_s = 0;        // with what it applies and copies itself
  double communication_s = 0;  // what messages and servers would take if nobody else were there
  double waiting_s = 0;        // for slower workers; for links, servers and processors that others use
  Staleness staleness = {};    // of pushes by workers on their own
  int widest_gap = 0;          // ssp: most rounds a worker that computes was ahead of the slowest
  double bytes_per_round = 0;  // between nodes, all workers together
  double messages_per_round = 0;
  double server_busy = 0;  // share of its time the first server adds or applies
  std::uint64_t events = 0;

  double idle() const { return round_s > 0 ? (communication_s + waiting_s) / round_s : 0; }
};

// Requires 1 <= workers; shared: that they fit one host (hosts = 1, or workers <= cores).
Outcome Simulate(const PlanConstants& constants, const Scenario& scenario);

}  // namespace trireme
