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

void CentralInference::Member::Come() {
  const std::lock_guard lock(inference_.mutex_);
  if (there_) return;
  there_ = awaited_ = true;
  inference_.members_.push_back(this);
  ++inference_.missing_;
}

void CentralInference::Member::Go() {
  const std::lock_guard lock(inference_.mutex_);
  if (!there_) return;
  if (awaited_ && !asks_) --inference_.missing_;
  there_ = awaited_ = asks_ = false;
  std::erase(inference_.members_, this);
  for (Question* question : inference_.waiting_) {
    if (question->member_ == this) question->member_ = nullptr;
  }
  if (!inference_.waiting_.empty() && inference_.Due()) inference_.due_.notify_one();
}

bool CentralInference::Member::Choose(const ActionRequest& request) {
  Wait wait;
  wait.request = request;
  inference_.Ask(wait, *this);
  Lock lock(inference_.mutex_);
  wait.told.wait(lock, [&] { return wait.answered; });
  return wait.chosen;
}

void CentralInference::Ask(Question& question, Member& member) {
  const std::lock_guard lock(mutex_);
  if (ended_) return question.OnAnswer(false);
  TRIREME_CHECK(question.request.n > 0 && member.there_ && !member.asks_);
  question.member_ = &member;
  question.asked_ = Clock::now();
  if (member.awaited_) --missing_;
  member.awaited_ = member.asks_ = true;
  waiting_.push_back(&question);
  waiting_envs_ += question.request.n;
  // The first one starts the clock.
  if (waiting_.size() == 1 || Due()) due_.notify_one();
}

bool CentralInference::Due() const { return missing_ == 0 || waiting_envs_ >= terms_.most_envs; }

bool CentralInference::TooOld(Clock::time_point now) const {
  return now >= waiting_.front()->asked_ + terms_.wait;
}

void CentralInference::AwaitNobody() {
  for (Member* member : members_) member->awaited_ = member->asks_;
  missing_ = 0;
  ++facts_.incomplete;
}

void CentralInference::Run() {
  Lock lock(mutex_);
  while (!ended_) {
    if (waiting_.empty()) {
      due_.wait(lock);
      continue;
    }
    if (!Due()) {
      if (!TooOld(Clock::now())) {
        due_.wait_until(lock, waiting_.front()->asked_ + terms_.wait);
        continue;
      }
      AwaitNobody();
    }
    if (auto policy = Newest()) {
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
  std::shared_ptr<const PublishedPolicy> newest;
  for (const MemoryChannel* channel : channels_) {
    auto policy = channel->newest();
    if (policy != nullptr && (newest == nullptr || policy->version > newest->version))
      newest = std::move(policy);
  }
  return newest == nullptr ? policy_ : newest;
}

void CentralInference::Take() {
  int envs = 0;
  do {
    Question* const question = waiting_.front();
    envs += question->request.n;
    if (Member* const member = std::exchange(question->member_, nullptr)) {  // it will ask again
      member->asks_ = false;
      ++missing_;
    }
    batch_.push_back(question);
    waiting_.pop_front();
  } while (!waiting_.empty() && envs + waiting_.front()->request.n <= terms_.most_envs);
  waiting_envs_ -= envs;
}

void CentralInference::Evaluate(Lock& lock, std::shared_ptr<const PublishedPolicy> policy) {
  evaluating_ = true;
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
  evaluating_ = false;
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
