// One part of the parameters at work: which workers there are, what they ask for, when they are answered.
//
// Asynchronous workers are answered at once: a push is applied and the new parameters go back. With a bound
// of staleness the answer to a worker that is too far ahead waits until the slowest has caught up. Workers in
// step are SyncRounds' business.
//
// Runs in the server's event loop; nothing here blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/server/disk/parameter_part.h"
#include "trireme/server/protocol.h"
#include "trireme/server/service/membership.h"

namespace trireme {

class SyncRounds;

class PartService {
 public:
  // `say`: writes a line for the server's reader. `recovered`: workers that the part knew may come back.
  using Say = std::function<void(const std::string&)>;
  PartService(ServerTransport& transport, const RunTerms& terms, int index,
              std::unique_ptr<ParameterPart> part, Say say, bool recovered);
  ~PartService();

  const RunTerms& terms() const { return terms_; }
  // Whether anything has happened to it: the run goes on with the parts it has.
  bool begun() const { return recovered_ || part_->version() != first_version_; }
  const ParameterPart& part() const { return *part_; }
  const Membership& members() const { return members_; }

  // A worker that has said hello, with the same terms. Throws Error when there is no place for it.
  void Join(PeerId peer, const Greeting& greeting, std::uint64_t sequence, Deadline now,
            const std::string& address);
  // Any later message of a worker that has joined through `peer`. Throws Error for what no sane worker sends.
  void Handle(PeerId peer, const Header& request, Incoming& message, Deadline now);
  void RenewLease(std::uint64_t worker, Deadline now) { members_.RenewLease(worker, now); }
  void Disconnect(PeerId peer) { members_.Disconnect(peer); }
  // Gives up workers that are silent and goes on with what waited for them. Tells those that wait for whom.
  void OnTime(Deadline now);

 private:
  friend class SyncRounds;

  void Push(Member& member, const Header& request, Incoming& message, Deadline now);
  void Fetch(Member& member, const Header& request);
  void Echo(const Member& member, const Header& request, Incoming& message);
  void Rest(Member& member, Deadline now);
  void Finish(Member& member, const Header& request, Deadline now);
  // `member` leaves, or others need not wait for it any longer.
  void GiveUp(Member member, Deadline now);
  // Reads the floats of a push and checks it all. Statistics behind the gradient may be anything.
  void ReadGradient(const Header& request, Incoming& message, std::span<float> values) const;
  void Apply(const PartUpdate& update, std::span<const float> gradient, const std::string& note = {});
  void Note(const std::string& name, const std::string& value);
  void AnswerApplied(Deadline now);
  bool MayGoOn(const Member& member, Deadline now) const;
  void LeaveThoseThatHang(Deadline now);

  // An answer with the state of the run in its header.
  Header AnswerTo(const Header& request, MessageKind kind, std::uint32_t flags = 0) const;
  void Send(const Member& member, Outgoing message);
  void SendWaiting(const Member& member, const Header& request, const std::string& for_whom);
  // The parameters, then `extras`, then `doubles` and `bytes`.
  void SendParams(const Member& member, const Header& request, std::uint32_t flags = 0,
                  std::span<const float> extras = {}, std::span<const double> doubles = {},
                  std::string_view bytes = {});
  void SendWelcome(const Member& member, const Header& request, std::uint64_t number,
                   std::string_view state = {}, std::uint32_t flags = 0);
  Clock::duration lease() const { return Seconds(terms_.lease_s); }
  Clock::duration patience() const { return Seconds(terms_.round_s); }
  bool finished() const { return !part_->NoteOf("finished").empty(); }

  ServerTransport& transport_;
  RunTerms terms_;
  int index_;
  std::unique_ptr<ParameterPart> part_;
  Membership members_;
  AlignedBuffer<float> gradient_;
  std::map<std::uint64_t, Header> applied_;  // pushes that are applied but not answered, by worker
  bool recovered_;
  std::uint64_t first_version_;
  Deadline all_back_;                   // until then workers of before a restart may come back
  std::unique_ptr<SyncRounds> rounds_;  // in step only
  Say say_;
};

}  // namespace trireme
