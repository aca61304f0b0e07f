// What may be sent to a replay server by who means it harm, or is broken: that stream is closed with a reason, and who was
// there before goes on. On one thread: time and order are the test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/experience/message_parts.h"
#include "trireme/experience/replay_desk.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/text_message.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kParams = 3;
constexpr int kSteps = 4, kEnvs = 2, kSamples = kSteps * kEnvs;
constexpr std::uint64_t kPart = 4;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ReplayRun RunOf() {
  EnvSpec env;
  env.name = "Test-v0";
  env.obs.shape = {3};
  env.action = ActionSpace::Discrete(2);
  return {.id = "run",
          .looks = "looks",
          .shape = {env, kSteps, kEnvs},
          .rules = {.capacity = 64, .n_step = 1, .gamma = 0.5, .alpha = 1, .epsilon = 0.1},
          .rate = {.draws_per_insert = 1, .least = 8, .slack = 1e9},
          .part = kPart,
          .settings = "settings",
          .params = kParams,
          .seed = 5};
}

Trajectory Collected(std::uint64_t policy) {
  Trajectory t(RowLayout(3), 1, kSteps, kEnvs);
  std::ranges::fill(t.obs, 0.25f);
  std::ranges::fill(t.actions, 1.0f);
  std::ranges::fill(t.rewards, 1.0f);
  std::ranges::fill(t.extra, 1.0f);
  t.policy = policy;
  t.episodes = {.count = 1, .return_sum = 2, .length_sum = 3};
  return t;
}

template <class... Parts>
Outgoing Message(const Parts&... parts) {
  MessageParts writer((sizeof parts + ... + 0));
  (writer.PutOne(parts), ...);
  return writer.Done();
}
Outgoing Policy(const std::vector<float>& params) {
  MessageParts writer(sizeof(ReplayWord) + sizeof(PolicyHeader) + params.size() * sizeof(float));
  writer.PutOne(ReplayWord::kPolicy);
  writer.PutOne(PolicyHeader{.version = 1, .params = params.size()});
  writer.Put(std::span(params));
  return writer.Done();
}
Outgoing Turn(std::uint64_t wanted, double beta = 0.5, const std::vector<std::uint64_t>& numbers = {},
              const std::vector<float>& errors = {}) {
  return EncodeTurn({.wanted = wanted, .beta = beta, .corrected = numbers.size()}, numbers, errors);
}
Outgoing Text(const Json& json) { return TextMessage(json.dump()); }

class ReplayAttack : public ::testing::Test {
 protected:
  void SetUp() override {
    learner_ = Connect();
    Tell(*learner_,
         {Text({{"learn", "1"}}), TextMessage(RunOf().Encode()), Policy(std::vector<float>(kParams, 1))});
    ASSERT_NE(Hear(*learner_), nullptr) << "the welcome";
    actor_ = Join();
  }

  std::unique_ptr<Stream> Connect() { return transport_.Connect("a", {}); }
  void Pump() { transport_.Pump(*server_, *desk_, now_ += std::chrono::milliseconds(100)); }
  void Tell(Stream& stream, const std::vector<Outgoing>& messages) {
    for (const Outgoing& message : messages) stream.Send(message, Deadline::min());
    Pump();
  }
  static Incoming* Hear(Stream& stream) { return stream.Receive(Deadline::min()); }
  // An actor that has a policy.
  std::unique_ptr<Stream> Join() {
    auto actor = Connect();
    Tell(*actor, {Text({{"hello", "1"}})});
    EXPECT_NE(Hear(*actor), nullptr) << actor->why();
    Tell(*actor, {Text({{"ready", "looks"}})});
    policy_ = PolicyOf(*actor);
    return actor;
  }
  static std::uint64_t PolicyOf(Stream& actor) {
    Incoming* const message = Hear(actor);
    EXPECT_NE(message, nullptr) << actor.why();
    return message == nullptr ? 0 : ReadOne<PolicyHeader>(*message).version;
  }
  // A learner beside the first one.
  std::unique_ptr<Stream> Learn(ReplayRun run = RunOf()) {
    auto learner = Connect();
    run.learner = 1;
    Tell(*learner, {Text({{"learn", "1"}}), TextMessage(run.Encode())});
    return learner;
  }

