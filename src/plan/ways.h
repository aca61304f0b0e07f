// The ways to place parameters, as actors of a simulation. See simulate.h for what they are.
#pragma once

#include "trireme/plan/crew.h"
#include "trireme/plan/simulate.h"

namespace trireme {

Outcome SimulateAllReduce(const PlanConstants& constants, const Scenario& scenario);
Outcome SimulateServers(const PlanConstants& constants, const Scenario& scenario);
Outcome SimulateShared(const PlanConstants& constants, const Scenario& scenario);

// Small exchanges of workers in step that precede the gradient of round `round` (0, 1, ...): as many over
// time as the constants say, at most a whole number in each round.
int NoticesBefore(const PlanConstants& constants, int round);

// One message of an allreduce between hosts, as one of them sees it: it sends to its partner (unless 0 bytes)
// and then waits for what the partner sends (unless 0 bytes), which it adds to its own or keeps.
struct ExchangeStep {
  int partner = 0;
  double send_bytes = 0, receive_bytes = 0;
  bool adds = false;
  int stage = 0;  // the same number on both sides, at most kMostStages - 1
};
inline constexpr int kMostStages = 48;

// What host `host` of `hosts` does to sum `bytes` over all of them. Small messages: recursive doubling,
// log2(hosts) stages with all bytes. Large ones: reduce-scatter by recursive halving, then allgather by
// doubling, 2 log2(hosts) stages and 2 (hosts - 1) / hosts * bytes. The quicker one is taken. Of a number
// that is no power of two, the hosts beyond the last one hand theirs to a partner first and get the sum last.
std::vector<ExchangeStep> ExchangePlan(const PlanConstants& constants, int host, int hosts, double bytes);

// The time of an allreduce when all start at once and nobody else uses the links: messages x latency + bytes
// / bandwidth + adding. `per_host` threads add theirs first.
double AllReduceSeconds(const PlanConstants& constants, int hosts, int per_host, double bytes);

}  // namespace trireme
