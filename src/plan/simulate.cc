#include "trireme/plan/simulate.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"

namespace trireme {
namespace {

// Draws of all workers together that make a figure steady, and the fewest rounds that show how workers wait for
// each other.
constexpr int kDraws = 16'384, kFewestRounds = 60;

int DivideUp(int a, int b) { return (a + b - 1) / b; }

// The workers of a simulated run: where they are, how long they compute, and how far they have come.
class Crew {
 public:
  // `own_s`: what a worker does in a round besides computing its gradient.
  Crew(const PlanConstants& constants, const Scenario& scenario, double own_s)
      : workers(scenario.workers),
        places(std::max(1, scenario.cores / constants.members)),
        per_host(DivideUp(workers, DivideUp(workers, places))),
        hosts(DivideUp(workers, per_host)),
        constants_(constants),
        scenario_(scenario),
        parts_(scenario.way->in_step ? workers : 1),
        alone_s_(constants.RoundSeconds(parts_) + own_s),
        rounds_(scenario.rounds > 0 ? scenario.rounds : std::max(kDraws / workers, kFewestRounds)),
        done_(workers),
        computing_s_(workers) {
    const std::vector<int>& times = constants.round_times;
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    TRIREME_CHECK(sum > 0);
    ratio_scale_ = static_cast<double>(times.size()) / sum;
  }

  const int workers, places, per_host,
      hosts;  // places: for workers on a host; the last may have fewer of them

  int HostOf(int worker) const { return worker / per_host; }
  // How many times longer something takes on the host, where it takes `all_busy` times as long when every
  // processor has a worker: neighbours share caches and memory.
  double Crowding(int host, double all_busy) const {
    const int busy = std::min(per_host, workers - host * per_host);
    return places > 1 ? 1 + (all_busy - 1) * (busy - 1) / (places - 1) : 1;
  }

  // How long the worker computes in its next round on a processor of its own, own_s included. The draw depends
  // on seed, worker and round only. Counted when that round is finished.
  double NextCompute(int worker) {
    RandomStream random(scenario_.seed, Purpose::kPlan, static_cast<std::uint32_t>(worker), done_[worker]);
    const std::vector<int>& times = constants_.round_times;
    const double ratio = ratio_scale_ * times[random.NextBelow(static_cast<std::uint32_t>(times.size()))];
    const Slowness& slow = scenario_.slow;
    double slower = worker == slow.worker ? slow.factor : 1;
    if (slow.chance > 0 && random.NextUniform() < slow.chance) slower *= slow.slowdown;
    return computing_s_[worker] = alone_s_ * ratio * slower * Crowding(HostOf(worker), constants_.crowding);
  }
  // The worker has finished a round, its first, second, ...
  void Finish(int worker, double now_s) {
    ++done_[worker];
    end_s_ = now_s;
    if (++all_done_ > std::int64_t{rounds_ / 5} * workers) {
      computed_s_ += computing_s_[worker];
      ++counted_;
    } else {
      begin_s_ = now_s;
    }
  }
  // Workers go on until all together have done their rounds.
  bool AllDone() const { return all_done_ == std::int64_t{rounds_} * workers; }

  // Rates and times; what the workers' communication would take alone is given.
  Outcome Summarise(double communication_s) const {
    const double elapsed_s = end_s_ - begin_s_;
    TRIREME_CHECK(AllDone() && counted_ > 0 && elapsed_s > 0);
    Outcome outcome;
    outcome.hosts = hosts;
    outcome.steps_per_s = counted_ / elapsed_s * constants_.steps_per_round / parts_;
    outcome.round_s = elapsed_s * workers / counted_;
    outcome.compute_s = computed_s_ / counted_;
    const double rest_s = std::max(0.0, outcome.round_s - outcome.compute_s);
    outcome.communication_s = std::min(communication_s, rest_s);
    outcome.waiting_s = rest_s - outcome.communication_s;
    return outcome;
  }

