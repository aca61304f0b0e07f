// One model evaluation for the environments of many actors, who then need no network (as in SEED RL, arXiv:1910.06591).
//
//   actor      Come();  Choose(request), Choose(request), ...: a trajectory;  Go();  sends it;  Come();  ...
//   a thread   takes the requests that wait, chooses for all of them at once with the newest policy, and answers
//
// A batch is evaluated when every member that is awaited has asked, when it has `most_envs` environments, or when its oldest
// request is `wait` old. Who has not asked by then is awaited no more until it asks again: an actor that is frozen, or dead, holds
// up the others once. Actors are not awaited while they hand over a trajectory.
//
// Policies are those that are newest when a batch is evaluated, so a trajectory may be by several. It is noted with the one
// that was newest before its first request: none of its steps is by an older one. What is chosen for an environment
// does not depend on who else is in the batch, where the executor does not.
//
// Thread safety: all methods may be called by all threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "trireme/base/log2_histogram.h"
#include "trireme/experience/memory_channel.h"
#include "trireme/rollout/rollout.h"

namespace trireme {

class CentralInference {
 public:
  // What chooses, used by one thread. Parameters stay as they are until the next are set.
  struct Chooser {
    std::function<void(std::span<const float> params)> set_params;
    std::function<void(std::span<const ActionRequest> requests)> choose;
  };
  struct Terms {
    int most_envs = 1;  // in one evaluation, unless one request alone has more
    std::chrono::microseconds wait{0};
  };
  // What has come of it: environments in each evaluation, and microseconds from each request to its answer.
  struct Facts {
    Log2Histogram batches, latency_us;
    std::uint64_t incomplete = 0;  // evaluations that somebody was too late for

    Facts& operator+=(const Facts& other) {
      batches += other.batches;
      latency_us += other.latency_us;
      incomplete += other.incomplete;
      return *this;
    }
  };

  // An actor, for whom others wait. Thread safety: belongs to whoever asks for it.
  class Member {
   public:
    explicit Member(CentralInference& inference) : inference_(inference) {}
    ~Member() { Go(); }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // It is going to ask; or not, for a while. Both may be repeated.
    void Come();
    void Go();
    // Asks, and waits for the answer. False: the service has ended.
    bool Choose(const ActionRequest& request);

   private:
    friend class CentralInference;
    CentralInference& inference_;
    // With the lock of the service:
    bool there_ = false, awaited_ = false, asks_ = false;
  };

  // A request under way. It, and what the request points to, stays where it is until it is answered.
  class Question {
   public:
    virtual ~Question() = default;
    // Called once, by another thread, which holds a lock of the service: it may tell somebody and nothing else. `chosen`:
    // actions and `extra` are there; if not, the service has ended.
    virtual void OnAnswer(bool chosen) = 0;

    ActionRequest request;

   private:
    friend class CentralInference;
    Member* member_ = nullptr;  // null: it is gone, or the batch has begun
    std::chrono::steady_clock::time_point asked_;
  };

  CentralInference(Chooser chooser, Terms terms);
  ~CentralInference() { End(); }
  CentralInference(const CentralInference&) = delete;
  CentralInference& operator=(const CentralInference&) = delete;

  // Policies are the newest of those that channels publish until they are detached; where none is attached the last one goes on.
  // Learners of a process move in step, and count versions alike. A channel is told when choosing fails.
  void Attach(MemoryChannel& channel);
  void Detach(MemoryChannel& channel);

  // For those who cannot wait. A member asks one thing at a time.
  void Ask(Question& question, Member& member);

  // Ends all waits, now and later.
  void End();
  Facts facts() const;
  // Requests that are not being evaluated yet.
  int waiting() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(waiting_.size());
  }
  // Whether everything that was asked is answered.
  bool idle() const {
    const std::lock_guard lock(mutex_);
    return waiting_.empty() && !evaluating_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void Run();
  // With the lock:
  bool Due() const;
  bool TooOld(Clock::time_point now) const;
  void AwaitNobody();
  std::shared_ptr<const PublishedPolicy> Newest() const;
  void Take();  // the oldest requests, to batch_
  // batch_, without the lock, and answers.
  void Evaluate(Lock& lock, std::shared_ptr<const PublishedPolicy> policy);

  const Chooser chooser_;
  const Terms terms_;
  mutable std::mutex mutex_;       // guards what follows
  std::condition_variable due_;    // perhaps
  std::deque<Question*> waiting_;  // the oldest first
  std::vector<Member*> members_;   // who are there
  int waiting_envs_ = 0;
  int missing_ = 0;  // members that are awaited and do not ask
  std::vector<MemoryChannel*> channels_;
  Facts facts_;
  bool ended_ = false, evaluating_ = false;
  // Of the thread alone:
  std::shared_ptr<const PublishedPolicy> policy_;  // in use
  std::vector<Question*> batch_;
  std::vector<ActionRequest> requests_;  // of the batch
  std::mutex joining_;                   // guards:
  std::thread thread_;
};

}  // namespace trireme