  void ExpectClosed(Stream& stream, const std::string& why) {
    Pump();
    while (Hear(stream) != nullptr) {
    }
    EXPECT_TRUE(stream.closed()) << why;
    EXPECT_NE(stream.why().find(why), std::string::npos) << stream.why();
  }
  // The learner and the actor that were there before still get what they ask for, and it is what was sent.
  void ExpectGoesOn() {
    Tell(*actor_, {EncodeTrajectory(Collected(policy_), ++sent_)});
    policy_ = PolicyOf(*actor_);
    Tell(*learner_, {Turn(1)});
    Incoming* const draw = Hear(*learner_);
    ASSERT_NE(draw, nullptr) << learner_->why();
    ReplayDraw drawn(kPart, RowLayout(3), 1);
    AlignedBuffer<float> records;
    const ReplayAnswer answer = DecodeAnswer(*draw, kPart, ReplayBuffer::RecordSize(RowLayout(3), 1), 1);
    EXPECT_EQ(answer.draws, 1u);
    DecodeDraw(*draw, RowLayout(3), 1, records, drawn);
    EXPECT_EQ(answer.inserted, (sent_ + others_) * kSamples) << "what was refused left nothing";
    for (std::size_t i = 0; i < kPart; ++i) {
      EXPECT_EQ(drawn.transitions.obs[i * 3], 0.25f);
      EXPECT_EQ(drawn.transitions.returns[i], 1.0f);
      EXPECT_TRUE(drawn.weights[i] > 0 && drawn.weights[i] <= 1) << drawn.weights[i];
    }
  }

  MemoryTransport transport_;
  std::unique_ptr<ServerTransport> server_ = transport_.Listen("a", {});
  std::string said_;
  std::unique_ptr<ReplayDesk> desk_ = std::make_unique<ReplayDesk>(
      *server_,
      ReplayDesk::Options{.version = "1", .say = [this](const std::string& text) { said_ += text + "\n"; }});
  Deadline now_ = Clock::now();
  std::unique_ptr<Stream> learner_, actor_;
  std::uint64_t policy_ = 0, sent_ = 0, others_ = 0;  // others_: trajectories of other actors that count
};

