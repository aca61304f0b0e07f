#include "trireme/plan/simulate.h"

#include <bit>
#include <cmath>

#include "trireme/plan/crew.h"

namespace trireme {
namespace {

// An allreduce of `bytes`: threads of a host add theirs in shared memory, then one of them exchanges with the
// other hosts. Small messages: recursive doubling, log2(hosts) stages with all bytes. Large ones: reduce-scatter
// by recursive halving, then allgather by doubling, 2 log2(hosts) stages and 2 (hosts - 1) / hosts * bytes. The
// quicker one is taken. A number of hosts that is no power of two has one stage more.
struct AllReduce {
  AllReduce(const PlanConstants& constants, int hosts, int threads, double bytes) {
    const double stages = std::bit_width(static_cast<unsigned>(hosts - 1)), share = (hosts - 1.0) / hosts;
    const Link& network = constants.network;
    const auto add_s = [&](double added) { return constants.threads.Transfer(added); };
    const double doubling_s = stages * (network.Seconds(bytes) + add_s(bytes));
    const double halving_s =
        2 * (stages * network.latency_s + network.Transfer(share * bytes)) + add_s(share * bytes);
    const double inside = bytes * (threads - 1) / threads;
    const bool small = doubling_s <= halving_s;
    seconds = std::min(doubling_s, halving_s) + (threads > 1 ? 2 * constants.threads.Seconds(inside) : 0);
    messages_sent = hosts * (small ? 1 : 2) * stages;
    bytes_sent = hosts * bytes * (small ? stages : 2 * share);
  }
  double seconds, messages_sent, bytes_sent;
};

// Replicas in step: a round is the slowest worker's computing and an allreduce, now and then of a notice, too.
Outcome SimulateReplicas(const PlanConstants& constants, const Scenario& scenario) {
  Crew crew(constants, scenario, constants.apply_s());
  const double turns = std::max(1.0, crew.per_host() / static_cast<double>(scenario.cores));
  const auto reduce = [&](double bytes) {
    return AllReduce(constants, crew.hosts(), crew.per_host(), bytes);
  };
  const AllReduce gradient = reduce(constants.gradient_bytes()), notice = reduce(constants.notice_bytes);
  const double notices = constants.notices_per_round;
  const double exchange_s = gradient.seconds + notices * notice.seconds;
  double now_s = 0, rounds = 0;
  for (; crew.GoesOn(0); ++rounds) {
    double slowest_s = 0;
    for (int i = 0; i < crew.workers(); ++i) slowest_s = std::max(slowest_s, crew.NextCompute(i));
    now_s += turns * slowest_s + exchange_s;
    for (int i = 0; i < crew.workers(); ++i) crew.Finish(i, now_s);
  }
  return crew.Summarise(exchange_s, rounds * (gradient.bytes_sent + notices * notice.bytes_sent),
                        rounds * (gradient.messages_sent + notices * notice.messages_sent));
}

}  // namespace

Outcome Simulate(const PlanConstants& constants, const Scenario& scenario) {
  if (scenario.way->in_step && !scenario.way->on_servers) return SimulateReplicas(constants, scenario);
  if (!scenario.way->on_servers) return SimulateTrips(constants, scenario, /*communication_s=*/0);
  // What a trip takes alone: one worker, rounds of the mean time.
  PlanConstants steady = constants;
  steady.round_times = {1000};
  Scenario lone = scenario;
  lone.workers = 1;
  lone.slow = {};
  lone.rounds = 50;
  const Outcome alone = SimulateTrips(steady, lone, 0);
  return SimulateTrips(constants, scenario, alone.round_s - alone.compute_s);
}

}  // namespace trireme
