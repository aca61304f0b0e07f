// Actors and their learner over streams: what every channel must do, and what a learner thinks of actors that are none.
#include "trireme/experience/remote_actor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "trireme/base/scratch_folder.h"
#include "trireme/base/system.h"
#include "trireme/experience/actor_service.h"
#include "trireme/experience/conformance.h"
#include "trireme/experience/memory_channel.h"
#include "trireme/experience/trajectory_message.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr std::size_t kParams = 3;

TrajectoryShape Shape() {
  EnvSpec env;
  env.name = "Test-v0";
  env.obs.shape = {3};
  env.action = ActionSpace::Discrete(2);
  return {env, 4, 2};
}

// A learner with a service, and actors of it, over memory of this process or of another transport.
class Remote final : public TestedChannel {
 public:
  explicit Remote(std::size_t capacity, Transport* transport = nullptr,
                  const std::string& address = "learner")
      : over_(transport == nullptr ? transport_ : *transport),
        address_(address),
        channel_(capacity),
        learner_(channel_.MakeLearnerEnd()),
        service_(over_.Listen(address, {}),
                 {.version = "1",
                  .settings = "settings",
                  .looks = "looks",
                  .shape = Shape(),
                  .own_actors = 4,
                  .learners = 2},
                 1, [this](const std::string& text) {
                   const std::lock_guard lock(mutex_);
                   said_ += text + "\n";
                 }) {
    service_.desk().Attach(0, channel_, 1, 77);
  }
  ~Remote() override { service_.End(true); }

  LearnerEnd& learner() override { return *learner_; }
  std::unique_ptr<ActorEnd> MakeActorEnd() override {
    auto end = std::make_unique<RemoteActorEnd>(Place());
    try {
      if (end->Join()) end->Ready("looks", kParams);
    } catch (const Error&) {  // when it has ended nobody answers
    }
    return end;
  }
  void End(const std::string& why) override {
    channel_.End(why);
    service_.End(true);
  }
  int on_the_way() const override { return static_cast<int>(kWindow); }

  LearnerPlace Place() { return {.transport = &over_, .address = address_, .version = "1", .wait_s = 0.1}; }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

  MemoryTransport transport_;
  Transport& over_;
  const std::string address_;
  MemoryChannel channel_;
  std::unique_ptr<LearnerEnd> learner_;
  std::mutex mutex_;  // guards said_
  std::string said_;
  ActorService service_;
};

enum class Over { kMemory, kShared };
void PrintTo(Over over, std::ostream* out) { *out << (over == Over::kMemory ? "memory" : "shared memory"); }

class RemoteActors : public testing::TestWithParam<Over> {
 protected:
  MakeTestedChannel Make() const {
    return [this](std::size_t capacity) -> std::unique_ptr<TestedChannel> {
      if (GetParam() == Over::kMemory) return std::make_unique<Remote>(capacity);
      return std::make_unique<Remote>(capacity, &SharedMemoryStreams(),
                                      "shm:" + (folder_.path() / "learner").string());
    };
  }

 private:
  ScratchFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Channels, RemoteActors, testing::Values(Over::kMemory, Over::kShared),
                         [](const auto& info) { return info.param == Over::kMemory ? "Memory" : "Shared"; });

TEST_P(RemoteActors, OrderIsKept) { ExpectOrderIsKept(Make()); }
TEST_P(RemoteActors, EachOnce) { ExpectEachOnce(Make()); }
TEST_P(RemoteActors, ItIsBounded) { ExpectItIsBounded(Make()); }
TEST_P(RemoteActors, TheNewestPolicy) { ExpectTheNewestPolicy(Make()); }
TEST_P(RemoteActors, TheEndReachesWhoWaitsForAPolicy) { ExpectTheEndReachesWhoWaitsForAPolicy(Make()); }
TEST_P(RemoteActors, TheEndReachesEveryone) { ExpectTheEndReachesEveryone(Make()); }

