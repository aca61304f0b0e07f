#include "trireme/experience/central_inference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

constexpr auto kLong = std::chrono::microseconds(std::chrono::hours(1));

// What chooses in tests: the action is the observation plus the one parameter, `extra` how many requests the batch had.
class TestChooser {
 public:
  CentralInference::Chooser chooser() {
    return {[this](std::span<const float> params) { param_ = params[0]; },
            [this](std::span<const ActionRequest> requests) { Choose(requests); }};
  }
  // From now on evaluations wait, each until it is let go.
  void Hold() { Set(&TestChooser::held_, true); }
  void LetGo() { Set(&TestChooser::held_, false); }
  void AwaitHeld() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_; });
  }
  void FailNext() { Set(&TestChooser::fails_, true); }

 private:
  void Set(bool TestChooser::*what, bool to) {
    {
      const std::lock_guard lock(mutex_);
      this->*what = to;
    }
    changed_.notify_all();
  }
  void Choose(std::span<const ActionRequest> requests) {
    std::unique_lock lock(mutex_);
    inside_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !held_; });
    inside_ = false;
    if (fails_) Fail("there is no device");
    for (const ActionRequest& request : requests) {
      for (int i = 0; i < request.n; ++i) {
        request.actions[i] = request.obs[i] + param_;
        request.extra[i] = static_cast<float>(requests.size());
      }
    }
  }

  float param_ = 0;  // of the thread that chooses
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false, inside_ = false, fails_ = false;
};

// A request of one actor, and where it is answered.
struct Client {
  explicit Client(float obs, int n = 1) : in(n, obs), actions(n), extra(n) {}
  ActionRequest request() {
    return {
        .n = static_cast<int>(in.size()), .obs = in.data(), .actions = actions.data(), .extra = extra.data()};
  }
  std::vector<float> in, actions, extra;
};

class CentralInferenceTest : public testing::Test {
 protected:
  CentralInferenceTest() : learner_(channel_.MakeLearnerEnd()) { Publish(0); }
  void Begin(CentralInference::Terms terms) {
    service_.emplace(chooser_.chooser(), terms);
    service_->Attach(channel_);
  }
  std::unique_ptr<CentralInference::Member> Come() {
    auto member = std::make_unique<CentralInference::Member>(*service_);
    member->Come();
    return member;
  }
  std::vector<std::unique_ptr<CentralInference::Member>> Come(int count) {
    std::vector<std::unique_ptr<CentralInference::Member>> members(count);
    for (auto& member : members) member = Come();
    return members;
  }
  void Publish(float param) { learner_->Publish(std::vector<float>{param}); }

  TestChooser chooser_;
  MemoryChannel channel_{1};
  std::unique_ptr<LearnerEnd> learner_;
  std::optional<CentralInference> service_;
};

// Nobody waits longer than for the last of those who are there.
TEST_F(CentralInferenceTest, AnswersWhenAllWhoAreThereHaveAsked) {
  constexpr int kActors = 4, kSteps = 100;
  Begin({.most_envs = 1000, .wait = kLong});
  const auto members = Come(kActors);
  std::vector<std::thread> actors;
  for (int a = 0; a < kActors; ++a) {
    actors.emplace_back([&, a] {
      for (int step = 0; step < kSteps; ++step) {
        Client client(static_cast<float>(1000 * a + step), a + 1);
        ASSERT_TRUE(members[a]->Choose(client.request()));
        EXPECT_EQ(client.actions, client.in);
        EXPECT_EQ(client.extra, std::vector<float>(a + 1, kActors));
      }
      members[a]->Go();
    });
  }
  for (std::thread& actor : actors) actor.join();
  const CentralInference::Facts facts = service_->facts();
  EXPECT_EQ(facts.batches.count(), static_cast<std::uint64_t>(kSteps));
  EXPECT_EQ(facts.batches.counts[3], static_cast<std::uint64_t>(kSteps)) << "1 + 2 + 3 + 4 environments";
  EXPECT_EQ(facts.batches.mean(), 10);
  EXPECT_EQ(facts.latency_us.count(), static_cast<std::uint64_t>(kSteps) * kActors);
}

// One who does not ask costs the others the wait once, and once more when it has come back.
TEST_F(CentralInferenceTest, WaitsOnceForOneWhoIsLate) {
  Begin({.most_envs = 1000, .wait = 2ms});
  const auto member = Come(), late = Come();
  const auto step = [](CentralInference::Member& asks) {
    Client client(1);
    ASSERT_TRUE(asks.Choose(client.request()));
    EXPECT_EQ(client.extra[0], 1);
  };
  for (int i = 0; i < 50; ++i) step(*member);
  EXPECT_EQ(service_->facts().incomplete, 1u);
  EXPECT_GE(service_->facts().latency_us.sum, 2000u);
  step(*late);
  EXPECT_EQ(service_->facts().incomplete, 2u) << "now the other one was awaited";
  for (int i = 0; i < 50; ++i) step(*member);
  EXPECT_EQ(service_->facts().incomplete, 3u);
}

// Whoever goes is not waited for any more, also by those who wait already.
TEST_F(CentralInferenceTest, DoesNotWaitForOneWhoGoes) {
  Begin({.most_envs = 1000, .wait = kLong});
  const auto member = Come();
  auto goes = Come(), dies = Come();
  Client client(1);
  std::thread actor([&] { EXPECT_TRUE(member->Choose(client.request())); });
  while (service_->waiting() == 0) std::this_thread::yield();
  goes->Go();
  dies.reset();
  actor.join();
  EXPECT_EQ(client.actions[0], 1);
}

