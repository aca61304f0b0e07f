// One part of the parameters at work: which workers there are, what they ask for, when they are answered.
//
// What changes parameters or needs the other workers is the business of Turns: AsyncTurns answers pushes at
// once, SyncRounds waits for all.
//
// Runs in the server's event loop; nothing here blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/server/service/served_part.h"
#include "trireme/server/service/turns.h"

namespace trireme {

class PartService {
 public:
  // `recovered`: workers that the part knew may come back.
  PartService(ServerTransport& transport, const RunTerms& terms, int index,
              std::unique_ptr<ParameterPart> part, Say say, bool recovered);
  PartService(const PartService&) = delete;  // turns_ refers to served_
  PartService& operator=(const PartService&) = delete;

  const RunTerms& terms() const { return served_.terms(); }
  // Whether anything has happened to it: the run goes on with the parts it has.
  bool begun() const { return served_.recovered() || part().version() != first_version_; }
  const ParameterPart& part() const { return served_.part(); }
  const Membership& members() const { return served_.members(); }

  // A worker that has said hello, with the same terms. Throws Error when there is no place for it.
  void Join(PeerId peer, const Greeting& greeting, std::uint64_t sequence, Deadline now,
            const std::string& address);
  // Any later message of a worker that has joined through `peer`. Throws Error for what no sane worker sends.
  void Handle(PeerId peer, const Header& request, Incoming& message, Deadline now);
  void RenewLease(std::uint64_t worker, Deadline now) { served_.members().RenewLease(worker, now); }
  void Disconnect(PeerId peer) { served_.members().Disconnect(peer); }
  // Gives up workers that are silent and goes on with what waited for them. Tells those that wait for whom.
  void OnTime(Deadline now);

 private:
  void Fetch(const Member& member, const Header& request);
  void Echo(const Member& member, const Header& request, Incoming& message);
  // `member` leaves, or others need not wait for it any longer.
  void GiveUp(Member member, Deadline now);

  ServedPart served_;
  std::uint64_t first_version_;
  std::unique_ptr<Turns> turns_;
};

}  // namespace trireme
