// Actors of other processes that have their choices made by their learner's process, and some that ask what nobody would.
#include "trireme/experience/desk_choices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/experience/actor_service.h"
#include "trireme/experience/conformance.h"
#include "trireme/experience/remote_actor.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

constexpr int kSteps = 4, kEnvs = 2, kObs = 3;
constexpr std::uint64_t kSeed = 77;
constexpr auto kLong = std::chrono::microseconds(std::chrono::hours(1));

TrajectoryShape Shape() {
  EnvSpec env;
  env.name = "Test-v0";
  env.obs.shape = {kObs};
  env.action = ActionSpace::Discrete(2);
  return {env, kSteps, kEnvs};
}

// One that is not wrong, and that says all that it follows from.
float ActionFor(const float* obs, std::uint32_t env, std::uint64_t step) {
  return static_cast<float>((static_cast<std::uint64_t>(obs[0]) + env + step) % 2);
}

// A learner that chooses for actors of other processes, who wait for each other as long as `wait`.
class Desk {
 public:
  explicit Desk(std::chrono::microseconds wait, std::size_t capacity = 8)
      : channel_(capacity),
        learner_(channel_.MakeLearnerEnd()),
        inference_({[this](std::span<const float> params) { param_ = params[0]; },
                    [this](std::span<const ActionRequest> requests) { Choose(requests); }},
                   {.most_envs = 1000, .wait = wait}),
        service_(transport_.Listen("learner", {}),
                 {.version = "1",
                  .settings = "settings",
                  .looks = "looks",
                  .shape = Shape(),
                  .inference = &inference_},
                 1, [this](const std::string& text) {
                   const std::lock_guard lock(mutex_);
                   said_ += text + "\n";
                 }) {
    service_.desk().Attach(0, channel_, 0, kSeed);
    inference_.Attach(channel_);
    learner_->Publish(std::vector<float>{0});
  }
  ~Desk() {
    inference_.End();
    service_.End(true);
  }

  LearnerPlace Place() {
    return {.transport = &transport_, .address = "learner", .version = "1", .wait_s = 0.1};
  }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  bool Says(const std::string& text) {
    const Deadline end = Clock::now() + 60s;
    while (Clock::now() < end) {
      if (said().find(text) != std::string::npos) return true;
      std::this_thread::yield();
    }
    return false;
  }

  MemoryTransport transport_;
  MemoryChannel channel_;
  std::unique_ptr<LearnerEnd> learner_;
  std::atomic<std::uint64_t> seed_seen_{0};
  std::atomic<bool> chooses_{false}, held_{false};  // held: an evaluation that has begun goes on later
  CentralInference inference_;
  std::mutex mutex_;  // guards said_
  std::string said_;
  ActorService service_;

 private:
  void Choose(std::span<const ActionRequest> requests) {
    chooses_ = true;
    while (held_) std::this_thread::yield();
    for (const ActionRequest& request : requests) {
      seed_seen_ = request.seed;
      for (int i = 0; i < request.n; ++i) {
        request.actions[i] = ActionFor(request.obs + i * kObs, request.first_env + i, request.step);
        request.extra[i] = param_;
      }
    }
  }

  float param_ = 0;  // of the thread that chooses
};

// An actor as `trireme actor` runs it, with environments of which nothing is needed but a number.
class TestActor {
 public:
  explicit TestActor(Desk& desk) : end_(desk.Place()) {
    const auto welcome = end_.Join();
    EXPECT_TRUE(welcome);
    if (!welcome) return;
    index_ = welcome->index;
    end_.Ready("looks", 0);
  }
  bool AwaitPolicy() { return end_.Newest() != nullptr; }
  int index() const { return index_; }
  std::uint32_t first_env() const { return static_cast<std::uint32_t>(index_ * kEnvs); }

