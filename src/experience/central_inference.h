// One model evaluation for the environments of many actors, who then need no network (as in SEED RL, arXiv:1910.06591).
//
//   actor      Come();  Choose(request), Choose(request), ...: a trajectory;  Go();  sends it;  Come();  ...
//   a thread   takes the requests that wait, chooses for all of them at once with the newest policy, and answers
//
// A batch is evaluated when every actor that is there has asked, when it has `most_envs` environments, or when its oldest
// request is `wait` old: whoever is late, frozen or dead holds up nobody for longer than that. Actors are not there while they
// hand over a trajectory.
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

    Facts& operator+=(const Facts& other) {
      batches += other.batches;
      latency_us += other.latency_us;
      return *this;
    }
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
    std::chrono::steady_clock::time_point asked_;
  };

  CentralInference(Chooser chooser, Terms terms);
  ~CentralInference() { End(); }
  CentralInference(const CentralInference&) = delete;
  CentralInference& operator=(const CentralInference&) = delete;

  // Policies are those that `channel` publishes, until it is detached. Learners of a process move in step, so one channel will
  // do for all; where none is attached the last policy goes on. A channel is told when choosing fails.
  void Attach(MemoryChannel& channel);
  void Detach(MemoryChannel& channel);

  // One actor more, or less, that is going to ask.
  void Come();
  void Go();

  // One actor more, so long as it lives. Null: nothing.
  class Presence {
   public:
    explicit Presence(CentralInference* inference) : inference_(inference) {
      if (inference_ != nullptr) inference_->Come();
    }
    ~Presence() {
      if (inference_ != nullptr) inference_->Go();
    }
    Presence(const Presence&) = delete;
    Presence& operator=(const Presence&) = delete;

   private:
    CentralInference* inference_;
  };

  // Waits for the answer. False: the service has ended.
  bool Choose(const ActionRequest& request);
  // The same for those who cannot wait.
  void Ask(Question& question);

  // Ends all waits, now and later.
  void End();
  Facts facts() const;
  // Requests that are not being evaluated yet.
  int waiting() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(waiting_.size());
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void Run();
  // With the lock:
  bool Due(Clock::time_point now) const;
  std::shared_ptr<const PublishedPolicy> Newest() const;
  void Take();  // the oldest requests, to batch_
  // batch_, without the lock, and answers.
  void Evaluate(Lock& lock, std::shared_ptr<const PublishedPolicy> policy);

  const Chooser chooser_;
  const Terms terms_;
  mutable std::mutex mutex_;       // guards what follows
  std::condition_variable due_;    // perhaps
  std::deque<Question*> waiting_;  // the oldest first
  int waiting_envs_ = 0, there_ = 0;
  std::vector<MemoryChannel*> channels_;
  Facts facts_;
  bool ended_ = false;
  // Of the thread alone:
  std::shared_ptr<const PublishedPolicy> policy_;  // in use
  std::vector<Question*> batch_;
  std::vector<ActionRequest> requests_;  // of the batch
  std::mutex joining_;                   // guards:
  std::thread thread_;
};

}  // namespace trireme
