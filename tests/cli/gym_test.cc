// Runs on environments in host processes, from outside.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "run_util.h"
#include "trireme/env/gym/test_python.h"

namespace trireme::testing {
namespace {

class GymCliTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    if (const std::string missing = MissingInTests("numpy"); !missing.empty()) GTEST_SKIP() << missing;
    ::setenv("TRIREME_PYTHON", TestPython().c_str(), 1);
  }
  static std::string InTrouble(const std::string& name) {
    return "py:" TRIREME_PYTHON_ENVS "/trouble.py:" + name;
  }
  Args SmallRunOn(const std::string& env, const std::string& name) const {
    return {"train", "--env",        env,        "--seed",         "3",           "--steps",
            "4096",  "--out",        Path(name), "--json",         "--env-hosts", "2",
            "--set", "envs=16",      "--set",    "horizon=32",     "--set",       "hidden=[16]",
            "--set", "eval_every=0", "--set",    "eval_episodes=8"};
  }
  // Ids of the processes that a process has started.
  static std::vector<pid_t> ChildrenOf(pid_t parent) {
    std::vector<pid_t> children;
    for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", parent))) {
      std::ifstream file(task.path() / "children");
      for (pid_t child = 0; file >> child;) children.push_back(child);
    }
    return children;
  }
};

TEST_F(GymCliTest, TheNumberOfWorkersAndHostsDoesNotMatter) {
  std::set<std::string> hashes;
  for (const auto& [workers, hosts] : {std::pair{"1", "1"}, {"2", "2"}, {"2", "3"}}) {
    const std::string name = fmt::format("run-{}-{}", workers, hosts);
    Args args = SmallRunOn(InTrouble("Walk"), name) + Args{"--workers", workers};
    *(std::ranges::find(args, "--env-hosts") + 1) = hosts;
    const Json result = ResultOf(RunTrireme(args));
    hashes.insert(result.value("params_sha256", ""));
    EXPECT_FALSE(result.contains("env_failures"));
  }
  EXPECT_EQ(hashes.size(), 1u);
}

// Ctrl-C reaches the program, not its hosts; what comes after a resume, with other hosts, is what would have come.
TEST_F(GymCliTest, AnInterruptedRunResumesExactly) {
  const Json whole = ResultOf(RunTrireme(SmallRunOn(InTrouble("Walk"), "whole")));
  Args args = SmallRunOn(InTrouble("Walk"), "parts");
  Process process(kBinary, args);
  ASSERT_TRUE(process.RunsUntil([&] {
    return std::filesystem::exists(Path("parts/metrics.jsonl")) && process.Catches(SIGINT) &&
           !ReadText(Path("parts/metrics.jsonl")).empty();
  }));
  process.Signal(SIGINT);
  process.Wait();
  const Json result = ResultOf(
      RunTrireme({"train", "--resume", Path("parts"), "--json", "--env-hosts", "1", "--env-timeout", "50"}));
  EXPECT_EQ(result.value("params_sha256", "a"), whole.value("params_sha256", "b"));
}

