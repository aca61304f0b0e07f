#include "trireme/experience/memory_channel.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);

}  // namespace

class MemoryChannel::Learner final : public LearnerEnd {
 public:
  explicit Learner(MemoryChannel& channel) : channel_(channel) {}

  void Publish(std::span<const float> params) override {
    auto policy = std::make_shared<const PublishedPolicy>(
        PublishedPolicy{++version_, std::vector<float>(params.begin(), params.end())});
    {
      const std::lock_guard lock(channel_.mutex_);
      channel_.newest_.swap(policy);
    }
    channel_.published_.notify_all();
  }

  void CountFrom(std::uint64_t version) override { version_ = std::max(version_, version); }
  std::uint64_t version() const override { return version_; }

  void Take(Trajectory& to) override {
    {
      std::unique_lock lock(channel_.mutex_);
      const auto ready = [&] { return channel_.ended_ || !channel_.waiting_.empty(); };
      const auto begun = std::chrono::steady_clock::now();
      while (!channel_.filled_.wait_for(lock, kLook, ready)) {
        channel_.give_up_(std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
      }
      if (channel_.ended_) Fail("{}", channel_.why_);
      std::swap(to, channel_.waiting_.front());
      if (channel_.waiting_.front().samples() > 0)
        channel_.spare_.push_back(std::move(channel_.waiting_.front()));
      channel_.waiting_.pop_front();
    }
    channel_.emptied_.notify_one();
  }

 private:
  MemoryChannel& channel_;
  std::uint64_t version_ = 0;
};

class MemoryChannel::Actor final : public ActorEnd {
 public:
  explicit Actor(MemoryChannel& channel) : channel_(channel) {}

  std::shared_ptr<const PublishedPolicy> Newest() override {
    std::unique_lock lock(channel_.mutex_);
    channel_.published_.wait(lock, [&] { return channel_.ended_ || channel_.newest_ != nullptr; });
    return channel_.ended_ ? nullptr : channel_.newest_;
  }

  bool Send(Trajectory& trajectory) override {
    {
      std::unique_lock lock(channel_.mutex_);
      channel_.emptied_.wait(lock, [&] { return !channel_.Full(); });
      if (!channel_.Put(trajectory)) return false;
    }
    channel_.filled_.notify_one();
    return true;
  }

 private:
  MemoryChannel& channel_;
};

MemoryChannel::MemoryChannel(std::size_t capacity, std::function<void(double)> give_up)
    : capacity_(capacity), give_up_(std::move(give_up)) {
  TRIREME_CHECK(capacity > 0);
}

bool MemoryChannel::Put(Trajectory& trajectory) {
  if (ended_) return false;
  waiting_.push_back(std::move(trajectory));
  trajectory = {};
  if (!spare_.empty()) {
    trajectory = std::move(spare_.back());
    spare_.pop_back();
  }
  return true;
}

bool MemoryChannel::Offer(Trajectory& trajectory) {
  {
    const std::lock_guard lock(mutex_);
    if (Full() || !Put(trajectory)) return false;
  }
  filled_.notify_one();
  return true;
}

std::shared_ptr<const PublishedPolicy> MemoryChannel::newest() const {
  const std::lock_guard lock(mutex_);
  return ended_ ? nullptr : newest_;
}

std::unique_ptr<LearnerEnd> MemoryChannel::MakeLearnerEnd() { return std::make_unique<Learner>(*this); }
std::unique_ptr<ActorEnd> MemoryChannel::MakeActorEnd() { return std::make_unique<Actor>(*this); }

void MemoryChannel::End(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    why_ = why;
  }
  filled_.notify_all();
  emptied_.notify_all();
  published_.notify_all();
}

}  // namespace trireme