 private:
  const PlanConstants& constants_;
  const Scenario& scenario_;
  double parts_, alone_s_;  // a worker has one of so many parts of a lone worker's work, and takes so long
  int rounds_;
  double ratio_scale_ = 1;           // makes the mean of round_times 1
  std::vector<int> done_;            // rounds, by worker
  std::vector<double> computing_s_;  // of the round under way, by worker
  std::int64_t all_done_ = 0;
  double begin_s_ = 0, end_s_ = 0, computed_s_ = 0, counted_ = 0;
};

// Threads of a host add theirs in shared memory, of groups those that hold the same part.
double InsideSeconds(const PlanConstants& constants, const Crew& crew, double bytes) {
  const int threads = crew.per_host;
  return threads > 1 ? 2 * constants.threads.Seconds(bytes / constants.members * (threads - 1) / threads) : 0;
}

double StagesOf(const Crew& crew) { return std::bit_width(static_cast<unsigned>(crew.hosts - 1)); }

// Then one of them exchanges with the other hosts. Small messages: recursive doubling, log2(hosts) stages with all bytes.
// Large ones: reduce-scatter by recursive halving, then allgather by doubling, 2 log2(hosts) stages and
// 2 (hosts - 1) / hosts * bytes. The quicker one is taken. A number of hosts that is no power of two has one stage more.
double AllReduceSeconds(const PlanConstants& constants, const Crew& crew, double bytes) {
  const double stages = StagesOf(crew), share = (crew.hosts - 1.0) / crew.hosts;
  const Link& network = constants.network;
  const auto add_s = [&](double added) { return constants.threads.Transfer(added); };
  const double doubling_s = stages * (network.Seconds(bytes) + add_s(bytes));
  const double halving_s =
      2 * (stages * network.latency_s + network.Transfer(share * bytes)) + add_s(share * bytes);
  return std::min(doubling_s, halving_s) + InsideSeconds(constants, crew, bytes);
}

// A gradient. Messages of a codec cannot be added up on their way: each host gets those of all others, in log2(hosts)
// stages of a length and what has come together, and decodes all.
double ExchangeSeconds(const PlanConstants& constants, const Crew& crew) {
  if (constants.decode_s == 0) return AllReduceSeconds(constants, crew, constants.wire_bytes());
  double seconds = InsideSeconds(constants, crew, constants.gradient_bytes());
  if (crew.hosts > 1) {
    seconds += constants.encode_s + crew.hosts * constants.decode_s +
               2 * StagesOf(crew) * constants.network.latency_s +
               constants.network.Transfer((crew.hosts - 1) * constants.wire_bytes());
  }
  return seconds;
}

// Replicas in step: a round is the slowest worker's computing and an allreduce, now and then of a notice, too.
Outcome SimulateReplicas(const PlanConstants& constants, const Scenario& scenario) {
  Crew crew(constants, scenario, constants.apply_s());
  const double exchange_s = constants.exchanges_per_round * ExchangeSeconds(constants, crew) +
                            constants.notices_per_round * AllReduceSeconds(constants, crew, 0);
  for (double now_s = 0; !crew.AllDone();) {
    double slowest_s = 0;
    for (int i = 0; i < crew.workers; ++i) slowest_s = std::max(slowest_s, crew.NextCompute(i));
    now_s += slowest_s + exchange_s;
    for (int i = 0; i < crew.workers; ++i) crew.Finish(i, now_s);
  }
  return crew.Summarise(exchange_s);
}

// Workers on their own: in each round one computes, sends each server its part of the gradient and takes from
// each its part of the parameters, or does both in shared memory. A clock jumps from one event to the next; those
// of one moment happen in the order they were made.
class Trips {
 public:
  Trips(const PlanConstants& constants, const Scenario& scenario)
      : constants_(constants),
        scenario_(scenario),
        crew_(constants, scenario, scenario.way->on_servers ? 0 : constants.shared_s),
        workers_(crew_.workers),
        servers_(scenario.way->on_servers ? scenario.servers : 0),
        hosts_(crew_.hosts + servers_.size()) {
    TRIREME_CHECK(!scenario.way->one_process() || crew_.hosts == 1);
    for (Server& server : servers_) server.clocks.resize(crew_.workers);
  }

