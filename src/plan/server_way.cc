#include <algorithm>
#include <deque>

#include "base/error.h"
#include "plan/engine.h"
#include "plan/ways.h"

namespace trireme {
namespace {

// Workers 0, 1, ... are nodes 0, 1, ...; the servers follow. In each round a worker computes, sends each
// server its part of the gradient and waits until all have answered with their part of the parameters. What
// differs between the ways is when a server answers.
class ServerWay final : public Engine::Actor {
 public:
  ServerWay(const PlanConstants& constants, const Scenario& scenario)
      : constants_(constants),
        way_(scenario.way),
        bound_(scenario.bound),
        part_bytes_(constants.gradient_bytes() / scenario.servers),
        part_floats_(static_cast<double>(constants.floats) / scenario.servers),
        crew_(constants, scenario, 2 * constants.copy_s_per_float * constants.floats),
        engine_(constants.network, constants.loopback, Placement(crew_, scenario.servers)),
        workers_(crew_.workers()),
        servers_(scenario.servers) {
    for (Server& server : servers_) {
      server.clock.resize(crew_.workers());
      server.seen.resize(crew_.workers());
      server.at_slowest = crew_.workers();
    }
  }

  Outcome Run(double communication_s);

 private:
  enum Timer { kComputed, kServed, kSumApplied };
  enum Tag { kNotice, kGradient };

  struct Worker {
    int notices_left = 0;  // before the gradient of this round; workers in step only
    int answers = 0;       // that are still to come
  };
  struct Server {
    Resource processor;
    std::deque<Message> in_service;  // in the order they will be done
    int pushes = 0;                  // of the sum under way; workers in step only
    // Workers on their own. The clock of a worker is the number of its pushes applied here.
    std::vector<int> clock;
    int slowest = 0;                  // the lowest clock
    int at_slowest = 0;               // workers that have it
    std::deque<int> held;             // workers whose answer waits for slower ones, in order
    std::uint64_t version = 0;        // pushes applied
    std::vector<std::uint64_t> seen;  // version each worker was answered with
  };

  static std::vector<int> Placement(const Crew& crew, int servers) {
    std::vector<int> host_of = crew.HostOfEach();
    for (int i = 0; i < servers; ++i) host_of.push_back(crew.hosts() + i);
    return host_of;
  }

  bool in_step() const { return InStep(way_); }
  Server& ServerAt(int node) { return servers_[node - crew_.workers()]; }
  int NodeOf(std::size_t server) const { return crew_.workers() + static_cast<int>(server); }
  double apply_s() const { return constants_.apply_s_per_float * part_floats_; }

  void OnTimer(int node, int tag) override;
  void OnMessage(const Message& message) override;
  void StartRound(int worker);
  void Push(int worker);
  void OnPush(const Message& message);
  void OnServed(int node);
  void AddToSum(int node, const Message& push);
  void Apply(int node, int worker);
  bool MayGoOn(const Server& server, int worker) const {
    return way_ != Way::kSsp || server.clock[worker] - server.slowest <= bound_;
  }
  void Answer(int node, int worker, Tag tag);
  void OnAnswer(int worker);

