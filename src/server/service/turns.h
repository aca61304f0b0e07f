// How the workers of a part take turns: a class for each way, of which the run's Pace chooses one.
//
// Runs in the server's event loop; nothing here blocks. All but OnTime may throw Error for what no sane worker
// asks.
#pragma once

#include "trireme/server/service/served_part.h"

namespace trireme {

class Turns {
 public:
  virtual ~Turns() = default;

  // A worker is about to get its rank; `known`: it is a member already. Throws Error when it must wait.
  virtual void BeforeJoin(const Greeting& greeting, bool known, Deadline now) = 0;
  // It is a member now and waits for its welcome; `request` is its hello.
  virtual void Join(Member& member, const Greeting& greeting, bool known, const Header& request,
                    Deadline now) = 0;
  // Requests that change parameters or need the other workers. False: this kind has no place here.
  virtual bool Handle(Member& member, const Header& request, Incoming& message, Deadline now) = 0;
  // The member pushes nothing until it says otherwise by pushing.
  virtual void Rest(Member& member, Deadline now) = 0;
  // The worker is no member any more.
  virtual void Drop(const Member& member, Deadline now) = 0;
  // Goes on with what waits for nobody any longer.
  virtual void Advance(Deadline now) = 0;
  // Advances, and tells those who still wait for whom.
  virtual void OnTime(Deadline now) = 0;
};

}  // namespace trireme
