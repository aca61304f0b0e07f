#include "trireme/tune/study.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <set>
#include <thread>

#include "trireme/base/file.h"
#include "trireme/base/scratch_folder.h"
#include "trireme/tune/process_id.h"
#include "trireme/tune/test_functions.h"

namespace trireme {
namespace {

using testing::ChoiceOf;
using testing::Real;
using testing::Whole;

class StudyTest : public ::testing::Test {
 protected:
  static Space MakeSpace() {
    Parameter child = Real("alpha", 0, 1);
    child.parent = 0;
    child.parent_values = {1};
    return Space({ChoiceOf("kind", {"plain", "special"}), child, Real("rate", 1e-4, 1, Search::Kind::kLog),
                  Whole("width", 16, 128, Search::Kind::kPowersOfTwo)});
  }
  std::filesystem::path file() const { return folder_.path() / "study.db"; }
  Study Open(bool maximise = false) const {
    return Study(file(), "a study", {{"environment", "Toy"}}, space_, maximise);
  }
  static Point Plain(double rate) { return {0, std::nan(""), rate, 64}; }
  static auto Always(const Point& point) {
    return [point](int) { return std::optional(Proposal{.point = point}); };
  }
  std::string Refusal(const std::function<void()>& body) const {
    try {
      body();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ScratchFolder folder_;
  Space space_ = MakeSpace();
};

TEST_F(StudyTest, KeepsTrialsAsTheyWere) {
  {
    Study study = Open();
    const auto first = study.Claim(2, Always({1, 0.25, 0.01, 32}));
    ASSERT_TRUE(first);
    EXPECT_EQ(first->number, 0);
    EXPECT_FALSE(first->again);
    study.Report(first->id, 100, 1.5);
    study.Report(first->id, 300, std::numeric_limits<double>::infinity());
    EXPECT_TRUE(study.End(first->id, TrialState::kComplete, 0.5, {{"seeds", "[1]"}}));
    const auto second = study.Claim(2, Always(Plain(0.1)));
    ASSERT_TRUE(second);
    study.Report(second->id, 100, 7);
    EXPECT_TRUE(study.End(second->id, TrialState::kPruned, std::nullopt, {}));
    EXPECT_FALSE(study.Claim(2, Always(Plain(0.1)))) << "no more than were asked for";
  }
  Study again = Open();
  const std::vector<StudyTrial>& trials = again.Trials();
  ASSERT_EQ(trials.size(), 2U);
  EXPECT_EQ(trials[0].state, TrialState::kComplete);
  EXPECT_EQ(trials[0].point, (Point{1, 0.25, 0.01, 32}));
  EXPECT_EQ(trials[0].value, 0.5);
  EXPECT_EQ(trials[0].notes.at("seeds"), "[1]");
  EXPECT_EQ(trials[0].reports.at(100), 1.5);
  EXPECT_EQ(trials[0].reports.at(300), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(trials[1].point[1]));
  const std::vector<PastTrial> history = again.History();
  EXPECT_EQ(history[0].value, 0.5);
  EXPECT_EQ(history[1].outcome, PastTrial::Outcome::kPruned);
  EXPECT_EQ(history[1].progress, 100);
  EXPECT_EQ(history[1].value, -7) << "reports are returns, of which more is better";
}

TEST_F(StudyTest, AReturnIsTurnedRoundForSamplers) {
  Study study = Open(true);
  const auto trial = study.Claim(1, Always(Plain(0.1)));
  study.End(trial->id, TrialState::kComplete, 200, {});
  EXPECT_EQ(study.History()[0].value, -200);
}

// What a process had begun when it was killed is begun again by the next one, once, with the same values.
TEST_F(StudyTest, TrialsOfAKilledProcessAreBegunAgain) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    {
      Study study = Open();
      const auto trial = study.Claim(5, Always(Plain(0.02)));
      study.Report(trial->id, 100, 3);
      (void)!write(ready[1], "x", 1);
    }
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  {
    Study meanwhile = Open();
    const auto other = meanwhile.Claim(5, Always(Plain(0.5)));
    ASSERT_TRUE(other);
    EXPECT_EQ(other->number, 1) << "a process that lives keeps its trial";
    EXPECT_TRUE(meanwhile.End(other->id, TrialState::kComplete, 1, {}));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  Study study = Open();
  const auto again = study.Claim(5, Always(Plain(0.7)));
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->again);
  EXPECT_EQ(again->number, 0);
  EXPECT_EQ(again->point[2], 0.02);
  EXPECT_TRUE(study.Trials()[0].reports.empty()) << "it has reported nothing yet";
  EXPECT_EQ(study.Claim(5, Always(Plain(0.7)))->number, 2);
  EXPECT_TRUE(study.End(again->id, TrialState::kComplete, 2, {}));
  EXPECT_FALSE(study.End(again->id, TrialState::kComplete, 3, {})) << "a trial ends once";
  EXPECT_EQ(study.Trials()[0].value, 2);
}

TEST_F(StudyTest, WhatIsGivenBackWaitsForTheNext) {
  Study study = Open();
  const auto trial = study.Claim(5, Always(Plain(0.02)));
  study.GiveBack(std::vector{trial->id});
  EXPECT_EQ(study.Trials()[0].state, TrialState::kWaiting);
  EXPECT_FALSE(study.End(trial->id, TrialState::kComplete, 1, {}));
  const auto again = study.Claim(5, Always(Plain(0.9)));
  EXPECT_EQ(again->id, trial->id);
  EXPECT_TRUE(again->again);
}

// Of a process on another host only the heartbeat is known.
TEST_F(StudyTest, ASilentProcessOfAnotherHostLosesItsTrial) {
  Study study = Open();
  const auto trial = study.Claim(1, Always(Plain(0.02)));
  Database database(file());
  ProcessId elsewhere = ProcessId::OfThis();
  elsewhere.host = "elsewhere";
  Statement(database, "UPDATE trial_system_attributes SET value_json = ?1").With(elsewhere.ToJson()).Run();
  EXPECT_FALSE(study.Claim(1, Always(Plain(0.9)))) << "it has just been heard of";
  database.Run("UPDATE trial_heartbeats SET heartbeat = datetime('now', '-61 seconds')");
  const auto again = study.Claim(1, Always(Plain(0.9)));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->id, trial->id);
}

// Numbers are given once, whoever asks, and nobody is told that the file is locked.
TEST_F(StudyTest, ManyProcessesShareOneFile) {
  { Study study = Open(); }
  constexpr int processes = 16, trials = 160;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    int code = 0;
    try {
      Study study = Open();
      while (const auto trial = study.Claim(trials, Always(Plain(0.01)))) {
        study.Report(trial->id, 10, trial->number);
        study.Beat(std::vector{trial->id});
        if (!study.End(trial->id, TrialState::kComplete, trial->number, {})) code = 4;
      }
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
      code = 3;
    }
    _exit(code);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  Study study = Open();
  ASSERT_EQ(study.Trials().size(), static_cast<std::size_t>(trials));
  for (const StudyTrial& trial : study.Trials()) {
    EXPECT_EQ(trial.state, TrialState::kComplete) << trial.number;
    EXPECT_EQ(trial.value, trial.number);
  }
}

TEST_F(StudyTest, WhatIsNoStudyOfThisProblemIsNamed) {
  { Study study = Open(); }
  const auto other = [&] { Study(file(), "a study", {{"environment", "Other"}}, space_, false); };
  EXPECT_NE(Refusal(other).find("its environment is Toy, not Other"), std::string::npos) << Refusal(other);

  WriteFileAtomically(folder_.path() / "text", std::string(5000, 'x'));
  const auto text = [&] { Study(folder_.path() / "text", "a study", {}, space_, false); };
  EXPECT_NE(Refusal(text).find("is no study"), std::string::npos) << Refusal(text);

  { Database(folder_.path() / "foreign").Run("CREATE TABLE notes (text TEXT)"); }
  const auto foreign = [&] { Study(folder_.path() / "foreign", "a study", {}, space_, false); };
  EXPECT_NE(Refusal(foreign).find("some other program"), std::string::npos) << Refusal(foreign);

  Database(file()).Run("UPDATE alembic_version SET version_num = 'v9.0.0'");
  EXPECT_NE(Refusal([&] { Open(); }).find("another version of Optuna (v9.0.0"), std::string::npos);
  const auto nowhere = [&] { Study(folder_.path() / "no" / "study.db", "a study", {}, space_, false); };
  EXPECT_NE(Refusal(nowhere).find("is there such a folder"), std::string::npos);
}

TEST_F(StudyTest, ADamagedFileIsNamed) {
  {
    Study study = Open();
    for (int i = 0; i < 20; ++i)
      study.End(study.Claim(20, Always(Plain(0.1)))->id, TrialState::kComplete, 1, {});
  }
  std::string bytes = ReadFile(file());
  ASSERT_GT(bytes.size(), 20'000U);
  for (std::size_t i = 5000; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 131);
  WriteFileAtomically(file(), bytes);
  const std::string refusal = Refusal([&] { Open().Trials(); });
  EXPECT_NE(refusal.find("damaged"), std::string::npos) << refusal;

  std::filesystem::remove(file());
  Study study = Open();
  study.Claim(1, Always(Plain(0.1)));
  Database(file()).Run("UPDATE trial_params SET param_value = 77 WHERE param_name = 'rate'");
  const std::string outside = Refusal([&] { Open().Trials(); });
  EXPECT_NE(outside.find("rate = 77"), std::string::npos) << outside;
}

TEST(ProcessIds, KnowWhoLives) {
  const ProcessId own = ProcessId::OfThis();
  EXPECT_TRUE(own.OnThisHost());
  EXPECT_TRUE(own.Lives());
  ProcessId reused = *ProcessId::Parse(own.ToJson());
  EXPECT_EQ(reused.pid, own.pid);
  ++reused.started;  // another process with the same id
  EXPECT_FALSE(reused.Lives());
  EXPECT_FALSE(ProcessId::Parse("{\"host\": 3}"));
  EXPECT_FALSE(ProcessId::Parse("nonsense"));
}

}  // namespace
}  // namespace trireme
