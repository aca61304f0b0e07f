// A worker's end of its stream to one server: asks, waits, and when the stream breaks connects again and asks
// again.
//
// Every wait is bounded: a server that says nothing for `patience_s` is lost (ServerLost). A server that says
// it waits for others is not silent. A server that closes the stream and says why is not asked again (Error),
// unless the reason begins with "later: ".
//
// Belongs to one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/link.h"
#include "trireme/server/protocol.h"

namespace trireme {

// The server is gone for good, as far as this worker can tell.
class ServerLost : public Error {
 public:
  using Error::Error;
};

struct ServerPlace {
  Transport* transport = nullptr;
  std::string address;
  Security security;
  double patience_s = 60;
  std::function<bool()> stopped = nullptr;                // ends waits
  std::function<void(const std::string&)> say = nullptr;  // told of waits that last
};

// What a server says to a worker that it takes in.
struct Welcome {
  Header header;      // worker: its rank, number: of the next collective operation
  std::string state;  // of the run, in step: see ServerSession::Entry
};

class ServerLink {
 public:
  // How often a wait looks whether it is to end.
  static constexpr std::chrono::milliseconds kLook{200};

  // `state()`: kState, for a server that has no parameters yet.
  ServerLink(ServerPlace place, std::function<Outgoing()> state);

  // Says hello and blocks until the server takes the worker in; the parameters go to `params`. Throws Error
  // when it is refused, ServerLost when nobody answers.
  Welcome Join(const Greeting& greeting, std::span<float> params);

  // Starts a request; the one before must have been answered or forgotten. After a reconnection it is made
  // again, or `instead` in its place: that even when the answer is there, until the next request.
  void Ask(Header header, Outgoing request, Outgoing instead = nullptr);
  Header MakeRequest(MessageKind kind);  // with the next sequence
  bool asking() const { return request_ != nullptr; }
  void Forget() { request_ = instead_ = nullptr; }

  // The worker has taken the parameters of this answer: later requests say so.
  void Holds(const Header& answer) { held_ = answer.held; }

  // Sends something that has no answer, if that is possible now.
  void Tell(const Outgoing& message);

  // Blocks until the answer is there. The message is positioned behind its header, and valid until the next
  // call. Throws ServerLost. Whoever owes something to several servers must not wait for one of them alone:
  // see ServerSession::TakeAnswers.
  Incoming& Answer(Header& answer);
  // The same, for so long: null if it is not there yet.
  Incoming* Await(Header& answer, Deadline until);
  // When nothing is awaited: opens the stream again if it is closed. It may be asking() then.
  void LookAfter();

  const std::string& address() const { return place_.address; }
  // Tries how fast the way to the server is. No request may be under way.
  void Measure();
  // Requests and their answers, of training: greetings, trials and signs of life are not counted.
  const ProcessLink& link() const { return link_; }
  // The rank that the server gave last, or -1.
  int rank() const { return static_cast<int>(greeting_.rank); }
  // From now on reconnections say that the worker comes back.
  void Continue() { greeting_.continues = true; }

 private:
  void Reconnect();
  double LongestPause() const;
  Welcome Greet(std::span<float> params);
  bool Send(const Outgoing& message);
  Incoming* Receive(Header& header, Deadline until);
  void Answered(const Header& answer);
  void Count(std::size_t bytes);
  // Notes why the stream is closed. Throws Error when there is no point in another attempt.
  void HearWhy();
  // While it waits for the server to do something: tells of it when it lasts. Throws ServerLost when nothing
  // was heard for too long, or some time after the worker was told to stop.
  void Watch(const char* what);
  void Lose(const char* what, const std::string& why);

  ServerPlace place_;
  std::function<Outgoing()> state_;
  Greeting greeting_;  // with the clock that the server gave last
  std::unique_ptr<Stream> stream_;
  Outgoing request_, instead_;
  std::uint64_t sequence_ = 0;  // of the last request
  std::uint64_t awaited_ = 0;   // of the one whose answer is awaited
  std::uint64_t hellos_ = 0;
  std::uint64_t held_ = 0;  // see Holds
  Deadline heard_;
  double pause_s_ = 0;                                // before the next attempt to connect
  bool lost_ = false;                                 // for good
  std::optional<Deadline> tell_next_, told_to_stop_;  // of the wait that goes on
  Clock::duration waited_{}, longest_wait_{};         // for this answer; the longest that ended with one
  std::string said_;  // why the last stream was closed, or for whom the server waits
  ProcessLink link_;
};

}  // namespace trireme