TEST_F(GymCliTest, WhatCannotBeSavedBeginsNewEpisodesAndSaysSo) {
  ResultOf(RunTrireme(SmallRunOn(InTrouble("Unsaved"), "run")));
  const Outcome resumed = RunTrireme({"train", "--resume", Path("run"), "--steps", "8192"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE((resumed.out + resumed.err).find("new episodes"), std::string::npos)
      << resumed.out << resumed.err;
}

// What a run names by relative paths is found again from any folder: the file of the class, what the class opens, and modules
// beside it.
TEST_F(GymCliTest, RunsGoOnFromAnyFolder) {
  namespace fs = std::filesystem;
  fs::create_directories(Path("project/envs"));
  fs::create_directory(Path("elsewhere"));
  fs::copy_file(TRIREME_PYTHON_ENVS "/trouble.py", Path("project/envs/trouble.py"));
  WriteText(Path("project/module_beside.py"),
            "import sys\nsys.path.insert(0, 'envs')\nfrom trouble import Walk\n");
  const ProcessOptions project{.folder = Path("project")}, elsewhere{.folder = Path("elsewhere")};
  for (const std::string env :
       {"py:envs/trouble.py:Walk", "py:./envs/trouble.py:Walk", "py:module_beside:Walk"}) {
    SCOPED_TRACE(env);
    fs::remove_all(Path("run"));
    const Json whole = ResultOf(RunTrireme(SmallRunOn(env, "run"), project));
    EXPECT_EQ(whole["env"], env);
    EXPECT_EQ(whole["env_options"], "");
    const Json more =
        ResultOf(RunTrireme({"train", "--resume", Path("run"), "--json", "--steps", "6144"}, elsewhere));
    EXPECT_EQ(more["steps"], 6144);
    EXPECT_EQ(RunTrireme({"eval", Path("run"), "--episodes", "2"}, elsewhere).code, 0);
  }
  // A project that was moved is said to be elsewhere now, or is the current folder.
  fs::rename(Path("project"), Path("moved"));
  const Outcome lost = RunTrireme({"eval", Path("run"), "--episodes", "2"}, elsewhere);
  EXPECT_NE(lost.err.find("No module named 'module_beside'"), std::string::npos) << lost.err;
  EXPECT_EQ(RunTrireme({"eval", Path("run"), "--episodes", "2"}, {.folder = Path("moved")}).code, 0);
  const Args longer = {"train", "--resume", Path("run"), "--json", "--steps", "8192"};
  EXPECT_EQ(ResultOf(RunTrireme(longer + Args{"--set", "env_folder=../moved"}, elsewhere))["steps"], 8192);
}

// A write beyond the largest file fails as one does where memory is full.
TEST_F(GymCliTest, SharedMemoryThatIsFullIsSaid) {
  const Outcome outcome = RunTrireme(SmallRunOn(InTrouble("Huge"), "run"), {.largest_file = 1 << 20});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("bytes of shared memory for"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("File too large"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(Path("run")));
}

// With the programs that environments have started.
TEST_F(GymCliTest, HostsEndWhenTheProgramIsKilled) {
  Args args = SmallRunOn(InTrouble("Spawns"), "run") + Args{"--env-arg", "where=" + Path("started")};
  *(std::ranges::find(args, "--steps") + 1) = "100000000";
  Process process(kBinary, args);
  std::vector<pid_t> left;
  const auto started = [&] {
    left.clear();
    std::ifstream file(Path("started"));
    for (pid_t pid = 0; file >> pid;) left.push_back(pid);
    return left.size();
  };
  ASSERT_TRUE(process.RunsUntil([&] { return started() >= 16; }));
  const std::vector<pid_t> hosts = ChildrenOf(process.pid());
  EXPECT_EQ(hosts.size(), 2u);
  left.insert(left.end(), hosts.begin(), hosts.end());
  process.Signal(SIGKILL);
  process.Wait();
  const auto gone = [&] {
    std::erase_if(left, [](pid_t pid) {
      std::ifstream file(fmt::format("/proc/{}/stat", pid));
      std::string text;
      return !std::getline(file, text) || text.find(") Z") != std::string::npos;
    });
    return left.empty();
  };
  for (int look = 0; look < 3000 && !gone(); ++look) ::usleep(10'000);
  EXPECT_TRUE(gone()) << left.size() << " outlive the program";
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
}

// Failures are in the result and in the report, what environments print is in a log, and training goes on.
TEST_F(GymCliTest, FailuresAreCountedAndNamed) {
  Args args = SmallRunOn(InTrouble("Trouble"), "run") +
              Args{"--env-arg", "what=exit", "--env-arg", "at=30", "--env-arg", "once=" + Path("once")};
  const Json result = ResultOf(RunTrireme(args));
  EXPECT_EQ(result.value("steps", 0), 4096);
  EXPECT_EQ(result.value("env_failures", 0), 1);
  EXPECT_NE(result.value("env_last_failure", "").find("has ended with status 5"), std::string::npos);
  EXPECT_NE(ReadText(Path("run/report.html")).find("Failures of environments"), std::string::npos);
  EXPECT_NE(ReadText(Path("run/env.log")).find("about to exit"), std::string::npos);
}

// With the default number of batches: a worker waits for one of them while a host is stuck in another.
TEST_F(GymCliTest, AHostThatDoesNotAnswerIsReplaced) {
  const Json result =
      ResultOf(RunTrireme(SmallRunOn(InTrouble("Trouble"), "run") +
                          Args{"--workers", "1", "--env-timeout", "3", "--env-arg", "what=hang", "--env-arg",
                               "at=30", "--env-arg", "once=" + Path("once")}));
  EXPECT_EQ(result.value("steps", 0), 4096);
  EXPECT_EQ(result.value("env_failures", 0), 1);
  EXPECT_NE(result.value("env_last_failure", "").find("has not answered for 3 s (env_timeout_s)"),
            std::string::npos);
}

TEST_F(GymCliTest, AnEnvironmentThatMayTakeForEverDoesNotKeepARunFromEnding) {
  const Args args = SmallRunOn(InTrouble("Trouble"), "run") +
                    Args{"--env-timeout", "0",     "--env-arg", "what=hang",
                         "--env-arg",     "at=30", "--env-arg", "once=" + Path("once")};
  Process process(kBinary, args);
  ASSERT_TRUE(process.RunsUntil([&] { return std::filesystem::exists(Path("once")); }));
  process.Signal(SIGINT);
  const Outcome outcome = process.Wait();
  EXPECT_EQ(outcome.code, 128 + SIGINT) << outcome.err;
  const Json result = ResultOf(RunTrireme({"train", "--resume", Path("run"), "--json"}));
  EXPECT_EQ(result.value("steps", 0), 4096);
}

// The processor time of a run is that of all its processes, also of those that have ended before it does.
TEST_F(GymCliTest, HostsArePartOfTheProcessorTime) {
  EXPECT_GE(ResultOf(RunTrireme(SmallRunOn(InTrouble("Laborious"), "run")))["cpu_s"], 2);
}

TEST_F(GymCliTest, MistakesAreRefusedAndLeaveNothing) {
  const auto refused = [&](const std::string& name, const Args& more, const std::string& part) {
    const Outcome outcome = RunTrireme(SmallRunOn(name, "run") + more);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(Path("run")));
  };
  refused(InTrouble("Nobody"), {}, "has no class Nobody");
  refused(InTrouble("RaisesInConstructor"), {}, "no licence for the simulator");
  refused(InTrouble("Walk"), {"--env-arg", "wind=1"}, "unexpected keyword argument 'wind'");
  refused("CartPole-v1", {},
          "--env-hosts is for environments in host processes, and CartPole-v1 is not in one");
  refused(InTrouble("Walk"), {"--env-timeout", "-1"}, "--env-timeout");
}

TEST_F(GymCliTest, TooManyFailuresEndTheRunWithTheTraceback) {
  const Outcome outcome = RunTrireme(SmallRunOn(InTrouble("Trouble"), "run") +
                                     Args{"--env-arg", "what=raise", "--set", "env_max_failures=3"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("env_max_failures is 3"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("RuntimeError: the robot fell over"), std::string::npos) << outcome.err;
}

TEST_F(GymCliTest, EnvsTellsAboutThem) {
  const Outcome outcome = RunTrireme({"envs", InTrouble("Masked")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part :
       {"3 numbers", "2 choices, not all allowed everywhere", "20 steps", "resumes exactly", "env_hosts",
        "env_timeout_s", "env_max_failures", "--env-arg"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
}

}  // namespace
}  // namespace trireme::testing
