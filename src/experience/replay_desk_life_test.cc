// What a replay server keeps when learners come and go, when it is started again, and when runs end. On one thread.
#include <gtest/gtest.h>

#include <algorithm>
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

ReplayRun RunOf(const std::string& id = "run") {
  EnvSpec env;
  env.name = "Test-v0";
  env.obs.shape = {3};
  env.action = ActionSpace::Discrete(2);
  return {.id = id,
          .looks = "looks",
          .shape = {env, kSteps, kEnvs},
          .rules = {.capacity = 64, .n_step = 1, .gamma = 0.5, .alpha = 1, .epsilon = 0.1},
          .rate = {.draws_per_insert = 2, .least = 16, .slack = 32},
          .part = kPart,
          .settings = "settings",
          .params = kParams,
          .seed = 5};
}

Outgoing Text(const Json& json) { return TextMessage(json.dump()); }

class ReplayLife : public ::testing::Test {
 protected:
  void SetUp() override { StartServer(); }

  // With what the one before has left in the folder; that one has been killed.
  void StartServer() {
    learner_ = nullptr;
    actor_ = nullptr;
    desk_ = nullptr;
    server_ = nullptr;
    server_ = transport_.Listen("a", {});
    desk_ = std::make_unique<ReplayDesk>(
        *server_, ReplayDesk::Options{.version = "1",
                                      .folder = folder_.path() / "memory",
                                      .say = [this](const std::string& text) { said_ += text + "\n"; }});
  }
  void Pump() { transport_.Pump(*server_, *desk_, now_ += std::chrono::milliseconds(100)); }
  void Tell(Stream& stream, const std::vector<Outgoing>& messages) {
    for (const Outgoing& message : messages) stream.Send(message, Deadline::min());
    Pump();
  }
  static Incoming* Hear(Stream& stream) { return stream.Receive(Deadline::min()); }

  // Why it is refused; empty: it is not.
  std::string Learn(const ReplayRun& run = RunOf()) {
    learner_ = nullptr;
    Pump();
    learner_ = transport_.Connect("a", {});
    MessageParts policy(sizeof(ReplayWord) + sizeof(PolicyHeader) + kParams * sizeof(float));
    policy.PutOne(ReplayWord::kPolicy);
    policy.PutOne(PolicyHeader{.version = 1, .params = kParams});
    policy.Put(std::span<const float>(std::vector<float>(kParams)));
    Tell(*learner_, {Text({{"learn", "1"}}), TextMessage(run.Encode()), policy.Done()});
    return Hear(*learner_) != nullptr ? "" : learner_->why();
  }
  void EndRun() {
    actor_ = nullptr;
    MessageParts over(sizeof(ReplayWord));
    over.PutOne(ReplayWord::kOver);
    Tell(*learner_, {over.Done()});
    for (int i = 0; i < 3; ++i, Pump()) {
      while (Hear(*learner_) != nullptr) {
      }
    }
    EXPECT_TRUE(desk_->done());
  }
  // How many of so many draws are answered.
  std::uint64_t Draw(std::uint64_t wanted) {
    Tell(*learner_, {EncodeTurn({.wanted = wanted, .beta = 0.5}, {}, {})});
    std::uint64_t answered = 0;
    while (Incoming* const message = Hear(*learner_)) {
      answered +=
          DecodeAnswer(*message, kPart, ReplayBuffer::RecordSize(RowLayout(3), 1), wanted - answered).draws;
    }
    return answered;
  }
  // How many trajectories are taken, of an actor that sends as many as it may, and at most so many.
  int Collect(int most) {
    actor_ = transport_.Connect("a", {});
    Tell(*actor_, {Text({{"hello", "1"}})});
    EXPECT_NE(Hear(*actor_), nullptr) << actor_->why();
    Tell(*actor_, {Text({{"ready", "looks"}})});
    std::uint64_t policy = PolicyOf();
    Trajectory t(RowLayout(3), 1, kSteps, kEnvs);
    std::ranges::fill(t.extra, 1.0f);
    for (int taken = 0; taken < most; ++taken) {
      t.policy = policy;
      Tell(*actor_, {EncodeTrajectory(t, static_cast<std::uint64_t>(taken) + 1)});
      policy = PolicyOf();
      if (policy == 0) {
        actor_ = nullptr;  // what waits goes with it
        Pump();
        return taken;
      }
    }
    return most;
  }

