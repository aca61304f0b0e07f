// `trireme train` under mpirun: the same bits however the workers are spread, and a clean end whatever
// happens to one of the processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>

#include "launch.h"
#include "run_util.h"
#include "trireme/env/gym/test_python.h"

namespace trireme::testing {
namespace {

// An environment variable for the processes of one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

// The processes below `root` that run the program, by what the kernel says of their parents; in order of
// start.
std::vector<pid_t> Ranks(pid_t root) {
  std::vector<pid_t> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(root) + "/task")) {
    std::ifstream children(task.path() / "children");
    for (pid_t child; children >> child;) {
      const std::string name = ReadText("/proc/" + std::to_string(child) + "/comm");
      if (name == "trireme\n") found.push_back(child);
      for (const pid_t below : Ranks(child)) found.push_back(below);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

class UnderMpi : public CliTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    mpirun_ = MpirunOf(GetParam());
    if (mpirun_.empty()) GTEST_SKIP() << "mpirun." << GetParam() << " is not installed";
    if (!std::filesystem::exists(std::filesystem::path(kBinary).parent_path() /
                                 (std::string("libtrireme_mpi_") + GetParam() + ".so"))) {
      GTEST_SKIP() << "built without " << GetParam();
    }
  }

  Args Launch(int processes, const Args& args) const {
    return MpirunArgs(GetParam(), processes) + Args{kBinary} + args;
  }
  Outcome RunProcesses(int processes, const Args& args) const {
    Process process(mpirun_, Launch(processes, args));
    return process.Wait();
  }
  Args ShortRun(const std::string& algo, const std::string& name) const {
    return algo == "ppo" ? SmallRun(name) : SmallRunOf(algo, name);
  }
  // Too long to end by itself.
  Args LongRun(const std::string& name, const std::string& checkpoint_every_s) const {
    Args args = SmallRun(name);
    *std::find(args.begin(), args.end(), "5120") = "512000000";
    return args + Args{"--workers", "1", "--set", "checkpoint_every_s=" + checkpoint_every_s};
  }
  // What a user reads of ours, between the words of mpirun.
  static std::vector<std::string> OwnLines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("trireme: ")) lines.push_back(line);
    }
    return lines;
  }

  std::string mpirun_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, UnderMpi, ::testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(UnderMpi, TheSameBitsHoweverTheWorkersAreSpread) {
  for (const std::string algo : {"ppo", "a2c", "dqn"}) {
    const Json alone = ResultOf(RunTrireme(ShortRun(algo, algo) + Args{"--workers", "8"}));
    for (const auto& [processes, workers] : {std::pair{2, "4"}, std::pair{4, "2"}, std::pair{8, "1"}}) {
      const std::string name = algo + std::to_string(processes);
      const Json spread =
          ResultOf(RunProcesses(processes, ShortRun(algo, name) + Args{"--workers", workers}));
      for (const char* key : {"workers", "steps", "params_sha256", "eval_return_mean", "eval_return_std"}) {
        EXPECT_EQ(spread[key], alone[key]) << key << " of " << name;
      }
      EXPECT_EQ(spread["per_worker"].size(), 8u);
      EXPECT_EQ(TimelessRows(Path(name)), TimelessRows(Path(algo)));
    }
  }
}

// Groups of processes, and groups of threads with data parallelism between processes.
TEST_P(UnderMpi, WorkersComputeOneNetworkTogether) {
  const auto run = [&](const std::string& name) { return Set(SmallRun(name), {"hidden=[16,12]"}); };
  const Json alone = ResultOf(RunTrireme(run("alone") + Args{"--workers", "1"}));
  const Json tensor =
      ResultOf(RunTrireme(run("tensor") + Args{"--workers", "2", "--model-parallel", "tensor=2"}));
  EXPECT_NE(tensor["params_sha256"], alone["params_sha256"]);
  for (const auto& [processes, workers] : {std::pair{2, "1"}, std::pair{4, "1"}, std::pair{2, "2"}}) {
    for (const std::string split : {"pipeline=2", "tensor=2"}) {
      const std::string name = split + std::to_string(processes) + workers;
      const Json found = ResultOf(
          RunProcesses(processes, run(name) + Args{"--workers", workers, "--model-parallel", split}));
      const Json& expected = split == "tensor=2" ? tensor : alone;
      EXPECT_EQ(found["params_sha256"], expected["params_sha256"]) << name;
      EXPECT_EQ(found["eval_return_mean"], expected["eval_return_mean"]) << name;
      EXPECT_EQ(found["model_bytes"].size(), found["workers"]) << name;
    }
  }
}

