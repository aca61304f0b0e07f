// `trireme train` from start to end: the result line, the files, the target, and what must not depend on the
// number of workers.

#include <algorithm>
#include <cctype>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using TrainTest = CliTest;

// Whether every element of a markup text is closed in the right order.
bool TagsBalance(const std::string& text) {
  const std::vector<std::string> empty = {"meta", "br", "hr", "img", "link"};  // HTML elements without an end
  std::vector<std::string> open;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1)) {
    const std::size_t end = text.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (tag.empty()) return false;
    if (tag[0] == '?' || tag[0] == '!') continue;
    const std::size_t start = tag[0] == '/' ? 1 : 0;
    const std::string name = tag.substr(start, tag.find_first_of(" \n/", start) - start);
    if (tag[0] == '/') {
      if (open.empty() || open.back() != name) return false;
      open.pop_back();
    } else if (tag.back() != '/' && std::find(empty.begin(), empty.end(), name) == empty.end()) {
      open.push_back(name);
    }
  }
  return open.empty();
}

TEST_F(TrainTest, OptionsOfTheEnvironmentAreSavedWithTheRun) {
  const Json result = FinishedRun("run", {"--set", "env_max_steps=30"});
  EXPECT_LE(result["eval_return_mean"], 30);
  EXPECT_EQ(result["env"], "CartPole-v1");
  EXPECT_EQ(result["env_options"], "max_steps=30");
  EXPECT_NE(ReadText(Path("run") + "/config.toml").find("env_max_steps = 30"), std::string::npos);
  const Json evaluated = ResultOf(RunTrireme({"eval", Path("run"), "--which", "last", "--json"}));
  EXPECT_NEAR(evaluated["eval_return_mean"].get<double>(), result["eval_return_mean"].get<double>(), 1e-6);
  ExpectRefused(
      RunTrireme({"train", "--resume", Path("run"), "--steps", "9999", "--set", "env_max_steps=40"}),
      {"CartPole-v1 max_steps=30, not CartPole-v1 max_steps=40"});
  ExpectRefused(RunTrireme(SmallRun("other") + Args{"--set", "env_max_step=30"}), {"'env_max_steps'"});
  ExpectRefused(RunTrireme(SmallRun("other") + Args{"--set", "env_max_steps=-1"}), {"a whole number from 0"});
}

TEST_F(TrainTest, JsonResultHoldsTheWholeContract) {
  const Outcome outcome = RunTrireme(SmallRun("run") + Args{"--workers", "2", "--seed", "7"});
  const Json result = ResultOf(outcome);
  EXPECT_EQ(outcome.err, "");
  for (const char* key : {"env",
                          "env_options",
                          "algo",
                          "store",
                          "workers",
                          "seed",
                          "steps",
                          "wall_s",
                          "cpu_s",
                          "steps_per_s",
                          "eval_return_mean",
                          "eval_return_std",
                          "eval_episodes",
                          "best_return_mean",
                          "best_return_std",
                          "best_steps",
                          "reached_target",
                          "time_to_target_s",
                          "steps_to_target",
                          "params_sha256",
                          "bytes_sent",
                          "messages_sent",
                          "rounds",
                          "bytes_per_round",
                          "messages_per_round"}) {
    EXPECT_TRUE(result.contains(key)) << key;
  }
  EXPECT_EQ(result["env"], "CartPole-v1");
  EXPECT_EQ(result["algo"], "ppo");
  EXPECT_EQ(result["store"], "allreduce");
  EXPECT_EQ(result["workers"], 2);
  EXPECT_EQ(result["seed"], 7);
  EXPECT_EQ(result["steps"], 5120);
  EXPECT_EQ(result["eval_episodes"], 8);
  EXPECT_GT(result["eval_return_mean"], 0.0);
  EXPECT_GT(result["wall_s"], 0.0);
  EXPECT_GT(result["bytes_sent"], 0);
  EXPECT_GT(result["messages_sent"], 0);
  EXPECT_EQ(result["params_sha256"].get<std::string>().size(), 64u);
  EXPECT_EQ(Json::parse(ReadText(Path("run/result.json"))), result);
}

TEST_F(TrainTest, RunFolderHoldsEverything) {
  FinishedRun("run");
  const fs::path run = Path("run");
  int event_files = 0, temporaries = 0;
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    event_files += name.starts_with("events.out.tfevents.") ? 1 : 0;
    temporaries += name.ends_with(".tmp") ? 1 : 0;
  }
  EXPECT_EQ(event_files, 1);
  EXPECT_EQ(temporaries, 0);
  ASSERT_FALSE(Checkpoints(run).empty());
  EXPECT_EQ(Checkpoints(run).at(0).filename(), "checkpoint-5120.trireme");
  EXPECT_NE(ReadText(run / "config.toml").find("\nenvs = 16\n"), std::string::npos);

  const std::string svg = ReadText(run / "learning_curve.svg"), html = ReadText(run / "report.html");
  EXPECT_NE(svg.find("<svg"), std::string::npos);
  EXPECT_TRUE(TagsBalance(svg));
  EXPECT_NE(html.find("<html"), std::string::npos);
  EXPECT_TRUE(TagsBalance(html));
  EXPECT_FALSE(TagsBalance(svg.substr(0, svg.size() / 2)));
}

