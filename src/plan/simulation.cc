#include "trireme/plan/simulation.h"

#include "trireme/base/error.h"

namespace trireme {

Simulation::Simulation(const Link& network, double same_host_latency_s, int hosts, double processors)
    : network_(network), same_host_latency_s_(same_host_latency_s), processors_(processors), hosts_(hosts) {}

void Simulation::At(double time_s, std::function<void()> happen) {
  events_.push_back({time_s, order_++, std::move(happen)});
  std::ranges::push_heap(events_, std::less<>());
}

void Simulation::Run() {
  for (const Process& process : processes_) process.Resume();
  while (!events_.empty() && !stopped_) {
    std::ranges::pop_heap(events_, std::less<>());
    const Event event = std::move(events_.back());
    events_.pop_back();
    now_s_ = std::max(now_s_, event.time_s);
    event.happen();
  }
}

void Simulation::Advance(Host& host) const {
  if (!host.jobs.empty()) host.served_s += (now_s_ - host.at_s) * SpeedOf(host);
  host.at_s = now_s_;
  ++host.changes;
}

void Simulation::Begin(int host, double seconds, std::coroutine_handle<> process) {
  TRIREME_CHECK(seconds >= 0);
  Host& self = hosts_[host];
  Advance(self);
  self.jobs.push({self.served_s + seconds, self.changes, process});
  ExpectEnd(self);
}

// The next job ends then, unless another begins or ends before: that makes the event out of date.
void Simulation::ExpectEnd(Host& host) {
  if (host.jobs.empty()) return;
  const double end_s = now_s_ + std::max(0.0, host.jobs.top().end - host.served_s) / SpeedOf(host);
  At(end_s, [this, &host, changes = host.changes] {
    if (changes != host.changes) return;
    Advance(host);
    const std::coroutine_handle<> process = host.jobs.top().process;
    host.jobs.pop();
    ExpectEnd(host);
    process.resume();
  });
}

void Simulation::Send(int from_host, int to_host, double bytes, Mailbox& to, const Letter& letter) {
  bytes_sent += bytes;
  ++messages_sent;
  if (from_host == to_host) {
    At(now_s_ + same_host_latency_s_, [&to, letter] { to.Deliver(letter); });
    return;
  }
  const double transfer_s = network_.Transfer(bytes);
  Host &sender = hosts_[from_host], &receiver = hosts_[to_host];
  const double begin_s = std::max(now_s_, sender.out_free_s);
  sender.out_free_s = begin_s + transfer_s;
  At(begin_s + network_.latency_s, [this, &receiver, transfer_s, &to, letter] {
    receiver.in_free_s = std::max(now_s_, receiver.in_free_s) + transfer_s;
    At(receiver.in_free_s, [&to, letter] { to.Deliver(letter); });
  });
}

}  // namespace trireme