// The first process searches, the others run trials for it.
TEST_P(UnderMpi, ASearchSpansProcesses) {
  const Args search = {
      "tune",    "--env",       "CartPole-v1",     "--steps",    "2048",        "--target", "30",
      "--seeds", "2",           "--study",         Path("s.db"), "--finalists", "2",        "--fresh-seeds",
      "2",       "--objective", "steps_to_target", "--trials",   "12",          "--set",    "eval_every=512",
      "--json"};
  const Variable patience("TRIREME_MPI_TIMEOUT",
                          "1");  // a search is longer than anybody would wait for a process
  for (const char* parallel : {"1", "2"}) {
    const Outcome outcome = RunProcesses(3, search + Args{"--parallel", parallel});
    const Json result = ResultOf(outcome);
    EXPECT_EQ(result["trials"], 12);
    EXPECT_EQ(result["failed"], 0);
    EXPECT_EQ(result["finalists"].size(), 2u);
  }
  const Outcome refused = RunProcesses(2, search + Args{"--method", "guess"});
  EXPECT_EQ(OwnLines(refused.err).size(), 1u) << refused.err;
}

TEST_P(UnderMpi, AKilledMemberOfAGroupEndsTheJobAndTheRunGoesOnLater) {
  const Args args = Set(LongRun("run", "0"), {"hidden=[16,12]"}) + Args{"--model-parallel", "pipeline=2"};
  Process process(mpirun_, Launch(2, args));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("run") >= 3; }));
  const std::vector<pid_t> ranks = Ranks(process.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  ASSERT_TRUE(process.EndsWithin(60));
  EXPECT_NE(process.Wait().code, 0);
  const std::string steps = std::to_string(512 * (MetricLines("run") + 5));
  const Json resumed =
      ResultOf(RunTrireme({"train", "--resume", Path("run"), "--json", "--steps", steps, "--workers", "2"}));
  EXPECT_EQ(resumed["steps"], std::stoll(steps));
  EXPECT_EQ(resumed["model_parallel"], "pipeline=2,micro_batches=8");
}

// Whatever it is; each process measures, and the first decides.
TEST_P(UnderMpi, AllProcessesTrainWithWhatTheFirstHasChosen) {
  const Json chosen = ResultOf(RunProcesses(2, SmallRun("chosen") + Args{"--parallel", "auto"}));
  EXPECT_GT(chosen["predicted_steps_per_s"], 0);
  EXPECT_GT(chosen["training_steps_per_s"], 0);
  const Json exact =
      ResultOf(RunProcesses(2, SmallRun("exact") + Args{"--parallel", "auto", "--compress", "none"}));
  EXPECT_EQ(exact["params_sha256"], FinishedRun("alone", {"--workers", "1"})["params_sha256"]);
}

// Between two processes an all-reduction of few bytes is one message of each, with all floats.
TEST_P(UnderMpi, ResultsTellWhatEveryLinkCarried) {
  const Variable by_messages("TRIREME_MPI_SHARED", "off");
  const Json result = ResultOf(RunProcesses(2, SmallRun("run") + Args{"--workers", "1"}));
  ASSERT_EQ(result["links"].size(), 2u);
  for (const Json& link : result["links"]) {
    EXPECT_GT(link["latency_s"], 0);
    EXPECT_GT(link["bytes_per_s"], 0);
    EXPECT_GT(link["estimate_s"], 0);
    EXPECT_GE(link["messages"], result["rounds"]);
  }
  EXPECT_EQ(result["links"][0]["to"].get<std::string>().substr(0, 9), "process 1");
  EXPECT_GE(result["messages_per_round"], 2);
  // Links also carry what is no part of training: settings, checkpoints.
  EXPECT_GE(result["links"][0]["bytes"].get<double>() + result["links"][1]["bytes"].get<double>(),
            result["bytes_sent"].get<double>());
}

