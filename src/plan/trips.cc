// Workers that each go to whoever has the parameters: servers, or the memory that they share.

#include <algorithm>
#include <iterator>
#include <numeric>

#include "trireme/plan/crew.h"
#include "trireme/plan/simulation.h"

namespace trireme {
namespace {

// In each round a worker computes, sends each server its part of the gradient and takes from each its part of
// the parameters. What differs between the ways is when a server answers, and when a worker waits for that.
class Trips {
 public:
  Trips(const PlanConstants& constants, const Scenario& scenario)
      : constants_(constants),
        scenario_(scenario),
        trip_(constants.TripOf(*scenario.way)),
        // Several servers agree on the norm first, in short messages.
        exchanges_(scenario.way->in_step && scenario.servers > 1 ? 2 : 1),
        part_floats_(static_cast<double>(constants.floats) / scenario.servers),
        crew_(constants, scenario, scenario.way->on_servers ? 0 : constants.shared_s),
        simulation_({exchanges_ * constants.network.latency_s, constants.network.bytes_per_s},
                    exchanges_ * trip_.latency_s / 2 * crew_.Crowding(0, constants.trip_crowding),
                    crew_.hosts() + (scenario.servers_on_workers ? 0 : scenario.servers), scenario.cores),
        inboxes_(crew_.workers()) {
    TRIREME_CHECK(scenario.way->on_servers || crew_.hosts() == 1);
    if (!scenario.way->on_servers) return;
    servers_.resize(scenario.servers);
    for (Server& server : servers_) server.clocks.resize(scenario.workers);
  }

  Outcome Run(double communication_s);

 private:
  struct Server {
    Mailbox inbox = {};
    double busy_s = 0;
    std::uint64_t version = 0;   // pushes or sums applied
    std::vector<int> held = {};  // whose answer waits, in order
    // On their own, with a bound: pushes of each worker, the fewest of them, and how many have more.
    std::vector<int> clocks = {};
    int slowest = 0, ahead = 0;
  };

  Process Worker(int worker);
  Process SharedWorker(int worker);
  Process Serve(int index);
  std::vector<int> Apply(Server& server, int worker) const;

  int HostOfServer(int index) const {
    return scenario_.servers_on_workers ? index % crew_.hosts() : crew_.hosts() + index;
  }
  // Processor time of a trip at the end where a whole gradient takes `end_s`.
  double TripSeconds(double end_s, int host) const {
    const double fixed = constants_.trip_fixed_share, part = (1 - fixed) / scenario_.servers;
    const double crowding = host < crew_.hosts() ? crew_.Crowding(host, constants_.trip_crowding) : 1;
    return end_s * (exchanges_ * fixed + part) * crowding;
  }