// The learner is told who they are, and each is somebody else, also one that has come back.
TEST(RemoteActor, NobodyHasTheRandomStreamsOfAnother) {
  Remote remote(1);
  remote.learner().Publish(std::vector<float>(kParams));
  RemoteActorEnd first(remote.Place()), second(remote.Place());
  const auto a = first.Join(), b = second.Join();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->settings, "settings");
  EXPECT_EQ(a->seed, 77u);
  EXPECT_EQ(a->index, 4 + 1) << "after the learners' own, this one's rank";
  EXPECT_EQ(b->index, 4 + 1 + 2) << "every second is the other learner's";
  const auto again = first.Join();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->index, 4 + 1 + 4);
}

// Where a learner begins anew its actors go on with it, and so does the count of its versions.
TEST(RemoteActor, GoesOnWithALearnerThatBeginsAnew) {
  Remote remote(4);
  for (int i = 0; i < 5; ++i) remote.learner().Publish(std::vector<float>{1, 1, 1});
  const auto actor = BegunActor(remote);
  remote.service_.desk().Detach(0);
  MemoryChannel other(4);
  const auto learner = other.MakeLearnerEnd();
  learner->CountFrom(remote.learner().version());
  learner->Publish(std::vector<float>{2, 2, 2});
  remote.service_.desk().Attach(0, other, 0, 78);
  Trajectory trajectory, taken;
  for (int number = 1; number <= 3; ++number) {
    const auto policy = actor->Newest();
    ASSERT_NE(policy, nullptr);
    Mark(trajectory, 5, number);
    trajectory.policy = policy->version;
    ASSERT_TRUE(actor->Send(trajectory));
    learner->Take(taken);
    ExpectMarked(taken, 5, number);
    EXPECT_EQ(taken.policy, number == 1 ? 5u : 6u);
  }
  EXPECT_EQ(actor->Newest()->params, (std::vector<float>{2, 2, 2}));
  remote.service_.desk().Detach(0);
}

// Fewer actors than learners: each learner gets what it needs. They move in step, now one and now the other a moment ahead, and
// a trajectory has the version of the policy that it is by, whoever learns from it.
TEST(RemoteActor, ServesAllLearnersAndCountsVersionsAlike) {
  MemoryTransport transport;
  MemoryChannel channels[] = {MemoryChannel(2), MemoryChannel(2)};
  std::unique_ptr<LearnerEnd> learners[] = {channels[0].MakeLearnerEnd(), channels[1].MakeLearnerEnd()};
  ActorService service(transport.Listen("learner", {}), {.version = "1", .looks = "looks", .shape = Shape()},
                       2, [](const std::string&) {});
  for (int i = 0; i < 2; ++i) service.desk().Attach(i, channels[i], i, 7);
  const auto publish = [&](int learner) {
    learners[learner]->Publish(std::vector<float>(kParams, float(learners[learner]->version() + 1)));
  };
  publish(0);
  publish(1);
  RemoteActorEnd actor({.transport = &transport, .address = "learner", .version = "1"});
  ASSERT_TRUE(actor.Join());
  actor.Ready("looks", kParams);
  Trajectory trajectory, taken;
  for (int number = 0; number < 40; ++number) {
    const auto policy = actor.Newest();
    ASSERT_NE(policy, nullptr);
    Mark(trajectory, 0, number);
    std::ranges::fill(trajectory.extra, policy->params[0]);
    trajectory.policy = policy->version;
    const int ahead = number / 2 % 2;
    if (number % 2 == 0) publish(ahead);
    ASSERT_TRUE(actor.Send(trajectory));
    if (number % 2 == 0) continue;
    for (const auto& learner : learners) {
      learner->Take(taken);
      EXPECT_EQ(static_cast<float>(taken.policy), taken.extra[0]);
    }
    publish(1 - ahead);
  }
  service.End(true);
}

