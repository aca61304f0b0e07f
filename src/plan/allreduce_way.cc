#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/plan/engine.h"
#include "trireme/plan/ways.h"

namespace trireme {
namespace {

double AddSeconds(const PlanConstants& constants, double bytes) {
  return constants.add_s_per_float * bytes / sizeof(float);
}

// Threads of a host exchange slices: one half of the work before the hosts talk, one after.
double HalfInsideSeconds(const PlanConstants& constants, int threads, double bytes) {
  return threads == 1 ? 0 : constants.threads.Seconds(bytes * (threads - 1) / threads);
}

// Recursive doubling: stages, each with all bytes.
double DoublingSeconds(const PlanConstants& constants, int stages, double bytes) {
  return stages * (constants.network.Seconds(bytes) + AddSeconds(constants, bytes));
}

// Reduce-scatter and allgather: twice the stages, each byte there and back, half of them added.
double HalvingSeconds(const PlanConstants& constants, int stages, double bytes) {
  const double each_way = bytes * (1 - std::ldexp(1.0, -stages));
  return 2 * (stages * constants.network.latency_s + constants.network.Transfer(each_way)) +
         AddSeconds(constants, each_way);
}

// The largest power of two that is not above `hosts`, as its exponent.
int StagesOf(int hosts) {
  TRIREME_CHECK(hosts >= 1);
  return static_cast<int>(std::bit_width(static_cast<unsigned>(hosts))) - 1;
}

bool IsSmall(const PlanConstants& constants, int stages, double bytes) {
  return DoublingSeconds(constants, stages, bytes) <= HalvingSeconds(constants, stages, bytes);
}

class AllReduceWay final : public Engine::Actor {
 public:
  AllReduceWay(const PlanConstants& constants, const Scenario& scenario)
      : constants_(constants),
        crew_(constants, scenario, constants.apply_s_per_float * constants.floats),
        engine_(constants.network, constants.loopback, crew_.HostOfEach()),
        hosts_(crew_.hosts()) {
    for (int host = 0; host < crew_.hosts(); ++host) {
      hosts_[host].notice = ExchangePlan(constants, host, crew_.hosts(), constants.notice_bytes);
      hosts_[host].gradient = ExchangePlan(constants, host, crew_.hosts(), constants.gradient_bytes());
    }
  }

  Outcome Run();

 private:
  enum Timer { kComputed, kGathered, kAdded, kSpread };

  // The threads of a host are in step from the moment the last one arrives until the sum is spread, so the
  // host acts for them; its messages are those of its first worker.
  struct Host {
    std::vector<ExchangeStep> notice, gradient;
    int arrived = 0;       // threads that have computed
    int notices_left = 0;  // before the gradient of this round
    std::size_t step = 0;  // of the exchange under way
    bool awaits = false;   // the message of its current step
    // Messages that came before they were needed, by stage: some hosts are ahead of others. Notices and
    // gradients apart.
    std::array<std::array<int, kMostStages>, 2> early = {};

    bool OnGradient() const { return notices_left == 0; }
    const std::vector<ExchangeStep>& plan() const { return OnGradient() ? gradient : notice; }
  };

  double BytesOf(const Host& host) const {
    return host.OnGradient() ? constants_.gradient_bytes() : constants_.notice_bytes;
  }
  double HalfInside(int host) const {
    return HalfInsideSeconds(constants_, crew_.OnHost(host), BytesOf(hosts_[host]));
  }

  void OnTimer(int node, int tag) override;
  void OnMessage(const Message& message) override;
  void StartRound(int worker) {
    if (crew_.GoesOn(worker)) engine_.After(crew_.NextCompute(worker), worker, kComputed);
  }
  void Arrive(int worker);
  void Gather(int host) { engine_.After(HalfInside(host), crew_.FirstOn(host), kGathered); }
  void TakeStep(int host);
  void Receive(int host);
  void EndExchange(int host);