  const PlanConstants& constants_;
  const Scenario& scenario_;
  const Trip& trip_;
  int exchanges_;
  double part_floats_;
  Crew crew_;
  Simulation simulation_;
  std::vector<Mailbox> inboxes_;  // of workers
  std::vector<Server> servers_;
  std::uint64_t shared_version_ = 0;  // pushes, where there are no servers
  Staleness staleness_;               // at the first server
};

Process Trips::Worker(int worker) {
  Mailbox& inbox = inboxes_[worker];
  const int host = crew_.HostOf(worker);
  const bool overlap = scenario_.overlap && !scenario_.way->in_step;
  int missing = 0;         // answers that were not taken yet
  std::uint64_t seen = 0;  // the first server's version that this worker has
  while (crew_.GoesOn(worker)) {
    for (; missing > 0 && (!overlap || !inbox.empty()); --missing) {
      const Letter answer = co_await inbox.Receive();
      if (answer.from == 0) seen = answer.version;
    }
    const std::uint64_t used = seen;
    co_await simulation_.Work(host, crew_.NextCompute(worker));
    for (; missing > 0; --missing) {
      const Letter answer = co_await inbox.Receive();
      if (answer.from == 0) seen = answer.version;
    }
    for (; missing < scenario_.servers; ++missing) {
      co_await simulation_.Work(host, TripSeconds(trip_.worker_s, host));
      simulation_.Send(host, HostOfServer(missing), part_floats_ * sizeof(float), servers_[missing].inbox,
                       {worker, used});
    }
    crew_.Finish(worker, simulation_.now_s());
  }
  if (crew_.AllDone()) simulation_.Stop();
}

// Nothing to wait for. What remains to simulate is how many updates come between a pull and a push.
Process Trips::SharedWorker(int worker) {
  while (crew_.GoesOn(worker)) {
    const std::uint64_t used = shared_version_;
    co_await simulation_.Work(0, crew_.NextCompute(worker));
    staleness_.Add(shared_version_++ - used);
    crew_.Finish(worker, simulation_.now_s());
    if (crew_.AllDone()) simulation_.Stop();
  }
}

// One thing after the other; answers go out before the next message is looked at.
Process Trips::Serve(int index) {
  Server& self = servers_[index];
  const int host = HostOfServer(index);
  const double message_s = TripSeconds(trip_.server_s, host) / 2;
  const double apply_s = constants_.apply_s_per_float * part_floats_;
  for (;;) {
    const Letter push = co_await self.inbox.Receive();
    const bool in_step = scenario_.way->in_step;
    if (in_step) self.held.push_back(push.from);
    const bool applies = !in_step || static_cast<int>(self.held.size()) == crew_.workers();
    const double take_s = message_s + (applies ? apply_s : 0);
    self.busy_s += take_s;
    co_await simulation_.Work(host, take_s);
    if (!applies) continue;
    if (index == 0 && !in_step) staleness_.Add(self.version - push.version);
    ++self.version;
    const std::vector<int> answered = in_step ? std::exchange(self.held, {}) : Apply(self, push.from);
    for (const int worker : answered) {
      self.busy_s += message_s;
      co_await simulation_.Work(host, message_s);
      simulation_.Send(host, crew_.HostOf(worker), part_floats_ * sizeof(float), inboxes_[worker],
                       {index, self.version});
    }
  }
}

// Who of the workers on their own is to be answered, in order: with a bound, whoever is too far ahead waits
// until the slowest has pushed.
std::vector<int> Trips::Apply(Server& server, int worker) const {
  if (!scenario_.way->bounded) return {worker};
  const auto free = [&](int other) { return server.clocks[other] - server.slowest <= scenario_.bound; };
  if (server.clocks[worker]++ > server.slowest || ++server.ahead < crew_.workers()) {
    if (free(worker)) return {worker};
    server.held.push_back(worker);
    return {};
  }
  server.slowest = *std::ranges::min_element(server.clocks);
  server.ahead = crew_.workers() - static_cast<int>(std::ranges::count(server.clocks, server.slowest));
  server.held.push_back(worker);
  std::vector<int> released;
  std::ranges::copy_if(server.held, std::back_inserter(released), free);
  std::erase_if(server.held, free);
  return released;
}

Outcome Trips::Run(double communication_s) {
  for (int worker = 0; worker < crew_.workers(); ++worker) {
    simulation_.Start(servers_.empty() ? SharedWorker(worker) : Worker(worker));
  }
  for (std::size_t i = 0; i < servers_.size(); ++i) simulation_.Start(Serve(static_cast<int>(i)));
  simulation_.Run();
  Outcome outcome = crew_.Summarise(communication_s, simulation_.bytes_sent,
                                    exchanges_ * static_cast<double>(simulation_.messages_sent));
  outcome.staleness = staleness_;
  outcome.server_busy = servers_.empty() ? 0 : servers_[0].busy_s / simulation_.now_s();
  return outcome;
}

}  // namespace

Outcome SimulateTrips(const PlanConstants& constants, const Scenario& scenario, double communication_s) {
  return Trips(constants, scenario).Run(communication_s);
}

}  // namespace trireme
