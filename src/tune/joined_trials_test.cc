// What a search does with workers that say the wrong thing, or nothing.
#include "trireme/tune/joined_trials.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/scratch_folder.h"
#include "trireme/base/version.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/text_message.h"
#include "trireme/tune/space_file.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

class JoinedTrialsTest : public testing::Test {
 protected:
  JoinedTrialsTest() {
    settings_.Resolve(1, 1);
    options_.study = folder_.path() / "study.db";
    options_.seeds = 1;
    options_.trials = 3;
    desk_ = std::make_unique<TrialDesk>(settings_, space_, Aim{Objective::kReturn, 0, 1000}, options_);
    joined_ = std::make_unique<JoinedTrials>(*desk_, mutex_, transport_.Listen("search", {}), options_);
  }

  // A worker, by hand.
  struct Client {
    std::unique_ptr<Stream> stream;

    // Null: the stream was closed instead.
    Json Ask(const std::string& question) {
      stream->Send(TextMessage(question), Clock::now() + 10s);
      Incoming* const answer = stream->Receive(Clock::now() + 10s);
      return answer == nullptr ? Json() : Json::parse(ReadText(*answer));
    }
    Json Ask(const Json& question) { return Ask(question.dump()); }
  };
  Client Connect() { return {transport_.Connect("search", {})}; }
  Client Worker() {
    Client client = Connect();
    EXPECT_TRUE(client.Ask(Json{{"hello", Version()}}).contains("welcome"));
    return client;
  }
  std::map<int, std::pair<TrialState, std::string>> Trials() {
    const std::lock_guard lock(mutex_);
    Study study(options_.study, "CartPole-v1 ppo return", {}, space_, true);
    std::map<int, std::pair<TrialState, std::string>> trials;
    for (const StudyTrial& trial : study.Trials()) {
      const auto error = trial.notes.find("error");
      trials[trial.number] = {trial.state, error == trial.notes.end() ? "" : error->second};
    }
    return trials;
  }

  ScratchFolder folder_;
  RunSettings settings_{"CartPole-v1", "ppo"};
  Space space_ = MakeSpace(settings_.fields, {}, {});
  TuneOptions options_;
  MemoryTransport transport_;
  std::mutex mutex_;
  std::unique_ptr<TrialDesk> desk_;
  std::unique_ptr<JoinedTrials> joined_;
};

const Json kNext = {{"next", true}};

TEST_F(JoinedTrialsTest, StrangersAreTurnedAway) {
  for (const std::string question :
       {R"({"next": true})", "nonsense", "[]", R"({"hello": 7})", R"({"hello": {}})", "", "\xff\xfe"}) {
    Client client = Connect();
    EXPECT_TRUE(client.Ask(question).is_null()) << question;
    EXPECT_TRUE(client.stream->closed());
    EXPECT_FALSE(client.stream->why().empty());
  }
  Client other = Connect();
  EXPECT_TRUE(other.Ask(Json{{"hello", "0.0.1"}}).is_null());
  EXPECT_NE(other.stream->why().find("use the same"), std::string::npos) << other.stream->why();
  Client large = Connect();
  EXPECT_TRUE(large.Ask(std::string(1 << 20, 'x')).is_null());
  EXPECT_TRUE(Trials().empty());
}

TEST_F(JoinedTrialsTest, WhatIsNoMessageFailsTheTrial) {
  Client worker = Worker();
  for (const char* line : {"nonsense", R"({"rung": "x"})", R"({"end": "done", "seeds": "[]"})"}) {
    ASSERT_TRUE(worker.Ask(kNext).contains("order"));
    EXPECT_TRUE(worker.Ask(Json{{"line", line}}).value("drop", false)) << line;
  }
  for (const auto& [number, trial] : Trials()) EXPECT_EQ(trial.first, TrialState::kFail) << trial.second;
  EXPECT_TRUE(worker.Ask(Json{{"line", "more"}}).value("drop", false)) << "there is nothing to say it of";
  EXPECT_TRUE(worker.Ask(kNext).contains("later"));
}

TEST_F(JoinedTrialsTest, NonsenseOfOneWorkerIsNothingToTheOthers) {
  Client worker = Worker(), other = Worker();
  for (const char* question : {R"({"line": 5})", R"({"failed": {}})"}) {
    Client client = Worker();
    ASSERT_TRUE(client.Ask(kNext).contains("order"));
    EXPECT_TRUE(client.Ask(std::string(question)).is_null());
    EXPECT_NE(client.stream->why().find("no question of a worker"), std::string::npos)
        << client.stream->why();
  }
  EXPECT_TRUE(other.Ask(kNext).contains("order"));
  const std::lock_guard lock(mutex_);
  EXPECT_NO_THROW(joined_->Check());
}

// One that takes leave has not taken anything along: only who vanishes is suspicious.
TEST_F(JoinedTrialsTest, WorkersMayLeaveAsOftenAsTheyLike) {
  for (int i = 0; i < 5; ++i) {
    Client worker = Worker();
    ASSERT_TRUE(worker.Ask(kNext).contains("order")) << i;
    worker.Ask(Json{{"leave", true}});
    EXPECT_EQ(Trials()[0].first, TrialState::kWaiting) << i;
  }
  EXPECT_EQ(Trials().size(), 1u);
}

TEST_F(JoinedTrialsTest, WhoAsksAgainHasGivenBackWhatItHad) {
  Client first = Worker();
  const std::string order = first.Ask(kNext)["order"];
  EXPECT_EQ(first.Ask(kNext)["order"], order);
  EXPECT_EQ(Trials().size(), 1u);
  first.stream.reset();  // and who leaves too
  Client second = Worker();
  for (int i = 0; i < 1000 && Trials()[0].first == TrialState::kRunning; ++i)
    std::this_thread::sleep_for(10ms);
  EXPECT_EQ(second.Ask(kNext)["order"], order);
  EXPECT_EQ(Trials().size(), 1u);
}

TEST_F(JoinedTrialsTest, ResultsAreKeptAndTheEndIsTold) {
  Client worker = Worker();
  ASSERT_TRUE(worker.Ask(kNext).contains("order"));
  EXPECT_EQ(worker.Ask(Json{{"beat", true}}), Json::object());
  const std::string seeds = SeedsToJson(std::vector{SeedResult{.seed = 1, .steps = 1000, .last_return = 7}});
  const Json end = {{"end", "done"}, {"seeds", seeds}};
  EXPECT_TRUE(worker.Ask(Json{{"line", end.dump()}}).value("drop", false));
  EXPECT_EQ(Trials()[0].first, TrialState::kComplete);
  joined_.reset();
  EXPECT_EQ(worker.stream->Receive(Clock::now() + 10s), nullptr);
  EXPECT_EQ(worker.stream->why(), kSearchIsOver);
}

TEST_F(JoinedTrialsTest, AStudyThatCannotBeWrittenEndsTheSearch) {
  Client worker = Worker();
  {
    const std::lock_guard lock(mutex_);
    Database database(options_.study);
    database.Run("DROP TABLE trials");
  }
  worker.Ask(kNext);
  const std::lock_guard lock(mutex_);
  EXPECT_THROW(joined_->Check(), Error);
}

}  // namespace
}  // namespace trireme