// Every environment fails once, whichever process it is of.
TEST_P(UnderMpi, FailuresOfEnvironmentsAreThoseOfAllProcesses) {
  if (const std::string missing = MissingInTests("numpy"); !missing.empty()) GTEST_SKIP() << missing;
  const Variable python("TRIREME_PYTHON", TestPython().c_str());
  const auto run = [&](const std::string& name) {
    return Args{"train",       "--env",          "py:" TRIREME_PYTHON_ENVS "/trouble.py:Trouble",
                "--steps",     "4096",           "--out",
                Path(name),    "--json",         "--env-hosts",
                "1",           "--workers",      "1",
                "--env-arg",   "what=raise",     "--env-arg",
                "at=200",      "--set",          "envs=16",
                "--set",       "horizon=32",     "--set",
                "hidden=[16]", "--set",          "eval_every=0",
                "--set",       "eval_episodes=8"};
  };
  const Json alone = ResultOf(RunTrireme(run("alone"))), spread = ResultOf(RunProcesses(2, run("spread")));
  EXPECT_EQ(alone["env_failures"], 16);
  EXPECT_EQ(spread["env_failures"], 16);
  EXPECT_NE(spread["env_last_failure"].get<std::string>().find("RuntimeError: the robot fell over"),
            std::string::npos);
  EXPECT_EQ(spread["params_sha256"], alone["params_sha256"]);
}

TEST_P(UnderMpi, InterruptedAndContinuedWithOtherProcesses) {
  // Open MPI waits that long before it tells the processes of an interruption, and again before it kills
  // them.
  const Variable patience("OMPI_MCA_odls_base_sigkill_timeout", "8");
  const std::pair<const char*, int> cases[] = {{"ppo", SIGINT}, {"dqn", SIGUSR1}};
  for (const auto& [algo, signal] : cases) {
    const std::string cut = std::string(algo) + "-cut";
    const auto run = [&](const std::string& name) {
      Args args = ShortRun(algo, name);
      std::ranges::replace(args, std::string("5120"), std::string("51200"));
      return Set(args, {"checkpoint_every_s=1000"});
    };
    const Json whole = ResultOf(RunTrireme(run(algo) + Args{"--workers", "1"}));
    {
      // Slowed down, so that the signal comes in time.
      const Args args = run(cut) + Args{"--workers", "2", "--straggler", "worker=3,factor=200"};
      Process process(mpirun_, Launch(2, args));
      ASSERT_TRUE(process.RunsUntil([&] { return MetricLines(cut) >= 1; }));
      process.Signal(signal);
      ASSERT_TRUE(process.EndsWithin(60));
      if (signal ==
          SIGUSR1) {  // after SIGINT mpirun has a code of its own, and MPICH's now and then after others
        const Outcome outcome = process.Wait();
        const bool own_code = outcome.code == 0 && GetParam() == std::string("mpich");
        EXPECT_LT(ResultOf(outcome, own_code ? 0 : 128 + SIGUSR1)["steps"], whole["steps"]);
      }
    }
    ASSERT_EQ(Checkpoints(Path(cut)).size(), 1u);
    EXPECT_LT(TimelessRows(Path(cut)).size(), TimelessRows(Path(algo)).size());
    const Json resumed =
        ResultOf(RunProcesses(4, {"train", "--resume", Path(cut), "--json", "--workers", "1"}));
    EXPECT_EQ(resumed["params_sha256"], whole["params_sha256"]);
    EXPECT_EQ(resumed["workers"], 4);
    EXPECT_EQ(TimelessRows(Path(cut)), TimelessRows(Path(algo)));
  }
}

