// Where trajectories of actors go, for whoever serves several actors and may not wait.
#pragma once

#include <memory>

#include "trireme/experience/channel.h"

namespace trireme {

class TrajectorySink {
 public:
  virtual ~TrajectorySink() = default;
  // Takes a trajectory, in exchange for memory of an old one or none. False, and it stays, where there is no room for it
  // now, or never again.
  virtual bool Offer(Trajectory& trajectory) = 0;
  // What was published last; null before the first, and when there is nobody to learn any more.
  virtual std::shared_ptr<const PublishedPolicy> newest() const = 0;
};

}  // namespace trireme