  MemoryTransport transport_;
  ScratchFolder folder_;
  std::string said_;
  Deadline now_ = Clock::now();
  std::unique_ptr<ServerTransport> server_;
  std::unique_ptr<ReplayDesk> desk_;
  std::unique_ptr<Stream> learner_, actor_;

 private:
  // 0: none has come.
  std::uint64_t PolicyOf() {
    Incoming* const message = Hear(*actor_);
    return message == nullptr ? 0 : ReadOne<PolicyHeader>(*message).version;
  }
};

// draws - 2 (inserts - 16) <= 32
TEST_F(ReplayLife, WhatWasDrawnCountsWhoeverComesBack) {
  ASSERT_EQ(Learn(), "");
  ASSERT_EQ(Collect(3), 3);
  ASSERT_EQ(Draw(100), (32u + 2 * 8) / kPart);
  ASSERT_EQ(Learn(), "") << "the same learner, over another stream";
  EXPECT_EQ(Draw(100), 0u);
  ASSERT_EQ(Learn(), "");
  EXPECT_EQ(Collect(1), 1);
  EXPECT_EQ(Draw(100), 2u * 8 / kPart);
  StartServer();
  ASSERT_EQ(Learn(), "") << "another life of the server";
  EXPECT_EQ(Draw(100), 0u);
  ASSERT_EQ(Learn(), "");
  EXPECT_EQ(Collect(1), 1);
  EXPECT_EQ(Draw(100), 2u * 8 / kPart);
}

// draws - 2 (inserts - 16) >= -32
TEST_F(ReplayLife, WhatWasInsertedCountsWhoeverComesBack) {
  ASSERT_EQ(Learn(), "");
  ASSERT_EQ(Collect(10), 2 + 2);
  ASSERT_EQ(Learn(), "") << "the same learner, over another stream";
  EXPECT_EQ(Collect(10), 0);
  StartServer();
  ASSERT_EQ(Learn(), "") << "another life of the server";
  EXPECT_EQ(Collect(10), 0);
  EXPECT_EQ(Draw(4), 4u);
  EXPECT_EQ(Collect(10), 1);
}

// How far draws are ahead is kept, by the old measure; from then on the new one counts.
TEST_F(ReplayLife, ARunThatGoesOnMayDrawAtAnotherRate) {
  ASSERT_EQ(Learn(), "");
  ASSERT_EQ(Collect(3), 3);
  ASSERT_GT(Draw(100), 0u);
  ReplayRun faster = RunOf();
  faster.rate.draws_per_insert = 4;
  ASSERT_EQ(Learn(faster), "");
  EXPECT_EQ(Draw(100), 0u);
  ASSERT_EQ(Learn(faster), "");
  EXPECT_EQ(Collect(1), 1);
  EXPECT_EQ(Draw(100), 4u * 8 / kPart);
}

TEST_F(ReplayLife, OneRunAtATime) {
  ASSERT_EQ(Learn(), "");
  ASSERT_EQ(Collect(3), 3);
  const auto first = std::move(learner_);
  const std::string why = Learn(RunOf("other"));
  EXPECT_NE(why.find("another run, run, which has not ended"), std::string::npos) << why;
  EXPECT_NE(why.find("The learner's, other, has"), std::string::npos) << why;
  EXPECT_FALSE(first->closed());
  StartServer();
  EXPECT_NE(Learn(RunOf("other")), "") << "its learner may come back";
  EXPECT_EQ(Learn(), "");
  EXPECT_GT(Draw(1), 0u);
}

TEST_F(ReplayLife, WhatAnEndedRunHasLeftIsItsOwnUntilAnotherOneComes) {
  ASSERT_EQ(Learn(), "");
  ASSERT_EQ(Collect(3), 3);
  EndRun();
  StartServer();
  ASSERT_EQ(Learn(), "") << "it goes on";
  EXPECT_GT(Draw(1), 0u) << "with what is remembered";
  StartServer();
  EXPECT_NE(Learn(RunOf("other")), "") << "now it has not ended";
  ASSERT_EQ(Learn(), "");
  EndRun();
  StartServer();
  ReplayRun other = RunOf("other");
  other.rules.capacity = 128;
  EXPECT_EQ(Learn(other), "");
  EXPECT_NE(said_.find("what run run has left, which has ended, gives way to run other"), std::string::npos);
  EXPECT_EQ(Draw(1), 0u) << "it begins with nothing";
  EXPECT_NE(Learn(), "");
  StartServer();
  EXPECT_EQ(Learn(other), "");
}

}  // namespace
}  // namespace trireme
