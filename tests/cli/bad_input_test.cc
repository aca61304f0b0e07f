// Mistakes of a user: each gets one clear line and a non-zero exit code, and leaves everything as it was.

#include <algorithm>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class BadInputTest : public CliTest {
 protected:
  // Runs the command, which must be refused, and expects the test's folder unchanged.
  void Refused(const Args& args, const std::vector<std::string>& parts) const {
    std::string command;
    for (const std::string& arg : args) command += " " + arg;
    SCOPED_TRACE(command);
    const auto before = Snapshot(folder_);
    ExpectRefused(RunTrireme(args, {.folder = folder_.string()}), parts);
    EXPECT_EQ(Snapshot(folder_), before);
  }
  Args Train(const Args& more) const {
    return Args{"train", "--env", "CartPole-v1", "--out", Path("run"), "--json"} + more;
  }
};

TEST_F(BadInputTest, UnknownNames) {
  Refused({}, {"subcommand"});
  Refused({"trian"}, {"trian", "'train'"});
  Refused({"--frobnicate"}, {"--frobnicate"});
  Refused({"train", "--frobnicate"}, {"--frobnicate", "See trireme train --help"});
  Refused({"train", "--out", Path("run")}, {"--env"});
  Refused({"train", "--env", "CartPole-v7", "--out", Path("run")}, {"CartPole-v7", "'CartPole-v1'"});
  Refused({"train", "--env", "", "--out", Path("run")}, {"--env"});
  Refused(Train({"--algo", "pppo"}), {"pppo", "'ppo'"});
  Refused(Train({"--store", "alreduce"}), {"--store", "alreduce", "local", "allreduce"});
  Refused(Train({"--set", "learning_rat=1"}), {"learning_rat", "'learning_rate'"});
  Refused(Train({"extra"}), {"extra"});
}

TEST_F(BadInputTest, MalformedAssignments) {
  Refused(Train({"--set"}), {"--set"});
  Refused(Train({"--set", "gamma"}), {"--set gamma", "key=value"});
  Refused(Train({"--set", "=0.5"}), {"--set =0.5"});
  Refused(Train({"--set", "gamma="}), {"--set gamma=", "a number"});
  Refused(Train({"--set", "gamma=0.5", "--set", "gamma=0.6"}), {"gamma", "once"});
  Refused(Train({"--set", "env=Pendulum-v1"}), {"--env"});
  Refused(Train({"--seed", "1", "--seed", "2"}), {"--seed"});
}

TEST_F(BadInputTest, ArgumentsOfEnvironmentsThatTakeNone) {
  Refused(Train({"--env-arg"}), {"--env-arg"});
  Refused(Train({"--env-arg", "gravity"}), {"--env-arg gravity", "key=value"});
  Refused(Train({"--env-arg", "gravity=9.8"}),
          {"CartPole-v1 takes no --env-arg", "gravity=9.8", "--set env_max_steps="});
  Refused(Train({"--env-arg", "a=1", "--env-arg", "a=2"}), {"a=", "once"});
  Refused(Train({"--set", "env_args=[1]"}), {"env_args", "list of texts"});
  for (const Args& command :
       {Args{"plan", "--env", "CartPole-v1"}, Args{"bench", "speedup", "--env", "CartPole-v1"},
        Args{"envs", "CartPole-v1"}}) {
    Refused(command + Args{"--env-arg", "gravity=9.8"}, {"CartPole-v1 takes no --env-arg"});
  }
}

TEST_F(BadInputTest, WrongValueTypes) {
  Refused(Train({"--workers", "two"}), {"--workers", "whole number", "two"});
  Refused(Train({"--steps", "1.5"}), {"--steps", "whole number"});
  Refused(Train({"--target", "high"}), {"--target", "number"});
  Refused(Train({"--set", "normalise_obs=maybe"}), {"normalise_obs=maybe", "true or false"});
  Refused(Train({"--set", "activation=cubic"}), {"activation", "tanh"});
  Refused(Train({"--set", "hidden=wide"}), {"hidden", "list of whole numbers"});
  Refused(Train({"--set", "hidden=[]"}), {"hidden"});
  Refused(Train({"--set", "hidden=[64,"}), {"hidden", "list of whole numbers"});
}

