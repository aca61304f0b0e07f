#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/plan/engine.h"
#include "trireme/plan/processors.h"
#include "trireme/plan/ways.h"
#include "trireme/plan/worker_clocks.h"

namespace trireme {
namespace {

// Workers 0, 1, ... are nodes 0, 1, ...; the servers follow. In each round a worker computes, sends each
// server its part of the gradient and takes from each its part of the parameters. What differs between the
// ways is when a server answers, and when a worker waits for that.
//
// A worker does one thing after the other, and so does a server. What they do takes time of a processor of
// their host; messages in between take time of the links.
class ServerWay final : public Engine::Actor {
 public:
  ServerWay(const PlanConstants& constants, const Scenario& scenario)
      : constants_(constants),
        in_step_(InStep(scenario.way)),
        overlap_(scenario.overlap && !in_step_),
        most_ahead_(scenario.bound + (overlap_ ? 1 : 0)),
        bounded_(scenario.way == Way::kSsp),
        part_floats_(static_cast<double>(constants.floats) / scenario.servers),
        crew_(constants, scenario, 2 * constants.copy_s_per_float * constants.floats, /*turns=*/false),
        host_of_(Placement(crew_, scenario)),
        engine_(constants.network, SameHost(constants, crew_), host_of_),
        processors_(*std::ranges::max_element(host_of_) + 1, Processors(scenario.cores)),
        workers_(crew_.workers()) {
    const std::optional<int> bound = bounded_ ? std::optional(scenario.bound) : std::nullopt;
    for (int i = 0; i < scenario.servers; ++i) servers_.push_back({.clocks = {crew_.workers(), bound}});
  }

  Outcome Run(double communication_s);

 private:
  enum Tag { kNotice, kGradient };  // of messages
  // Of timers: what a node has done, that it stops looking for answers, or (from kProcessor on) that a job on
  // a host may be done.
  enum Timer { kComputed, kSent, kTaken, kServed, kPollOver, kProcessor };
  enum class Phase { kPulling, kComputing, kSending, kCollecting };

  struct Worker {
    Phase phase = Phase::kPulling;
    bool pushed = false;    // the gradient of this round
    bool taking = false;    // an answer, just now
    Tag request = kNotice;  // the last one
    int notices_left = 0;   // before the gradient of this round; workers in step only
    int sent = 0;           // servers that have got the request
    int under_way = 0;      // requests whose answer has not been taken
    int arrived = 0;        // answers that have come and were not taken
    double poll_end_s = 0;  // when the worker stops looking for an answer
    // Versions of the first server: sent to the worker, taken by it, computed with, and computed with for the
    // push under way.
    std::uint64_t answered = 0, taken = 0, used = 0, pushed_with = 0;
  };
  struct Job {
    Message message;      // that came, or that is to be sent
    bool answer = false;  // the latter
  };
  struct Server {
    WorkerClocks clocks;
    std::deque<Job> jobs = {};  // the first one is being done when `busy`
    bool busy = false;
    double busy_s = 0;
    int pushes = 0;             // of the sum under way; workers in step only
    std::uint64_t version = 0;  // pushes applied
  };

  static std::vector<int> Placement(const Crew& crew, const Scenario& scenario) {
    std::vector<int> host_of = crew.HostOfEach();
    for (int i = 0; i < scenario.servers; ++i) {
      host_of.push_back(scenario.servers_on_workers ? i % crew.hosts() : crew.hosts() + i);
    }
    return host_of;
  }
  // What bytes cost between processes of a host is processor time.
  static Link SameHost(const PlanConstants& constants, const Crew& crew) {
    return {.latency_s = constants.trip_latency_s / 2 * crew.Crowding(0, constants.trip_crowding),
            .bytes_per_s = std::numeric_limits<double>::infinity()};
  }

  Server& ServerAt(int node) { return servers_[node - crew_.workers()]; }
  bool IsWorker(int node) const { return node < crew_.workers(); }
  double FloatsOf(int tag) const {
    return tag == kNotice ? constants_.notice_bytes / sizeof(float) : part_floats_;
  }
  // Processor time of one of a trip's two messages at this node.
  double MessageSeconds(int node, int tag) const {
    const TripCost& cost = IsWorker(node) ? constants_.trip_worker : constants_.trip_server;
    const int host = host_of_[node];
    const double crowding =
        host < crew_.hosts() ? crew_.Crowding(crew_.FirstOn(host), constants_.trip_crowding) : 1;
    const double overlapped = IsWorker(node) && overlap_ ? constants_.trip_overlapped : 1;
    return cost.Seconds(FloatsOf(tag)) / 2 * crowding * overlapped;
  }

