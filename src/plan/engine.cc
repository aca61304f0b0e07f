#include "trireme/plan/engine.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme {

Engine::Engine(const Link& network, const Link& loopback, std::vector<int> host_of)
    : network_(network), loopback_(loopback), host_of_(std::move(host_of)) {
  TRIREME_CHECK(!host_of_.empty() && *std::ranges::min_element(host_of_) >= 0);
  links_.resize(*std::ranges::max_element(host_of_) + 1);
}

void Engine::At(double time_s, int node, int tag) {
  TRIREME_CHECK(time_s >= now_s_);
  Add(time_s, Event::Kind::kTimer, {.to = node, .tag = tag});
}

void Engine::Send(const Message& message) {
  bytes_sent_ += message.bytes;
  ++messages_sent_;
  const int from = host_of_[message.from], to = host_of_[message.to];
  if (from == to) {
    Add(now_s_ + loopback_.Seconds(message.bytes), Event::Kind::kLastByte, message);
    return;
  }
  const double transfer_s = network_.Transfer(message.bytes);
  const double begin_s = links_[from].out.Take(now_s_, transfer_s) - transfer_s;
  Add(begin_s + network_.latency_s, Event::Kind::kFirstByte, message);
}

void Engine::Run(Actor& actor) {
  while (!queue_.empty() && !stopped_) {
    const Event event = queue_.top();
    queue_.pop();
    now_s_ = std::max(now_s_, event.time_s);
    switch (event.kind) {
      case Event::Kind::kTimer:
        actor.OnTimer(event.message.to, event.message.tag);
        break;
      case Event::Kind::kFirstByte: {
        Resource& in = links_[host_of_[event.message.to]].in;
        Add(in.Take(now_s_, network_.Transfer(event.message.bytes)), Event::Kind::kLastByte, event.message);
        break;
      }
      case Event::Kind::kLastByte:
        actor.OnMessage(event.message);
        break;
    }
  }
}

}  // namespace trireme
