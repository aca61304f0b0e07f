// A channel between threads of one process: trajectories change hands without being copied.
//
// Thread safety: methods may be called by all threads; each end belongs to one.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/experience/channel.h"
#include "trireme/experience/trajectory_sink.h"

namespace trireme {

class MemoryChannel final : public TrajectorySink {
 public:
  // Holds up to `capacity` trajectories, at least one. A learner for whom nothing comes looks now and then whether
  // it is to wait any longer: `give_up` throws if not.
  explicit MemoryChannel(
      std::size_t capacity, std::function<void(double waited_s)> give_up = [](double) {});
  MemoryChannel(const MemoryChannel&) = delete;
  MemoryChannel& operator=(const MemoryChannel&) = delete;

  // The channel outlives its ends. One learner; any number of actors, which may come and go.
  std::unique_ptr<LearnerEnd> MakeLearnerEnd();
  std::unique_ptr<ActorEnd> MakeActorEnd();
  bool Offer(Trajectory& trajectory) override;
  std::shared_ptr<const PublishedPolicy> newest() const override;

  // Ends all waits, now and later; `why` is what a learner is told. The first one counts.
  void End(const std::string& why);

 private:
  class Learner;
  class Actor;

  bool Full() const { return !ended_ && waiting_.size() >= capacity_; }
  bool Put(Trajectory& trajectory);  // both with the lock

  const std::size_t capacity_;
  const std::function<void(double)> give_up_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable filled_, emptied_, published_;
  std::deque<Trajectory> waiting_;
  std::vector<Trajectory> spare_;  // memory of trajectories that were learned from
  std::shared_ptr<const PublishedPolicy> newest_;
  bool ended_ = false;
  std::string why_;
};

}  // namespace trireme