  const PlanConstants& constants_;
  Way way_;
  int bound_;
  double part_bytes_, part_floats_;  // of each server
  Crew crew_;
  Engine engine_;
  std::vector<Worker> workers_;
  std::vector<Server> servers_;
  Staleness staleness_;  // at the first server
  int widest_gap_ = 0;
};

Outcome ServerWay::Run(double communication_s) {
  for (int worker = 0; worker < crew_.workers(); ++worker) StartRound(worker);
  engine_.Run(*this);
  CHECK(crew_.AllDone());
  Outcome outcome = crew_.Summarise(communication_s);
  double rounds = 0;
  for (int worker = 0; worker < crew_.workers(); ++worker) rounds += crew_.done(worker);
  rounds /= crew_.workers();
  outcome.staleness = staleness_;
  outcome.widest_gap = widest_gap_;
  outcome.bytes_per_round = engine_.bytes_sent() / rounds;
  outcome.messages_per_round = static_cast<double>(engine_.messages_sent()) / rounds;
  outcome.server_busy = servers_[0].processor.busy_s() / engine_.now_s();
  outcome.events = engine_.events();
  return outcome;
}

void ServerWay::OnTimer(int node, int tag) {
  switch (tag) {
    case kComputed:
      Push(node);
      break;
    case kServed:
      OnServed(node);
      break;
    case kSumApplied:
      for (int worker = 0; worker < crew_.workers(); ++worker) Answer(node, worker, kGradient);
      break;
  }
}

void ServerWay::OnMessage(const Message& message) {
  if (message.to < crew_.workers()) {
    OnAnswer(message.to);
  } else {
    OnPush(message);
  }
}

void ServerWay::StartRound(int worker) {
  for (const Server& server : servers_) {
    widest_gap_ = std::max(widest_gap_, server.clock[worker] - server.slowest);
    CHECK(MayGoOn(server, worker));
  }
  workers_[worker].notices_left = in_step() ? NoticesBefore(constants_, crew_.done(worker)) : 0;
  engine_.After(crew_.NextCompute(worker), worker, kComputed);
}

// Notices are small, so they go to the first server alone.
void ServerWay::Push(int worker) {
  if (workers_[worker].notices_left > 0) {
    workers_[worker].answers = 1;
    engine_.Send({.from = worker, .to = NodeOf(0), .bytes = constants_.notice_bytes, .tag = kNotice});
    return;
  }
  workers_[worker].answers = static_cast<int>(servers_.size());
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    engine_.Send({.from = worker, .to = NodeOf(i), .bytes = part_bytes_, .tag = kGradient});
  }
}

// A server does one thing after the other.
void ServerWay::OnPush(const Message& message) {
  Server& server = ServerAt(message.to);
  const double work_s = message.tag == kNotice ? constants_.add_s_per_float * constants_.notice_bytes / 4
                        : in_step()            ? constants_.add_s_per_float * part_floats_
                                               : apply_s();
  server.in_service.push_back(message);
  engine_.At(server.processor.Take(engine_.now_s(), work_s), message.to, kServed);
}

void ServerWay::OnServed(int node) {
  Server& server = ServerAt(node);
  const Message push = server.in_service.front();
  server.in_service.pop_front();
  if (in_step()) {
    AddToSum(node, push);
  } else {
    Apply(node, push.from);
  }
}

// Synchronous: the last push of a sum releases everybody.
void ServerWay::AddToSum(int node, const Message& push) {
  Server& server = ServerAt(node);
  if (++server.pushes < crew_.workers()) return;
  server.pushes = 0;
  if (push.tag == kGradient) {
    engine_.At(server.processor.Take(engine_.now_s(), apply_s()), node, kSumApplied);
  } else {
    for (int worker = 0; worker < crew_.workers(); ++worker) Answer(node, worker, kNotice);
  }
}

// Asynchronous and bounded: one push has been applied.
void ServerWay::Apply(int node, int worker) {
  Server& server = ServerAt(node);
  if (&server == &servers_[0]) staleness_.Add(server.version - server.seen[worker]);
  ++server.version;
  const bool was_slowest = server.clock[worker]++ == server.slowest;
  server.held.push_back(worker);
  if (was_slowest && --server.at_slowest == 0) {
    server.slowest = *std::ranges::min_element(server.clock);
    server.at_slowest = static_cast<int>(std::ranges::count(server.clock, server.slowest));
  }
  // Usually it is only this worker; when the slowest has moved on, those that waited for it go first.
  std::deque<int> still_held;
  for (const int other : server.held) {
    if (MayGoOn(server, other)) {
      Answer(node, other, kGradient);
    } else {
      still_held.push_back(other);
    }
  }
  server.held = std::move(still_held);
}

void ServerWay::Answer(int node, int worker, Tag tag) {
  ServerAt(node).seen[worker] = ServerAt(node).version;
  const double bytes = tag == kNotice ? constants_.notice_bytes : part_bytes_;
  engine_.Send({.from = node, .to = worker, .bytes = bytes, .tag = tag});
}

void ServerWay::OnAnswer(int worker) {
  if (--workers_[worker].answers > 0) return;
  if (workers_[worker].notices_left > 0) {
    --workers_[worker].notices_left;
    Push(worker);
    return;
  }
  crew_.Finish(worker, engine_.now_s());
  if (crew_.GoesOn(worker)) {
    StartRound(worker);
  } else if (crew_.AllDone()) {
    engine_.Stop();
  }
}

}  // namespace

// What the round trip takes alone is simulated as well: one worker, rounds of the mean time.
Outcome SimulateServers(const PlanConstants& constants, const Scenario& scenario) {
  PlanConstants steady = constants;
  steady.round_times = {1000};
  Scenario lone = scenario;
  lone.workers = 1;
  lone.slow = {};
  lone.rounds = 50;
  const Outcome alone = ServerWay(steady, lone).Run(0);
  return ServerWay(constants, scenario).Run(alone.round_s - alone.compute_s);
}

}  // namespace trireme
