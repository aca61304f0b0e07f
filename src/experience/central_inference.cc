#include "trireme/experience/central_inference.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Requests can come before a first policy only where a learner begins anew.
constexpr auto kLookForPolicy = std::chrono::milliseconds(1);

// Of an actor that waits in Choose.
class Wait final : public CentralInference::Question {
 public:
  // With the lock, so that it is still there afterwards.
  void OnAnswer(bool is_chosen) override {
    chosen = is_chosen;
    answered = true;
    told.notify_one();
  }

  std::condition_variable told;
  bool answered = false, chosen = false;  // guarded by the lock of the service
};

}  // namespace

CentralInference::CentralInference(Chooser chooser, Terms terms)
    : chooser_(std::move(chooser)), terms_(terms) {
  TRIREME_CHECK(terms_.most_envs > 0);
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    Fail("cannot start a thread that chooses for actors: {}", error.code().message());
  }
}

void CentralInference::Attach(MemoryChannel& channel) {
  const std::lock_guard lock(mutex_);
  channels_.push_back(&channel);
}

void CentralInference::Detach(MemoryChannel& channel) {
  const std::lock_guard lock(mutex_);
  std::erase(channels_, &channel);
}

void CentralInference::Come() {
  const std::lock_guard lock(mutex_);
  ++there_;
}

void CentralInference::Go() {
  const std::lock_guard lock(mutex_);
  --there_;
  if (!waiting_.empty() && Due(Clock::now())) due_.notify_one();
}

bool CentralInference::Choose(const ActionRequest& request) {
  Wait wait;
  wait.request = request;
  Ask(wait);
  Lock lock(mutex_);
  wait.told.wait(lock, [&] { return wait.answered; });
  return wait.chosen;
}

void CentralInference::Ask(Question& question) {
  TRIREME_CHECK(question.request.n > 0);
  const std::lock_guard lock(mutex_);
  if (ended_) return question.OnAnswer(false);
  question.asked_ = Clock::now();
  waiting_.push_back(&question);
  waiting_envs_ += question.request.n;
  // The first one starts the clock.
  if (waiting_.size() == 1 || Due(question.asked_)) due_.notify_one();
}

bool CentralInference::Due(Clock::time_point now) const {
  return static_cast<int>(waiting_.size()) >= there_ || waiting_envs_ >= terms_.most_envs ||
         now >= waiting_.front()->asked_ + terms_.wait;
}

void CentralInference::Run() {
  Lock lock(mutex_);
  while (!ended_) {
    if (waiting_.empty()) {
      due_.wait(lock);
    } else if (!Due(Clock::now())) {
      due_.wait_until(lock, waiting_.front()->asked_ + terms_.wait);
    } else if (auto policy = Newest()) {
      Take();
      Evaluate(lock, std::move(policy));
    } else {
      due_.wait_for(lock, kLookForPolicy);
    }
  }
  for (Question* question : batch_) question->OnAnswer(false);
  for (Question* question : waiting_) question->OnAnswer(false);
  waiting_.clear();
}

std::shared_ptr<const PublishedPolicy> CentralInference::Newest() const {
  for (const MemoryChannel* channel : channels_) {
    if (auto policy = channel->newest()) return policy;
  }
  return policy_;
}

void CentralInference::Take() {
  int envs = 0;
  do {
    envs += waiting_.front()->request.n;
    batch_.push_back(waiting_.front());
    waiting_.pop_front();
  } while (!waiting_.empty() && envs + waiting_.front()->request.n <= terms_.most_envs);
  waiting_envs_ -= envs;
}

void CentralInference::Evaluate(Lock& lock, std::shared_ptr<const PublishedPolicy> policy) {
  lock.unlock();
  std::string failed;
  try {
    requests_.clear();
    for (const Question* question : batch_) requests_.push_back(question->request);
    if (policy != policy_) chooser_.set_params(policy->params);
    policy_ = std::move(policy);  // the one before was in use until now
    chooser_.choose(requests_);
  } catch (const std::exception& error) {
    failed = fmt::format("choosing for the actors: {}", error.what());
  }
  const auto now = Clock::now();
  lock.lock();
  if (!failed.empty()) {
    ended_ = true;
    for (MemoryChannel* channel : channels_) channel->End(failed);
    return;
  }
  for (Question* question : batch_) {
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(now - question->asked_);
    facts_.latency_us.Add(static_cast<std::uint64_t>(took.count()));
    question->OnAnswer(true);
  }
  facts_.batches.Add(
      std::accumulate(requests_.begin(), requests_.end(), std::uint64_t{0},
                      [](std::uint64_t sum, const ActionRequest& request) { return sum + request.n; }));
  batch_.clear();
}

void CentralInference::End() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  due_.notify_one();
  const std::lock_guard lock(joining_);
  if (thread_.joinable()) thread_.join();
}

CentralInference::Facts CentralInference::facts() const {
  const std::lock_guard lock(mutex_);
  return facts_;
}

}  // namespace trireme
