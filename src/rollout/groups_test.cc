// Environments that step elsewhere: all groups of a worker are on their way while actions are chosen for one, and what
// is collected is the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <vector>

#include "trireme/base/error.h"
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

// Is not done with a step before the policy has been asked for the other group's next actions.
class PacedBatch final : public ForwardingBatch {
 public:
  PacedBatch(int group, std::unique_ptr<EnvBatch> inner, EventLog& log)
      : ForwardingBatch(std::make_unique<ThreadedBatch>(std::move(inner), FindEnv("CartPole-v1").spec,
                                                        [this](int step) { AwaitOther(step); }),
                        FindEnv("CartPole-v1").spec),
        group_(group),
        log_(log) {}
  ~PacedBatch() override { inner_.reset(); }
  void StepBegin(std::span<const float> actions) override {
    log_.Add(Event("begin", group_, step_));
    inner_->StepBegin(actions);
  }
  void StepEnd() override {
    inner_->StepEnd();
    log_.Add(Event("end", group_, step_++));
  }

 private:
  void AwaitOther(int step) {
    const int next_of_other = group_ == 0 ? step : step + 1;
    EXPECT_TRUE(next_of_other == kSteps || log_.WaitFor(Event("ask", 1 - group_, next_of_other)));
  }

  int group_;
  int step_ = 0;
  EventLog& log_;
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
  rollout.Collect(nullptr, [&](const ActionRequest& request) {
    const int group = request.first_env == shard.first_env() ? 0 : 1;
    EXPECT_EQ(request.first_env, shard.first_env() + (group == 0 ? 0 : 2));
    EXPECT_EQ(request.n, group == 0 ? 2 : 3);
    log.Add(Event("ask", group, static_cast<int>(request.step)));
    std::fill_n(request.actions, request.n, 0.0f);
  });

  std::vector<std::string> expected;
  for (int t = 0; t < kSteps; ++t) {
    for (int group = 0; group < 2; ++group) {
      if (t > 0) expected.push_back(Event("end", group, t - 1));
      expected.push_back(Event("ask", group, t));
      expected.push_back(Event("begin", group, t));
    }
  }
  for (int group : {1, 0}) expected.push_back(Event("end", group, kSteps - 1));  // both awaited at once
  EXPECT_EQ(log.Events(), expected);
}

EnvEntry Elsewhere(EnvEntry env) {
  env.facts.steps_elsewhere = true;
  return env;
}

// Shards 1, 2, ... of one worker.
std::vector<Rollout> Shards(const EnvEntry& env, int shards, int envs, int steps) {
  std::vector<Rollout> rollouts;
  for (int s = 0; s < shards; ++s) rollouts.emplace_back(env, ShardSpec{1 + s, envs, 9}, steps);
  return rollouts;
}

void CollectTogether(std::span<Rollout> rollouts, const Normaliser* normaliser) {
  std::vector<Rollout*> all;
  for (Rollout& rollout : rollouts) all.push_back(&rollout);
  const std::size_t obs_size = rollouts[0].layout().obs_size();
  const int choices = rollouts[0].env_spec().action.choices();
  Rollout::CollectTogether(all, normaliser, [&](const ActionRequest& request) {
    for (int b = 0; b < request.n; ++b) {
      RandomStream random(request.seed, Purpose::kTest, request.first_env + b, request.step);
      int choice = static_cast<int>(random.NextBelow(choices));
      while (request.masks != nullptr && request.masks[b * choices + choice] == 0)
        choice = (choice + 1) % choices;
      request.actions[b] = static_cast<float>(choice);
      request.extra[b] = request.obs[static_cast<std::size_t>(b) * obs_size];
    }
  });
}

TEST(RolloutGroups, AllShardsOfAWorkerAreOnTheirWayAtOnce) {
  for (const int envs : {1, 3}) {
    Meeting meeting(4 * std::min(envs, 2));
    std::vector<Rollout> shards = Shards(MeetingEntry(FindEnv("CartPole-v1"), meeting), 4, envs, 5);
    for (int round = 1; round <= 3; ++round) {
      CollectTogether(shards, nullptr);
      EXPECT_TRUE(meeting.Met(5 * round));
    }
  }
}