// What newcomers and those who join again hear of a learner that takes leave: once, and nothing before.
TEST(ActorDesk, RefusesWhoComesWhileItTakesLeave) {
  for (const bool over : {true, false}) {
    MemoryTransport transport;
    MemoryChannel channel(2);
    const auto learner = channel.MakeLearnerEnd();
    learner->Publish(std::vector<float>(kParams));
    const auto server = transport.Listen("learner", {});
    std::string said;
    ActorDesk desk(*server, {.version = "1", .looks = "looks", .shape = Shape()}, 1,
                   [&](const std::string& text) { said += text; });
    desk.Attach(0, channel, 0, 7);
    const auto hello = TextMessage(Json{{"hello", "1"}}.dump());
    const auto ready = TextMessage(Json{{"ready", "looks"}}.dump());
    const auto there = transport.Connect("learner", {});
    ASSERT_TRUE(there->Send(hello, Clock::now()));
    transport.Pump(*server, desk);
    ASSERT_NE(there->Receive(Clock::now()), nullptr);
    desk.TakeLeave(over);
    const auto comes = transport.Connect("learner", {});
    ASSERT_TRUE(there->Send(ready, Clock::now()));
    ASSERT_TRUE(comes->Send(hello, Clock::now()));
    ASSERT_TRUE(comes->Send(ready, Clock::now()));
    const Deadline long_ago = Deadline::min();  // not the time to look at those who are there
    transport.Pump(*server, desk, long_ago);
    for (const auto& stream : {there.get(), comes.get()}) {
      EXPECT_EQ(stream->Receive(Clock::now()), nullptr) << "neither a welcome nor a policy";
      ASSERT_TRUE(stream->closed());
      EXPECT_EQ(stream->why(), over ? kRunIsOver : "later: the run was interrupted");
    }
    EXPECT_EQ(said, "") << "nobody has joined";
  }
}

// A learner that was interrupted waits for those who were there, and not for those who try again meanwhile.
TEST(ActorDesk, DoesNotWaitForWhoComesWhileItIsInterrupted) {
  MemoryTransport transport;
  const auto server = transport.Listen("learner", {});
  ActorDesk desk(*server, {.version = "1", .looks = "looks", .shape = Shape()}, 1, [](const std::string&) {});
  desk.TakeLeave(/*over=*/false);
  desk.OnOpen(1, "somebody");
  desk.OnTime(Clock::now());
  EXPECT_TRUE(desk.left());
}

