// Environments in host processes that do what they should.
#include <gtest/gtest.h>

#include "trireme/env/conformance.h"
#include "trireme/env/gym/gym_test_util.h"

namespace trireme {
namespace {

TEST_F(GymTest, EnvironmentsConform) {
  for (const char* name : {"Walk", "Stateful", "Unsaved", "Masked", "MaskedInSteps", "factory"})
    CheckEnv(Find(InTrouble(name)));
}

TEST_F(GymnasiumTest, EnvironmentsConform) {
  for (const char* name : {"gym:CartPole-v1", "gym:Pendulum-v1"}) CheckEnv(Find(name));
}

TEST_F(GymTest, WhatIsKnownOfThem) {
  const EnvEntry walk = Find(InTrouble("Walk"));
  EXPECT_EQ(walk.spec.obs, (ObsSpec{{3}}));
  EXPECT_EQ(walk.spec.max_episode_steps, 20);
  EXPECT_EQ(walk.spec.help, "A walk of at most 20 steps between two walls, pushed about at random.");
  EXPECT_TRUE(walk.facts.snapshots && walk.facts.reproducible && walk.facts.steps_elsewhere);
  EXPECT_FALSE(walk.spec.masks);
  const EnvEntry unsaved = Find(InTrouble("Unsaved"), {{"max_steps", "7"}});
  EXPECT_FALSE(unsaved.facts.snapshots);
  EXPECT_TRUE(unsaved.facts.reproducible);
  EXPECT_EQ(unsaved.spec.max_episode_steps, 7);
  EXPECT_FALSE(Find(InTrouble("Unpredictable")).facts.reproducible);
  EXPECT_TRUE(Find(InTrouble("Stateful")).facts.snapshots);
  EXPECT_TRUE(Find(InTrouble("Masked")).spec.masks);
  EXPECT_TRUE(Find(InTrouble("MaskedInSteps")).spec.masks);
}

// A resumed run may have other hosts, but no other arguments. Nothing is started to find out.
TEST(GymSource, HowTheyAreRunIsNotWhatTheyAre) {
  const auto options = FindEnvOptions("gym:Nothing-v0");
  ConfigFields fields;
  fields.Add(*options);
  std::vector<std::string> how;
  for (const std::string& name : fields.Names()) {
    if (!options->identifies(name)) how.push_back(name);
  }
  EXPECT_EQ(how, (std::vector<std::string>{"hosts", "timeout_s", "max_failures", "python", "folder"}));
  EXPECT_TRUE(options->identifies("args"));
}

TEST_F(GymnasiumTest, SaysWhatItsEnvironmentsAre) {
  const EnvEntry pole = Find("gym:CartPole-v1");
  EXPECT_EQ(pole.spec.obs, (ObsSpec{{4}}));
  EXPECT_EQ(pole.spec.action.Describe(), "2 choices");
  EXPECT_EQ(pole.spec.max_episode_steps, 500);
  EXPECT_EQ(pole.spec.reward_threshold, 475.0);
  EXPECT_TRUE(pole.facts.snapshots && pole.facts.reproducible);
  const EnvEntry pendulum = Find("gym:Pendulum-v1", {{"max_steps", "30"}}, {{"g", 9.0}});
  EXPECT_EQ(pendulum.spec.max_episode_steps, 30);
  EXPECT_EQ(pendulum.spec.action.low, std::vector<float>{-2});
  EXPECT_FALSE(pendulum.spec.reward_threshold.has_value());
  std::vector<std::string> names;
  for (const EnvSource& source : AllEnvSources()) {
    if (source.prefix != "gym:") continue;
    for (const EnvListing& env : source.list()) names.push_back(env.name);
  }
  EXPECT_NE(std::ranges::find(names, "gym:CartPole-v1"), names.end());
}

// The same bits however copies are spread over processes.
TEST_F(GymTest, TheNumberOfHostsDoesNotMatter) {
  std::vector<std::vector<std::vector<double>>> seen;
  for (const char* hosts : {"1", "2", "3"}) {
    const auto batch = MakeReset(Find(InTrouble("Walk"), {{"hosts", hosts}}), 7, 3);
    std::vector<std::vector<double>> all = SeenByAll(*batch);
    for (int t = 0; t < 60; ++t) {
      StepRandomly(*batch, 0, t);
      for (auto& one : SeenByAll(*batch)) all.push_back(std::move(one));
    }
    seen.push_back(std::move(all));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

// Which a random order of sets in each process would change; unless somebody wants another one.
TEST_F(GymTest, EveryProcessGoesOverSetsInTheSameOrder) {
  const auto first_rows = [] {
    const auto batch = MakeReset(Find(InTrouble("Winds"), {{"hosts", "3"}}), 6, 3);
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 6; ++i) rows.push_back(ObsRow(*batch, batch->obs(), i));
    return rows;
  };
  const auto rows = first_rows();
  EXPECT_EQ(first_rows(), rows);
  ::setenv("PYTHONHASHSEED", "4", 1);
  EXPECT_NE(first_rows(), rows);
  ::unsetenv("PYTHONHASHSEED");
}

// Seeds differ between copies, purposes and runs, and later episodes of a copy from its first.
TEST_F(GymTest, EveryEpisodeIsAnother) {
  const EnvEntry env = Find(InTrouble("Walk"));
  std::set<float> starts;
  const auto add = [&](const EnvBatch& batch) {
    for (int i = 0; i < batch.size(); ++i) starts.insert(ObsRow(batch, batch.obs(), i)[0]);
  };
  const auto batch = MakeBatch(env, 4, 1, Purpose::kEnvReset, 0);
  add(*batch);
  batch->Reset(1, Purpose::kEvalReset, 0);
  add(*batch);
  batch->Reset(2, Purpose::kEvalReset, 0);
  add(*batch);
  batch->Reset(2, Purpose::kEvalReset, 4);
  add(*batch);
  for (int t = 0; t < 20; ++t) {
    StepRandomly(*batch, 0, t);
    for (const EpisodeEnd& end : batch->finished()) starts.insert(ObsRow(*batch, batch->obs(), end.env)[0]);
  }
  EXPECT_GE(starts.size(), 20u);
}

TEST_F(GymnasiumTest, SpacesBecomeRowsAndChoices) {
  const auto find = [](const char* kind) {
    return Find("py:" + File("spaces.py") + ":Fixed", {}, {{"kind", kind}});
  };
  const auto row_of = [](const EnvEntry& env) {
    const auto batch = MakeReset(env, 3);
    return ObsRow(*batch, batch->obs(), 2);
  };
  const EnvEntry dict = find("dict");
  EXPECT_EQ(row_of(dict), (std::vector<float>{0, 1, 0, 0.5, 0.25, 0, 1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(
      dict.spec.note,
      "observations are flattened as gymnasium.spaces.flatten does: ['a'] 0-2, ['b'] 3-4, ['c'][0] 5-6, "
      "['c'][1] 7-11");
  const EnvEntry image = find("image");
  EXPECT_EQ(image.spec.obs, (ObsSpec{{2, 3, 1}, ObsType::kUint8}));
  EXPECT_EQ(row_of(image)[5], 250 * kByteScale);
  EXPECT_EQ(row_of(find("discrete")), (std::vector<float>{0, 0, 1, 0}));
  EXPECT_EQ(row_of(find("number")), (std::vector<float>{7}));
  EXPECT_EQ(row_of(find("float64")), (std::vector<float>{0.5, 0.25}));

  const auto paid = [&](const char* kind, std::vector<float> action) {
    const EnvEntry env = find(kind);
    const auto batch = MakeReset(env, 3);
    std::vector<float> actions;
    for (int i = 0; i < 3; ++i) actions.insert(actions.end(), action.begin(), action.end());
    batch->Step(actions);
    return std::vector<float>(batch->rewards().begin(), batch->rewards().end());
  };
  const std::vector<float> all = {1, 1, 1};
  EXPECT_EQ(paid("plain", {1}), all);
  EXPECT_EQ(paid("start", {1}), all);
  EXPECT_EQ(paid("multi", {1, 1, 3}), all);
  EXPECT_EQ(paid("binary", {1, 0, 1}), all);
  EXPECT_EQ(paid("box", {7, -9, 0.5, -1}), all) << "actions are clipped";
  EXPECT_EQ(find("multi").spec.action.Describe(), "3 x 2 x 4 choices");
  EXPECT_EQ(find("binary").spec.action.Describe(), "2 x 2 x 2 choices");
  ExpectIn(ErrorOf([&] { find("text"); }), {"its observation space is Text", "not supported"});
  ExpectIn(ErrorOf([&] { find("tuple action"); }), {"its action space is Tuple", "not supported"});
}

// At the end of an episode the picture is of its end, not of what follows.
TEST_F(GymTest, ThereArePicturesWhereTheEnvironmentHasThem) {
  const EnvEntry env = Find(InTrouble("Drawn"));
  const auto batch = MakeDrawnBatch(env, 3, 1, Purpose::kEnvReset, 0);
  EXPECT_EQ(batch->pictures()->per_second(), 12);
  for (int t = 0; t < 25; ++t) {
    StepRandomly(*batch, 0, t);
    for (int i = 0; i < 3; ++i) {
      Picture picture;
      batch->pictures()->Draw(i, picture);
      ASSERT_EQ(picture.width, 5);
      ASSERT_EQ(picture.height, 4);
      const bool done = batch->terminated()[i] || batch->truncated()[i];
      const float steps = ObsRow(*batch, done ? batch->final_obs() : batch->obs(), i)[1] * 10;
      ASSERT_EQ(picture.At(4, 3).blue, static_cast<int>(std::lround(steps)));
    }
  }
  EXPECT_FALSE(Find(InTrouble("Walk")).make_drawn);
}

TEST_F(GymnasiumTest, EnvironmentsHavePictures) { EXPECT_TRUE(Find("gym:CartPole-v1").make_drawn); }

// Nothing runs any more when nobody holds the environment, and what it printed is in the log.
TEST_F(GymTest, HostsEndWithTheirEnvironmentAndKeepALog) {
  std::optional<EnvEntry> env = FindTrouble("raise", {}, {{"at", std::int64_t{2}}, {"once", Once()}});
  auto batch = MakeReset(*env, 4);
  const std::vector<pid_t> makers = Makers();
  env->processes->LogTo(folder_ / "env.log");
  for (int t = 0; t < 5; ++t) StepRandomly(*batch, 0, t);
  EXPECT_TRUE(Eventually([&] {
    return std::filesystem::exists(folder_ / "env.log") &&
           ReadFile(folder_ / "env.log").find(": about to raise\n") != std::string::npos;
  }));
  env.reset();
  for (const pid_t pid : makers) EXPECT_TRUE(Exists(pid)) << "a batch is left";
  batch.reset();
  for (const pid_t pid : makers) EXPECT_FALSE(Exists(pid));
}

}  // namespace
}  // namespace trireme
