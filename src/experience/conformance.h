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
  // How many trajectories an actor may have sent that are not in the channel yet.
  virtual int on_the_way() const { return 0; }
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
  trajectory.policy = 1;
}

// An actor as the learner's first policy finds it.
inline std::unique_ptr<ActorEnd> BegunActor(TestedChannel& channel) {
  std::unique_ptr<ActorEnd> actor = channel.MakeActorEnd();
  EXPECT_NE(actor->Newest(), nullptr);
  return actor;
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
  int version = 0;
  const auto publish = [&] {
    channel->learner().Publish(std::vector<float>(3, static_cast<float>(++version)));
  };
  publish();
  const auto actor = BegunActor(*channel);
  std::vector<float> versions;  // of the learner, as policies say
  Trajectory sent, taken;
  for (int number = 0; number < 20; number += 2) {
    for (const int each : {number, number + 1}) {
      Mark(sent, 7, each);
      const auto policy = actor->Newest();
      ASSERT_NE(policy, nullptr);
      sent.policy = policy->version;
      versions.push_back(policy->params[0]);
      ASSERT_TRUE(actor->Send(sent));
    }
    for (const int each : {number, number + 1}) {
      channel->learner().Take(taken);
      ExpectMarked(taken, 7, each);
      EXPECT_EQ(static_cast<float>(taken.policy), versions[each]);
      publish();
    }
  }
}

// Several actors at once: nothing is lost, nothing comes twice, and the order of each is kept.
inline void ExpectEachOnce(const MakeTestedChannel& make) {
  constexpr int kActors = 3, kEach = 200;
  const auto channel = make(2);
  channel->learner().Publish(std::vector<float>(3));
  std::vector<std::unique_ptr<ActorEnd>> actors;
  for (int a = 0; a < kActors; ++a) actors.push_back(BegunActor(*channel));
  std::vector<std::thread> threads;
  for (int a = 0; a < kActors; ++a) {
    threads.emplace_back([&, a] {
      Trajectory trajectory;
      for (int number = 0; number < kEach; ++number) {
        Mark(trajectory, a, number);
        ASSERT_TRUE(actors[a]->Send(trajectory));
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
  constexpr int kSent = 9;
  const auto channel = make(2);
  channel->learner().Publish(std::vector<float>(3));
  std::atomic<int> sent{0};
  const auto actor = BegunActor(*channel);
  std::thread thread([&] {
    Trajectory trajectory;
    for (int number = 0; number < kSent; ++number) {
      Mark(trajectory, 0, number);
      if (actor->Send(trajectory)) ++sent;
    }
  });
  Trajectory taken;
  for (int number = 0; number < kSent; ++number) {
    channel->learner().Take(taken);
    EXPECT_LE(sent.load(), number + 1 + 2 + channel->on_the_way() + 1)
        << "taken, waiting, on the way, and one whose count may be late";
    ExpectMarked(taken, 0, number);
  }
  thread.join();
  EXPECT_EQ(sent.load(), kSent);
}

// Actors see what was published before their last trajectory but those on the way was taken over, whole, and wait for the first.
inline void ExpectTheNewestPolicy(const MakeTestedChannel& make) {
  const auto channel = make(1);
  const auto early = channel->MakeActorEnd();
  std::shared_ptr<const PublishedPolicy> first;
  std::thread waits([&] { first = early->Newest(); });
  EXPECT_EQ(channel->learner().version(), 0u);
  channel->learner().Publish(std::vector<float>{1, 2, 3});
  waits.join();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->params, (std::vector<float>{1, 2, 3}));
  for (int i = 2; i < 10; ++i) channel->learner().Publish(std::vector<float>(3, static_cast<float>(i)));
  EXPECT_EQ(channel->learner().version(), 9u);
  const auto late = channel->MakeActorEnd();
  Trajectory trajectory, taken;
  for (const auto* end : {&early, &late}) {
    for (int i = 0; i <= channel->on_the_way(); ++i) {
      const auto policy = (*end)->Newest();
      ASSERT_NE(policy, nullptr);
      Mark(trajectory, 0, i);
      trajectory.policy = policy->version;
      ASSERT_TRUE((*end)->Send(trajectory));
      channel->learner().Take(taken);
    }
    const auto newest = (*end)->Newest();
    ASSERT_NE(newest, nullptr);
    EXPECT_EQ(newest->params, std::vector<float>(3, 9.0f));
  }
  EXPECT_EQ(first->params, (std::vector<float>{1, 2, 3})) << "what an actor has stays as it is";
}

// Whoever waits when a channel ends, or comes later, is told: for the first policy,
inline void ExpectTheEndReachesWhoWaitsForAPolicy(const MakeTestedChannel& make) {
  const auto channel = make(1);
  const auto actor = channel->MakeActorEnd();
  bool told = false;
  std::thread thread([&] { told = actor->Newest() == nullptr; });
  channel->End("it is enough");
  thread.join();
  EXPECT_TRUE(told);
}

// for room, or for experience.
inline void ExpectTheEndReachesEveryone(const MakeTestedChannel& make) {
  const auto channel = make(1);
  channel->learner().Publish(std::vector<float>(3));
  std::atomic<bool> told{false};
  std::thread thread([&] {
    const auto actor = BegunActor(*channel);
    Trajectory trajectory;
    for (int number = 0; number < 10 && !told; ++number) {
      Mark(trajectory, 0, number);
      told = !actor->Send(trajectory);
    }
  });
  Trajectory taken;
  channel->learner().Take(taken);  // the actor is there
  channel->End("it is enough");
  thread.join();
  EXPECT_TRUE(told);
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
