// Workers on their own: a push is applied at once and answered with the new parameters.
//
// With a bound of staleness (Pace::kSsp) the answer to a worker that is too far ahead waits until the slowest
// has caught up.
#pragma once

#include <cstdint>
#include <map>

#include "trireme/server/service/turns.h"

namespace trireme {

class AsyncTurns final : public Turns {
 public:
  explicit AsyncTurns(ServedPart& served) : served_(served), gradient_(served.part().params().size()) {}

  void BeforeJoin(const Greeting&, bool, Deadline) override {}
  void Join(Member& member, const Greeting& greeting, bool known, const Header& request,
            Deadline now) override;
  bool Handle(Member& member, const Header& request, Incoming& message, Deadline now) override;
  void Rest(Member& member, Deadline now) override;
  void Drop(const Member&, Deadline now) override { Advance(now); }
  void Advance(Deadline now) override;
  void OnTime(Deadline now) override;

 private:
  void Push(Member& member, const Header& request, Incoming& message, Deadline now);
  bool MayGoOn(const Member& member, Deadline now) const;
  void StopWaitingForIdle(Deadline now);

  ServedPart& served_;
  AlignedBuffer<float> gradient_;
  std::map<std::uint64_t, Header> applied_;  // pushes that are applied but not answered, by worker
};

}  // namespace trireme