  // One step of all environments, whose first observation is `number`.
  bool Step(std::uint64_t step, int number) {
    const std::size_t at = (step % kSteps) * kEnvs;
    float* const rows = trajectory_.obs.data() + at * kObs;
    std::fill_n(rows, kEnvs * kObs, static_cast<float>(number));
    return end_.Choose({.step = step,
                        .first_env = first_env(),
                        .n = kEnvs,
                        .obs = rows,
                        .actions = trajectory_.actions.data() + at,
                        .extra = trajectory_.extra.data() + at,
                        .rows = rows},
                       first_env(), Shape().env);
  }
  bool Collect(std::uint64_t number) {
    for (std::uint64_t t = 0; t < kSteps; ++t) {
      if (!Step(number * kSteps + t, static_cast<int>(number))) return false;
    }
    return true;
  }
  bool Send() {
    if (trajectory_.samples() == 0) trajectory_ = Empty();
    return end_.Send(trajectory_);
  }
  Trajectory& trajectory() { return trajectory_; }
  RemoteActorEnd& end() { return end_; }

  static Trajectory Empty() { return {RowLayout(kObs), 1, kSteps, kEnvs}; }

 private:
  RemoteActorEnd end_;
  int index_ = 0;
  Trajectory trajectory_ = Empty();
};

// Choices are those for these environments, steps and observations, and what is sent is what was chosen.
TEST(DeskChoices, ActorsWithoutANetworkSendTrajectories) {
  Desk desk(kLong);
  TestActor actor(desk);
  Trajectory taken;
  for (std::uint64_t number = 0; number < 5; ++number) {
    ASSERT_TRUE(actor.AwaitPolicy());
    ASSERT_TRUE(actor.Collect(number));
    ASSERT_TRUE(actor.Send());
    desk.learner_->Take(taken);
    for (int i = 0; i < kSteps * kEnvs; ++i) {
      const float* const obs = taken.obs.data() + i * kObs;
      ASSERT_EQ(obs[0], static_cast<float>(number));
      ASSERT_EQ(taken.actions[i], ActionFor(obs, actor.first_env() + i % kEnvs, number * kSteps + i / kEnvs));
    }
    actor.trajectory() = TestActor::Empty();
  }
  EXPECT_EQ(desk.seed_seen_, kSeed);
  EXPECT_EQ(desk.inference_.facts().latency_us.count(), 5u * kSteps);
}

// It is by several policies then, and as old as the oldest of them.
TEST(DeskChoices, ATrajectoryHasTheAgeOfItsFirstChoice) {
  Desk desk(kLong);
  TestActor actor(desk);
  ASSERT_TRUE(actor.AwaitPolicy());
  const auto publish = [&] { desk.learner_->Publish(std::vector<float>{float(desk.learner_->version())}); };
  publish();
  publish();
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    ASSERT_TRUE(actor.Step(step, 1));
    publish();
  }
  ASSERT_TRUE(actor.Send());
  Trajectory taken;
  desk.learner_->Take(taken);
  EXPECT_EQ(taken.policy, 3u);
  for (int i = 0; i < kSteps * kEnvs; ++i)
    EXPECT_EQ(taken.extra[i], float(2 + i / kEnvs)) << "newer each time";
}

// One batch of those of other processes and those of this one.
TEST(DeskChoices, AreMadeForEveryoneTogether) {
  Desk desk(kLong);
  TestActor first(desk), second(desk);
  ASSERT_TRUE(first.AwaitPolicy() && second.AwaitPolicy());
  CentralInference::Member local(desk.inference_);
  local.Come();
  std::vector<std::thread> threads;
  for (TestActor* actor : {&first, &second}) {
    threads.emplace_back([&, actor] {
      ASSERT_TRUE(actor->Collect(0));
      ASSERT_TRUE(actor->Send());
    });
  }
  for (int step = 0; step < kSteps; ++step) {
    const float obs[kObs] = {};
    float action = -1, extra = -1;
    ASSERT_TRUE(local.Choose({.n = 1, .obs = obs, .actions = &action, .extra = &extra}));
    EXPECT_EQ(action, 0);
  }
  local.Go();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(desk.inference_.facts().batches.count(), static_cast<std::uint64_t>(kSteps));
}