TEST_F(BadInputTest, NumbersOutOfRange) {
  for (const std::string key : {"workers", "shards", "steps", "seed", "envs", "horizon", "hidden",
                                "learning_rate", "gamma", "eval_episodes"}) {
    for (const std::string value : {"-1", "1e30", "nan", "inf", "-inf"}) {
      if (key == "learning_rate" && value == "1e30") continue;  // a number like any other; see Divergence
      Refused(Train({"--set", key + "=" + value}), {key + "=" + value, "expected"});
    }
  }
  for (const std::string key :
       {"shards", "steps", "envs", "horizon", "hidden", "learning_rate", "eval_episodes"})
    Refused(Train({"--set", key + "=0"}), {key + "=0", "expected"});
  for (const std::string flag : {"--workers", "--steps", "--seed", "--target"})
    Refused(Train({flag, "nan"}), {flag, "expected"});
  Refused(Train({"--set", "gamma=1.01"}), {"gamma", "from 0 to 1"});
  Refused(Train({"--set", "envs=1000000", "--set", "horizon=1000000"}), {"envs", "horizon", "GiB"});
}

TEST_F(BadInputTest, WorkersAndShardsThatDoNotFit) {
  Refused(Train({"--workers", "3"}), {"workers = 3", "shards = 8"});
  Refused(Train({"--workers", "16"}), {"workers = 16", "shards = 8"});
  Refused(Train({"--set", "shards=6"}), {"shards = 6", "power of two"});
  Refused(Train({"--workers", "4", "--set", "shards=2"}), {"workers = 4", "shards = 2"});
  Refused(Train({"--workers", "2", "--store", "local"}), {"local", "--workers 1"});
  Refused(Train({"--set", "envs=12"}), {"envs = 12", "shards = 8"});
  Refused(Train({"--set", "envs=8", "--set", "horizon=2", "--set", "minibatches=3"}), {"minibatches = 3"});
}

TEST_F(BadInputTest, SystemsAndStoresThatContradictEachOther) {
  const std::vector<std::string> parts = {"--algo a3c", "--store shared", "--algo a2c"};
  Refused(Train({"--algo", "a3c", "--store", "allreduce"}), parts);
  Refused(Train({"--algo", "a3c", "--store", "local"}), parts);
  Refused(Train({"--algo", "a3c", "--set", "store=allreduce"}), parts);
  Refused(Train({"--algo", "a3c", "--store", "shared", "--set", "store=local"}), parts);
  Refused(Train({"--algo", "async_dqn", "--store", "allreduce"}), {"--algo async_dqn", "--algo dqn"});
  WriteText(Path("a.toml"), "store = \"allreduce\"\n");
  Refused(Train({"--algo", "a3c", "--config", Path("a.toml")}), parts);
  Refused(Train({"--algo", "a2c", "--store", "share"}), {"--store", "share", "shared"});
  Refused({"train", "--env", "Pendulum-v1", "--algo", "async_dqn", "--out", Path("run")},
          {"Pendulum-v1", "continuous", "dqn"});
}

TEST_F(BadInputTest, Schedules) {
  const auto with = [&](const std::string& schedule) {
    return Train({"--algo", "a3c", "--workers", "2", "--set", "schedule=" + schedule});
  };
  for (const std::string bad : {"0", "0<", "<", "a< a>", "0< 1< 0> 1> 0", "0< 1< 0> 1> x", "0 < 1 <",
                                "99999999999999999999< 0>", "0=1"}) {
    Refused(with(bad), {"schedule"});
  }
  for (const std::string unfair :
       {"0< 0>", "1< 1>", "0> 0< 1< 1>", "0< 0< 0> 0> 1< 1>", "0< 1< 0>", " ", ",,"})
    Refused(with(unfair), {"schedule", "must have turns that pull and push alternately"});
  Refused(with("0< 1< 2< 0> 1> 2>"), {"schedule", "no worker 2", "0 to 1"});
  Refused(with("0< 1< 0> 1> -1< -1>"), {"schedule", "no worker -1"});
  for (const Args& store : {Args{"allreduce"}, Args{"local"}, Args{"server", "--servers", "1", "--async"}}) {
    Args args = {"--algo", "a2c", "--workers", "1", "--set", "schedule=0< 0>", "--store"};
    args.insert(args.end(), store.begin(), store.end());
    Refused(Train(args), {"schedule", "asynchronous", "--store shared"});
  }
}

