// Who goes on from whom in a population, and with what.
#include "trireme/tune/population.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "trireme/base/scratch_folder.h"
#include "trireme/train/trainer.h"
#include "trireme/tune/study_page.h"
#include "trireme/tune/test_functions.h"

namespace trireme {
namespace {

using testing::ChoiceOf;
using testing::Real;
using testing::Whole;

constexpr int kSize = 10;

class PopulationTest : public ::testing::Test {
 protected:
  static Space MakeTestSpace() {
    Parameter width = Whole("width", 16, 128, Search::Kind::kPowersOfTwo);
    width.shapes = true;
    return Space({Real("rate", 1e-4, 1, Search::Kind::kLog), width, ChoiceOf("kind", {"a", "b", "c"})});
  }
  // The first stretch: member i has the value i, so the last ones are the worst. Less is better.
  std::vector<PastTrial> FirstStretch() const {
    std::vector<PastTrial> history;
    for (int i = 0; i < kSize; ++i)
      history.push_back({.point = population_.Propose({}, i, 0).point,
                         .outcome = PastTrial::Outcome::kComplete,
                         .value = static_cast<double>(i)});
    return history;
  }

  const Space space_ = MakeTestSpace();
  const Population population_{space_, 1, kSize};
};

TEST_F(PopulationTest, GoodMembersGoOnAndPoorOnesTakeTheirPlace) {
  const std::vector<PastTrial> history = FirstStretch();
  for (int member = 0; member < kSize; ++member) {
    const Proposal next = population_.Propose(history, kSize + member, 0);
    if (member < kSize - 2) {
      EXPECT_EQ(next.parent, member);
      EXPECT_EQ(next.point, history[static_cast<std::size_t>(member)].point);
      continue;
    }
    ASSERT_GE(next.parent, 0);
    EXPECT_LT(next.parent, 2) << "one of the best fifth";
    const Point& parent = history[static_cast<std::size_t>(next.parent)].point;
    EXPECT_NE(next.point, parent);
    EXPECT_EQ(next.point[1], parent[1]) << "another width is another network";
  }
}

TEST_F(PopulationTest, SettingsMoveALittleOrAreDrawnAnew) {
  const std::vector<PastTrial> history = FirstStretch();
  int near = 0, far = 0;
  std::set<double> kinds;
  for (int attempt = 0; attempt < 400; ++attempt) {
    const Proposal next = population_.Propose(history, 2 * kSize - 1, attempt);
    const Point& parent = history[static_cast<std::size_t>(next.parent)].point;
    const Parameter& rate = space_.parameters()[0];
    const double move = std::abs(rate.ToUnit(next.point[0]) - rate.ToUnit(parent[0]));
    ++(move < 0.1 + 1e-9 ? near : far);
    kinds.insert(next.point[2]);
  }
  EXPECT_GT(near, 400 * 0.65);
  EXPECT_GT(far, 400 * 0.1);
  EXPECT_EQ(kinds.size(), 3U);
}

TEST_F(PopulationTest, IsAFunctionOfWhatHasEnded) {
  std::vector<PastTrial> history = FirstStretch();
  history[4].outcome = PastTrial::Outcome::kRunning;
  EXPECT_FALSE(population_.Ready(history, kSize + 4)) << "its member is still at work";
  EXPECT_TRUE(population_.Ready(history, kSize + 5));
  EXPECT_EQ(population_.Propose(history, kSize + 9, 0).point,
            population_.Propose(history, kSize + 9, 0).point);
  // Of two the worse one is poor, of one nobody is.
  for (std::size_t i = 2; i < history.size(); ++i) history[i].outcome = PastTrial::Outcome::kRunning;
  EXPECT_EQ(population_.Propose(history, kSize + 1, 0).parent, 0);
  history[0].outcome = PastTrial::Outcome::kRunning;
  EXPECT_EQ(population_.Propose(history, kSize + 1, 0).parent, 1);
}

TEST_F(PopulationTest, WhoFailedTakesAnotherPlaceAndWhereAllFailedAllBeginAnew) {
  std::vector<PastTrial> history = FirstStretch();
  history[0].outcome = PastTrial::Outcome::kFailed;
  const Proposal next = population_.Propose(history, kSize, 0);
  EXPECT_EQ(next.parent, 1);
  for (PastTrial& trial : history) trial.outcome = PastTrial::Outcome::kFailed;
  EXPECT_EQ(population_.Propose(history, kSize, 0).parent, -1);
}

TEST_F(PopulationTest, ThePageShowsTheLineOfTheBest) {
  StudyPage page{
      .title = "t", .aim = {}, .trials = {}, .history = {}, .finalists = {}, .preset = "", .population = 2};
  for (int i = 0; i < 4; ++i) {
    StudyTrial& trial = page.trials.emplace_back();
    trial.number = i;
    trial.parent = i < 2 ? -1 : 0;
    trial.state = TrialState::kComplete;
    trial.value = i;
    trial.point = {0.01, 64, 1};
    page.history.push_back(
        {.point = trial.point, .outcome = PastTrial::Outcome::kComplete, .value = -1.0 * i});
  }
  const std::string html = StudyPageHtml(page, space_);
  EXPECT_NE(html.find("Lineage"), std::string::npos);
  EXPECT_NE(html.find("<tr><th>1</th><td>3</td><td>3.0</td><td>0.01</td><td>b</td></tr>"), std::string::npos)
      << html;
  page.population = 0;
  EXPECT_EQ(StudyPageHtml(page, space_).find("Lineage"), std::string::npos);
}

// What a field declares is true: a run goes on with any other value of a setting that does not shape it.
TEST(Shapes, ARunGoesOnWithOtherValuesOfAllOtherSettings) {
  for (const char* algo : {"ppo", "a2c", "dqn"}) {
    const auto make = [&](std::int64_t steps) {
      auto settings = std::make_unique<RunSettings>("CartPole-v1", algo);
      for (const char* assignment : {"hidden=[16]", "eval_every=0", "eval_episodes=1", "envs=8", "shards=1"})
        settings->fields.ApplyAssignment(assignment, "test");
      if (std::string_view(algo) == "dqn")
        for (const char* assignment : {"learning_starts=64", "prioritised=true", "rounds=16", "batch=32"})
          settings->fields.ApplyAssignment(assignment, "test");
      settings->run.steps = steps;
      return settings;
    };
    ScratchFolder scratch;
    const auto first = make(1024);
    first->Resolve(1, 1);
    {
      const RunFolder folder = RunFolder::Create(scratch.path() / "run", "", first->fields.ToToml());
      Train(*first, folder, {.json = true});
    }
    const auto probe = make(2048);
    const Space space = MakeSpace(probe->fields, {}, {});
    const Point here = space.Nearest(probe->fields);
    int tried = 0;
    for (std::size_t i = 0; i < space.size(); ++i) {
      const Parameter& parameter = space.parameters()[i];
      if (parameter.shapes) continue;
      SCOPED_TRACE(std::string(algo) + " " + parameter.name);
      Point other(space.size(), std::nan(""));  // all else stays as it is
      other[i] = parameter.FromUnit(parameter.ToUnit(here[i]) < 0.5 ? 0.99 : 0.01);
      const auto second = make(2048);
      space.Apply(other, second->fields);
      second->Resolve(1, 1);
      const auto path = scratch.path() / parameter.name;
      std::filesystem::copy(scratch.path() / "run", path, std::filesystem::copy_options::recursive);
      const RunFolder folder = RunFolder::Resume(path);
      std::vector<std::string> said;
      TrainOptions options{.json = true};
      options.say = [&](const std::string& line) { said.push_back(line); };
      EXPECT_GE(Train(*second, folder, options).facts.steps, 2048);
      EXPECT_TRUE(said.empty()) << said.front();
      ++tried;
    }
    EXPECT_GE(tried, 8) << algo;
  }
}

}  // namespace
}  // namespace trireme
