// Experience on its way from actors, who collect it, to one learner.
//
//   learner   Publish(parameters);  Take(trajectory), Take(trajectory), ...;  learns;  Publish(parameters);  ...
//   actor     Newest() -> policy;  collects with it;  Send(trajectory);  ...
//
// An actor asks for the newest policy when it begins; nothing is pushed into one that is busy. A channel holds a bounded
// number of trajectories: who sends to a full one waits, and so does who takes from an empty one. The oldest is taken
// first, each once, those of an actor in the order in which it sent them. An actor that goes may take with it what is not in the
// channel yet. conformance.h checks what every channel
// must do.
//
// Thread safety: each end belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/rollout/trajectory.h"

namespace trireme {

// Parameters that a learner has published. Versions grow, and are above 0.
struct PublishedPolicy {
  std::uint64_t version = 0;
  std::vector<float> params;
};

class ActorEnd {
 public:
  virtual ~ActorEnd() = default;
  // Waits for the first; null when the channel has ended.
  virtual std::shared_ptr<const PublishedPolicy> Newest() = 0;
  // Hands over a trajectory, in exchange for memory of an old one or none. Returns false when the channel has ended and
  // nobody will learn from it.
  virtual bool Send(Trajectory& trajectory) = 0;
};

class LearnerEnd {
 public:
  virtual ~LearnerEnd() = default;
  virtual void Publish(std::span<const float> params) = 0;
  // Versions go on from this one, unless they are beyond it. Learners in step count alike, also one that begins later than others,
  // or has missed some.
  virtual void CountFrom(std::uint64_t version) = 0;
  // Of what was published last; before, the one that versions are counted from.
  virtual std::uint64_t version() const = 0;
  // The oldest trajectory there is, in exchange for the memory of `to`. Throws Error when the channel has ended.
  virtual void Take(Trajectory& to) = 0;
};

}  // namespace trireme
