// `trireme tune` from outside: what it finds and leaves, what it survives, and what it refuses. Never how long anything takes.
#include <csignal>
#include <set>

#include "tune_util.h"

namespace trireme::testing {
namespace {

TEST_F(TuneTest, ShowsWhatItSearches) {
  const Outcome outcome = RunTrireme({"tune", "--env", "CartPole-v1", "--algo", "dqn", "--show-space"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("learning_rate"), std::string::npos);
  EXPECT_NE(outcome.out.find("only where prioritised is true"), std::string::npos);
  WriteText(Path("space.toml"), "only = [\"learning_rate\"]\nepochs = {low = 1, high = 3}\n");
  const Outcome narrow =
      RunTrireme({"tune", "--env", "CartPole-v1", "--space", Path("space.toml"), "--show-space"});
  EXPECT_NE(narrow.out.find("log whole, 1 to 3"), std::string::npos) << narrow.out;
  EXPECT_EQ(std::ranges::count(narrow.out, '\n'), 2) << narrow.out;
}

TEST_F(TuneTest, LeavesAStudyAndSettingsThatTrainTakes) {
  const Json json = ResultOf(RunTrireme(Tune({"--trials", "6", "--method", "tpe", "--json"})));
  EXPECT_EQ(json["trials"], 6);
  EXPECT_EQ(json["complete"], 6);
  ASSERT_EQ(json["finalists"].size(), 2U);
  const Json& best = json["finalists"][0];
  EXPECT_TRUE(best["fresh"].is_object());
  EXPECT_LE(best["fresh"]["value"], json["finalists"][1]["fresh"]["value"]);
  EXPECT_EQ(States().size(), 6U);
  const std::string page = ReadText(Path("study.html"));
  for (const char* part : {"CartPole-v1 with ppo", "Finalists", "learning_rate", "</html>"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  // What the trial has found is what train finds: its first seed needs as many steps.
  const std::string note = Column(
                               "SELECT number, value_json FROM trials JOIN trial_user_attributes USING "
                               "(trial_id) WHERE key = 'fresh_seeds'")
                               .at(best["trial"].get<int>());
  const Json seed = Json::parse(note)[0];
  EXPECT_EQ(seed["seed"], 3) << "seeds 1 and 2 were those of trials";
  const Json run = ResultOf(
      RunTrireme({"train", "--config", Path("study.best.toml"), "--target", "30", "--seed", "3", "--set",
                  "eval_every=512", "--set", "eval_episodes=8", "--out", Path("run"), "--json"}));
  EXPECT_EQ(run["reached_target"], seed["reached"]);
  EXPECT_EQ(run["steps_to_target"], seed.contains("steps_to_target") ? seed["steps_to_target"] : Json());
}

TEST_F(TuneTest, TheSameSeedProposesTheSame) {
  const Args one_by_one = {"--trials", "14",          "--method", "tpe",   "--parallel",
                           "1",        "--finalists", "0",        "--json"};
  ResultOf(RunTrireme(Tune(one_by_one)));
  const auto first = Proposals();
  std::filesystem::remove(Path("study.db"));
  // In two parts: what is known when it goes on is in the file.
  ResultOf(RunTrireme(Tune(Args{"--trials", "12"} +
                           Args{"--method", "tpe", "--parallel", "1", "--finalists", "0", "--json"})));
  ResultOf(RunTrireme(Tune(one_by_one)));
  EXPECT_EQ(Proposals(), first);
  EXPECT_EQ(first.size(), 14U);
}

TEST_F(TuneTest, EveryMethodComesToItsEnd) {
  for (const char* method : {"asha", "hyperband", "random", "grid", "cmaes"}) {
    SCOPED_TRACE(method);
    std::filesystem::remove(Path("study.db"));
    const Json json = ResultOf(RunTrireme(Tune({"--trials", "7", "--method", method, "--json"})));
    EXPECT_EQ(json["trials"], 7);
    EXPECT_EQ(json["failed"].get<int>() + json["complete"].get<int>() + json["pruned"].get<int>(), 7);
    EXPECT_GE(json["complete"], 1);
  }
}

// Trials that are far from the best at a rung end there.
TEST_F(TuneTest, PoorTrialsEndEarly) {
  WriteText(Path("space.toml"), "only = [\"learning_rate\"]\nlearning_rate = {low = 1e-9, high = 1e-2}\n");
  const Json json = ResultOf(RunTrireme(Tune(
      {"--trials", "12", "--method", "asha", "--space", Path("space.toml"), "--steps", "8192", "--json"})));
  EXPECT_GE(json["pruned"], 3) << json;
  EXPECT_GE(json["complete"], 1);
}

TEST_F(TuneTest, AKilledSearchGoesOn) {
  {
    Process process(kBinary, Tune({"--trials", "1000"}));
    ASSERT_TRUE(process.RunsUntil([&] { return process.Err().find("trial 3") != std::string::npos; }))
        << process.Err();
    process.Signal(SIGKILL);
    process.Wait();
  }
  const auto before = Column("SELECT number, value FROM trials JOIN trial_values USING (trial_id)");
  const std::size_t begun = States().size();
  ASSERT_GE(begun, 4U);
  const Json json = ResultOf(RunTrireme(Tune({"--trials", std::to_string(begun), "--json"})));
  EXPECT_EQ(json["trials"], begun);
  for (const auto& [number, state] : States()) EXPECT_NE(state, "RUNNING") << number;
  const auto after = Column("SELECT number, value FROM trials JOIN trial_values USING (trial_id)");
  for (const auto& [number, value] : before) EXPECT_EQ(after.at(number), value) << number;
}

// Killed fifty times at moments of no choice, a search finds what it finds undisturbed: nothing is lost, nothing is tried twice
// under two numbers, and what is proposed next does not change.
TEST_F(TuneTest, FiftyKillsChangeNothing) {
  const Args one_by_one = {"--parallel", "1", "--finalists", "0", "--method", "tpe"};
  for (int i = 0; i < 50; ++i) {
    Process process(kBinary, Tune(one_by_one + Args{"--trials", "100000"}));
    process.EndsWithin(0.02 + 0.3 * (i * 37 % 50) / 50);
    process.Signal(SIGKILL);
    EXPECT_EQ(process.Wait().signal, SIGKILL);
  }
  const std::size_t begun = States().size();
  ASSERT_GE(begun, 10U);
  ResultOf(RunTrireme(Tune(one_by_one + Args{"--trials", std::to_string(begun), "--json"})));
  const auto states = States(), proposals = Proposals();
  const auto values = Column("SELECT number, value FROM trials JOIN trial_values USING (trial_id)");
  EXPECT_EQ(Column("SELECT count(*), count(DISTINCT number) FROM trials").begin()->second,
            std::to_string(begun));

  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().filename().string().starts_with("study.db")) std::filesystem::remove(entry);
  }
  ResultOf(RunTrireme(Tune(one_by_one + Args{"--trials", std::to_string(begun), "--json"})));
  EXPECT_EQ(States(), states);
  EXPECT_EQ(Proposals(), proposals);
  EXPECT_EQ(Column("SELECT number, value FROM trials JOIN trial_values USING (trial_id)"), values);
}

// Members of a population go on from each other's states, which lie in files: killed at moments of no choice, it comes to the
// same end, and leaves no more states than somebody may go on from.
TEST_F(TuneTest, KillsDoNotChangeAPopulation) {
  const Args population = Tune({"--method", "pbt", "--population", "5", "--trials", "25", "--steps", "163840",
                                "--objective", "return", "--seeds", "1", "--parallel", "1", "--json"});
  Json json;
  int kills = 0;
  for (; kills < 40; ++kills) {
    Process process(kBinary, population);
    if (process.EndsWithin(0.05 + 0.15 * (kills * 37 % 40) / 40)) {
      json = ResultOf(process.Wait());
      break;
    }
    process.Signal(SIGKILL);
    EXPECT_EQ(process.Wait().signal, SIGKILL);
  }
  EXPECT_GE(kills, 3);
  if (json.is_null()) json = ResultOf(RunTrireme(population));
  EXPECT_EQ(json["complete"], 25);
  const auto proposals = Proposals();
  const auto values = Column("SELECT number, value FROM trials JOIN trial_values USING (trial_id)");
  const auto parents = Column(
      "SELECT number, value_json FROM trials JOIN trial_system_attributes USING (trial_id) WHERE key = "
      "'trireme:parent'");
  EXPECT_EQ(parents.size(), 20U) << "all but those of the first stretch";
  EXPECT_TRUE(std::ranges::any_of(parents, [](const auto& trial) {
    return (trial.first - std::stoi(trial.second)) % 5 != 0;
  })) << "somebody went on from another member";
  const auto in = [&](int first, int last) {
    int states = 0;
    for (int i = first; i <= last; ++i)
      states += std::filesystem::exists(Path("study.states/" + std::to_string(i)));
    return states;
  };
  EXPECT_EQ(in(0, 9), 0);
  EXPECT_EQ(in(20, 24), 5);
  const Outcome eval = RunTrireme({"eval", json["trained"].get<std::string>(), "--json"});
  EXPECT_EQ(eval.code, 0) << eval.err;

  std::filesystem::remove_all(Path("study.states"));
  for (const char* name : {"study.db", "study.db-wal", "study.db-shm"}) std::filesystem::remove(Path(name));
  ResultOf(RunTrireme(population));
  EXPECT_EQ(Proposals(), proposals);
  EXPECT_EQ(Column("SELECT number, value FROM trials JOIN trial_values USING (trial_id)"), values);
}

TEST_F(TuneTest, APopulationGoesOnWhenItsTimeIsUpOrItsStatesAreBack) {
  const auto population = [&](const Args& more) {
    return Tune(Args{"--method", "pbt", "--population", "3", "--trials", "900", "--steps", "921600",
                     "--objective", "return", "--seeds", "1", "--parallel", "4", "--json"} +
                more);
  };
  const Json first = ResultOf(RunTrireme(population({"--hours", "0.0003"})));
  EXPECT_EQ(first["unfinished"], true);
  EXPECT_FALSE(first["finalists"].empty()) << "the best of the stretch that it came to";
  for (const auto& [number, state] : States()) EXPECT_NE(state, "RUNNING") << number;
  const std::size_t begun = States().size();
  ASSERT_GE(begun, 4U);

  std::filesystem::rename(Path("study.states"), Path("elsewhere"));
  const Outcome missing = RunTrireme(population({"--hours", "0.0003"}));
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.err.find("is missing, from which trial"), std::string::npos) << missing.err;
  std::filesystem::remove_all(Path("study.states"));
  std::filesystem::rename(Path("elsewhere"), Path("study.states"));
  const Json second = ResultOf(RunTrireme(population({"--hours", "0.0003"})));
  EXPECT_EQ(second["failed"], 0);
  EXPECT_GT(States().size(), begun);
}

TEST_F(TuneTest, CtrlCPutsTrialsBack) {
  Process process(kBinary, Tune({"--trials", "1000"}));
  ASSERT_TRUE(process.RunsUntil([&] { return process.Err().find("trial 1") != std::string::npos; }));
  process.Signal(SIGINT);
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_NE(outcome.err.find("continue with the same command"), std::string::npos) << outcome.err;
  for (const auto& [number, state] : States()) EXPECT_NE(state, "RUNNING") << number;
}

// Every trial with an environment that breaks is a failure; the search says so and ends.
TEST_F(TuneTest, TrialsThatCrashAreRecorded) {
  const Outcome outcome = RunTrireme(Fragile("segv", {"--trials", "30"}));
  EXPECT_EQ(outcome.code, 2) << outcome.out;
  EXPECT_NE(outcome.err.find("no trial has come to its end"), std::string::npos) << outcome.err;
  const auto states = States();
  EXPECT_EQ(states.size(), 10U) << "more of the same would tell nothing";
  for (const auto& [number, state] : states) EXPECT_EQ(state, "FAIL") << number;
  const auto why = Column(
      "SELECT number, value_json FROM trials JOIN trial_user_attributes USING (trial_id) WHERE key = "
      "'error'");
  EXPECT_NE(why.at(0).find("Segmentation fault"), std::string::npos) << why.at(0);
}

TEST_F(TuneTest, TrialsThatDivergeOrHangAreRecorded) {
  const auto why = [&] {
    return Column(
               "SELECT number, value_json FROM trials JOIN trial_user_attributes USING (trial_id) WHERE key "
               "= 'error'")
        .at(0);
  };
  EXPECT_EQ(
      RunTrireme(Tune({"--trials", "1", "--set", "learning_rate=1e20", "--set", "max_grad_norm=0"})).code, 2);
  EXPECT_NE(why().find("diverged"), std::string::npos) << why();
  std::filesystem::remove(Path("study.db"));
  EXPECT_EQ(RunTrireme(Fragile("nan", {"--trials", "1"})).code, 2);
  EXPECT_NE(why().find("is nan"), std::string::npos) << why();
  std::filesystem::remove(Path("study.db"));
  EXPECT_EQ(RunTrireme(Fragile("hang", {"--trials", "1", "--silence", "1"})).code, 2);
  EXPECT_NE(why().find("hung"), std::string::npos) << why();
  EXPECT_EQ(States(), (std::map<int, std::string>{{0, "FAIL"}}));
}

TEST_F(TuneTest, SaysWhatCannotWork) {
  const Args cart_pole = {"tune", "--env", "CartPole-v1"};
  Refused({"tune"}, {"--env NAME"});
  Refused(cart_pole + Args{"--method", "best"}, {"--method best", "asha"});
  Refused(cart_pole + Args{"--objective", "speed"}, {"--objective speed", "time_to_target"});
  Refused(cart_pole + Args{"--trials", "0"}, {"--trials", "from 1"});
  Refused(cart_pole + Args{"--parallel", "none"}, {"--parallel"});
  Refused(cart_pole + Args{"--space", Path("none.toml")}, {"none.toml"});
  Refused(cart_pole + Args{"--study", Path("none/study.db")}, {"there is no folder"});
  Refused(cart_pole + Args{"--study", folder_.string()}, {"is a folder"});
  Refused(cart_pole + Args{"--store", "server"}, {"leave out --store server"});
  Refused({"tune", "--env", std::string("plugin:") + TRIREME_FRAGILE_PLUGIN + ":Sturdy-v0", "--objective",
           "time_to_target"},
          {"needs a target", "--target"});
  WriteText(Path("empty.toml"), "leave = [\"learning_rate\"]\nonly = [\"learning_rate\"]\n");
  Refused(cart_pole + Args{"--space", Path("empty.toml")}, {"nothing to search"});
  WriteText(Path("bad.toml"), "learning_rat = {low = 1, high = 2}\n");
  Refused(cart_pole + Args{"--space", Path("bad.toml")}, {"bad.toml:1", "Did you mean 'learning_rate'?"});
  WriteText(Path("inverted.toml"), "gamma = {low = 0.99, high = 0.9}\n");
  Refused(cart_pole + Args{"--space", Path("inverted.toml")}, {"inverted.toml:1", "upside down"});
  WriteText(Path("twice.toml"), "gamma = {low = 0.9, high = 0.99}\n");
  Refused(cart_pole + Args{"--space", Path("twice.toml"), "--set", "gamma=0.9"}, {"gamma", "say it once"});
  WriteText(Path("text.db"), std::string(3000, 'x'));
  Refused(cart_pole + Args{"--study", Path("text.db")}, {"text.db is no study"});
}

TEST_F(TuneTest, SaysWhatAPopulationCannotDo) {
  const auto refused = [&](const Args& more, const std::vector<std::string>& parts) {
    Refused(Tune(Args{"--method", "pbt", "--objective", "return"} + more), parts);
  };
  Refused(Tune({"--method", "pbt"}), {"--method pbt looks for the best return"});
  refused({"--trials", "5", "--population", "4"}, {"less than two stretches", "--population"});
  refused({"--trials", "100", "--population", "4", "--steps", "20"}, {"cannot be cut into 25 stretches"});
  refused({"--population", "1"}, {"--population", "from 2"});
}

TEST_F(TuneTest, AStudyOfAnotherProblemIsRefused) {
  ResultOf(RunTrireme(Tune({"--trials", "2", "--finalists", "0", "--json"})));
  Refused(Tune({"--trials", "3", "--algo", "a2c"}),
          {"a study of another problem", "its algorithm is ppo, not a2c"});
  Refused(Tune({"--trials", "3", "--target", "40"}), {"its target is 30, not 40"});
  Refused(Tune({"--trials", "3", "--set", "gamma=0.9"}), {"its search space is another one"});
  EXPECT_EQ(States().size(), 2U);
}

// A study on a disk without room is as it was, and the reason is said.
TEST_F(TuneTest, AFullDiskIsNamed) {
  std::filesystem::create_directory(Path("small"));
  const SmallDisk disk(Path("small"));
  if (!disk.mounted()) GTEST_SKIP() << "this user may not mount";
  WriteText(Path("small/filler"), std::string(SmallDisk::kBytes - 300'000, 'x'));
  const Outcome outcome =
      RunTrireme(Tune({"--trials", "100000", "--finalists", "0", "--study", Path("small/study.db")}));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("full"), std::string::npos) << outcome.err;
}

// What a full disk interrupts is run again when there is room.
TEST_F(TuneTest, AFullDiskCostsAPopulationNothing) {
  std::filesystem::create_directory(Path("small"));
  const SmallDisk disk(Path("small"));
  if (!disk.mounted()) GTEST_SKIP() << "this user may not mount";
  WriteText(Path("small/filler"), std::string(SmallDisk::kBytes - 900'000, 'x'));
  const Args population =
      Tune({"--method", "pbt", "--population", "3", "--trials", "12", "--steps", "12288", "--objective",
            "return", "--seeds", "1", "--study", Path("study.db"), "--finalists", "0", "--json"});
  std::filesystem::create_directory_symlink(Path("small"), Path("study.states"));
  const Outcome full = RunTrireme(population);
  EXPECT_EQ(full.code, 2) << full.out;
  EXPECT_NE(full.err.find("the disk is full"), std::string::npos) << full.err;
  std::filesystem::copy(Path("small"), Path("large"), std::filesystem::copy_options::recursive);
  std::filesystem::remove(Path("study.states"));
  std::filesystem::rename(Path("large"), Path("study.states"));
  const Json result = ResultOf(RunTrireme(population));
  EXPECT_EQ(result["complete"], 12);
  EXPECT_EQ(result["failed"], 0) << ::testing::PrintToString(
      Column("SELECT number, value_json FROM trials JOIN trial_user_attributes USING (trial_id) WHERE key = "
             "'error'"));
}

}  // namespace
}  // namespace trireme::testing
