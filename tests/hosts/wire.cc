#include "wire.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace trireme::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargestFrame = 65536;
constexpr int kFramesAtOnce = 64;  // from one port, before the others have their turn

timespec Until(Time due) {
  const auto wait = std::max(std::chrono::nanoseconds(0), due - Clock::now());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
  return {seconds.count(), (wait - seconds).count()};
}

}  // namespace

Wire::Wire(const std::vector<int>& ports, const Cable& cable) : wake_(::eventfd(0, EFD_CLOEXEC)) {
  for (const int socket : ports) ports_.emplace_back(socket, cable);
  thread_ = std::thread([this] { Run(); });
}

Wire::~Wire() {
  ::eventfd_write(wake_, 1);
  thread_.join();
  ::close(wake_);
  for (const Port& port : ports_) ::close(port.socket);
}

void Wire::Run() {
  // A switch is never busy with something else, while here hosts with little to do keep all processors
  // spinning. Where this is not allowed, frames are later than they should be.
  const sched_param first{.sched_priority = 1};
  ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &first);
  std::vector<pollfd> waits = {{wake_, POLLIN, 0}};
  for (const Port& port : ports_) waits.push_back({port.socket, POLLIN, 0});
  while (true) {
    const std::optional<Time> next = Move(Clock::now());
    const timespec timeout = next ? Until(*next) : timespec{};
    ::ppoll(waits.data(), waits.size(), next ? &timeout : nullptr, nullptr);
    if (waits[0].revents != 0) return;
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      if (std::exchange(waits[i + 1].revents, 0) != 0) Receive(ports_[i], Clock::now());
    }
  }
}

void Wire::Receive(Port& port, Time now) {
  std::uint8_t block[kLargestFrame];
  for (int i = 0; i < kFramesAtOnce; ++i) {
    // An interface that goes down says so once; it is then silent until it is up again.
    const ssize_t size = ::recv(port.socket, block, sizeof block, MSG_DONTWAIT);
    if (size < 0) return;
    if (size >= 14) Enter(port.up, now, Frame(block, block + size));
  }
}

void Wire::Enter(Lane& lane, Time now, Frame frame) {
  const std::optional<Time> arrival = lane.line.Send(now, frame.size());
  if (arrival) lane.frames.emplace_back(*arrival, std::move(frame));
}

std::optional<Time> Wire::Move(Time now) {
  std::optional<Time> next;
  const auto wait_for = [&](const Lane& lane) {
    if (!lane.frames.empty()) next = std::min(next.value_or(Time::max()), lane.frames.front().first);
  };
  const auto due = [&](const Lane& lane) { return !lane.frames.empty() && lane.frames.front().first <= now; };
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    for (Lane& up = ports_[i].up; due(up); up.frames.pop_front()) {
      Switch(i, now, std::move(up.frames.front().second));
    }
    wait_for(ports_[i].up);
  }
  for (Port& port : ports_) {
    for (Lane& down = port.down; due(down); down.frames.pop_front()) {
      const Frame& frame = down.frames.front().second;
      // What a cable that was cut, or a full interface, does not take is lost, like on any cable.
      const ssize_t sent = ::send(port.socket, frame.data(), frame.size(), MSG_DONTWAIT);
      if (sent > 0) passed_bytes_ += static_cast<std::uint64_t>(sent);
    }
    wait_for(port.down);
  }
  return next;
}

void Wire::Switch(std::size_t from, Time now, Frame frame) {
  Address to, sender;
  std::memcpy(to.data(), frame.data(), to.size());
  std::memcpy(sender.data(), frame.data() + to.size(), sender.size());
  seen_[sender] = from;
  const bool to_all = (to[0] & 1) != 0;
  const auto known = to_all ? seen_.end() : seen_.find(to);
  if (known != seen_.end()) {
    if (known->second != from) Enter(ports_[known->second].down, now, std::move(frame));
    return;
  }
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (i != from) Enter(ports_[i].down, now, frame);
  }
}

}  // namespace trireme::testing
