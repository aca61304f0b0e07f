// Environments that step elsewhere: one group is on its way while actions are chosen for the other, and what is
// collected is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/env/registry.h"
#include "trireme/env/test_env.h"
#include "trireme/rollout/rollout.h"

namespace trireme {
namespace {

// What happened, in order, in all threads.
class EventLog {
 public:
  void Add(std::string event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  // False when it does not happen for a long time, and nobody waits after that.
  bool WaitFor(const std::string& event) {
    std::unique_lock lock(mutex_);
    gave_up_ |= !changed_.wait_for(lock, std::chrono::minutes(1), [&] {
      return gave_up_ || std::ranges::find(events_, event) != events_.end();
    });
    return !gave_up_;
  }
  std::vector<std::string> Events() {
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;  // guarded by mutex_
  bool gave_up_ = false;             // guarded by mutex_
};

std::string Event(const char* what, int group, int step) {
  return fmt::format("{} {} {}", what, group, step);
}

constexpr int kSteps = 4;

// Steps in another thread, and is not done before the policy has been asked for the other group's next actions.
class PacedBatch final : public ForwardingBatch {
 public:
  PacedBatch(int group, std::unique_ptr<EnvBatch> inner, EventLog& log)
      : ForwardingBatch(std::move(inner), FindEnv("CartPole-v1").spec), group_(group), log_(log) {}
  ~PacedBatch() override {
    if (thread_.joinable()) thread_.join();
  }
  void StepBegin(std::span<const float> actions) override {
    log_.Add(Event("begin", group_, step_));
    thread_ = std::thread([this, own = std::vector<float>(actions.begin(), actions.end())] {
      const int next_of_other = group_ == 0 ? step_ : step_ + 1;
      EXPECT_TRUE(next_of_other == kSteps || log_.WaitFor(Event("ask", 1 - group_, next_of_other)));
      inner_->Step(own);
    });
  }
  void StepEnd() override {
    thread_.join();
    log_.Add(Event("end", group_, step_));
    ++step_;
  }

 private:
  int group_;
  int step_ = 0;
  EventLog& log_;
  std::thread thread_;
};

TEST(RolloutGroups, ActionsAreChosenForOneWhileTheOtherSteps) {
  EventLog log;
  int groups = 0;
  EnvEntry env = FindEnv("CartPole-v1");
  env.facts = {.reproducible = true, .steps_elsewhere = true};
  env.make = [&](int size) {
    return std::make_unique<PacedBatch>(groups++, FindEnv("CartPole-v1").make(size), log);
  };
  const ShardSpec shard{.index = 1, .envs = 5, .seed = 3};
  Rollout rollout(env, shard, kSteps);
  EXPECT_EQ(groups, 2);
  rollout.Collect(nullptr, {}, [&](const ActionRequest& request) {
    const int group = request.first_env == shard.first_env() ? 0 : 1;
    EXPECT_EQ(request.first_env, shard.first_env() + (group == 0 ? 0 : 2));
    EXPECT_EQ(request.n, group == 0 ? 2 : 3);
    log.Add(Event("ask", group, static_cast<int>(request.step)));
    std::fill_n(request.actions, request.n, 0.0f);
  });

  std::vector<std::string> expected;
  for (int t = 0; t <= kSteps; ++t) {
    for (int group = 0; group < 2; ++group) {
      if (t > 0) expected.push_back(Event("end", group, t - 1));
      if (t == kSteps) continue;
      expected.push_back(Event("ask", group, t));
      expected.push_back(Event("begin", group, t));
    }
  }
  EXPECT_EQ(log.Events(), expected);
}

EnvEntry Elsewhere(EnvEntry env) {
  env.facts.steps_elsewhere = true;
  return env;
}

void Collect(Rollout& rollout, const Normaliser* normaliser, std::span<double> sums) {
  rollout.Collect(normaliser, sums, [&](const ActionRequest& request) {
    for (int b = 0; b < request.n; ++b) {
      RandomStream random(5, Purpose::kTest, request.first_env + b, request.step);
      const int choices = rollout.env_spec().action.choices();
      int choice = static_cast<int>(random.NextBelow(choices));
      while (request.masks != nullptr && request.masks[b * choices + choice] == 0)
        choice = (choice + 1) % choices;
      request.actions[b] = static_cast<float>(choice);
      request.extra[b] = request.obs[static_cast<std::size_t>(b) * rollout.layout().obs_size()];
    }
  });
}

void ExpectSame(Rollout& a, Rollout& b) {
  const auto bytes = [](std::span<const float> x) { return std::as_bytes(x); };
  EXPECT_TRUE(std::ranges::equal(bytes(a.obs()), bytes(b.obs())));
  EXPECT_TRUE(std::ranges::equal(a.actions(), b.actions()));
  EXPECT_TRUE(std::ranges::equal(a.extra(), b.extra()));
  EXPECT_TRUE(std::ranges::equal(a.rewards(), b.rewards()));
  EXPECT_TRUE(std::ranges::equal(a.terminated(), b.terminated()));
  EXPECT_TRUE(std::ranges::equal(a.truncated(), b.truncated()));
  EXPECT_TRUE(std::ranges::equal(a.truncated_samples(), b.truncated_samples()));
  EXPECT_TRUE(std::ranges::equal(bytes(a.truncated_obs()), bytes(b.truncated_obs())));
  const EpisodeTotals totals_a = a.TakeEpisodes(), totals_b = b.TakeEpisodes();
  EXPECT_GT(totals_a.count, 0);
  EXPECT_EQ(totals_a.count, totals_b.count);
  EXPECT_EQ(totals_a.return_sum, totals_b.return_sum);
  EXPECT_EQ(totals_a.length_sum, totals_b.length_sum);
}

// Down to the order of all sums; and saved and loaded on the way.
TEST(RolloutGroups, WhatIsCollectedIsTheSame) {
  for (const EnvEntry& env :
       {FindEnv("CartPole-v1"), FindEnv("MountainCar-v0"), SoaEntry<Corridor>(),
        ForwardingEntry<ThreadedBatch>("GroupsTest.Threaded-v0", {.snapshots = true})}) {
    for (const int envs : {1, 2, 7}) {
      SCOPED_TRACE(fmt::format("{} times {}", envs, env.spec.name));
      const ShardSpec shard{.index = 1, .envs = envs, .seed = 9};
      Rollout one(env, shard, 220), two(Elsewhere(env), shard, 220), loaded(Elsewhere(env), shard, 220);
      Normaliser normaliser(env.spec.obs.size(), true, 10.0f);
      for (int round = 0; round < 3; ++round) {
        std::vector<double> sums_one(normaliser.sums_size()), sums_two(normaliser.sums_size());
        Collect(one, &normaliser, sums_one);
        Collect(round == 2 ? loaded : two, &normaliser, sums_two);
        EXPECT_EQ(sums_one, sums_two);
        ExpectSame(one, round == 2 ? loaded : two);
        if (round == 1) {
          StateWriter out;
          two.Save(out);
          loaded.Load(StateReader(out.Encode()));
        }
        normaliser.Merge(sums_one);
      }
    }
  }
}

}  // namespace
}  // namespace trireme