TEST_F(ReplayAttack, WhoeverSaysNothingThatMeansAnythingIsClosed) {
  const std::string deep(100'000, '[');
  for (const std::string& text :
       {std::string(), std::string("x"), std::string(1000, '\0'), deep, std::string("[]"),
        std::string("{\"learn\": 7}"), std::string("{\"hello\": null}")}) {
    const auto peer = Connect();
    Tell(*peer, {TextMessage(text)});
    ExpectClosed(*peer, "this is nothing that an actor");
  }
  const auto long_one = Connect();
  Tell(*long_one, {TextMessage(std::string(200'000, 'x'))});
  ExpectClosed(*long_one, "longer than the limit of 131072");
  ExpectGoesOn();
}

TEST_F(ReplayAttack, AnotherVersionIsRefusedByName) {
  const auto learner = Connect();
  Tell(*learner, {Text({{"learn", "2"}})});
  ExpectClosed(*learner, "replay: the replay server runs trireme 1, and the learner 2: use the same");
  const auto actor = Connect();
  Tell(*actor, {Text({{"hello", "2"}})});
  ExpectClosed(*actor, "trireme 1");
  ExpectGoesOn();
}

TEST_F(ReplayAttack, RunsThatMakeNoSenseAreRefused) {
  using Change = std::function<void(ReplayRun&)>;
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               endless = std::numeric_limits<double>::infinity();
  const std::vector<Change> changes = {
      [](ReplayRun& run) { run.id = ""; },
      [](ReplayRun& run) { run.id.assign(201, 'x'); },
      [](ReplayRun& run) { run.rules.capacity = 0; },
      [](ReplayRun& run) { run.rules.capacity = std::uint64_t{1} << 40; },
      [](ReplayRun& run) { run.rules.n_step = 0; },
      [](ReplayRun& run) { run.rules.n_step = 1'000'000; },
      [](ReplayRun& run) { run.shape.steps = 0; },
      [](ReplayRun& run) { run.shape.steps = run.shape.envs = 1 << 30; },
      [](ReplayRun& run) { run.shape.envs = -1; },
      [](ReplayRun& run) { run.part = 0; },
      [](ReplayRun& run) { run.params = 0; },
      [](ReplayRun& run) { run.server = run.servers; },
      [](ReplayRun& run) { run.servers = 1 << 20; },
      [&](ReplayRun& run) { run.rules.gamma = nan; },
      [](ReplayRun& run) { run.rules.alpha = -1; },
      [](ReplayRun& run) { run.rules.epsilon = 2; },
      [](ReplayRun& run) { run.rate.draws_per_insert = 0; },
      [&](ReplayRun& run) { run.rate.draws_per_insert = nan; },
      [&](ReplayRun& run) { run.rate.least = endless; },
      [&](ReplayRun& run) { run.rate.slack = nan; },
      [](ReplayRun& run) { run.rate.slack = 3; },  // less than a draw
      [](ReplayRun& run) { run.rate.slack = -1; },
      [](ReplayRun& run) { run.part = (std::uint64_t{1} << 31) - 1, run.rate.slack = 1e18; },  // of 100 GB
      [](ReplayRun& run) { run.shape.steps = (1 << 29) - 1, run.rate.slack = 1e18; },
      [](ReplayRun& run) { run.shape.env.obs.shape = {-3}; },
      [](ReplayRun& run) { run.shape.env.action.parts = {}; },
      [](ReplayRun& run) {
        run.shape.env.action = ActionSpace::MultiDiscrete(std::vector<int>(4097, 1 << 20));
      },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    ReplayRun run = RunOf();
    changes[i](run);
    const auto learner = Learn(run);
    ExpectClosed(*learner, "replay: ");
    EXPECT_EQ(learner->why().find("another run"), std::string::npos) << "it is not looked at so far";
  }
  const std::string whole = RunOf().Encode();
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() / 2), whole + "x", std::string(500, '\xff')}) {
    const auto learner = Connect();
    Tell(*learner, {Text({{"learn", "1"}}), TextMessage(text)});
    ExpectClosed(*learner, "replay: ");
  }
  ExpectGoesOn();
}

TEST_F(ReplayAttack, AnotherRunIsRefusedWithTheDifference) {
  using Change = std::function<void(ReplayRun&)>;
  for (const Change& change : {Change([](ReplayRun& run) { run.looks = "other looks"; }),
                               Change([](ReplayRun& run) { run.shape.steps = 5; }),
                               Change([](ReplayRun& run) { run.rules.capacity = 65; }),
                               Change([](ReplayRun& run) { run.params = 4; }),
                               Change([](ReplayRun& run) { run.rules.gamma = 0.25; }),
                               Change([](ReplayRun& run) { run.rules.n_step = 2; })}) {
    ReplayRun run = RunOf();
    change(run);
    ExpectClosed(*Learn(run), "replay: this replay server remembers for this run as it was before: " +
                                  RunOf().Identity() + ". The learner now has: " + run.Identity());
  }
  ReplayRun other = RunOf();
  other.id = "other";
  ExpectClosed(*Learn(other),
               "replay: this replay server remembers for another run, run, which has not ended: ");
  ReplayRun wider = RunOf();
  wider.servers = 2;
  wider.rules.capacity = 32;
  ExpectClosed(*Learn(wider), "replay: this run has begun with 1 replay server, and the learner now has 2");
  ExpectGoesOn();
}

TEST_F(ReplayAttack, ActorsOfAnotherRunAreRefused) {
  const auto actor = Connect();
  Tell(*actor, {Text({{"hello", "1"}, {"run", "other"}})});
  ExpectClosed(*actor, "the actor collects for run other, and here is run run");
  const auto broken = Connect();
  Tell(*broken, {Text({{"hello", "1"}, {"run", 7}})});
  ExpectClosed(*broken, "this is nothing that an actor says");
  const auto ours = Connect();
  Tell(*ours, {Text({{"hello", "1"}, {"run", "run"}})});
  ASSERT_NE(Hear(*ours), nullptr) << ours->why();
  ExpectGoesOn();
}

// Beside the first one, at the same memory.
TEST_F(ReplayAttack, ALearnerWhoseDrawsAreNotThoseOfTheFirstIsRefused) {
  ReplayRun run = RunOf();
  run.part = 5;
  ExpectClosed(*Learn(run), "replay: the learner draws 5 transitions at a time, and those that are here 4");
  ExpectGoesOn();
}

TEST_F(ReplayAttack, MessagesOfLearnersThatMeanNothingAreRefused) {
  const std::vector<std::pair<Outgoing, std::string>> messages = {
      {TextMessage(""), "bytes means nothing"},
      {TextMessage("short"), "bytes means nothing"},
      {Message(std::uint64_t{0}), "means nothing"},
      {Message(std::uint64_t{99}), "means nothing"},
      {Message(ReplayWord::kTurn), "cut"},
      {Message(ReplayWord::kTurn, std::array<std::uint64_t, 3>{1, 0, 1000}), "1000 errors"},
      {Message(ReplayWord::kTurn, std::array<std::uint64_t, 3>{1, 0, UINT64_MAX}), "errors in 0 bytes"},
      {Message(ReplayWord::kTurn, std::array<std::uint64_t, 3>{1, 0, 2}), "2 errors in 0 bytes"},
      {Message(ReplayWord::kTurn, std::array<std::uint64_t, 5>{1, 0, 0, 7, 7}), "0 errors in 16 bytes"},
      {Turn(1, -0.1), "beta"},
      {Turn(1, 1.5), "beta"},
      {Turn(1, std::numeric_limits<double>::quiet_NaN()), "beta"},
      {Turn(0, 0, {1'000'000}, {1}), "transition 1000000"},
      {Turn(0, 0, {UINT64_MAX}, {1}), "transition 18446744073709551615"},
      {Policy({1, 2}), "policy of 2 parameters"},
      {Policy({1, 2, 3, 4}), "policy of 4 parameters"},
      {Policy({1, kNan, 3}), "not all finite"},
      {Message(ReplayWord::kPolicy), "policy"},
      {Message(ReplayWord::kPolicy, PolicyHeader{.version = 1, .params = UINT64_MAX}), "policy"},
  };
  for (const auto& [message, why] : messages) {
    const auto learner = Learn();
    ASSERT_NE(Hear(*learner), nullptr) << "the welcome";
    Tell(*learner, {message});
    ExpectClosed(*learner, why);
    ExpectGoesOn();
  }
}

TEST_F(ReplayAttack, DrawsWithoutEndAreRefused) {
  for (const std::uint64_t wanted : {std::uint64_t{4097}, UINT64_MAX}) {
    const auto learner = Learn();
    Tell(*learner, {Turn(wanted)});
    ExpectClosed(*learner, "does not wait to be answered");
  }
  ExpectGoesOn();
  // Nothing can be drawn now: all wait.
  desk_ = nullptr;
  server_ = nullptr;
  server_ = transport_.Listen("a", {});
  desk_ = std::make_unique<ReplayDesk>(*server_, ReplayDesk::Options{.version = "1"});
  const auto learner = Learn();
  for (int i = 0; i < 5000; ++i) learner->Send(Turn(1), Deadline::min());
  ExpectClosed(*learner, "does not wait to be answered");
}

// As the sampler has it, they count as the largest so far: a network in 16 bits may overflow.
TEST_F(ReplayAttack, ErrorsThatAreNoNumbersDoNoHarm) {
  ExpectGoesOn();
  const auto learner = Learn();
  Tell(*learner, {Turn(0, 0, {0, 1, 2, 3}, {kNan, std::numeric_limits<float>::infinity(), -1e38f, -0.0f})});
  EXPECT_FALSE(learner->closed());
  for (int i = 0; i < 20; ++i) ExpectGoesOn();
}

TEST_F(ReplayAttack, TrajectoriesThatNobodyCouldHaveCollectedAreRefused) {
  using Change = std::function<void(Trajectory&)>;
  const std::vector<Change> changes = {
      [](Trajectory& t) { t.obs[1] = kNan; },
      [](Trajectory& t) { t.rewards[1] = -std::numeric_limits<float>::infinity(); },
      [](Trajectory& t) { t.extra[1] = kNan; },
      [](Trajectory& t) { t.actions[1] = kNan; },
      [](Trajectory& t) { t.actions[1] = 2; },
      [](Trajectory& t) { t.episodes.return_sum = kNan; },
      [](Trajectory& t) { t.terminated[1] = t.truncated[1] = 1; },
      [](Trajectory& t) { t.truncated[1] = 1; },
      [](Trajectory& t) { t.truncated_samples = {7}, t.truncated_obs.resize(3); },
      [](Trajectory& t) { t.steps = 5; },
      [](Trajectory& t) { t.envs = 1; },
      [](Trajectory& t) { t.policy = 0; },
      [](Trajectory& t) { t.policy += 1; },  // from the future
      [](Trajectory& t) { t = Trajectory(RowLayout(3), 1, kSteps + 1, kEnvs); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const auto actor = Join();
    Trajectory t = Collected(policy_);
    changes[i](t);
    Tell(*actor, {EncodeTrajectory(t, 1)});
    ExpectClosed(*actor, "a trajectory");
    ExpectGoesOn();
  }
  for (const std::uint64_t number : {0, 2}) {
    const auto actor = Join();
    Tell(*actor, {EncodeTrajectory(Collected(policy_), number)});
    ExpectClosed(*actor, "each is sent once, in order");
  }
  ExpectGoesOn();
}

TEST_F(ReplayAttack, ATrajectoryThatIsSentTwiceIsRememberedOnce) {
  const auto actor = Join();
  const Outgoing message = EncodeTrajectory(Collected(policy_), 1);
  Tell(*actor, {message});
  EXPECT_NE(Hear(*actor), nullptr);
  ++others_;
  Tell(*actor, {message});
  ExpectClosed(*actor, "trajectory 1 after trajectory 1");
  ExpectGoesOn();
}

TEST_F(ReplayAttack, AThousandIdleConnectionsHoldUpNobody) {
  std::vector<std::unique_ptr<Stream>> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(Connect());
    if (i % 2 == 0) idle.back()->Send(Text({{"learn", "1"}}), Deadline::min());  // and then nothing more
    if (i % 10 == 0) Pump();
  }
  for (int i = 0; i < 3; ++i) ExpectGoesOn();
  idle.clear();
  for (int i = 0; i < 3; ++i) ExpectGoesOn();
}

// Draws of who is gone are answered to nobody, and hold up nobody.
TEST_F(ReplayAttack, ALearnerThatDiesWhileItsDrawsWaitIsForgotten) {
  for (int i = 0; i < 10; ++i) {
    const auto learner = Learn();
    learner->Send(Turn(1), Deadline::min());
    learner->Send(Turn(2), Deadline::min());
    learner->Send(TextMessage("nothing that means anything"), Deadline::min());
  }
  ExpectGoesOn();
}

}  // namespace
}  // namespace trireme
