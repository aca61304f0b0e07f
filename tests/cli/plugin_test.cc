// Environments of plug-ins through the program: found, checked, trained, resumed, and broken on purpose.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include "run_util.h"

namespace trireme::testing {
namespace {

const std::string kFragile = "plugin:" TRIREME_FRAGILE_PLUGIN ":Fragile-v0";
const std::string kSturdy = "plugin:" TRIREME_FRAGILE_PLUGIN ":Sturdy-v0";

const std::string kPointers = "plugin:" TRIREME_POINTERS_PLUGIN ":";

class PluginTest : public CliTest {
 protected:
  // 16 iterations of 512 steps, with a checkpoint after each.
  Args Run(const std::string& env, const std::string& name) const {
    return {"train",    "--env",
            env,        "--algo",
            "ppo",      "--workers",
            "1",        "--out",
            Path(name), "--json",
            "--set",    "envs=8",
            "--set",    "horizon=64",
            "--set",    "shards=2",
            "--set",    "minibatches=4",
            "--set",    "steps=8192",
            "--set",    "checkpoint_every_s=0",
            "--set",    "eval_every=0",
            "--set",    "eval_episodes=4"};
  }
};

TEST_F(PluginTest, TellsAboutAnEnvironmentAndItsArguments) {
  const Outcome outcome = RunTrireme({"envs", kFragile});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"breaks on request", "2 numbers", "2 choices", "100 steps", "env_max_steps",
                           "--env-arg", "fault", "step of the fault"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

TEST_F(PluginTest, ListsFoldersOfThePath) {
  const Outcome outcome =
      RunTrireme({"envs", "--all"},
                 {.variables = {"TRIREME_PLUGIN_PATH=" +
                                std::filesystem::path(TRIREME_FRAGILE_PLUGIN).parent_path().string()}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("plugin:fragile_plugin:Sturdy-v0"), std::string::npos) << outcome.out;
}

TEST_F(PluginTest, ACheckGivesAVerdict) {
  for (const std::string& name : {kFragile, std::string("Pendulum-v1")}) {
    const Outcome right = RunTrireme({"envs", name, "--check"});
    EXPECT_EQ(right.code, 0) << right.err;
    EXPECT_NE(right.out.find(name + " is right"), std::string::npos) << right.out;
    EXPECT_EQ(right.out.find("FAILED"), std::string::npos) << right.out;
  }
  EXPECT_NE(RunTrireme({"envs", kSturdy, "--check"}).out.find("not promised"), std::string::npos);
  const Outcome wrong = RunTrireme({"envs", kFragile, "--check", "--env-arg", "fault=nan"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.out.find("number 1 of the observation of copy"), std::string::npos) << wrong.out;
  EXPECT_NE(wrong.err.find("checks failed"), std::string::npos) << wrong.err;
  ExpectRefused(RunTrireme({"envs", "--check"}), {"needs the name of an environment"});
  // Where both lead to one place the verdict comes last.
  const Outcome together =
      RunTrireme({"envs", kFragile, "--check", "--env-arg", "fault=nan"}, {.one_output = true});
  const std::size_t verdict = together.out.find("\ntrireme: " + kFragile + " is not right");
  ASSERT_NE(verdict, std::string::npos) << together.out;
  EXPECT_EQ(together.out.find('\n', verdict + 1), together.out.size() - 1) << together.out;
}

TEST_F(PluginTest, TheHeaderIsInTheProgram) {
  const Outcome outcome = RunTrireme({"envs", "--plugin-header"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, ReadText(TRIREME_PLUGIN_HEADER));
}

TEST_F(PluginTest, KilledRunsGoOnExactlyWithSnapshotsAndSayWhatIsLostWithout) {
  for (const std::string& env : {kFragile, kSturdy}) {
    const std::string name = env == kSturdy ? "sturdy" : "fragile";
    const Args run = Set(Run(env, name), {"steps=262144"});
    {
      Process process(kBinary, run);
      ASSERT_TRUE(process.RunsUntil([&] { return !Checkpoints(Path(name)).empty(); }));
      process.Signal(SIGKILL);
      ASSERT_EQ(process.Wait().signal, SIGKILL) << "it had ended before";
    }
    if (env == kSturdy) {
      const Outcome resumed = RunTrireme({"train", "--resume", Path(name)});
      EXPECT_EQ(resumed.code, 0) << resumed.err;
      EXPECT_NE((resumed.out + resumed.err).find("begins new episodes, all else goes on"), std::string::npos)
          << resumed.out << resumed.err;
      continue;
    }
    const Json result = Resume(name);
    EXPECT_EQ(result["steps"], 262144);
    const Json whole = ResultOf(RunTrireme(Set(Run(env, "whole"), {"steps=262144"})));
    EXPECT_EQ(result["params_sha256"], whole["params_sha256"]);
  }
}

TEST_F(PluginTest, StatesMayKeepPointersToTheirOptions) {
  for (const std::string name : {"Values-v0", "Text-v0"}) {
    const std::string env = kPointers + name;
    const Args option = {"--env-arg", "pay=mzaqcbx"};
    const Outcome check = RunTrireme({"envs", env, "--check", "--env-arg", "pay=mzaqcbx"});
    EXPECT_EQ(check.code, 0) << check.out << check.err;
    const Args run = Set(Run(env, name), {"steps=65536"}) + option;
    {
      Process process(kBinary, run);
      ASSERT_TRUE(process.RunsUntil([&] { return !Checkpoints(Path(name)).empty(); }));
      process.Signal(SIGKILL);
      ASSERT_EQ(process.Wait().signal, SIGKILL) << "it had ended before";
    }
    const Json result = Resume(name);
    EXPECT_EQ(result["steps"], 65536);
    const Json whole = ResultOf(RunTrireme(Set(Run(env, name + "-whole"), {"steps=65536"}) + option));
    EXPECT_EQ(result["params_sha256"], whole["params_sha256"]) << name;
  }
}

TEST_F(PluginTest, OtherPointersInAStateAreFoundByACheck) {
  const Outcome check = RunTrireme({"envs", kPointers + "Foreign-v0", "--check"});
  EXPECT_EQ(check.code, 2) << check.out;
  for (const char* part : {"another process that has loaded its snapshot crashes", "spec.snapshots"}) {
    EXPECT_NE(check.out.find(part), std::string::npos) << part << "\n" << check.out;
  }
  const std::string honest = kPointers + "Honest-v0";
  EXPECT_EQ(RunTrireme({"envs", honest, "--check"}).code, 0);
  ResultOf(RunTrireme(Run(honest, "honest")));
  EXPECT_EQ(Resume("honest", {"--steps", "16384"})["steps"], 16384);
}

TEST_F(PluginTest, RunsGoOnFromAnyFolder) {
  namespace fs = std::filesystem;
  fs::create_directories(Path("project/lib"));
  fs::create_directory(Path("elsewhere"));
  fs::copy_file(TRIREME_FRAGILE_PLUGIN, Path("project/lib/libmine.so"));
  const std::string env = "plugin:./lib/libmine.so:Fragile-v0";
  const Json whole = ResultOf(RunTrireme(Run(env, "run"), {.folder = Path("project")}));
  EXPECT_EQ(whole["env"], env) << "as it was typed";
  const ProcessOptions elsewhere{.folder = Path("elsewhere")};
  const Args longer = {"train", "--resume", Path("run"), "--json", "--steps", "16384"};
  EXPECT_EQ(ResultOf(RunTrireme(longer, elsewhere))["steps"], 16384);
  EXPECT_EQ(RunTrireme({"eval", Path("run"), "--episodes", "2"}, elsewhere).code, 0);
  fs::rename(Path("project"), Path("moved"));
  const Args eval = {"eval", Path("run"), "--episodes", "2"};
  ExpectRefused(RunTrireme(eval, elsewhere), {env.substr(0, env.rfind(':')), "there is no file"});
  EXPECT_EQ(RunTrireme(eval, {.folder = Path("moved")}).code, 0);
}

TEST_F(PluginTest, ACrashNamesThePluginAndLeavesTheCheckpoint) {
  const std::vector<std::tuple<std::string, int, std::string>> faults = {
      {"segv", SIGSEGV, "segmentation fault"},
      {"abort", SIGABRT, "abort"},
      {"divide", SIGFPE, "arithmetic error"},
      {"overflow", SIGSEGV, "segmentation fault"}};
  for (const auto& [fault, signal, meaning] : faults) {
    // In the fourth iteration.
    const Outcome crashed =
        RunTrireme(Run(kFragile, fault) + Args{"--env-arg", "at=200", "--env-arg", "fault=" + fault});
    EXPECT_EQ(crashed.signal, signal) << fault << ": " << crashed.err;
    for (const std::string& part :
         {kFragile + " crashed in step", meaning, std::string("the last checkpoint is kept")}) {
      EXPECT_NE(crashed.err.find(part), std::string::npos) << part << "\n" << crashed.err;
    }
    ASSERT_FALSE(Checkpoints(Path(fault)).empty());
    EXPECT_EQ(RunTrireme({"eval", Path(fault), "--episodes", "1"}).code, 0);
  }
}

TEST_F(PluginTest, AnExitIsAFailureThatNamesThePlugin) {
  for (const std::string fault : {"exit", "quick_exit"}) {
    const Args option = {"--env-arg", "at=200", "--env-arg", "fault=" + fault};
    for (const std::string workers : {"1", "2"}) {  // in the first thread, or in any
      const std::string name = fault + workers;
      const Outcome ended = RunTrireme(Set(Run(kFragile, name), {"workers=" + workers}) + option);
      EXPECT_EQ(ended.code, 2) << ended.err;
      for (const std::string& part :
           {kFragile + " called exit in step", std::string("last checkpoint is kept")}) {
        EXPECT_NE(ended.err.find(part), std::string::npos) << part << "\n" << ended.err;
      }
      if (fault == "exit") {
        EXPECT_NE((ended.out + ended.err).find("no licence"), std::string::npos) << ended.err;
      }
      EXPECT_EQ(RunTrireme({"eval", Path(name), "--episodes", "1"}).code, 0);
    }
    const Outcome check = RunTrireme({"envs", kFragile, "--check", "--env-arg", "fault=" + fault});
    EXPECT_EQ(check.code, 2) << check.out;
    EXPECT_NE(check.err.find(kFragile + " called exit in step"), std::string::npos) << check.err;
  }
}

TEST_F(PluginTest, WhatAPluginPrintsIsNotAmongTheJson) {
  const Args option = {"--env-arg", "fault=print"};
  const auto expect_alone = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1) << outcome.out;
    EXPECT_TRUE(Json::accept(outcome.out)) << outcome.out;
    EXPECT_NE(outcome.err.find("half of an episode"), std::string::npos) << outcome.err;
  };
  expect_alone(RunTrireme(Run(kFragile, "run") + option));
  expect_alone(RunTrireme({"eval", Path("run"), "--episodes", "2", "--json"}));
  expect_alone(RunTrireme(Args{"bench", "speedup", "--env", kFragile, "--workers", "1", "--repeats", "1",
                               "--steps", "2048", "--out", Path("bench"), "--json"} +
                          option));
  const Outcome plain = RunTrireme({"eval", Path("run"), "--episodes", "2"});
  EXPECT_NE(plain.out.find("half of an episode"), std::string::npos) << plain.out;
}

TEST_F(PluginTest, MistakesEndARunWithAMessage) {
  const auto fault = [&](const std::string& what) {
    return RunTrireme(Run(kFragile, "run-" + what) + Args{"--env-arg", "fault=" + what});
  };
  ExpectRefused(fault("error"), {kFragile, "failed in step", "the ground has given way"});
  ExpectRefused(fault("nan"), {kFragile, "breaks the rules in step", "observation of copy", "nan"});
  ExpectRefused(fault("beside"), {kFragile, "breaks the rules in step", "beside the obs"});
  ExpectRefused(RunTrireme(Run("plugin:./libnone.so", "none")), {"there is no file", "libnone.so"});
  ExpectRefused(RunTrireme(Run(kFragile, "none") + Args{"--env-arg", "fautl=nan"}),
                {"Did you mean 'fault'?"});
}

}  // namespace
}  // namespace trireme::testing
