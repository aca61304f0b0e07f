// What every channel of experience must do, as checks that tests of all of them make.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/experience/channel.h"

namespace trireme {

// A channel as a test sees it: both ends, and what ends it.
class TestedChannel {
 public:
  virtual ~TestedChannel() = default;
  virtual LearnerEnd& learner() = 0;
  virtual std::unique_ptr<ActorEnd> MakeActorEnd() = 0;
  virtual void End(const std::string& why) = 0;
};
// For so many trajectories at a time.
using MakeTestedChannel = std::function<std::unique_ptr<TestedChannel>(std::size_t capacity)>;

// What tests send: trajectories that say whose they are.
inline void Mark(Trajectory& trajectory, int actor, int number) {
  constexpr int kSteps = 4, kEnvs = 2;
  if (trajectory.samples() == 0) trajectory = Trajectory(RowLayout(3), 1, kSteps, kEnvs);
  for (float& value : trajectory.obs) value = static_cast<float>(actor * 1000 + number);
  std::ranges::fill(trajectory.rewards, static_cast<float>(number));
  std::ranges::fill(trajectory.terminated, std::uint8_t{0});
  std::ranges::fill(trajectory.truncated, std::uint8_t{0});
  trajectory.truncated[number % 8] = 1;
  trajectory.truncated_samples = {number % 8};
  trajectory.truncated_obs = {1, 2, static_cast<float>(number)};
  trajectory.episodes = {.count = 1, .return_sum = double(number), .length_sum = double(actor)};
}

inline void ExpectMarked(const Trajectory& trajectory, int actor, int number) {
  EXPECT_EQ(trajectory.steps, 4);
  EXPECT_EQ(trajectory.envs, 2);
  ASSERT_EQ(trajectory.obs.size(), 5u * 2 * 3);
  for (const float value : trajectory.obs) ASSERT_EQ(value, static_cast<float>(actor * 1000 + number));
  for (const float value : trajectory.rewards) ASSERT_EQ(value, static_cast<float>(number));
  EXPECT_EQ(trajectory.truncated[number % 8], 1);
  EXPECT_EQ(trajectory.truncated_samples, std::vector<int>{number % 8});
  EXPECT_EQ(trajectory.truncated_obs, (std::vector<float>{1, 2, static_cast<float>(number)}));
  EXPECT_EQ(trajectory.episodes.return_sum, number);
  EXPECT_EQ(trajectory.episodes.length_sum, actor);
}

// The oldest first, with everything that is in it, however often memory goes round.
inline void ExpectOrderIsKept(const MakeTestedChannel& make) {
  const auto channel = make(3);
  const auto actor = channel->MakeActorEnd();
  Trajectory sent, taken;
  for (int number = 0; number < 20; number += 2) {
    for (const int each : {number, number + 1}) {
      Mark(sent, 7, each);
      sent.policy = static_cast<std::uint64_t>(each) + 5;
      ASSERT_TRUE(actor->Send(sent));
    }
    for (const int each : {number, number + 1}) {
      channel->learner().Take(taken);
      ExpectMarked(taken, 7, each);
      EXPECT_EQ(taken.policy, static_cast<std::uint64_t>(each) + 5);
    }
  }
}

// Several actors at once: nothing is lost, nothing comes twice, and the order of each is kept.
inline void ExpectEachOnce(const MakeTestedChannel& make) {
  constexpr int kActors = 3, kEach = 200;
  const auto channel = make(2);
  std::vector<std::thread> threads;
  for (int a = 0; a < kActors; ++a) {
    threads.emplace_back([&, a] {
      const auto actor = channel->MakeActorEnd();
      Trajectory trajectory;
      for (int number = 0; number < kEach; ++number) {
        Mark(trajectory, a, number);
        ASSERT_TRUE(actor->Send(trajectory));
      }
    });
  }
  std::vector<int> next(kActors, 0);
  Trajectory taken;
  for (int i = 0; i < kActors * kEach; ++i) {
    channel->learner().Take(taken);
    const int a = static_cast<int>(taken.episodes.length_sum);
    ASSERT_GE(a, 0);
    ASSERT_LT(a, kActors);
    ExpectMarked(taken, a, next[a]++);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(next, std::vector<int>(kActors, kEach));
}

// A full channel takes no more: whoever sends waits until one was taken.
inline void ExpectItIsBounded(const MakeTestedChannel& make) {
  const auto channel = make(2);
  std::atomic<int> sent{0};
  std::thread thread([&] {
    const auto actor = channel->MakeActorEnd();
    Trajectory trajectory;
    for (int number = 0; number < 6; ++number) {
      Mark(trajectory, 0, number);
      if (actor->Send(trajectory)) ++sent;
    }
  });
  Trajectory taken;
  for (int number = 0; number < 6; ++number) {
    channel->learner().Take(taken);
    EXPECT_LE(sent.load(), number + 1 + 2 + 1) << "taken, waiting, and one whose count may be late";
    ExpectMarked(taken, 0, number);
  }
  thread.join();
  EXPECT_EQ(sent.load(), 6);
}

// Actors see what was published last, whole, and wait for the first.
inline void ExpectTheNewestPolicy(const MakeTestedChannel& make) {
  const auto channel = make(1);
  const auto early = channel->MakeActorEnd();
  std::shared_ptr<const PublishedPolicy> first;
  std::thread waits([&] { first = early->Newest(); });
  EXPECT_EQ(channel->learner().version(), 0u);
  channel->learner().Publish(std::vector<float>{1, 2, 3});
  waits.join();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->version, 1u);
  EXPECT_EQ(first->params, (std::vector<float>{1, 2, 3}));
  for (int i = 2; i < 10; ++i) channel->learner().Publish(std::vector<float>(3, static_cast<float>(i)));
  EXPECT_EQ(channel->learner().version(), 9u);
  const auto late = channel->MakeActorEnd();
  for (const auto* end : {&early, &late}) {
    const auto newest = (*end)->Newest();
    ASSERT_NE(newest, nullptr);
    EXPECT_EQ(newest->version, 9u);
    EXPECT_EQ(newest->params, std::vector<float>(3, 9.0f));
  }
  EXPECT_EQ(first->params, (std::vector<float>{1, 2, 3})) << "what an actor has stays as it is";
}

// Whoever waits when a channel ends, or comes later, is told.
inline void ExpectTheEndReachesEveryone(const MakeTestedChannel& make) {
  const auto channel = make(1);
  std::vector<std::thread> threads;
  std::atomic<int> told{0};
  threads.emplace_back([&] {  // waits for a policy
    if (channel->MakeActorEnd()->Newest() == nullptr) ++told;
  });
  threads.emplace_back([&] {  // waits for room
    const auto actor = channel->MakeActorEnd();
    Trajectory trajectory;
    bool ended = false;
    for (int number = 0; number < 3 && !ended; ++number) {
      Mark(trajectory, 0, number);
      ended = !actor->Send(trajectory);
    }
    told += ended;
  });
  Trajectory taken;
  channel->learner().Take(taken);  // the second actor is there
  channel->End("it is enough");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(told.load(), 2);
  channel->End("a second end changes nothing");
  for (int i = 0; i < 2; ++i) {
    try {
      channel->learner().Take(taken);
      FAIL() << "there is nobody to take anything from";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("it is enough"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(channel->MakeActorEnd()->Newest(), nullptr);
}

}  // namespace trireme