// Messages of a codec go between processes; what it leaves unsaid is in the checkpoint of a run that is interrupted.
TEST_P(UnderMpi, CompressedRunsHaveTheSameBitsAndGoOn) {
  const Variable patience("OMPI_MCA_odls_base_sigkill_timeout", "8");
  const Args compressed = {"--compress", "topk=0.01"};
  const auto run = [&](const std::string& name, int processes, const char* workers) {
    return ResultOf(RunProcesses(processes, SmallRun(name) + compressed + Args{"--workers", workers}));
  };
  const Json whole = run("whole", 2, "2"), fewer = run("fewer", 2, "1");
  EXPECT_EQ(whole["params_sha256"], fewer["params_sha256"]);
  EXPECT_GT(whole["bytes_saved"], 0);
  {
    const Variable by_messages("TRIREME_MPI_SHARED", "off");
    const Json result = run("messages", 4, "1"),
               plain = ResultOf(RunProcesses(4, SmallRun("plain") + Args{"--workers", "1"}));
    EXPECT_NE(result["params_sha256"], whole["params_sha256"]);
    EXPECT_LT(4 * result["bytes_sent"].get<double>(), plain["bytes_sent"].get<double>());
  }
  Process process(mpirun_, Launch(2, SmallRun("cut") + compressed +
                                         Args{"--workers", "1", "--straggler", "worker=0,factor=40"}));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("cut") >= 3; }));
  process.Signal(SIGUSR1);
  ASSERT_TRUE(process.EndsWithin(60));
  EXPECT_LT(MetricLines("cut"), MetricLines("whole"));
  EXPECT_EQ(ResultOf(RunProcesses(2, {"train", "--resume", Path("cut"), "--json"}))["params_sha256"],
            whole["params_sha256"]);
}

TEST_P(UnderMpi, AKilledProcessEndsTheJobAndTheRunGoesOnLater) {
  Process process(mpirun_, Launch(2, LongRun("run", "0")));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("run") >= 3; }));
  const std::vector<pid_t> ranks = Ranks(process.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  ASSERT_TRUE(process.EndsWithin(60));
  EXPECT_NE(process.Wait().code, 0);
  ASSERT_FALSE(Checkpoints(Path("run")).empty());
  const std::string steps = std::to_string(512 * (MetricLines("run") + 5));
  const Json resumed = ResultOf(RunTrireme({"train", "--resume", Path("run"), "--json", "--steps", steps}));
  EXPECT_EQ(resumed["steps"], std::stoll(steps));
}

TEST_P(UnderMpi, AProcessThatStandsStillIsNamed) {
  const Variable timeout("TRIREME_MPI_TIMEOUT", "2");
  Process process(mpirun_, Launch(2, LongRun("run", "1000")));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("run") >= 1; }));
  const std::vector<pid_t> ranks = Ranks(process.pid());
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGSTOP);
  ASSERT_TRUE(process.EndsWithin(60));
  const Outcome outcome = process.Wait();
  EXPECT_NE(outcome.code, 0);
  // Which of the two is rank 1 is mpirun's business.
  EXPECT_NE(outcome.err.find(" waited 2 s for process "), std::string::npos) << outcome.err;
}

TEST_P(UnderMpi, OtherSettingsAreRefused) {
  const Args two =
      Launch(1, SmallRun("run")) + Args{":", "-n", "1", kBinary} + SmallRun("run") + Args{"--seed", "77"};
  Process process(mpirun_, two);
  const Outcome outcome = process.Wait();
  EXPECT_NE(outcome.code, 0);
  const std::vector<std::string> lines = OwnLines(outcome.err);
  ASSERT_EQ(lines.size(), 1u) << outcome.err;
  EXPECT_NE(lines[0].find("process 1 has 'seed = 77' where process 0 has 'seed = "), std::string::npos)
      << lines[0];
  EXPECT_FALSE(std::filesystem::exists(Path("run")));
}

TEST_P(UnderMpi, AMistakeIsToldOnce) {
  const std::pair<Args, const char*> mistakes[] = {
      {{"--workers", "3"}, "workers = 3 in each of 2 processes does not divide shards = 8"},
      {{"--store", "shared"}, "store = shared lives in the memory of one process"},
      {{"--store", "local"}, "store = local lives in the memory of one process"},
      {{"--set", "lerning_rate=1"}, "learning_rate"},
      {{"--frobnicate"}, "--frobnicate. See trireme train --help"},
  };
  for (const auto& [args, message] : mistakes) {
    const Outcome outcome = RunProcesses(2, SmallRun("run") + args);
    EXPECT_NE(outcome.code, 0);
    const std::vector<std::string> lines = OwnLines(outcome.err);
    ASSERT_EQ(lines.size(), 1u) << outcome.err;
    EXPECT_NE(lines[0].find(message), std::string::npos) << lines[0];
    EXPECT_FALSE(std::filesystem::exists(Path("run")));
  }
}