  const PlanConstants& constants_;
  Crew crew_;
  Engine engine_;
  std::vector<Host> hosts_;
};

Outcome AllReduceWay::Run() {
  for (int worker = 0; worker < crew_.workers(); ++worker) StartRound(worker);
  engine_.Run(*this);
  TRIREME_CHECK(crew_.AllDone());
  const int hosts = crew_.hosts(), per_host = crew_.OnHost(0);
  const double communication_s =
      AllReduceSeconds(constants_, hosts, per_host, constants_.gradient_bytes()) +
      constants_.notices_per_round * AllReduceSeconds(constants_, hosts, per_host, constants_.notice_bytes);
  Outcome outcome = crew_.Summarise(communication_s);
  const double rounds = crew_.done(0);
  outcome.bytes_per_round = engine_.bytes_sent() / rounds;
  outcome.messages_per_round = static_cast<double>(engine_.messages_sent()) / rounds;
  outcome.events = engine_.events();
  return outcome;
}

void AllReduceWay::OnTimer(int node, int tag) {
  const int host = crew_.HostOf(node);
  switch (tag) {
    case kComputed:
      Arrive(node);
      break;
    case kGathered:
      hosts_[host].step = 0;
      TakeStep(host);
      break;
    case kAdded:
      ++hosts_[host].step;
      TakeStep(host);
      break;
    case kSpread:
      EndExchange(host);
      break;
  }
}

void AllReduceWay::OnMessage(const Message& message) {
  const int host = crew_.HostOf(message.to);
  const bool gradient = message.tag >= kMostStages;
  ++hosts_[host].early[gradient][message.tag % kMostStages];
  if (hosts_[host].awaits) Receive(host);
}

// The last thread of a host starts the exchange of all.
void AllReduceWay::Arrive(int worker) {
  const int host = crew_.HostOf(worker);
  if (++hosts_[host].arrived < crew_.OnHost(host)) return;
  hosts_[host].notices_left = NoticesBefore(constants_, crew_.done(worker));
  Gather(host);
}

void AllReduceWay::TakeStep(int host) {
  Host& self = hosts_[host];
  if (self.step == self.plan().size()) {
    engine_.After(HalfInside(host), crew_.FirstOn(host), kSpread);
    return;
  }
  const ExchangeStep& step = self.plan()[self.step];
  if (step.send_bytes > 0) {
    engine_.Send({.from = crew_.FirstOn(host),
                  .to = crew_.FirstOn(step.partner),
                  .bytes = step.send_bytes,
                  .tag = step.stage + (self.OnGradient() ? kMostStages : 0)});
  }
  self.awaits = true;
  Receive(host);
}

// Goes on once the message of the current step has come.
void AllReduceWay::Receive(int host) {
  Host& self = hosts_[host];
  const ExchangeStep& step = self.plan()[self.step];
  if (step.receive_bytes > 0) {
    int& come = self.early[self.OnGradient()][step.stage];
    if (come == 0) return;
    --come;
  }
  self.awaits = false;
  const double adding_s = step.adds ? AddSeconds(constants_, step.receive_bytes) : 0;
  engine_.After(adding_s, crew_.FirstOn(host), kAdded);
}

void AllReduceWay::EndExchange(int host) {
  Host& self = hosts_[host];
  if (!self.OnGradient()) {
    --self.notices_left;
    Gather(host);
    return;
  }
  self.arrived = 0;
  for (int i = 0; i < crew_.OnHost(host); ++i) {
    crew_.Finish(crew_.FirstOn(host) + i, engine_.now_s());
    StartRound(crew_.FirstOn(host) + i);
  }
}

}  // namespace

std::vector<ExchangeStep> ExchangePlan(const PlanConstants& constants, int host, int hosts, double bytes) {
  const int stages = StagesOf(hosts), core = 1 << stages;
  const int last = 2 * stages + 1;
  if (host >= core) {  // beyond the power of two: hands over, and gets the sum
    return {{.partner = host - core, .send_bytes = bytes, .stage = 0},
            {.partner = host - core, .receive_bytes = bytes, .stage = last}};
  }
  std::vector<ExchangeStep> plan;
  const bool has_extra = host + core < hosts;
  if (has_extra) plan.push_back({.partner = host + core, .receive_bytes = bytes, .adds = true, .stage = 0});
  const auto swap = [&](int i, double size, bool adds) {
    plan.push_back({.partner = host ^ (1 << i),
                    .send_bytes = size,
                    .receive_bytes = size,
                    .adds = adds,
                    .stage = 1 + (adds ? i : stages + i)});
  };
  if (IsSmall(constants, stages, bytes)) {
    for (int i = 0; i < stages; ++i) swap(i, bytes, /*adds=*/true);
  } else {
    // After stage i a host is responsible for 1 / 2^(i + 1) of the sum; the way back doubles what it has.
    for (int i = 0; i < stages; ++i) swap(i, std::ldexp(bytes, -i - 1), /*adds=*/true);
    for (int i = stages - 1; i >= 0; --i) swap(i, std::ldexp(bytes, -i - 1), /*adds=*/false);
  }
  if (has_extra) plan.push_back({.partner = host + core, .send_bytes = bytes, .stage = last});
  return plan;
}

double AllReduceSeconds(const PlanConstants& constants, int hosts, int per_host, double bytes) {
  const int stages = StagesOf(hosts);
  double seconds = 2 * HalfInsideSeconds(constants, per_host, bytes);
  if (hosts > (1 << stages)) seconds += 2 * constants.network.Seconds(bytes) + AddSeconds(constants, bytes);
  return seconds +
         std::min(DoublingSeconds(constants, stages, bytes), HalvingSeconds(constants, stages, bytes));
}

Outcome SimulateAllReduce(const PlanConstants& constants, const Scenario& scenario) {
  return AllReduceWay(constants, scenario).Run();
}

}  // namespace trireme