  Outcome Run(double communication_s) {
    for (int worker = 0; worker < crew_.workers; ++worker) Begin(worker);
    while (!crew_.AllDone()) {
      const auto next = events_.extract(events_.begin());
      now_s_ = next.key();
      next.mapped()();
    }
    Outcome outcome = crew_.Summarise(communication_s);
    outcome.staleness = staleness_;
    outcome.server_busy = servers_.empty() ? 0 : servers_[0].busy_s / now_s_;
    return outcome;
  }

 private:
  using Then = std::function<void()>;
  struct Host {
    std::multimap<double, Then> jobs = {};  // by what served_s will be at their end
    double served_s = 0;                    // what a job that had always run would have had
    double at_s = 0;                        // until then, when jobs last began or ended
    int changes = 0;                        // so often did they
    double out_free_s = 0, in_free_s = 0;   // when its link is free
  };
  struct Worker {
    int awaited = 0;                   // before it goes on: its computing, and answers to its last push
    std::uint64_t seen = 0, used = 0;  // versions of the first server: the newest, and that of this round
  };
  struct Server {
    std::deque<std::pair<int, std::uint64_t>> pushes = {};  // that have arrived: worker, and version used
    std::deque<int> answers = {};                           // that can go out, by worker
    bool busy = false;
    double busy_s = 0;
    std::vector<int> clocks = {};  // pushes of each worker
    std::vector<int> held = {};    // whose answer waits
  };

  // ---- Workers ----

  void Begin(int worker) {
    Worker& self = workers_[worker];
    self.used = servers_.empty() ? version_ : self.seen;
    ++self.awaited;
    Work(crew_.HostOf(worker), crew_.NextCompute(worker), [this, worker, &self] {
      if (--self.awaited == 0) Push(worker, 0);
    });
  }

  // To this server and those after it.
  void Push(int worker, int index) {
    const int host = crew_.HostOf(worker);
    const std::uint64_t used = workers_[worker].used;
    if (index == 0) workers_[worker].awaited = static_cast<int>(servers_.size());
    if (index < std::ssize(servers_)) {
      return Work(host, TripSeconds(constants_.trip.worker_s, host), [=, this] {
        SendPart(host, HostOfServer(index), constants_.wire_bytes(), [=, this] {
          servers_[index].pushes.push_back({worker, used});
          if (!servers_[index].busy) Serve(index);
        });
        Push(worker, index + 1);
      });
    }
    if (servers_.empty()) staleness_.Add(version_++ - used);
    crew_.Finish(worker, now_s_);
    if (servers_.empty() || scenario_.overlap) Begin(worker);
  }

  // ---- Servers ----

  // One thing after the other: answers go out before the next push is looked at.
  void Serve(int index) {
    Server& self = servers_[index];
    const int host = HostOfServer(index);
    const bool answer = !self.answers.empty();
    self.busy = answer || !self.pushes.empty();
    if (!self.busy) return;
    const double message_s = TripSeconds(constants_.trip.server_s, host) / 2;
    const double seconds = answer ? message_s : message_s + constants_.apply_s() / scenario_.servers;
    self.busy_s += seconds;
    Work(host, seconds, [=, this] {
      answer ? Answer(index) : Apply(index);
      Serve(index);
    });
  }

  // With a bound, whoever is too far ahead is answered when the slowest has pushed.
  void Apply(int index) {
    Server& self = servers_[index];
    const auto [worker, used] = self.pushes.front();
    self.pushes.pop_front();
    if (index == 0) staleness_.Add(version_++ - used);
    ++self.clocks[worker];
    self.held.push_back(worker);
    const int most = scenario_.way->bounded ? std::ranges::min(self.clocks) + scenario_.bound
                                            : std::numeric_limits<int>::max();
    const auto free = [&](int other) { return self.clocks[other] <= most; };
    std::ranges::copy_if(self.held, std::back_inserter(self.answers), free);
    std::erase_if(self.held, free);
  }

  void Answer(int index) {
    Server& self = servers_[index];
    const int worker = self.answers.front();
    self.answers.pop_front();
    SendPart(HostOfServer(index), crew_.HostOf(worker), constants_.back_bytes(),
             [=, this, version = version_] {
               if (index == 0) workers_[worker].seen = version;
               if (--workers_[worker].awaited > 0) return;
               scenario_.overlap ? Push(worker, 0) : Begin(worker);
             });
  }

