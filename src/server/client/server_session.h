// A worker's part in a run on parameter servers: its streams to all of them, its rank, and what it knows of
// the others. Stores and communicators of a worker are built on one session.
//
// Belongs to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/codec/difference.h"
#include "trireme/server/client/server_link.h"

namespace trireme {

// The others are further: join them again (Session::Join).
class FellBehind : public Error {
 public:
  using Error::Error;
};

// The servers hold a run that is over.
class RunHasEnded : public Error {
 public:
  using Error::Error;
};

class ServerSession {
 public:
  // `places`: one for each part of the parameters. `terms.servers` is their number. `candidate`: may lead.
  ServerSession(std::vector<ServerPlace> places, const RunTerms& terms, std::uint64_t id,
                bool candidate = true);

  // What servers that have no parameters yet are to start from. `moments`: one span for each, or none for
  // zeros.
  void Offer(std::span<const float> params, const std::vector<std::span<const float>>& moments = {},
             std::uint64_t updates = 0);
  // And how many environment steps were made before.
  void OfferSteps(std::int64_t steps) { offered_steps_ = steps; }

  // How a worker in step came to take part: at a boundary of others, with what their leader said there; or
  // when nobody was there, with what was said at the last boundary, if there ever was one.
  struct Entry {
    bool at_boundary = false;
    std::string state;
  };
  // Takes part from now on; in step, from the next boundary of the others. params() are then those of the
  // servers, in step of one version. Throws Error.
  Entry Join();
  // Does not wait and does not throw.
  void Leave();
  bool joined() const { return joined_; }

  const RunTerms& terms() const { return terms_; }
  std::uint64_t id() const { return id_; }
  int rank() const { return links_[0]->rank(); }
  int servers() const { return static_cast<int>(links_.size()); }
  ServerLink& link(int server) { return *links_[server]; }
  PartRange range(int server) const { return RangeOfServer(terms_, server); }

  std::span<float> params() { return params_.span(); }
  std::span<const float> params() const { return params_.span(); }
  std::uint64_t version(int server) const { return versions_[server]; }

  // One request to each server, and their answers.
  // `resting`: the worker will push nothing for a while, and nobody is to wait for it.
  void Pull(bool resting = false);
  // The worker will push nothing more: what it waits for is forgotten, and nobody waits for it.
  void Rest();
  void Finish();
  // Parameters and moments as the servers have them: params() and `moments`, one after the other.
  void Fetch(std::vector<AlignedBuffer<float>>& moments, std::uint64_t& updates);

  // Blocks until no server owes an answer; each is given to `take` when it comes. A server that was started
  // again may have forgotten what it was sent, and others may wait for that: while one answer is awaited, no
  // stream stays closed.
  using TakeAnswer = std::function<void(int server, const Header& answer, Incoming& message)>;
  void TakeAnswers(const TakeAnswer& take);

  // Takes over what an answer of the first server says of the run.
  void OnAnswer(int server, const Header& answer);
  // And its parameters, whole or as what has changed. Throws FellBehind. `extras` takes the floats behind them.
  void Take(int server, const Header& answer, Incoming& message, std::vector<float>* extras = nullptr);

  // What the first server said last; steps include those it has not been told of yet.
  std::int64_t steps() const { return steps_ + unsent_steps_; }
  int leader() const { return leader_; }  // its rank
  bool leads() const { return leader_ == rank(); }
  bool finished() const { return finished_; }
  int members() const { return members_; }
  std::uint64_t next_operation() const { return next_operation_; }
  // `boundary`: it was an open one.
  void OperationDone(bool boundary) {
    ++next_operation_;
    if (boundary) boundary_ = next_operation_;
  }
  // The last open boundary, by the number of operations up to it.
  std::uint64_t boundary() const { return boundary_; }

  // Environment steps that go with the next push, besides those that wait for it already.
  void AddSteps(std::int64_t steps) { unsent_steps_ += steps; }
  std::int64_t TakeSteps() {
    steps_ += unsent_steps_;
    return std::exchange(unsent_steps_, 0);
  }
  // A store that leaves requests under way says how to end them: needed before other requests.
  void SetSettle(std::function<void()> settle) { settle_ = std::move(settle); }

  // Tries how fast the ways to the servers are, once.
  void MeasureLinks();
  std::vector<ProcessLink> links() const;

  // Spent with differences of parameters, and bytes that these did without.
  double decode_s() const { return decode_s_; }
  std::int64_t bytes_saved() const { return bytes_saved_; }

 private:
  Entry JoinServers();
  Outgoing StateMessage(int server) const;

  RunTerms terms_;
  std::uint64_t id_;
  bool candidate_;
  bool joined_ = false;
  std::vector<std::unique_ptr<ServerLink>> links_;
  AlignedBuffer<float> params_;
  std::vector<AlignedBuffer<float>> offered_moments_;
  std::uint64_t offered_updates_ = 0;
  std::int64_t offered_steps_ = 0;
  std::vector<std::uint64_t> versions_;   // of the parameters, by server
  std::optional<DifferenceCoder> coder_;  // of parameters that come compressed
  double decode_s_ = 0;
  std::int64_t bytes_saved_ = 0;
  std::int64_t steps_ = 0, unsent_steps_ = 0;
  int leader_ = -1, members_ = 0;
  bool finished_ = false;
  std::uint64_t next_operation_ = 0, boundary_ = 0;
  std::function<void()> settle_ = [] {};
};

}  // namespace trireme