// Who hands over a trajectory, or waits for room, is not waited for.
TEST(DeskChoices, NobodyWaitsForAnActorThatWaitsForRoom) {
  Desk desk(kLong, /*capacity=*/1);
  TestActor full(desk);
  ASSERT_TRUE(full.AwaitPolicy());
  std::atomic<std::uint64_t> collected{0};
  std::thread thread([&] {
    do {
      if (!full.Collect(collected)) return;
      ++collected;
    } while (full.Send());
  });
  while (collected < 4) std::this_thread::yield();  // one in the channel, two ahead, and one that it holds
  TestActor other(desk);
  ASSERT_TRUE(other.AwaitPolicy());
  for (std::uint64_t step = 0; step < kSteps; ++step) ASSERT_TRUE(other.Step(step, 0));
  EXPECT_EQ(collected, 4u);
  desk.service_.End(true);
  thread.join();
}

TEST(DeskChoices, AnActorThatDiesWithARequestUnderWayBlocksNobody) {
  Desk desk(kLong);
  TestActor survivor(desk);
  ASSERT_TRUE(survivor.AwaitPolicy());
  for (std::uint64_t number = 0; number < 3; ++number) {
    auto victim = std::make_unique<TestActor>(desk);
    ASSERT_TRUE(victim->AwaitPolicy());
    // It asks, and the survivor does not: nothing is answered.
    std::thread asks([&] { EXPECT_FALSE(victim->Step(0, 1)); });
    const PeerId stream = 2 + number;
    while (desk.inference_.waiting() == 0) std::this_thread::yield();
    desk.transport_.Cut(stream);
    asks.join();
    ASSERT_TRUE(survivor.Collect(number));
    ASSERT_TRUE(survivor.Send());
    Trajectory taken;
    desk.learner_->Take(taken);
  }
}

// What it has asked is evaluated with what others have, and stays where it is until then.
TEST(DeskChoices, AnActorThatDiesWhileItsChoiceIsMadeHarmsNobody) {
  Desk desk(kLong);
  TestActor survivor(desk);
  ASSERT_TRUE(survivor.AwaitPolicy());
  for (std::uint64_t number = 0; number < 3; ++number) {
    auto victim = std::make_unique<TestActor>(desk);
    ASSERT_TRUE(victim->AwaitPolicy());
    desk.chooses_ = false;
    desk.held_ = true;
    std::thread dies([&] { EXPECT_FALSE(victim->Step(0, 1)); });
    std::thread lives([&] { EXPECT_TRUE(survivor.Step(number * kSteps, 0)); });
    while (!desk.chooses_) std::this_thread::yield();
    desk.transport_.Cut(2 + number);
    dies.join();
    victim.reset();
    EXPECT_TRUE(desk.Says(fmt::format("actor {} at memory:{} is gone", 1 + number, 2 + number)));
    desk.held_ = false;
    lives.join();
    for (std::uint64_t step = 1; step < kSteps; ++step) ASSERT_TRUE(survivor.Step(number * kSteps + step, 0));
    ASSERT_TRUE(survivor.Send());
    Trajectory taken;
    desk.learner_->Take(taken);
  }
}

// Another waits for an actor that is frozen as long as was said, and no longer.
TEST(DeskChoices, AFrozenActorHoldsUpTheOthersForTheWaitAlone) {
  Desk desk(1ms);
  TestActor frozen(desk), actor(desk);
  ASSERT_TRUE(frozen.AwaitPolicy() && actor.AwaitPolicy());
  ASSERT_TRUE(actor.Collect(0));
  EXPECT_TRUE(actor.Send());
}

