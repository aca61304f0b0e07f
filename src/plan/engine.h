// Discrete-event simulation: a clock that jumps from one event to the next.
//
// Nodes (workers and servers) live on hosts. A node sets timers and sends messages; the engine calls the
// actor back when a timer has run out or the last byte of a message has arrived. Nothing happens in between,
// so a simulated second costs as much as the events in it.
//
// A message of n bytes between two hosts needs both hosts' links, each for n / bandwidth seconds: first the
// sender's outgoing one, then, `latency` after its first byte left, the receiver's incoming one. Each link
// direction carries one message at a time, in the order they come. A lone message takes latency + n /
// bandwidth; of two to the same host the second waits for the first. Messages between nodes of one host take
// latency + n / bandwidth of the loopback and wait for nobody.
//
// Deterministic: events at the same moment happen in the order they were made. Thread safety: none needed,
// an engine belongs to whoever runs it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

#include "trireme/plan/constants.h"

namespace trireme {

// Something that one user at a time can have: a direction of a link, a processor.
class Resource {
 public:
  // Takes it for `seconds`, from `now_s` or whenever those before are done; returns when that ends.
  double Take(double now_s, double seconds) {
    busy_s_ += seconds;
    return free_s_ = std::max(now_s, free_s_) + seconds;
  }
  double busy_s() const { return busy_s_; }

 private:
  double free_s_ = 0, busy_s_ = 0;
};

struct Message {
  int from = 0, to = 0;  // nodes
  double bytes = 0;
  int tag = 0;  // whatever the actor likes
};

class Engine {
 public:
  class Actor {
   public:
    virtual ~Actor() = default;
    virtual void OnTimer(int node, int tag) = 0;
    virtual void OnMessage(const Message& message) = 0;
  };

  // `host_of`: of each node.
  Engine(const Link& network, const Link& loopback, std::vector<int> host_of);

  double now_s() const { return now_s_; }
  // After `seconds`, or at a moment that has not passed, OnTimer(node, tag) is called.
  void After(double seconds, int node, int tag) { At(now_s_ + seconds, node, tag); }
  void At(double time_s, int node, int tag);
  // OnMessage is called when all of it has arrived.
  void Send(const Message& message);

  // Until nothing is left to happen, or Stop() was called.
  void Run(Actor& actor);
  void Stop() { stopped_ = true; }

  // So far.
  double bytes_sent() const { return bytes_sent_; }
  std::uint64_t messages_sent() const { return messages_sent_; }
  std::uint64_t events() const { return order_; }

 private:
  struct Event {
    enum class Kind : std::uint8_t { kTimer, kFirstByte, kLastByte };

    double time_s;
    std::uint64_t order;
    Message message;  // of a timer: `to` and `tag`
    Kind kind;

    bool operator<(const Event& other) const {  // the queue's top is its largest
      return time_s != other.time_s ? time_s > other.time_s : order > other.order;
    }
  };
  struct HostLink {
    Resource out, in;
  };

  void Add(double time_s, Event::Kind kind, const Message& message) {
    queue_.push({time_s, order_++, message, kind});
  }

  Link network_, loopback_;
  std::vector<int> host_of_;
  std::vector<HostLink> links_;  // of each host
  std::priority_queue<Event> queue_;
  double now_s_ = 0;
  std::uint64_t order_ = 0;
  bool stopped_ = false;
  double bytes_sent_ = 0;
  std::uint64_t messages_sent_ = 0;
};

}  // namespace trireme