// As many environments as fit, the oldest first; one request is never split.
TEST_F(CentralInferenceTest, BatchesAreBounded) {
  Begin({.most_envs = 4, .wait = kLong});
  const auto members = Come(100);
  chooser_.Hold();
  const std::vector<int> sizes = {4, 3, 1, 2, 7, 1, 3};
  Client first(1, sizes[0]);
  std::thread actor([&] { EXPECT_TRUE(members[0]->Choose(first.request())); });
  // The others queue up behind the first, in their order.
  struct Asked final : CentralInference::Question {
    explicit Asked(int n) : client(1, n) { request = client.request(); }
    void OnAnswer(bool chosen) override { answered = chosen; }
    Client client;
    std::atomic<bool> answered{false};
  };
  chooser_.AwaitHeld();
  std::vector<std::unique_ptr<Asked>> rest;
  for (std::size_t i = 1; i < sizes.size(); ++i) {
    rest.push_back(std::make_unique<Asked>(sizes[i]));
    service_->Ask(*rest.back(), *members[i]);
  }
  chooser_.LetGo();
  actor.join();
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  const auto all = [&] {
    return std::ranges::all_of(rest, [](const auto& each) { return each->answered.load(); });
  };
  while (!all() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(all());
  std::vector<float> together;
  for (const auto& each : rest) together.push_back(each->client.extra[0]);
  EXPECT_EQ(together, (std::vector<float>{2, 2, 1, 1, 2, 2})) << "3 + 1, 2, 7, 1 + 3";
}

// A batch is chosen by the policy that is newest when it is evaluated, and by one alone.
TEST_F(CentralInferenceTest, ChoosesWithTheNewestPolicy) {
  Begin({.most_envs = 1000, .wait = 0us});
  const auto member = Come();
  for (int version = 0; version < 5; ++version) {
    Publish(static_cast<float>(100 * version));
    Client client(3);
    ASSERT_TRUE(member->Choose(client.request()));
    EXPECT_EQ(client.actions[0], 3 + 100 * version);
  }
  service_->Detach(channel_);
  Publish(7000);
  Client client(3);
  ASSERT_TRUE(member->Choose(client.request()));
  EXPECT_EQ(client.actions[0], 403) << "the last it had goes on";
}

TEST_F(CentralInferenceTest, WaitsForAFirstPolicy) {
  Begin({.most_envs = 1000, .wait = 0us});
  service_->Detach(channel_);
  MemoryChannel other(1);
  const auto learner = other.MakeLearnerEnd();
  const auto member = Come();
  Client client(1);
  std::thread actor([&] { EXPECT_TRUE(member->Choose(client.request())); });
  service_->Attach(other);
  learner->Publish(std::vector<float>{50});
  actor.join();
  EXPECT_EQ(client.actions[0], 51);
  service_->Detach(other);
}

// The end reaches who waits for others, who is being chosen for, and who comes later.
TEST_F(CentralInferenceTest, TheEndReachesEveryone) {
  Begin({.most_envs = 2, .wait = kLong});
  const auto members = Come(9);
  chooser_.Hold();
  std::atomic<int> chosen{0}, told{0};
  std::vector<std::thread> actors;
  const auto ask = [&](CentralInference::Member& member, int n) {
    actors.emplace_back([&, n] {
      Client client(1, n);
      ++(member.Choose(client.request()) ? chosen : told);
    });
  };
  ask(*members[0], 2);
  chooser_.AwaitHeld();
  ask(*members[1], 1);
  std::thread ends([&] { service_->End(); });
  chooser_.LetGo();
  ends.join();
  for (std::thread& actor : actors) actor.join();
  EXPECT_EQ(chosen, 1) << "what was being chosen is chosen";
  EXPECT_EQ(told, 1);
  Client late(1);
  for (const auto& member : {&members[1], &members[2]}) EXPECT_FALSE((*member)->Choose(late.request()));
  service_->End();
}

// Where choosing fails, whoever learns from the actors is told why.
TEST_F(CentralInferenceTest, AFailureReachesTheLearner) {
  Begin({.most_envs = 1000, .wait = 0us});
  chooser_.FailNext();
  Client client(1);
  EXPECT_FALSE(Come()->Choose(client.request()));
  Trajectory trajectory;
  try {
    learner_->Take(trajectory);
    FAIL() << "there is nothing to take";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "choosing for the actors: there is no device");
  }
}

TEST(Log2Histogram, CountsByPowersOfTwo) {
  Log2Histogram histogram;
  EXPECT_TRUE(histogram.Buckets().empty());
  EXPECT_EQ(histogram.mean(), 0);
  for (const std::uint64_t value : {0, 1, 2, 3, 4, 7, 8}) histogram.Add(value);
  EXPECT_EQ(histogram.Buckets(), (std::vector<std::uint64_t>{2, 2, 2, 1}));
  EXPECT_EQ(histogram.mean(), 25.0 / 7);
  histogram.Add(~std::uint64_t{0});
  EXPECT_EQ(histogram.Buckets().size(), Log2Histogram::kBuckets);
  histogram += histogram;
  EXPECT_EQ(histogram.count(), 16u);
}

}  // namespace
}  // namespace trireme
