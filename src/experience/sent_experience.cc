#include "trireme/experience/sent_experience.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/system.h"

namespace trireme {
namespace {

class ScheduledEnd final : public ActorEnd {
 public:
  ScheduledEnd(std::unique_ptr<ActorEnd> end, Schedule& schedule, int actor)
      : end_(std::move(end)), schedule_(schedule), actor_(actor) {}
  ~ScheduledEnd() override { schedule_.Leave(actor_); }

  std::shared_ptr<const PublishedPolicy> Newest() override {
    std::shared_ptr<const PublishedPolicy> policy;
    schedule_.InTurn(actor_, Schedule::Operation::kPull, [&] { policy = end_->Newest(); });
    return policy;
  }
  bool Send(Trajectory& trajectory) override {
    bool sent = false;
    schedule_.InTurn(actor_, Schedule::Operation::kPush, [&] { sent = end_->Send(trajectory); });
    return sent;
  }

 private:
  std::unique_ptr<ActorEnd> end_;
  Schedule& schedule_;
  int actor_;
};

}  // namespace

SentExperience::SentExperience(std::unique_ptr<LearnerEnd> end, int per_update, std::uint64_t max_lag,
                               Order order)
    : end_(std::move(end)), max_lag_(max_lag), order_(order), taken_(per_update) {
  for (const Trajectory& trajectory : taken_) views_.push_back(&trajectory);
}

std::span<const Trajectory* const> SentExperience::Next(std::span<const float> params) {
  const double begun_s = MonotonicSeconds();
  Publish(params);
  if (order_.schedule != nullptr) {
    order_.schedule->InTurn(order_.learner, Schedule::Operation::kPull, [&] { TakeAll(); });
  } else {
    TakeAll();
  }
  received_.waited_s += MonotonicSeconds() - begun_s;
  return views_;
}

// What actors begin with comes before all turns.
void SentExperience::Publish(std::span<const float> params) {
  if (order_.schedule != nullptr && std::exchange(published_, true)) {
    order_.schedule->InTurn(order_.learner, Schedule::Operation::kPush, [&] { end_->Publish(params); });
  } else {
    end_->Publish(params);
  }
}

void SentExperience::TakeAll() {
  for (Trajectory& to : taken_) {
    for (;;) {
      end_->Take(to);
      const std::uint64_t lag = end_->version() - std::min(to.policy, end_->version());
      if (max_lag_ == 0 || lag <= max_lag_) {
        received_.lag.Add(lag);
        break;
      }
      ++received_.too_old;
    }
  }
}

std::unique_ptr<ActorEnd> MakeScheduledEnd(std::unique_ptr<ActorEnd> end, Schedule& schedule, int actor) {
  return std::make_unique<ScheduledEnd>(std::move(end), schedule, actor);
}

// A round of the schedule leaves as many trajectories as it found, so one round tells of all.
void CheckExperienceSchedule(const Schedule& schedule, int actors, int per_update, std::size_t capacity) {
  std::int64_t waiting = 0;
  for (const auto& [worker, operation] : schedule.turns()) {
    const bool sends = worker < actors && operation == Schedule::Operation::kPush;
    const bool takes = worker >= actors && operation == Schedule::Operation::kPull;
    waiting += sends ? 1 : takes ? -per_update : 0;
    if (waiting < 0)
      Fail("schedule: an update takes {} trajectories, and so many have not been sent", per_update);
    if (waiting > static_cast<std::int64_t>(capacity)) {
      Fail("schedule: {} trajectories wait at a time, and queue = {} have room", waiting, capacity);
    }
  }
  if (waiting != 0) Fail("schedule: {} more trajectories are sent than updates take", waiting);
}

}  // namespace trireme