TEST_F(BadInputTest, Stragglers) {
  const auto with = [&](const std::string& text) { return Train({"--workers", "2", "--straggler", text}); };
  Refused(with("factor=5"), {"--straggler factor=5", "say worker too"});
  Refused(with("worker=1"), {"--straggler worker=1", "say factor too"});
  Refused(with(","), {"--straggler"});
  Refused(with("worker=1,factor=0.5"), {"--straggler", "factor", "from 1"});
  Refused(with("worker=1,factor=0"), {"--straggler", "factor"});
  Refused(with("worker=1,factor=-2"), {"--straggler", "factor"});
  Refused(with("worker=1,factor=nan"), {"--straggler", "factor"});
  Refused(with("worker=1,factor=much"), {"--straggler", "factor", "number"});
  Refused(with("worker=1,speed=5"), {"--straggler", "speed"});
  Refused(with("worker=2,factor=5"), {"--straggler", "worker"});
  Refused(with("worker=-2,factor=5"), {"--straggler", "worker"});
  Refused(with("worker=0.5,factor=5"), {"--straggler", "worker", "whole number"});
  Refused(with("worker 1"), {"--straggler", "worker 1"});
  Refused(with("worker=1 factor=5"), {"--straggler"});
  Refused(Train({"--straggler"}), {"--straggler"});
}

TEST_F(BadInputTest, ReplayThatNoMachineHolds) {
  Refused(Train({"--algo", "dqn", "--set", "replay=2000000000", "--set", "prioritised=true"}),
          {"replay", "GiB"});
  // What one worker has room for, 64 of them have not.
  Refused(Train({"--algo", "async_dqn", "--workers", "64", "--set", "replay=1000000000"}), {"replay", "GiB"});
}

TEST_F(BadInputTest, ZeroWorkersMeansAsManyAsFit) {
  EXPECT_GT(ResultOf(RunTrireme(SmallRun("run") + Args{"--workers", "0"}))["workers"], 0);
}

TEST_F(BadInputTest, DivergenceIsReportedAndLeavesAResumableRun) {
  const Outcome outcome = RunTrireme(SmallRun("run") + Args{"--set", "learning_rate=1e30"});
  ExpectRefused(outcome, {"diverged", "learning_rate"});
  EXPECT_EQ(ResultOf(RunTrireme(
                {"train", "--resume", Path("run"), "--set", "learning_rate=3e-4", "--json"}))["steps"],
            5120);
}

TEST_F(BadInputTest, MoreMemoryThanThereIs) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more memory than the limit";
#endif
  const Outcome outcome = RunTrireme(Train({"--set", "envs=100000", "--set", "horizon=1000"}),
                                     {.most_memory = rlim_t{256} << 20});
  ExpectRefused(outcome, {"not enough memory", "envs"});
}

TEST_F(BadInputTest, OutputFolderThatCannotBeMade) {
  WriteText(Path("file"), "precious");
  const auto train_to = [&](const std::string& out) {
    return Args{"train", "--env", "CartPole-v1", "--out", out};
  };
  Refused(train_to(Path("file")), {Path("file"), "is a file"});
  Refused(train_to(Path("file/below")), {Path("file/below")});
  Refused(train_to("/proc/trireme-run"), {"/proc/trireme-run"});
  Refused(train_to("/dev/null"), {"/dev/null"});
  Refused(train_to(Path(std::string(300, 'x'))), {"xxx", "File name too long"});
}

