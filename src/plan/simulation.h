// Discrete-event simulation: a clock that jumps from one event to the next, and processes that are coroutines.
//
// A process says what it does one thing after the other, as in
//
//   const Letter letter = co_await inbox.Receive();
//   co_await simulation.Work(host, seconds);
//   simulation.Send(...);
//
// and rests while that takes its time. Work takes `seconds` of a processor; of n that work on the c processors
// of a host each goes on at min(1, c / n) of the speed, as under a scheduler whose turns are short.
//
// A message of n bytes between two hosts needs both hosts' links, each for n / bandwidth seconds: first the
// sender's outgoing one, then, `latency` after its first byte left, the receiver's incoming one. Each direction
// of a link carries one message at a time, in the order they come. Messages within a host take their latency.
//
// Deterministic: events at the same moment happen in the order they were made. Not thread-safe.
#pragma once

#include <algorithm>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "trireme/plan/constants.h"

namespace trireme {

// A coroutine that Simulation::Start takes.
class Process {
 public:
  struct promise_type {
    Process get_return_object() { return Process(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { throw; }  // out of Simulation::Run
  };

  Process(Process&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Process& operator=(Process&&) = delete;
  ~Process() {
    if (handle_) handle_.destroy();
  }
  void Resume() const { handle_.resume(); }

 private:
  explicit Process(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

struct Letter {
  int from = 0;
  std::uint64_t version = 0;  // whatever the sender likes
};

// Where messages arrive. One process waits for them.
class Mailbox {
 public:
  bool empty() const { return letters_.empty(); }
  // The oldest letter; to be awaited.
  auto Receive() {
    struct Awaiter {
      Mailbox& box;
      bool await_ready() const { return !box.empty(); }
      void await_suspend(std::coroutine_handle<> process) { box.waiting_ = process; }
      Letter await_resume() {
        const Letter letter = box.letters_.front();
        box.letters_.pop_front();
        return letter;
      }
    };
    return Awaiter{*this};
  }
  void Deliver(const Letter& letter) {
    letters_.push_back(letter);
    if (waiting_) std::exchange(waiting_, nullptr).resume();
  }

 private:
  std::deque<Letter> letters_;
  std::coroutine_handle<> waiting_;
};

class Simulation {
 public:
  // Hosts have `processors` each.
  Simulation(const Link& network, double same_host_latency_s, int hosts, double processors);

  double now_s() const { return now_s_; }
  // The process begins when Run is called, those before it first.
  void Start(Process process) { processes_.push_back(std::move(process)); }
  // Until nothing is left to happen, or Stop() was called.
  void Run();
  void Stop() { stopped_ = true; }

  // To be awaited.
  auto Work(int host, double seconds) {
    struct Awaiter {
      Simulation& simulation;
      int host;
      double seconds;
      bool await_ready() const { return false; }
      void await_suspend(std::coroutine_handle<> process) { simulation.Begin(host, seconds, process); }
      void await_resume() const {}
    };
    return Awaiter{*this, host, seconds};
  }
  // Delivers when the last byte has arrived. `to` must live until then.
  void Send(int from_host, int to_host, double bytes, Mailbox& to, const Letter& letter);

  // So far.
  double bytes_sent = 0, messages_sent = 0;

 private:
  struct Event {
    double time_s;
    std::uint64_t order;
    std::function<void()> happen;
    bool operator<(const Event& other) const {  // the top of a heap is its largest
      return time_s != other.time_s ? time_s > other.time_s : order > other.order;
    }
  };
  struct Job {
    double end;  // of served_s
    std::uint64_t order;
    std::coroutine_handle<> process;
    bool operator<(const Job& other) const {
      return end != other.end ? end > other.end : order > other.order;
    }
  };
  struct Host {
    std::priority_queue<Job> jobs = {};
    double served_s = 0;        // what a job that had always run would have had until at_s
    double at_s = 0;            // when jobs last began or ended
    std::uint64_t changes = 0;  // so often did they
    double out_free_s = 0, in_free_s = 0;
  };

  double SpeedOf(const Host& host) const {
    return std::min(1.0, processors_ / static_cast<double>(host.jobs.size()));
  }
  void At(double time_s, std::function<void()> happen);
  void Begin(int host, double seconds, std::coroutine_handle<> process);
  void Advance(Host& host) const;
  void ExpectEnd(Host& host);

  Link network_;
  double same_host_latency_s_, processors_;
  std::vector<Host> hosts_;
  std::vector<Process> processes_;
  std::vector<Event> events_;  // a heap
  double now_s_ = 0;
  std::uint64_t order_ = 0;
  bool stopped_ = false;
};

}  // namespace trireme