  // ---- Hosts ----

  int HostOfServer(int index) const {
    return scenario_.servers_on == ServersOn::kOwn ? crew_.hosts + index : index % crew_.hosts;
  }
  double TripCrowding(int host) const {
    return host < crew_.hosts ? crew_.Crowding(host, constants_.trip_crowding) : 1;
  }
  // Processor time of a trip at the end where a whole gradient takes `end_s`.
  double TripSeconds(double end_s, int host) const {
    const double fixed = constants_.trip_fixed_share;
    return end_s * (fixed + (1 - fixed) / scenario_.servers) * TripCrowding(host);
  }

  void At(double time_s, Then happen) { events_.emplace(time_s, std::move(happen)); }

  // Of n that work on the c processors of a host each goes on at min(1, c / n) of the speed, as under a scheduler
  // whose turns are short.
  void Work(int host, double seconds, Then then) {
    Host& self = hosts_[host];
    Advance(self);
    self.jobs.emplace(self.served_s + seconds, std::move(then));
    ExpectEnd(self);
  }
  double SpeedOf(const Host& host) const {
    return std::min(1.0, scenario_.cores / static_cast<double>(host.jobs.size()));
  }
  void Advance(Host& host) const {
    host.served_s += (now_s_ - host.at_s) * SpeedOf(host);
    host.at_s = now_s_;
    ++host.changes;
  }
  // The next job ends then, unless another begins or ends before: that makes the event out of date.
  void ExpectEnd(Host& host) {
    if (host.jobs.empty()) return;
    const double left_s = std::max(0.0, host.jobs.begin()->first - host.served_s);
    At(now_s_ + left_s / SpeedOf(host), [this, &host, changes = host.changes] {
      if (changes != host.changes) return;
      Advance(host);
      const auto job = host.jobs.extract(host.jobs.begin());
      ExpectEnd(host);
      job.mapped()();
    });
  }

  // Each direction of a host's link carries one message at a time, in the order they come; the receiver's begins
  // `latency` after the sender's.
  void SendPart(int from_host, int to_host, double whole_bytes, Then then) {
    if (from_host == to_host) {
      return At(now_s_ + constants_.trip.latency_s / 2 * TripCrowding(from_host), std::move(then));
    }
    const double transfer_s = constants_.network.Transfer(whole_bytes / scenario_.servers);
    double &out_s = hosts_[from_host].out_free_s, &in_s = hosts_[to_host].in_free_s;
    const double sent_s = std::max(now_s_, out_s);
    out_s = sent_s + transfer_s;
    At(sent_s + constants_.network.latency_s, [this, &in_s, transfer_s, then = std::move(then)] {
      in_s = std::max(now_s_, in_s) + transfer_s;
      At(in_s, then);
    });
  }

  const PlanConstants& constants_;
  const Scenario& scenario_;
  Crew crew_;
  std::vector<Worker> workers_;
  std::vector<Server> servers_;  // none where memory is shared
  std::vector<Host> hosts_;      // of workers, then of servers
  std::multimap<double, Then> events_;
  double now_s_ = 0;
  std::uint64_t version_ = 0;  // pushes applied, in shared memory or by the first server
  Staleness staleness_;        // of these
};

}  // namespace

Outcome Simulate(const PlanConstants& constants, const Scenario& scenario) {
  if (scenario.way->in_step) return SimulateReplicas(constants, scenario);
  if (!scenario.way->on_servers) return Trips(constants, scenario).Run(/*communication_s=*/0);
  // What a trip takes alone: one worker, rounds of the mean time.
  PlanConstants steady = constants;
  steady.round_times = {1000};
  Scenario lone = scenario;
  lone.workers = 1;
  lone.slow = {};
  lone.rounds = 50;
  const Outcome alone = Trips(steady, lone).Run(0);
  return Trips(constants, scenario).Run(alone.round_s - alone.compute_s);
}

}  // namespace trireme