  void OnTimer(int node, int tag) override;
  void OnMessage(const Message& message) override;
  // Work on a processor of the node's host; OnDone follows.
  void Work(int node, double seconds, Timer done);
  void ExpectEnd(int host);
  void OnDone(int node, int what);

  void StartRound(int worker);
  void Compute(int worker);
  void Proceed(int worker);
  void SendNext(int worker);
  void OnSent(int worker);
  void TakeNext(int worker);
  void OnTaken(int worker);
  void EndRound(int worker);

  double WorkOf(const Server& server, const Job& job, int node) const;
  void Serve(int node);
  void OnServed(int node);
  std::vector<int> TakePush(Server& server, const Message& push);

  const PlanConstants& constants_;
  bool in_step_, overlap_;
  int most_ahead_;  // of the slowest, at the start of a round
  bool bounded_;
  double part_floats_;  // of each server
  Crew crew_;
  std::vector<int> host_of_;  // each node
  Engine engine_;
  std::vector<Processors> processors_;  // of each host
  std::vector<Worker> workers_;
  std::vector<Server> servers_;
  Staleness staleness_;  // at the first server
  int widest_gap_ = 0;
};

Outcome ServerWay::Run(double communication_s) {
  for (int worker = 0; worker < crew_.workers(); ++worker) StartRound(worker);
  engine_.Run(*this);
  TRIREME_CHECK(crew_.AllDone());
  Outcome outcome = crew_.Summarise(communication_s);
  double rounds = 0;
  for (int worker = 0; worker < crew_.workers(); ++worker) rounds += crew_.done(worker);
  rounds /= crew_.workers();
  outcome.staleness = staleness_;
  outcome.widest_gap = widest_gap_;
  outcome.bytes_per_round = engine_.bytes_sent() / rounds;
  outcome.messages_per_round = static_cast<double>(engine_.messages_sent()) / rounds;
  outcome.server_busy = servers_[0].busy_s / engine_.now_s();
  outcome.events = engine_.events();
  return outcome;
}

void ServerWay::Work(int node, double seconds, Timer done) {
  const int host = host_of_[node];
  processors_[host].Start(engine_.now_s(), seconds, {node, done});
  ExpectEnd(host);
}

void ServerWay::ExpectEnd(int host) {
  const Processors& processors = processors_[host];
  if (!processors.idle()) engine_.At(processors.NextEnd(), host, kProcessor + processors.changes());
}

void ServerWay::OnTimer(int node, int tag) {
  if (tag == kPollOver) {
    const Worker& worker = workers_[node];
    const bool looks = worker.phase == Phase::kPulling && !worker.taking;
    if (looks && engine_.now_s() >= worker.poll_end_s) Compute(node);
    return;
  }
  const int host = node;
  Processors& processors = processors_[host];
  if (tag - kProcessor != processors.changes()) return;  // out of date
  const Processors::Job job = processors.Finish(engine_.now_s());
  ExpectEnd(host);
  OnDone(job.node, job.tag);
}

void ServerWay::OnDone(int node, int what) {
  switch (what) {
    case kComputed:
      workers_[node].phase = Phase::kCollecting;
      TakeNext(node);
      break;
    case kSent:
      OnSent(node);
      break;
    case kTaken:
      OnTaken(node);
      break;
    case kServed:
      OnServed(node);
      break;
  }
}

void ServerWay::OnMessage(const Message& message) {
  if (!IsWorker(message.to)) {
    ServerAt(message.to).jobs.push_back({.message = message});
    Serve(message.to);
    return;
  }
  Worker& worker = workers_[message.to];
  ++worker.arrived;
  if (worker.phase == Phase::kPulling || worker.phase == Phase::kCollecting) TakeNext(message.to);
}

void ServerWay::StartRound(int node) {
  Worker& worker = workers_[node];
  for (const Server& server : servers_) {
    const int ahead = in_step_ ? 0 : server.clocks.Ahead(node) + (worker.under_way > 0 ? 1 : 0);
    widest_gap_ = std::max(widest_gap_, ahead);
    TRIREME_CHECK(!bounded_ || ahead <= most_ahead_);
  }
  worker.notices_left = in_step_ ? NoticesBefore(constants_, crew_.done(node)) : 0;
  worker.pushed = false;
  worker.phase = Phase::kPulling;
  worker.poll_end_s = engine_.now_s() + constants_.poll_s;
  if (worker.under_way > 0) engine_.At(worker.poll_end_s, node, kPollOver);
  TakeNext(node);
}

void ServerWay::Compute(int node) {
  Worker& worker = workers_[node];
  worker.phase = Phase::kComputing;
  worker.used = worker.taken;
  Work(node, crew_.NextCompute(node), kComputed);
}

// Takes an answer that is there. When none is missing any more, goes on.
void ServerWay::TakeNext(int node) {
  Worker& worker = workers_[node];
  if (worker.taking) return;
  if (worker.arrived > 0) {
    --worker.arrived;
    worker.taking = true;
    Work(node, MessageSeconds(node, worker.request), kTaken);
  } else if (worker.phase == Phase::kPulling) {
    if (worker.under_way == 0) Compute(node);
  } else if (worker.under_way == 0) {
    Proceed(node);
  }
}

void ServerWay::OnTaken(int node) {
  Worker& worker = workers_[node];
  worker.taking = false;
  --worker.under_way;
  worker.taken = worker.answered;
  const bool enough =
      worker.phase == Phase::kPulling && worker.arrived == 0 && engine_.now_s() >= worker.poll_end_s;
  enough ? Compute(node) : TakeNext(node);
}

// All answers have been taken: the next request of this round, or its end.
void ServerWay::Proceed(int node) {
  Worker& worker = workers_[node];
  if (worker.pushed) return EndRound(node);
  worker.request = worker.notices_left > 0 ? kNotice : kGradient;
  worker.pushed = worker.request == kGradient;
  worker.notices_left -= worker.pushed ? 0 : 1;
  worker.sent = 0;
  worker.phase = Phase::kSending;
  SendNext(node);
}

void ServerWay::SendNext(int node) { Work(node, MessageSeconds(node, workers_[node].request), kSent); }

void ServerWay::OnSent(int node) {
  Worker& worker = workers_[node];
  engine_.Send({.from = node,
                .to = crew_.workers() + worker.sent,
                .bytes = FloatsOf(worker.request) * sizeof(float),
                .tag = worker.request});
  ++worker.sent;
  ++worker.under_way;
  worker.pushed_with = worker.used;
  // Notices are small, so they go to the first server alone.
  if (worker.pushed && worker.sent < static_cast<int>(servers_.size())) return SendNext(node);
  if (overlap_) return EndRound(node);
  worker.phase = Phase::kCollecting;
  TakeNext(node);
}

void ServerWay::EndRound(int worker) {
  crew_.Finish(worker, engine_.now_s());
  if (crew_.GoesOn(worker)) {
    StartRound(worker);
  } else if (crew_.AllDone()) {
    engine_.Stop();
  }
}

double ServerWay::WorkOf(const Server& server, const Job& job, int node) const {
  const double message_s = MessageSeconds(node, job.message.tag);
  if (job.answer) return message_s;
  const double add_s = constants_.add_s_per_float * FloatsOf(job.message.tag);
  const double apply_s = constants_.apply_s_per_float * part_floats_;
  if (!in_step_) return message_s + apply_s;
  const bool completes = job.message.tag == kGradient && server.pushes + 1 == crew_.workers();
  return message_s + add_s + (completes ? apply_s : 0);
}

// A server does one thing after the other.
void ServerWay::Serve(int node) {
  Server& server = ServerAt(node);
  if (server.busy || server.jobs.empty()) return;
  const double work_s = WorkOf(server, server.jobs.front(), node);
  server.busy = true;
  server.busy_s += work_s;
  Work(node, work_s, kServed);
}

// Answers go out before other messages are looked at.
void ServerWay::OnServed(int node) {
  Server& server = ServerAt(node);
  const Job job = server.jobs.front();
  server.jobs.pop_front();
  server.busy = false;
  if (job.answer) {
    engine_.Send(job.message);
  } else {
    std::vector<int> answered = TakePush(server, job.message);
    std::ranges::reverse(answered);
    for (const int worker : answered) {
      if (&server == &servers_[0]) workers_[worker].answered = server.version;
      server.jobs.push_front({.message = {.from = node,
                                          .to = worker,
                                          .bytes = FloatsOf(job.message.tag) * sizeof(float),
                                          .tag = job.message.tag},
                              .answer = true});
    }
  }
  Serve(node);
}

// Returns who is to be answered.
std::vector<int> ServerWay::TakePush(Server& server, const Message& push) {
  if (!in_step_) {
    if (&server == &servers_[0]) staleness_.Add(server.version - workers_[push.from].pushed_with);
    ++server.version;
    return server.clocks.Applied(push.from);
  }
  if (++server.pushes < crew_.workers()) return {};
  server.pushes = 0;  // the last push of a sum releases everybody
  std::vector<int> all(crew_.workers());
  for (int worker = 0; worker < crew_.workers(); ++worker) all[worker] = worker;
  return all;
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