TEST_F(BadInputTest, OutputFolderThatIsInUse) {
  fs::create_directory(Path("photos"));
  WriteText(Path("photos/cat.jpg"), "precious");
  Refused({"train", "--env", "CartPole-v1", "--out", Path("photos")}, {Path("photos"), "not empty"});
  FinishedRun("other");
  Refused({"train", "--env", "CartPole-v1", "--out", Path("other")},
          {"another run", "--resume " + Path("other")});
}

TEST_F(BadInputTest, OutputOnAReadOnlyFileSystem) {
  const SmallDisk disk(Path("mount"), /*read_only=*/true);
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs more rights than this user has";
  const std::vector<std::string> parts = {Path("mount"), "Read-only file system"};
  Refused({"train", "--env", "CartPole-v1", "--out", Path("mount")}, parts);
  Refused({"train", "--env", "CartPole-v1", "--out", Path("mount/run")}, parts);
}

TEST_F(BadInputTest, ConfigFiles) {
  const auto with = [&](const std::string& content) {
    WriteText(Path("a.toml"), content);
    return Train({"--config", Path("a.toml")});
  };
  Refused(Train({"--config", Path("none.toml")}), {Path("none.toml"), "No such file"});
  Refused(Train({"--config", folder_.string()}), {"it is a folder"});
  Refused(with("gamma = 0.9\nclip = = 0.2\n"), {Path("a.toml") + ":2:8"});
  Refused(with("gamma = 0.9\n\nclp = 0.2\n"), {Path("a.toml") + ":3:1", "clp", "'clip'"});
  Refused(with("gamma = \"high\"\n"), {Path("a.toml") + ":1:9", "gamma", "number"});
  Refused(with("gamma = nan\n"), {Path("a.toml") + ":1:9", "gamma", "number"});
  Refused(with("[ppo]\ngamma = 0.9\n"), {Path("a.toml") + ":1:", "ppo"});
  std::string deep = "gamma = 0.9\nx";
  for (int i = 0; i < 31'500; ++i) deep += ".x";
  Refused(with(deep + " = 1\n"), {Path("a.toml") + ":2:", "nest"});
  Refused(with("gamma = 0.9\ngamma = 0.8\n"), {Path("a.toml") + ":2:"});
  Refused(with(std::string("a\0b\xff\xfe", 5)), {Path("a.toml") + ":1:"});
}

TEST_F(BadInputTest, Resume) {
  fs::create_directory(Path("photos"));
  WriteText(Path("photos/cat.jpg"), "precious");
  Refused({"train", "--resume", Path("none")}, {"no folder", Path("none")});
  Refused({"train", "--resume", Path("photos")}, {"holds no run", Path("photos")});
  Refused({"train", "--resume", Path("photos/cat.jpg")}, {Path("photos/cat.jpg")});
  FinishedRun("run");
  Refused({"train", "--resume", Path("run"), "--out", Path("new")}, {"--resume", "--out"});
  Refused({"train", "--resume", Path("run"), "--env", "CartPole-v1"}, {"--resume", "--env"});
  Refused({"train", "--resume", Path("run"), "--workers", "3"}, {"workers = 3"});
  Refused({"train", "--resume", Path("run"), "--set", "gama=0.5"}, {"gama", "'gamma'"});
  WriteText(Path("run/config.toml"), ReadText(Path("run/config.toml")) + "nonsense = 1\n");
  Refused({"train", "--resume", Path("run")}, {Path("run/config.toml") + ":", "nonsense"});
  for (const char* text : {"", "env = 5\n", "env = \"CartPole-v1\"\n"}) {
    WriteText(Path("run/config.toml"), text);
    Refused({"train", "--resume", Path("run")}, {Path("run/config.toml")});
    Refused({"eval", Path("run")}, {Path("run/config.toml")});
  }
  WriteText(Path("own.toml"), "env = 5\n");
  Refused({"train", "--config", Path("own.toml")}, {Path("own.toml") + ":1", "env", "a text"});
}

}  // namespace
}  // namespace trireme::testing