TEST(DeskChoices, TheEndReachesWhoAsks) {
  Desk desk(kLong);
  TestActor waits(desk), other(desk);
  ASSERT_TRUE(waits.AwaitPolicy() && other.AwaitPolicy());
  std::thread asks([&] {
    EXPECT_FALSE(waits.Step(0, 1));
    EXPECT_FALSE(waits.end().Join()) << "the run is over";
  });
  while (desk.inference_.waiting() == 0) std::this_thread::yield();
  desk.service_.End(true);
  asks.join();
}

// ---------------------------------------------------------------------------------------------- what nobody would ask

Outgoing RequestOf(ChoiceHeader header, std::vector<float> rows) {
  auto message = std::make_shared<AlignedBuffer<std::byte>>(sizeof header + rows.size() * sizeof(float));
  std::memcpy(message->data(), &header, sizeof header);
  if (!rows.empty()) std::memcpy(message->data() + sizeof header, rows.data(), rows.size() * sizeof(float));
  return message;
}

class Given final : public Incoming {
 public:
  explicit Given(Outgoing message) : message_(std::move(message)) {}
  std::size_t size() const override { return message_->size() - at_; }
  void Read(std::span<std::byte> to) override {
    std::memcpy(to.data(), message_->data() + at_, to.size());
    at_ += to.size();
  }

 private:
  const Outgoing message_;
  std::size_t at_ = 0;
};

// What became of a transport that takes its time to wake up.
struct Waking {
  std::atomic<bool> begun{false}, gone{false}, gone_meanwhile{false};
};

class SlowToWake final : public ServerTransport {
 public:
  explicit SlowToWake(Waking& waking) : waking_(waking) {}
  ~SlowToWake() override { waking_.gone = true; }

  const std::string& address() const override { return address_; }
  const Limits& limits() const override { return limits_; }
  void Run(Handler&, const std::function<bool()>&) override {}
  void Send(PeerId, Outgoing) override {}
  void Allow(PeerId, std::size_t) override {}
  void Close(PeerId, const std::string&) override {}
  void Wake() override {
    Waking& waking = waking_;
    waking.begun = true;
    for (int i = 0; i < 10'000 && !waking.gone; ++i) std::this_thread::yield();
    waking.gone_meanwhile = waking.gone.load();
    ++woken_;
  }

 private:
  Waking& waking_;
  const std::string address_;
  const Limits limits_;
  int woken_ = 0;
};

// The actor goes, its answer is taken, and the desk and its transport go: all that while the answer is still being told.
TEST(DeskChoices, WhoeverTellsOfAnAnswerFindsAllThatItNeeds) {
  const TrajectoryShape shape = Shape();
  CentralInference inference({[](std::span<const float>) {}, [](std::span<const ActionRequest>) {}}, {});
  MemoryChannel channel(1);
  channel.MakeLearnerEnd()->Publish(std::vector<float>{0});
  inference.Attach(channel);
  Waking waking;
  auto transport = std::make_unique<SlowToWake>(waking);
  auto choices = std::make_unique<DeskChoices>(*transport, shape, inference);
  Given request(RequestOf({.envs = kEnvs}, std::vector<float>(kEnvs * kObs)));
  ReadNumber(request);
  choices->Enter(1, kSeed, 0);
  choices->Ask(1, request);
  choices->Leave(1);
  while (!waking.begun) std::this_thread::yield();
  choices->Answer();
  EXPECT_FALSE(choices->waiting());
  choices.reset();
  transport.reset();
  inference.End();
  EXPECT_FALSE(waking.gone_meanwhile);
}

class Impostor {
 public:
  explicit Impostor(Desk& desk) : stream_(desk.transport_.Connect("learner", {})) {
    Say(TextMessage(Json{{"hello", "1"}}.dump()));
    Say(TextMessage(Json{{"ready", "looks"}}.dump()));
    for (int i = 0; i < 2; ++i) EXPECT_NE(Hear(), nullptr);
  }
  void Say(Outgoing message) { stream_->Send(std::move(message), Clock::now() + 60s); }
  Incoming* Hear() { return stream_->Receive(Clock::now() + 60s); }
  std::string End() {
    while (!stream_->closed()) {
      if (Hear() == nullptr && !stream_->closed()) return "it is not closed";
    }
    return stream_->why();
  }