// Its fourth step never comes to an end, or not to a good one.
class FailingBatch final : public ForwardingBatch {
 public:
  FailingBatch(std::unique_ptr<EnvBatch> inner, bool fails, std::atomic<int>& under_way)
      : ForwardingBatch(std::make_unique<ThreadedBatch>(std::move(inner), FindEnv("CartPole-v1").spec),
                        FindEnv("CartPole-v1").spec),
        fails_(fails),
        under_way_(under_way) {}
  ~FailingBatch() override {
    inner_.reset();
    if (begun_) --under_way_;
  }
  void StepBegin(std::span<const float> actions) override {
    ++under_way_;
    begun_ = true;
    inner_->StepBegin(actions);
  }
  void StepEnd() override {
    if (fails_ && ++steps_ == 4) Fail("its host is gone");
    inner_->StepEnd();
    --under_way_;
    begun_ = false;
  }

 private:
  bool fails_, begun_ = false;
  int steps_ = 0;
  std::atomic<int>& under_way_;
};

TEST(RolloutGroups, OneThatFailsLeavesNothingOnItsWay) {
  std::atomic<int> under_way{0};
  int made = 0;
  EnvEntry env = FindEnv("CartPole-v1");
  env.facts = {.reproducible = true, .steps_elsewhere = true};
  env.make = [&](int size) {
    return std::make_unique<FailingBatch>(FindEnv("CartPole-v1").make(size), made++ == 3, under_way);
  };
  {
    std::vector<Rollout> shards = Shards(env, 4, 2, 16);
    EXPECT_THROW(CollectTogether(shards, nullptr), Error);
    EXPECT_EQ(under_way, 8) << "all others had been begun";
  }
  EXPECT_EQ(under_way, 0);
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
  EXPECT_TRUE(std::ranges::equal(a.raw_sums(), b.raw_sums()));
  const EpisodeTotals totals_a = a.TakeEpisodes(), totals_b = b.TakeEpisodes();
  EXPECT_GT(totals_a.count, 0);
  EXPECT_EQ(totals_a.count, totals_b.count);
  EXPECT_EQ(totals_a.return_sum, totals_b.return_sum);
  EXPECT_EQ(totals_a.length_sum, totals_b.length_sum);
}

// Down to the order of all sums; and saved and loaded on the way. Shards apart and together.
TEST(RolloutGroups, WhatIsCollectedIsTheSame) {
  for (const EnvEntry& env :
       {FindEnv("CartPole-v1"), FindEnv("MountainCar-v0"), SoaEntry<Corridor>(),
        ForwardingEntry<ThreadedBatch>("GroupsTest.Threaded-v0", {.snapshots = true})}) {
    for (const int envs : {1, 2, 7}) {
      SCOPED_TRACE(fmt::format("{} times {}", envs, env.spec.name));
      const int shards = envs == 7 ? 1 : 3;
      std::vector<Rollout> here = Shards(env, shards, envs, 220),
                           there = Shards(Elsewhere(env), shards, envs, 220);
      Normaliser normaliser(env.spec.obs.size(), true, 10.0f);
      for (int round = 0; round < 3; ++round) {
        for (Rollout& rollout : here) CollectTogether({&rollout, 1}, &normaliser);
        CollectTogether(there, &normaliser);
        for (int s = 0; s < shards; ++s) ExpectSame(here[s], there[s]);
        StateWriter out;
        for (const Rollout& rollout : there) rollout.Save(out);
        const StateReader saved(out.Encode());
        there = Shards(Elsewhere(env), shards, envs, 220);
        for (Rollout& rollout : there) rollout.Load(saved);
        normaliser.Merge(here[0].raw_sums());
      }
    }
  }
}

}  // namespace
}  // namespace trireme