// Longer than what shared memory or a socket holds.
TEST(RemoteActor, ALongTrajectoryArrivesWhileItsActorCollectsTheNext) {
  const ScratchFolder folder;
  const std::string address = "shm:" + (folder.path() / "learner").string();
  TrajectoryShape shape = Shape();
  shape.env.obs.shape = {500'000};
  MemoryChannel channel(2, [](double waited_s) {
    if (waited_s > 60) Fail("it does not come");
  });
  const auto learner = channel.MakeLearnerEnd();
  learner->Publish(std::vector<float>(kParams));
  ActorService service(SharedMemoryStreams().Listen(address, {}),
                       {.version = "1", .looks = "looks", .shape = shape}, 1, [](const std::string&) {});
  service.desk().Attach(0, channel, 0, 7);
  RemoteActorEnd actor({.transport = &SharedMemoryStreams(), .address = address, .version = "1"});
  ASSERT_TRUE(actor.Join());
  actor.Ready("looks", kParams);
  const auto policy = actor.Newest();
  ASSERT_NE(policy, nullptr);
  Trajectory trajectory(RowLayout(500'000), 1, shape.steps, shape.envs), taken;
  trajectory.policy = policy->version;
  ASSERT_TRUE(actor.Send(trajectory));
  EXPECT_NO_THROW(learner->Take(taken));
  EXPECT_EQ(taken.obs.size(), trajectory.obs.size());
  service.End(true);
}

// Where the learner is the slowest, who came later has its turn as well.
TEST(RemoteActor, ComeInTurnsWhenThereIsNoRoom) {
  constexpr int kSenders = 3;
  Remote remote(1);
  remote.learner().Publish(std::vector<float>(kParams));
  std::vector<std::unique_ptr<ActorEnd>> actors;
  for (int a = 0; a < kSenders; ++a) actors.push_back(BegunActor(remote));
  std::vector<std::thread> threads;
  for (int a = 0; a < kSenders; ++a) {
    threads.emplace_back([&, a] {
      Trajectory trajectory;
      for (int number = 0;; ++number) {
        Mark(trajectory, a, number);
        if (!actors[a]->Send(trajectory)) return;
      }
    });
  }
  std::vector<int> taken(kSenders);
  Trajectory trajectory;
  while (std::ranges::min(taken) < 10) {  // for ever, if one is never heard
    remote.learner().Take(trajectory);
    ++taken[static_cast<std::size_t>(trajectory.episodes.length_sum)];
    ASSERT_LT(std::accumulate(taken.begin(), taken.end(), 0), 10'000);
  }
  remote.End("it is enough");
  for (std::thread& thread : threads) thread.join();
}

TEST(RemoteActor, EndsWithOneLineWhenThereIsNoLearner) {
  MemoryTransport transport;
  RemoteActorEnd actor({.transport = &transport, .address = "nowhere", .version = "1", .wait_s = 0});
  try {
    actor.Join();
    FAIL() << "there is nobody";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no learner has answered at nowhere"), std::string::npos)
        << error.what();
  }
  std::atomic<bool> stop{false};
  RemoteActorEnd stopped(
      {.transport = &transport, .address = "nowhere", .version = "1", .stop = [&] { return stop.load(); }});
  stop = true;
  EXPECT_FALSE(stopped.Join());
}

std::string RefusalOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RemoteActor, IsRefusedWithAnotherVersionEnvironmentOrNetwork) {
  Remote remote(1);
  remote.learner().Publish(std::vector<float>(kParams));
  LearnerPlace other = remote.Place();
  other.version = "2\x1b";
  EXPECT_EQ(RefusalOf([&] { RemoteActorEnd(other).Join(); }),
            "the learner at learner: the learner runs trireme 1, and the actor 2\\x1b: use the same");
  RemoteActorEnd actor(remote.Place());
  ASSERT_TRUE(actor.Join());
  actor.Ready("other looks", kParams);
  EXPECT_EQ(RefusalOf([&] { actor.Newest(); }),
            "the learner at learner: the actor has other looks, and the learner looks");
  RemoteActorEnd smaller(remote.Place());
  ASSERT_TRUE(smaller.Join());
  smaller.Ready("looks", kParams - 1);
  EXPECT_NE(RefusalOf([&] { smaller.Newest(); }).find("where the network has 2"), std::string::npos);
}

// What a stream closes for that says something else than an actor would.
class Impostor {
 public:
  explicit Impostor(Remote& remote) : stream_(remote.transport_.Connect("learner", {})) {}

  void Say(Outgoing message) { stream_->Send(std::move(message), Clock::now() + 10s); }
  void Say(const Json& json) { Say(TextMessage(json.dump())); }
  void Join() {
    Say({{"hello", "1"}});
    Say({{"ready", "looks"}});
    for (int i = 0; i < 2; ++i) ASSERT_NE(stream_->Receive(Clock::now() + 10s), nullptr);
  }
  std::string End() {
    while (!stream_->closed()) {
      if (stream_->Receive(Clock::now() + 10s) == nullptr && !stream_->closed()) return "it is not closed";
    }
    return stream_->why();
  }

 private:
  std::unique_ptr<Stream> stream_;
};

TEST(ActorDesk, ClosesStreamsOfOthers) {
  Remote remote(1);
  remote.learner().Publish(std::vector<float>(kParams));
  const auto said_at_first = [&](Outgoing message) {
    Impostor impostor(remote);
    impostor.Say(std::move(message));
    return impostor.End();
  };
  const std::string nothing = "this is nothing that an actor says";
  for (const char* text : {"", "{", "[]", "{\"hello\": 1}", "{\"ready\": \"looks\"}", "null"})
    EXPECT_EQ(said_at_first(TextMessage(text)), nothing) << text;
  EXPECT_EQ(said_at_first(TextMessage(std::string(200, '['))), nothing);
  Impostor twice(remote);
  twice.Say({{"hello", "1"}});
  twice.Say({{"hello", "1"}});
  EXPECT_EQ(twice.End(), nothing);
}

struct Wrong {
  const char* why;  // a part of the reason
  std::function<void(Trajectory&)> change;
  std::uint64_t number = 1;
};

TEST(ActorDesk, RefusesTrajectoriesThatNobodyHasCollected) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinite = std::numeric_limits<float>::infinity();
  const std::vector<Wrong> wrong = {
      {"observations are not all finite", [&](Trajectory& t) { t.obs[3] = nan; }},
      {"observations are not all finite", [&](Trajectory& t) { t.obs[29] = infinite; }},
      {"observations are not all finite", [&](Trajectory& t) { t.truncated_obs[0] = nan; }},
      {"rewards are not all finite", [&](Trajectory& t) { t.rewards[7] = -infinite; }},
      {"probabilities are not all finite", [&](Trajectory& t) { t.extra[0] = nan; }},
      {"choice 2 of 2", [&](Trajectory& t) { t.actions[1] = 2; }},
      {"choice -1 of 2", [&](Trajectory& t) { t.actions[1] = -1; }},
      {"choice 0.5 of 2", [&](Trajectory& t) { t.actions[1] = 0.5f; }},
      {"choice nan of 2", [&](Trajectory& t) { t.actions[1] = nan; }},
      {"ends in two ways", [&](Trajectory& t) { t.terminated[0] = 2; }},
      {"ends in two ways", [&](Trajectory& t) { t.terminated[1] = 1; }},
      {"cut off", [&](Trajectory& t) { t.truncated[0] = 1; }},
      {"cut off", [&](Trajectory& t) { t.truncated_samples[0] = -7; }},
      {"not its length", [&](Trajectory& t) { t.truncated_samples.clear(); }},
      {"not its length", [&](Trajectory& t) { t.truncated_obs.push_back(0); }},
      {"3 steps of 2 environments, where 4 of 2", [&](Trajectory& t) { t.steps = 3; }},
      {"returns are not all finite", [&](Trajectory& t) { t.episodes.return_sum = nan; }},
      {"by version 9 of the policy, which it has not been given", [&](Trajectory& t) { t.policy = 9; }},
      {"by version 0 of the policy", [&](Trajectory& t) { t.policy = 0; }},
      {"trajectory 2 after trajectory 0", [](Trajectory&) {}, 2},
      {"trajectory 0 after trajectory 0", [](Trajectory&) {}, 0},
  };
  Remote remote(1);
  remote.learner().Publish(std::vector<float>(kParams));
  for (const auto& [why, change, number] : wrong) {
    SCOPED_TRACE(why);
    Trajectory trajectory;
    Mark(trajectory, 0, 1);
    change(trajectory);
    Impostor impostor(remote);
    impostor.Join();
    impostor.Say(EncodeTrajectory(trajectory, number));
    EXPECT_NE(impostor.End().find(why), std::string::npos) << impostor.End();
    EXPECT_NE(remote.said().find(why), std::string::npos);
  }
  EXPECT_GT(remote.service_.desk().SecondsWithoutChoices(), 0);
  // None of them is learned from: the next that comes is the first.
  const auto actor = BegunActor(remote);
  Trajectory trajectory, taken;
  Mark(trajectory, 3, 33);
  ASSERT_TRUE(actor->Send(trajectory));
  remote.learner().Take(taken);
  ExpectMarked(taken, 3, 33);
  EXPECT_EQ(remote.service_.desk().SecondsWithoutChoices(), 0);
}

TEST(ActorDesk, TakesEachTrajectoryOnceAndHoldsFewForAnActor) {
  Remote remote(1);
  remote.learner().Publish(std::vector<float>(kParams));
  Trajectory trajectory;
  Mark(trajectory, 0, 1);
  {
    Impostor impostor(remote);
    impostor.Join();
    impostor.Say(EncodeTrajectory(trajectory, 1));
    impostor.Say(EncodeTrajectory(trajectory, 1));
    EXPECT_NE(impostor.End().find("trajectory 1 after trajectory 1"), std::string::npos);
  }
  Impostor impostor(remote);
  impostor.Join();
  for (std::uint64_t number = 1; number <= 4; ++number) impostor.Say(EncodeTrajectory(trajectory, number));
  EXPECT_NE(impostor.End().find("does not wait to be answered"), std::string::npos);
}

}  // namespace
}  // namespace trireme