 private:
  std::unique_ptr<Stream> stream_;
};

const std::vector<float> kRows(kEnvs* kObs, 1.0f);

TEST(DeskChoices, RequestsThatNobodyWouldMakeCloseTheirActorAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinite = std::numeric_limits<float>::infinity();
  std::vector<float> with_nan = kRows, with_infinite = kRows;
  with_nan[4] = nan;
  with_infinite[0] = infinite;
  const ChoiceHeader good{.step = 0, .first = 0, .envs = kEnvs};
  const std::vector<std::pair<std::string, Outgoing>> wrong = {
      {"a message of 8 bytes is no request", TextMessage(std::string(8, '\0'))},
      {"a message of 3 bytes is nothing", TextMessage("abc")},
      {"a message of 0 bytes is nothing", TextMessage("")},
      {"observations are not all finite", RequestOf(good, with_nan)},
      {"observations are not all finite", RequestOf(good, with_infinite)},
      {"with 20 bytes of observations, which have 24", RequestOf(good, std::vector<float>(5))},
      {"with 28 bytes of observations, which have 24", RequestOf(good, std::vector<float>(7))},
      {"with 0 bytes of observations, which have 24", RequestOf(good, {})},
      {"for 0 environments from 0", RequestOf({.envs = 0}, {})},
      {"for -1 environments from 0", RequestOf({.envs = -1}, {})},
      {"for 2147483647 environments from 2147483647",
       RequestOf({.first = 2147483647, .envs = 2147483647}, kRows)},
      {"for 2 environments from 1, of an actor that has 2", RequestOf({.first = 1, .envs = 2}, kRows)},
      {"for 2 environments from -1", RequestOf({.first = -1, .envs = 2}, kRows)},
  };
  Desk desk(kLong);
  TestActor honest(desk);
  ASSERT_TRUE(honest.AwaitPolicy());
  std::uint64_t step = 0;
  for (const auto& [why, message] : wrong) {
    SCOPED_TRACE(why);
    Impostor impostor(desk);
    impostor.Say(message);
    const std::string end = impostor.End();
    EXPECT_NE(end.find(why), std::string::npos) << end;
    EXPECT_TRUE(desk.Says(why));
    if (step < kSteps) {
      EXPECT_TRUE(honest.Step(step, 0));
    }
    ++step;
  }
  EXPECT_TRUE(honest.Send());
}

TEST(DeskChoices, OneThingIsAskedAtATimeAndEverySampleOnce) {
  const ChoiceHeader all{.envs = kEnvs};
  Desk desk(kLong);
  CentralInference::Member silent(desk.inference_);  // who never asks, so that nothing is answered
  silent.Come();
  {
    Impostor impostor(desk);
    impostor.Say(RequestOf(all, kRows));
    impostor.Say(RequestOf(all, kRows));
    EXPECT_NE(impostor.End().find("a request before the last one was answered"), std::string::npos);
  }
  silent.Go();
  Impostor greedy(desk);
  for (int step = 0; step < kSteps; ++step) {
    greedy.Say(RequestOf(all, kRows));
    EXPECT_NE(greedy.Hear(), nullptr);
  }
  greedy.Say(RequestOf(all, kRows));
  EXPECT_NE(greedy.End().find("more samples than the 8 of a trajectory"), std::string::npos);
}

// Learners learn from what they have chosen, and from nothing else.
TEST(DeskChoices, TrajectoriesThatWereNotChosenHereAreRefused) {
  Desk desk(0us);
  Trajectory trajectory;
  Mark(trajectory, 0, 1);
  for (int asked = 0; asked < kSteps; ++asked) {
    Impostor impostor(desk);
    for (int step = 0; step < asked; ++step) {
      impostor.Say(RequestOf({.envs = kEnvs}, kRows));
      EXPECT_NE(impostor.Hear(), nullptr);
    }
    impostor.Say(EncodeTrajectory(trajectory, 1));
    EXPECT_NE(impostor.End().find(fmt::format("where {} were asked for", asked * kEnvs)), std::string::npos);
  }
}

// Without central inference a request is a trajectory without a number.
TEST(DeskChoices, ActorsThatChooseForThemselvesAskForNothing) {
  MemoryTransport transport;
  MemoryChannel channel(1);
  const auto learner = channel.MakeLearnerEnd();
  learner->Publish(std::vector<float>(3));
  ActorService service(transport.Listen("learner", {}), {.version = "1", .looks = "looks", .shape = Shape()},
                       1, [](const std::string&) {});
  service.desk().Attach(0, channel, 0, 7);
  const auto stream = transport.Connect("learner", {});
  for (const Json& text : {Json{{"hello", "1"}}, Json{{"ready", "looks"}}}) {
    ASSERT_TRUE(stream->Send(TextMessage(text.dump()), Clock::now() + 60s));
    ASSERT_NE(stream->Receive(Clock::now() + 60s), nullptr);
  }
  ASSERT_TRUE(stream->Send(RequestOf({.envs = kEnvs}, kRows), Clock::now() + 60s));
  EXPECT_EQ(stream->Receive(Clock::now() + 60s), nullptr);
  EXPECT_TRUE(stream->closed());
  EXPECT_NE(stream->why().find("no trajectory"), std::string::npos) << stream->why();
  service.End(true);
}

// What answers may be anybody.
TEST(DeskChoices, AnActorTakesAnswersToWhatItAskedAndNoOthers) {
  class Bytes final : public Incoming {
   public:
    explicit Bytes(Outgoing message) : message_(std::move(message)) {}
    std::size_t size() const override { return message_->size() - at_; }
    void Read(std::span<std::byte> to) override {
      std::copy_n(message_->data() + at_, to.size(), to.begin());
      at_ += to.size();
    }

   private:
    Outgoing message_;
    std::size_t at_ = 0;
  };
  float actions[kEnvs] = {}, extra[kEnvs] = {};
  const ActionRequest request{.step = 5, .first_env = 21, .n = kEnvs, .actions = actions, .extra = extra};
  const auto take = [&](ChoiceHeader header, std::size_t floats) {
    Bytes message(RequestOf(header, std::vector<float>(floats, 4)));
    EXPECT_EQ(ReadNumber(message), 0u);
    DecodeChoices(message, request, 20, 1);
  };
  take({.step = 5, .first = 1, .envs = kEnvs}, 2 * kEnvs);
  EXPECT_EQ(actions[1], 4);
  EXPECT_EQ(extra[1], 4);
  EXPECT_THROW(take({.step = 6, .first = 1, .envs = kEnvs}, 2 * kEnvs), Error);
  EXPECT_THROW(take({.step = 5, .first = 0, .envs = kEnvs}, 2 * kEnvs), Error);
  EXPECT_THROW(take({.step = 5, .first = 1, .envs = 1}, 2 * kEnvs), Error);
  EXPECT_THROW(take({.step = 5, .first = 1, .envs = kEnvs}, 2 * kEnvs - 1), Error);
  EXPECT_THROW(take({.step = 5, .first = 1, .envs = kEnvs}, 2 * kEnvs + 1), Error);
  Bytes brief(TextMessage(std::string(12, '\0')));
  ReadNumber(brief);
  EXPECT_THROW(DecodeChoices(brief, request, 20, 1), Error);
}

}  // namespace
}  // namespace trireme