TEST_F(TrainTest, MetricsHaveOneRowPerIteration) {
  FinishedRun("run");
  const std::vector<Json> rows = TimelessRows(Path("run"));
  ASSERT_EQ(rows.size(), 10u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["step"], 512 * (i + 1));
    const bool evaluated = (i + 1) % 4 == 0 || i + 1 == rows.size();
    EXPECT_EQ(rows[i].contains("eval_return_mean") && !rows[i]["eval_return_mean"].is_null(), evaluated) << i;
  }
}

TEST_F(TrainTest, PeopleGetAReportInsteadOfJson) {
  Args args = SmallRun("run");
  args.erase(std::find(args.begin(), args.end(), "--json"));
  const Outcome outcome = RunTrireme(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"CartPole-v1", "evaluation:", "best evaluation:", "sha256", "report.html"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
}

TEST_F(TrainTest, WithoutOutEveryRunGetsAFreshFolder) {
  Args args = SmallRun("unused");
  const auto out = std::find(args.begin(), args.end(), "--out");
  args.erase(out, out + 2);
  for (const char* name : {"runs/CartPole-v1-ppo-seed1-001", "runs/CartPole-v1-ppo-seed1-002"}) {
    EXPECT_EQ(ResultOf(RunTrireme(args, {.folder = folder_.string()}))["steps"], 5120);
    EXPECT_TRUE(fs::exists(Path(name) + "/result.json")) << name;
  }
}

TEST_F(TrainTest, TargetStopsAtTheFirstEvaluationThatReachesIt) {
  const Json result = FinishedRun("run", {"--target", "1"});  // any policy balances for one step
  EXPECT_EQ(result["reached_target"], true);
  EXPECT_EQ(result["steps_to_target"], 2048);
  EXPECT_EQ(result["steps"], 2048);
  EXPECT_GT(result["time_to_target_s"], 0.0);
  EXPECT_LE(result["time_to_target_s"], result["wall_s"]);
}

TEST_F(TrainTest, TargetOutOfReachRunsToTheEnd) {
  const Json result = FinishedRun("run", {"--target", "1e6"});
  EXPECT_EQ(result["reached_target"], false);
  EXPECT_TRUE(result["steps_to_target"].is_null());
  EXPECT_TRUE(result["time_to_target_s"].is_null());
  EXPECT_EQ(result["steps"], 5120);
}

TEST_F(TrainTest, SettingsOfLaterSourcesWin) {
  WriteText(Path("a.toml"), "env = \"CartPole-v1\"\ngamma = 0.5\nseed = 3\nclip = 0.3\n");
  const Outcome outcome =
      RunTrireme({"train", "--config", Path("a.toml"), "--out", Path("run"), "--seed", "4", "--set",
                  "clip=0.4", "--set", "envs=8", "--steps", "512", "--set", "eval_episodes=1", "--json"});
  EXPECT_EQ(ResultOf(outcome)["seed"], 4);
  const std::string config = ReadText(Path("run/config.toml"));
  for (const char* line : {"\ngamma = 0.5\n", "\nclip = 0.4\n", "\nseed = 4\n", "\nhorizon = "})
    EXPECT_NE(config.find(line), std::string::npos) << line;
}

TEST_F(TrainTest, SavedSettingsRepeatTheRun) {
  const Json first = FinishedRun("first", {"--seed", "18446744073709551615"});
  const Outcome again =
      RunTrireme({"train", "--config", Path("first/config.toml"), "--out", Path("again"), "--json"});
  EXPECT_EQ(ResultOf(again)["params_sha256"], first["params_sha256"]);
}

// The promise of the design: how many workers there are changes nothing.
class WorkersTest : public CliTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(WorkersTest, AnyNumberGivesTheSameBits) {
  const Args run = {"train",
                    "--env",
                    GetParam(),
                    "--steps",
                    "8192",
                    "--set",
                    "envs=32",
                    "--set",
                    "horizon=32",
                    "--set",
                    "eval_episodes=16",
                    "--set",
                    "normalise_obs=true",
                    "--set",
                    "normalise_rewards=true",
                    "--json"};
  const auto train = [&](const std::string& name, const Args& more) {
    return ResultOf(RunTrireme(run + Args{"--out", Path(name)} + more));
  };
  const Json one = train("1", {"--workers", "1"});
  const std::vector<Json> rows = TimelessRows(Path("1"));
  for (const std::string workers : {"2", "4", "8"}) {
    const Json many = train(workers, {"--workers", workers});
    EXPECT_EQ(many["params_sha256"], one["params_sha256"]) << workers;
    EXPECT_EQ(many["eval_return_mean"], one["eval_return_mean"]) << workers;
    EXPECT_EQ(TimelessRows(Path(workers)), rows) << workers;
  }
  EXPECT_EQ(train("again", {"--workers", "1"})["params_sha256"], one["params_sha256"]);
  EXPECT_EQ(train("local", {"--store", "local"})["params_sha256"], one["params_sha256"]);
  EXPECT_NE(train("seed", {"--seed", "2"})["params_sha256"], one["params_sha256"]);
}

INSTANTIATE_TEST_SUITE_P(Envs, WorkersTest, ::testing::Values("CartPole-v1", "Pendulum-v1"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('-'));
                         });

}  // namespace
}  // namespace trireme::testing