TEST_P(UnderMpi, TheMistakeOfOneProcessEndsAll) {
  const Args two = Launch(1, SmallRun("run")) + Args{":", "-n", "1", kBinary} + SmallRun("run") +
                   Args{"--set", "horizon=0"};
  Process process(mpirun_, two);
  const Outcome outcome = process.Wait();
  EXPECT_NE(outcome.code, 0);
  const std::vector<std::string> lines = OwnLines(outcome.err);
  ASSERT_EQ(lines.size(), 1u) << outcome.err;
  EXPECT_NE(lines[0].find("horizon"), std::string::npos) << lines[0];
}

// One actor in each process, and none too many for any server.
TEST_P(UnderMpi, ActorsAreSpreadOverReplayServers) {
  const auto address = [&](const std::string& name) { return "shm:" + Path(name); };
  const auto serve = [&](const std::string& name) {
    auto server = std::make_unique<Process>(kBinary, Args{"replay", "--listen", address(name)});
    EXPECT_TRUE(server->RunsUntil([&] { return std::filesystem::exists(Path(name)); })) << server->Err();
    return server;
  };
  const auto a = serve("a"), b = serve("b"), c = serve("c");
  Process learners(mpirun_,
                   Launch(2, Set(Args{"train", "--env", "CartPole-v1", "--algo", "apex", "--replay",
                                      address("a") + "," + address("b") + "," + address("c"), "--actors", "1",
                                      "--workers", "1", "--steps", "500000000", "--out", Path("run")},
                                 {"hidden=[16]", "eval_every=0"})));
  const auto joined = [](Process& server) {
    const std::string said = server.Err();
    std::size_t count = 0;
    for (auto at = said.find("actor "); at != std::string::npos; at = said.find("actor ", at + 1))
      count += said.substr(at, said.find('\n', at) - at).ends_with(" joined");
    return count;
  };
  for (Process* server : {a.get(), b.get()})
    EXPECT_TRUE(learners.RunsUntil([&] { return joined(*server) == 1; })) << learners.Err();
  EXPECT_TRUE(learners.RunsUntil([&] { return MetricLines("run") > 3; })) << learners.Err();
  for (const pid_t rank : Ranks(learners.pid())) kill(rank, SIGINT);
  const Outcome outcome = learners.Wait();
  EXPECT_NE(outcome.err.find("2 actors for 3 replay servers: nothing comes from " + address("c")),
            std::string::npos)
      << outcome.err;
  EXPECT_FALSE(Checkpoints(Path("run")).empty()) << outcome.err;
  EXPECT_EQ(joined(*a), 1u);
  EXPECT_EQ(joined(*b), 1u);
  EXPECT_EQ(joined(*c), 0u);
}

TEST_P(UnderMpi, OtherCommandsRunOnce) {
  FinishedRun("run");
  const Outcome outcome = RunProcesses(2, {"eval", Path("run"), "--json"});
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  EXPECT_EQ(outcome.code, 0);
}

TEST_P(UnderMpi, SwitchedOffEveryProcessIsARunOfItsOwn) {
  const Variable off("TRIREME_MPI", "off");
  const Args one = SmallRun("one") + Args{"--workers", "1"}, two = SmallRun("two") + Args{"--workers", "1"};
  Process process(mpirun_, Launch(1, one) + Args{":", "-n", "1", kBinary} + two);
  EXPECT_EQ(process.Wait().code, 0);
  for (const char* name : {"one", "two"}) {
    EXPECT_EQ(Json::parse(ReadText(Path(name) + "/result.json"))["workers"], 1);
  }
}

}  // namespace
}  // namespace trireme::testing
