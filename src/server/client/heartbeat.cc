#include "trireme/server/client/heartbeat.h"

#include <utility>

namespace trireme {

Heartbeat::Heartbeat(std::vector<ServerPlace> places, std::vector<std::uint64_t> workers, double lease_s)
    : places_(std::move(places)),
      workers_(std::move(workers)),
      thread_([this, lease_s] { Run(lease_s / 5); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_changed_.notify_all();
  thread_.join();
}

// A server that cannot be reached now is tried again next time: the workers themselves notice and say so.
void Heartbeat::Run(double every_s) {
  const auto bytes = std::as_bytes(std::span(workers_));
  const Outgoing alive = MakeMessage({.kind = MessageKind::kAlive}, {}, {},
                                     {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::vector<std::unique_ptr<Stream>> streams(places_.size());
  std::unique_lock lock(mutex_);
  while (!ended_) {
    lock.unlock();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      try {
        if (!streams[i]) streams[i] = places_[i].transport->Connect(places_[i].address, places_[i].security);
      } catch (const Error&) {
        continue;
      }
      const Deadline soon = Clock::now() + Seconds(every_s / static_cast<double>(2 * places_.size()));
      if (!streams[i]->Send(alive, soon) && streams[i]->closed()) streams[i].reset();
    }
    lock.lock();
    ended_changed_.wait_for(lock, Seconds(every_s), [this] { return ended_; });
  }
}

}  // namespace trireme
