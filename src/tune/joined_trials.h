// Trials that workers in other processes, on this host or others, run for a search; join.h is their side.
//
// A worker has a stream for every trial that it can run at a time. On each it asks, and is answered:
//
//   {"hello": version}   {"welcome": settings of all trials, TOML; "silence_s": s; "shared": a file that the worker must see, or
//                        nothing; "holds": what is in it}
//   {"next": true}       {"order": trial_order.h} or {"later": true}: ask again in a moment
//   {"line": "..."}      what the trial has said; {"answer": "..."} for it, {} or {"drop": true}: there is no more to do for it
//   {"failed": "why"}    {"drop": true}
//   {"beat": true}       {} or {"drop": true}
//   {"leave": true}      the worker ends, and gives its trial back; no answer is waited for
//
// Streams close with kSearchIsOver, or for a reason that begins with kComesBack when the search was interrupted. What a worker
// was running is given back when its stream ends or nothing has come for kWorkerLost seconds.
#pragma once

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "trireme/rpc/transport.h"
#include "trireme/tune/trial_desk.h"

namespace trireme {

inline constexpr std::string_view kSearchIsOver = "the search is over";
inline constexpr std::string_view kComesBack = "later: ";
inline constexpr double kWorkerLost = 15;

class JoinedTrials final : private ServerTransport::Handler {
 public:
  // Uses the desk, which `mutex` guards, from a thread of its own. All must outlive it.
  JoinedTrials(TrialDesk& desk, std::mutex& mutex, std::unique_ptr<ServerTransport> transport,
               const TuneOptions& options);
  // Takes leave of the workers. Not with the mutex held.
  ~JoinedTrials() override;

  const std::string& address() const { return transport_->address(); }
  // Throws what has failed in the other thread (the disk is full), if anything has.
  void Check() const;

 private:
  struct Peer {
    std::string address;
    TrialDesk::Seat* seat = nullptr;  // null: has not said hello
    double heard_s = 0, line_s = 0;   // when anything, and when a line of its trial, came last
  };

  void OnOpen(PeerId peer, const std::string& address) override;
  void OnMessage(PeerId peer, Incoming& message) override;
  void OnClose(PeerId peer) override;
  Deadline OnTime(Deadline now) override;

  nlohmann::json Answer(PeerId id, Peer& peer, const nlohmann::json& question);
  void Forget(Peer& peer);
  // Keeps what a use of the desk throws, for Check.
  template <class Use>
  void WithDesk(Use&& use);

  TrialDesk& desk_;
  std::mutex& mutex_;
  const TuneOptions& options_;
  const std::unique_ptr<ServerTransport> transport_;
  // Of the other thread:
  std::map<PeerId, Peer> peers_;
  int opened_ = 0;  // streams so far
  double leaves_by_s_ = 0, last_look_s_ = 0;
  std::exception_ptr failure_;  // guarded by mutex_
  std::atomic<bool> leaves_ = false, left_ = false, comes_back_ = false;
  std::thread thread_;
};

}  // namespace trireme
