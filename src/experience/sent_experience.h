// A learner's experience from actors, through a channel: it publishes what it has learned, and takes as many
// trajectories as an update needs.
//
// How old the policy of a trajectory is when it is learned from, in versions, is its lag; 0 if it is by a newer one, as where
// learners have gone back to an earlier state. One whose lag is above `max_lag` is left out.
//
// With a schedule the order of all operations is given, and with it what is learned: the actors of the channel are workers
// 0, 1, ... of the schedule, "<" takes the newest policy, ">" sends a trajectory; the learner is the worker after them, "<"
// takes what one update needs, ">" publishes. "0< 1< 0> 1> 2< 2>": two actors, and two trajectories to an update.
//
// Thread safety: belongs to the learner's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/experience/channel.h"
#include "trireme/experience/source.h"
#include "trireme/store/parameter_store.h"
#include "trireme/store/schedule.h"

namespace trireme {

// What came of a channel.
struct ReceivedExperience {
  Staleness lag;              // of all that was learned from
  std::uint64_t too_old = 0;  // trajectories that were left out
  double waited_s = 0;        // seconds, for trajectories or for a turn

  ReceivedExperience& operator+=(const ReceivedExperience& other) {
    lag += other.lag;
    too_old += other.too_old;
    waited_s += other.waited_s;
    return *this;
  }
};

class SentExperience final : public ExperienceSource {
 public:
  struct Order {
    Schedule* schedule = nullptr;  // null: as it comes
    int learner = 0;               // its worker in the schedule
  };
  // `per_update` trajectories to an update; max_lag 0: any age will do. The schedule outlives it.
  SentExperience(std::unique_ptr<LearnerEnd> end, int per_update, std::uint64_t max_lag, Order order);

  std::span<const Trajectory* const> Next(std::span<const float> params) override;

  void CountFrom(std::uint64_t version) { end_->CountFrom(version); }
  const ReceivedExperience& received() const { return received_; }

 private:
  void Publish(std::span<const float> params);
  void TakeAll();

  std::unique_ptr<LearnerEnd> end_;
  std::uint64_t max_lag_;
  Order order_;
  std::vector<Trajectory> taken_;
  std::vector<const Trajectory*> views_;
  bool published_ = false;
  ReceivedExperience received_;
};

// An actor's end that keeps to a schedule, as worker `actor`. The schedule outlives it.
std::unique_ptr<ActorEnd> MakeScheduledEnd(std::unique_ptr<ActorEnd> end, Schedule& schedule, int actor);

// Throws Error unless, with this schedule, an update finds its trajectories and none waits for room.
void CheckExperienceSchedule(const Schedule& schedule, int actors, int per_update, std::size_t capacity);

}  // namespace trireme
