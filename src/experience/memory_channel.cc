#include "trireme/experience/memory_channel.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme {

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

  std::uint64_t version() const override { return version_; }

  void Take(Trajectory& to) override {
    {
      std::unique_lock lock(channel_.mutex_);
      channel_.filled_.wait(lock, [&] { return channel_.ended_ || !channel_.waiting_.empty(); });
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
      channel_.emptied_.wait(
          lock, [&] { return channel_.ended_ || channel_.waiting_.size() < channel_.capacity_; });
      if (channel_.ended_) return false;
      channel_.waiting_.push_back(std::move(trajectory));
      trajectory = {};
      if (!channel_.spare_.empty()) {
        trajectory = std::move(channel_.spare_.back());
        channel_.spare_.pop_back();
      }
    }
    channel_.filled_.notify_one();
    return true;
  }

 private:
  MemoryChannel& channel_;
};

MemoryChannel::MemoryChannel(std::size_t capacity) : capacity_(capacity) { TRIREME_CHECK(capacity > 0); }

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
