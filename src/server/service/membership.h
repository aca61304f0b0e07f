// Which workers take part in a run, as one server sees it.
//
// A worker has an id of its own and a rank that the run gives it. It holds a lease: whoever is not heard for
// `lease` is given up, whether it was killed, frozen or cut off, and its rank is free for another. A stream
// that breaks is not the end of a membership: the worker may connect again within the lease.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/rpc/transport.h"

namespace trireme {

struct Member {
  std::uint64_t id = 0;
  int rank = -1;
  std::optional<PeerId> peer;  // its stream, if it has one now
  Deadline heard;
  Deadline asked;             // its last request, which a worker that hangs does not make
  std::uint64_t clock = 0;    // pushes
  std::uint64_t counted = 0;  // sequence of the last push in its clock
  bool active = false;        // others wait for it
  bool resting = false;       // pushes nothing for now: its clock is not waited for
  bool candidate = true;      // may lead
};

class Membership {
 public:
  // `places`: ranks are below this; 0: no limit.
  Membership(Clock::duration lease, int places) : lease_(lease), places_(places) {}

  // Adds the worker or finds it again. It gets `rank` if that is free, else, or if it is -1, the lowest free
  // one. Throws Error when all places are taken.
  Member& Join(std::uint64_t id, int rank, PeerId peer, Deadline now);
  Member* Find(std::uint64_t id);
  void Leave(std::uint64_t id) { members_.erase(id); }
  void RenewLease(std::uint64_t id, Deadline now);
  // The stream is gone; its worker stays a member until its lease ends.
  void Disconnect(PeerId peer);
  // Puts out those whose lease has ended and returns them. To be called several times per lease: a longer
  // time without a call is one in which the server itself stood still, and counts as nobody's silence.
  std::vector<Member> Expire(Deadline now);

  int size() const { return static_cast<int>(members_.size()); }
  // The lowest rank of an active member that may lead, or -1.
  int leader() const;
  // Whether others wait for anybody.
  bool AnyActive() const;
  std::uint64_t SlowestClock() const;  // of active members that do not rest; 0 without any
  std::map<std::uint64_t, Member>& all() { return members_; }
  const std::map<std::uint64_t, Member>& all() const { return members_; }
  const Member* WithRank(int rank) const;
  Member* WithRank(int rank);

 private:
  int LowestFreeRank() const;

  Clock::duration lease_;
  int places_;
  std::map<std::uint64_t, Member> members_;  // by id
  std::optional<Deadline> expired_;          // the last time that Expire was called
};

}  // namespace trireme
