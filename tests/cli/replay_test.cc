// Replay servers in processes of their own, with actors and learners that come, go and die: with real connections and real
// signals.
#include <csignal>
#include <memory>
#include <vector>

#include "run_util.h"
#include "trireme/base/plugin.h"

namespace trireme::testing {
namespace {

class ReplayTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 1);
    if (!HavePlugin("libtrireme_grpc.so")) GTEST_SKIP() << "built without gRPC";
  }

  // What it says is kept over its lives.
  std::unique_ptr<Process> StartServer(const std::string& name, const Args& more = {}) const {
    auto server =
        std::make_unique<Process>("/bin/sh", Args{"-c", "exec \"$@\" 2>>" + Path(name + ".log"), "sh",
                                                  kBinary, "replay", "--listen", Address(name)} +
                                                 more);
    EXPECT_TRUE(server->RunsUntil([&] { return std::filesystem::exists(Path(name + ".sock")); }));
    return server;
  }
  // Dies without a word; what it listened at is taken over by the next one.
  static void Kill(Process& process) {
    process.Signal(SIGKILL);
    process.Wait();
  }
  std::string Address(const std::string& name) const { return "unix:" + Path(name + ".sock"); }
  bool Said(const std::string& name, const std::string& text) const {
    return ReadText(Path(name + ".log")).find(text) != std::string::npos;
  }
  std::unique_ptr<Process> StartActor(const std::string& server, const Args& more = {},
                                      const std::string& wait = "60") const {
    return std::make_unique<Process>(
        kBinary, Args{"actor", "--learner", Address(server), "--actors", "1", "--wait", wait} + more);
  }

  // Updates of 2 trajectories of 16 steps of 8 environments' worth, 16 to an iteration of 4096 steps.
  Args Learner(const std::string& servers, const Args& more = {}) const {
    return Set(Args{"train", "--env", "CartPole-v1", "--algo", "apex", "--replay", servers, "--json", "--out",
                    Path("run")} +
                   more,
               {"hidden=[32]", "eval_episodes=20", "checkpoint_every_s=0", "server_wait_s=60"});
  }
  // One that does not come to its end by itself.
  Args LongLearner(const std::string& servers) const {
    return Learner(servers, {"--steps", "500000000", "--set", "eval_every=0"});
  }
  std::string Both() const { return Address("a") + "," + Address("b"); }
  bool GoesOn(Process& learner, std::size_t lines = 3) const {
    const std::size_t before = MetricLines("run");
    return learner.RunsUntil([&] { return MetricLines("run") >= before + lines; });
  }
  static std::size_t Count(const std::string& text, const std::string& word) {
    std::size_t count = 0;
    for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
    return count;
  }
  static void ExpectEnds(Process& process, int code, const std::string& text = "") {
    const Outcome outcome = process.Wait();
    EXPECT_EQ(outcome.code, code) << "signal " << outcome.signal << outcome.err;
    EXPECT_NE((outcome.out + outcome.err).find(text), std::string::npos) << outcome.out << outcome.err;
  }
  // Interrupts a long run and goes on with it to an end.
  void ExpectResumes(Process& learner) const {
    learner.Signal(SIGINT);
    const Json partial = ResultOf(learner.Wait(), 128 + SIGINT);
    EXPECT_FALSE(Checkpoints(Path("run")).empty());
    const std::int64_t steps = partial.value("steps", std::int64_t{0}) + 50'000;
    EXPECT_GE(Resume("run", {"--steps", std::to_string(steps)}).value("steps", std::int64_t{0}), steps);
  }
};

TEST_F(ReplayTest, TwoServersAndTwoActorsReachTheTarget) {
  for (const char* workers : {"1", "2"}) {
    SCOPED_TRACE(workers);
    const auto a = StartServer("a"), b = StartServer("b");
    const auto first = StartActor("a"), second = StartActor("b");  // wait for the learner
    const Json result =
        ResultOf(RunTrireme(Learner(Both(), {"--workers", workers, "--target", "400", "--steps", "2000000",
                                             "--set", "eval_every=4096"})));
    EXPECT_TRUE(result["reached_target"]) << result;
    for (Process* actor : {first.get(), second.get()}) ExpectEnds(*actor, 0, "the run is over");
    for (Process* server : {a.get(), b.get()}) ExpectEnds(*server, 0);
    std::filesystem::remove_all(Path("run"));
  }
}

// What it had is found again; without a folder it begins anew. The run goes on either way, with the same actors.
TEST_F(ReplayTest, AServerThatWasKilledComesBackAndTheRunGoesOn) {
  const Args with = {"--dir", Path("memory")};
  auto a = StartServer("a", with), b = StartServer("b");
  const auto first = StartActor("a"), second = StartActor("b");
  Process learner(kBinary, LongLearner(Both()));
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  for (int round = 0; round < 3; ++round) {
    Kill(*a);
    ASSERT_TRUE(GoesOn(learner)) << "the other one is enough: " << learner.Err();
    a = StartServer("a", with);
    ASSERT_TRUE(GoesOn(learner)) << learner.Err();
    Kill(*b);
    b = StartServer("b");
    ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  }
  Kill(*a);
  Kill(*b);  // nobody is left
  a = StartServer("a", with);
  b = StartServer("b");
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  EXPECT_TRUE(Said("a", "transitions in " + Path("memory")));
  EXPECT_FALSE(Said("a", "torn or damaged")) << "a process that is killed tears nothing";
  EXPECT_FALSE(Said("b", "transitions in"));
  EXPECT_TRUE(Said("b", "no --dir"));
  ExpectResumes(learner);
  for (Process* process : {first.get(), second.get(), a.get(), b.get()}) ExpectEnds(*process, 0);
}

TEST_F(ReplayTest, FrozenServersAndActorsThatDieHoldUpNobody) {
  const auto a = StartServer("a"), b = StartServer("b");
  auto first = StartActor("a"), second = StartActor("b");
  Process learner(kBinary, LongLearner(Both()));
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  for (Process* frozen : {a.get(), b.get()}) {
    frozen->Signal(SIGSTOP);
    EXPECT_TRUE(GoesOn(learner, 10)) << learner.Err();
    frozen->Signal(SIGCONT);
    EXPECT_TRUE(GoesOn(learner)) << learner.Err();
  }
  for (int round = 0; round < 4; ++round) {
    Kill(*first);
    EXPECT_TRUE(GoesOn(learner)) << learner.Err();
    first = StartActor("a");
    ASSERT_TRUE(second->RunsUntil([&] { return second->Catches(SIGTERM); }));
    second->Signal(SIGTERM);
    ExpectEnds(*second, 128 + SIGTERM, "interrupted after");
    second = StartActor("b");
    EXPECT_TRUE(GoesOn(learner)) << learner.Err();
  }
  EXPECT_FALSE(Said("a", "refused"));
  EXPECT_FALSE(Said("b", "refused"));
  ExpectResumes(learner);
  for (Process* process : {first.get(), second.get(), a.get(), b.get()}) ExpectEnds(*process, 0);
}

// It hears of the end when it can, or never.
TEST_F(ReplayTest, ASilentServerDoesNotHoldUpTheEndOfARun) {
  const auto a = StartServer("a"), b = StartServer("b");
  const auto first = StartActor("a"), second = StartActor("b");
  Process learner(kBinary, LongLearner(Both()));
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  a->Signal(SIGSTOP);
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  learner.Signal(SIGINT);
  const Json partial = ResultOf(learner.Wait(), 128 + SIGINT);
  EXPECT_FALSE(Checkpoints(Path("run")).empty());
  a->Signal(SIGCONT);
  const std::string steps = std::to_string(partial.value("steps", std::int64_t{0}) + 400'000);
  Process again(kBinary, {"train", "--resume", Path("run"), "--json", "--steps", steps});
  ASSERT_TRUE(GoesOn(again)) << again.Err();
  a->Signal(SIGSTOP);
  EXPECT_EQ(again.Wait().code, 0);
  ExpectEnds(*second, 0, "the run is over");
  ExpectEnds(*b, 0);
  a->Signal(SIGCONT);
  EXPECT_FALSE(Said("a", "refused"));
}

// Servers and actors wait for it; nothing is forgotten.
TEST_F(ReplayTest, ALearnerThatWasKilledComesBack) {
  const auto a = StartServer("a"), b = StartServer("b");
  const auto first = StartActor("a"), second = StartActor("b");
  {
    Process learner(kBinary, LongLearner(Both()));
    ASSERT_TRUE(GoesOn(learner, 10)) << learner.Err();
    Kill(learner);
  }
  ASSERT_TRUE(a->RunsUntil([&] { return Said("a", "learner 0") && Said("a", "is gone"); }));
  for (Process* process : {first.get(), second.get(), a.get(), b.get()}) EXPECT_FALSE(process->EndsWithin(0));
  EXPECT_GE(Resume("run", {"--steps", "400000"}).value("steps", 0), 400'000);
  for (Process* process : {first.get(), second.get(), a.get(), b.get()}) ExpectEnds(*process, 0);
}

TEST_F(ReplayTest, AServerThatIsStoppedTakesLeaveAndActorsWaitForIt) {
  auto a = StartServer("a", {"--dir", Path("memory")});
  const auto actor = StartActor("a");
  Process learner(kBinary, LongLearner(Address("a")));
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  a->Signal(SIGTERM);
  ExpectEnds(*a, 0);
  a = StartServer("a", {"--dir", Path("memory")});
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  EXPECT_FALSE(actor->EndsWithin(0));
  ExpectResumes(learner);
  ExpectEnds(*actor, 0, "the run is over");
  ExpectEnds(*a, 0);
}

// Nobody comes back: each says so in one line.
TEST_F(ReplayTest, WithoutServersLearnersAndActorsEnd) {
  auto a = StartServer("a");
  const auto actor = StartActor("a", {}, "1");
  Process learner(kBinary, Set(LongLearner(Address("a")), {"server_wait_s=1"}));
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  Kill(*a);
  ExpectEnds(learner, 2, "trireme train --resume");
  ExpectEnds(*actor, 2, "no learner has answered");
  EXPECT_FALSE(Checkpoints(Path("run")).empty());
}

// Threads of the learner wait for theirs, as other processes do, while the learner goes on with the other server.
TEST_F(ReplayTest, ActorsOfTheLearnersProcessWaitForAServerThatIsLost) {
  auto a = StartServer("a"), b = StartServer("b");
  Process learner(kBinary, Set(LongLearner(Both()) + Args{"--actors", "2"}, {"server_wait_s=1"}));
  const auto actor_joins = [&](std::size_t times) {
    return learner.RunsUntil([&] { return Count(ReadText(Path("a.log")), "actor 0 at") >= times; });
  };
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  ASSERT_TRUE(actor_joins(1)) << learner.Err();
  a->Signal(SIGSTOP);
  EXPECT_FALSE(learner.EndsWithin(2)) << "a server that is silent: " << learner.Err();
  EXPECT_TRUE(GoesOn(learner)) << learner.Err();
  a->Signal(SIGCONT);
  EXPECT_TRUE(GoesOn(learner)) << learner.Err();
  Kill(*a);
  EXPECT_FALSE(learner.EndsWithin(4)) << "a server that is gone: " << learner.Err();
  EXPECT_TRUE(GoesOn(learner)) << learner.Err();
  EXPECT_TRUE(learner.RunsUntil([&] {
    return learner.Err().find("the replay server at " + Address("a") + " does not answer") !=
           std::string::npos;
  })) << learner.Err();
  a = StartServer("a");
  ASSERT_TRUE(actor_joins(2)) << learner.Err();
  ExpectResumes(learner);
  for (Process* server : {a.get(), b.get()}) ExpectEnds(*server, 0);
}

// It is the one that has the only actor: nothing comes without it.
TEST_F(ReplayTest, ALearnerWhoseOnlyActorHasLostItsServerEnds) {
  auto a = StartServer("a");
  const auto b = StartServer("b");
  Process learner(kBinary, Set(LongLearner(Both()) + Args{"--actors", "1"}, {"server_wait_s=1"}));
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  Kill(*a);
  ExpectEnds(learner, 2, Address("a") + " does not answer");
}

// Frozen, they are as good as gone: nobody waits for ever, nor does a signal.
TEST_F(ReplayTest, ALearnerWhoseServersAreAllSilentEnds) {
  const auto a = StartServer("a"), b = StartServer("b");
  const auto freeze = [&](int signal) {
    for (Process* server : {a.get(), b.get()}) server->Signal(signal);
  };
  const Args args = LongLearner(Both()) + Args{"--actors", "2"};
  {
    Process learner(kBinary, Set(args, {"server_wait_s=1"}));
    ASSERT_TRUE(GoesOn(learner)) << learner.Err();
    freeze(SIGSTOP);
    ExpectEnds(learner, 2, "no replay server has answered for 1 seconds");
  }
  freeze(SIGCONT);
  Process again(kBinary, {"train", "--resume", Path("run"), "--json", "--set", "server_wait_s=600"});
  ASSERT_TRUE(GoesOn(again)) << again.Err();
  freeze(SIGSTOP);
  again.Signal(SIGINT);
  EXPECT_TRUE(again.EndsWithin(30)) << "it has waited for actors: " << again.Err();
  freeze(SIGCONT);
}

// Actors that are slow are no reason to give up a server.
TEST_F(ReplayTest, ALearnerWaitsForServersThatAreThereWithoutActors) {
  const auto a = StartServer("a");
  Process learner(kBinary, Set(LongLearner(Address("a")), {"server_wait_s=1"}));
  EXPECT_FALSE(learner.EndsWithin(6)) << learner.Err();
  EXPECT_TRUE(learner.RunsUntil([&] {
    return learner.Err().find("no experience comes: actors join") != std::string::npos;
  })) << learner.Err();
  const auto actor = StartActor("a");
  EXPECT_TRUE(GoesOn(learner)) << learner.Err();
}

// How long an actor has not been answered is no time in which its server was lost.
TEST_F(ReplayTest, ActorsWaitFromWhenTheServerIsLost) {
  auto a = StartServer("a");
  const auto b = StartServer("b");
  const auto actor = StartActor("a", {}, "5"), other = StartActor("b");
  Process learner(kBinary, LongLearner(Both()));
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  ASSERT_TRUE(actor->RunsUntil([&] { return Said("a", "actor 0 at"); }));
  a->Signal(SIGSTOP);
  EXPECT_FALSE(actor->EndsWithin(6)) << "it does not know";
  Kill(*a);
  EXPECT_FALSE(actor->EndsWithin(2)) << actor->Err();
  a = StartServer("a");
  ASSERT_TRUE(actor->RunsUntil([&] { return Count(ReadText(Path("a.log")), "actor 0 at") >= 2; }))
      << actor->Err();
  ExpectResumes(learner);
  for (Process* process : {actor.get(), other.get(), a.get(), b.get()}) ExpectEnds(*process, 0);
}

TEST_F(ReplayTest, AServerThatRemembersForAnotherRunRefusesIt) {
  auto a = StartServer("a", {"--dir", Path("memory")});
  {
    const auto actor = StartActor("a");
    Process learner(kBinary, LongLearner(Address("a")));
    ASSERT_TRUE(GoesOn(learner)) << learner.Err();
    Kill(learner);
  }
  Kill(*a);
  a = StartServer("a", {"--dir", Path("memory")});
  Args other = Set(LongLearner(Address("a")), {"hidden=[48]"});
  *std::ranges::find(other, Path("run")) = Path("other");
  ExpectRefused(RunTrireme(other), {"another run", "network", "48", "--dir"});
  *std::ranges::find(other, "CartPole-v1") = "Acrobot-v1";
  ExpectRefused(RunTrireme(other), {"another run", "CartPole-v1", "Acrobot-v1"});
  EXPECT_FALSE(std::filesystem::exists(Path("other")));
  EXPECT_FALSE(a->EndsWithin(0));
}

// Also of another one with the same settings, as long as the first has not ended; then its memory gives way.
TEST_F(ReplayTest, AServerServesOneRunAtATime) {
  auto a = StartServer("a", {"--dir", Path("memory")});
  const auto actor = StartActor("a");
  Args other = Learner(Address("a"), {"--steps", "20000"});
  *std::ranges::find(other, Path("run")) = Path("other");
  const auto expect_refused = [&] {
    ExpectRefused(RunTrireme(other), {Address("a"), "another run", "which has not ended", "--dir"});
    EXPECT_FALSE(std::filesystem::exists(Path("other")));
  };
  Process learner(kBinary, LongLearner(Address("a")));
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  expect_refused();
  EXPECT_TRUE(GoesOn(learner)) << learner.Err();
  Kill(learner);
  expect_refused();
  Kill(*a);
  a = StartServer("a", {"--dir", Path("memory")});
  expect_refused();
  EXPECT_GE(Resume("run", {"--steps", "200000"}).value("steps", 0), 200'000);
  ExpectEnds(*actor, 0, "the run is over");
  ExpectEnds(*a, 0);
  a = StartServer("a", {"--dir", Path("memory")});
  const auto next = StartActor("a");
  EXPECT_EQ(RunTrireme(other).code, 0);
  EXPECT_TRUE(Said("a", "gives way to run"));
  ExpectEnds(*next, 0);
  ExpectEnds(*a, 0);
}

// As with a job that is submitted again with fewer nodes.
TEST_F(ReplayTest, ARunThatGoesOnWithFewerServersIsToldWhatToDo) {
  const auto a = StartServer("a"), b = StartServer("b");
  const auto first = StartActor("a"), second = StartActor("b");
  {
    Process learner(kBinary, LongLearner(Both()));
    ASSERT_TRUE(GoesOn(learner)) << learner.Err();
    learner.Signal(SIGINT);
    ExpectEnds(learner, 128 + SIGINT);
  }
  ExpectRefused(RunTrireme({"train", "--resume", Path("run"), "--json", "--replay", Address("a")}),
                {"has begun with 2 replay servers", "now has 1", "remove their folders"});
  EXPECT_GE(Resume("run", {"--steps", "200000"}).value("steps", 0), 200'000);
}

TEST_F(ReplayTest, MistakesOfLearnersAreRefused) {
  const auto refused = [&](const Args& args, const std::vector<std::string>& parts) {
    SCOPED_TRACE(parts.front());
    ExpectRefused(RunTrireme(args), parts);
    EXPECT_FALSE(std::filesystem::exists(Path("run")));
  };
  refused(Set(Learner(Address("nobody")), {"server_wait_s=0.5"}),
          {"no replay server", Address("nobody"), "trireme replay"});
  refused(Learner("nonsense"), {"nonsense"});
  refused(Learner(Address("a") + ",," + Address("b")), {"empty address"});
  refused(Learner("unix:/a", {"--listen", Address("learner")}), {"leave out listen"});
  refused(Learner("unix:/a", {"--store", "shared"}), {"--store allreduce"});
  refused(Learner("unix:/a", {"--set", "schedule=0< 0> 1< 1>"}), {"schedule", "replay_servers"});
  refused(Learner("unix:/a", {"--set", "queue=4"}), {"queue", "replay_servers"});
  refused(Learner("unix:/a", {"--set", "replay_slack=-1"}), {"replay_slack"});
  for (const char* algo : {"ppo", "impala", "dqn"}) {
    Args args = Learner("unix:/a");
    *std::ranges::find(args, "apex") = algo;
    refused(args, {algo});
  }
  const auto a = StartServer("a");
  refused(Set(Learner(Both()), {"replay=1", "shards=1"}), {"replay", "servers, 2"});
  refused(Set(Learner(Address("a")), {"batch=16777216", "shards=1"}), {"batch"});
  refused(Set(Learner(Address("a")), {"envs=1024", "horizon=100000", "shards=1"}), {"horizon"});
}

TEST_F(ReplayTest, WhatIsNoReplayServerIsNamed) {
  const auto learner = [&](const std::string& at) { return Set(Learner(at), {"server_wait_s=10"}); };
  {
    Process server(kBinary, {"server", "--listen", Address("parameters"), "--quiet"});
    ASSERT_TRUE(server.RunsUntil([&] { return std::filesystem::exists(Path("parameters.sock")); }));
    ExpectRefused(RunTrireme(learner(Address("parameters"))), {Address("parameters"), "no replay server"});
  }
  Process other(kBinary, {"train", "--env", "CartPole-v1", "--algo", "impala", "--listen", Address("other"),
                          "--out", Path("other")});
  ASSERT_TRUE(other.RunsUntil([&] { return std::filesystem::exists(Path("other.sock")); }));
  ExpectRefused(RunTrireme(learner(Address("other"))), {Address("other"), "no replay server"});
  EXPECT_FALSE(std::filesystem::exists(Path("run")));
}

TEST_F(ReplayTest, TheTokenIsAskedFor) {
  WriteText(Path("secret"), "a\n");
  WriteText(Path("wrong"), "b\n");
  const auto a = StartServer("a", {"--token-file", Path("secret")});
  for (const Args& token : {Args{}, Args{"--token-file", Path("wrong")}}) {
    ExpectRefused(RunTrireme(Learner(Address("a"), token)), {"refused the token", "--token-file"});
    ExpectEnds(*StartActor("a", token), 2, "--token-file");
  }
  const Args right = {"--token-file", Path("secret")};
  const auto actor = StartActor("a", right);
  EXPECT_EQ(RunTrireme(Learner(Address("a"), right + Args{"--steps", "20000"})).code, 0);
  ExpectEnds(*actor, 0);
}

TEST_F(ReplayTest, FoldersThatCannotBeUsedAreRefused) {
  const auto serve = [&](const std::string& folder, const ProcessOptions& options = {}) {
    return RunTrireme({"replay", "--listen", Address("x"), "--dir", folder}, options);
  };
  WriteText(Path("file"), "");
  ExpectRefused(serve(Path("file")), {Path("file")});
  ExpectRefused(serve(Path("file/below")), {"cannot make the folder", Path("file/below")});
  ExpectRefused(RunTrireme({"replay", "--listen", "nonsense"}), {"nonsense"});
  ExpectRefused(RunTrireme({"replay", "--listen", Address("x"), "--sync-every", "0"}), {"sync-every"});
  auto a = StartServer("a", {"--dir", Path("memory")});
  ExpectRefused(serve(Path("memory")), {"another server uses", Path("memory")});
  ExpectRefused(RunTrireme({"replay", "--listen", Address("a")}), {"a.sock"});
  {
    const auto actor = StartActor("a");
    Process learner(kBinary, LongLearner(Address("a")));
    ASSERT_TRUE(GoesOn(learner)) << learner.Err();
    Kill(learner);
    Kill(*a);
  }
  std::filesystem::remove(Path("a.sock"));
  const std::string transitions = Path("memory/transitions"), description = Path("memory/description");
  const std::string records = ReadText(transitions), said = ReadText(description);
  const auto flipped = [](std::string bytes, std::size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    return bytes;
  };
  for (const std::size_t at : {0, 9, 17, 25}) {
    WriteText(transitions, flipped(records, at));
    ExpectRefused(serve(Path("memory")), {transitions, "begin anew"});
  }
  WriteText(transitions, records.substr(0, records.size() / 2));
  ExpectRefused(serve(Path("memory")), {transitions, "it was cut"});
  std::filesystem::remove(transitions);
  ExpectRefused(serve(Path("memory")), {transitions});
  WriteText(transitions, records);
  for (const std::string& damaged : {flipped(said, said.size() / 2), said.substr(0, 100), std::string()}) {
    WriteText(description, damaged);
    ExpectRefused(serve(Path("memory")), {description, "begin anew"});
  }
  WriteText(description, said);
  // Records that are damaged are left out, and the rest is there.
  WriteText(transitions, flipped(flipped(records, 4096 + 30), 4096 + 64 + 30));
  a = StartServer("a", {"--dir", Path("memory")});
  ASSERT_TRUE(a->RunsUntil([&] { return Said("a", "found"); }));
  EXPECT_TRUE(Said("a", "; 2 were torn or damaged and are left out")) << ReadText(Path("a.log"));
  const auto actor = StartActor("a");
  Process learner(kBinary, {"train", "--resume", Path("run"), "--json"});
  ASSERT_TRUE(GoesOn(learner)) << learner.Err();
  EXPECT_FALSE(a->EndsWithin(0));
}

TEST_F(ReplayTest, AFullDiskIsNamed) {
  const SmallDisk disk(Path("small"));
  if (!disk.mounted()) GTEST_SKIP() << "may not mount";
  const auto a = StartServer("a", {"--dir", Path("small/memory")});
  ExpectRefused(RunTrireme(Set(Learner(Address("a")), {"replay=1048576"})),
                {Path("small/memory"), "of disk"});
  // It can be used all the same, by whoever needs less.
  const auto actor = StartActor("a");
  EXPECT_EQ(RunTrireme(Set(Learner(Address("a"), {"--steps", "20000"}), {"replay=4096"})).code, 0);
  ExpectEnds(*actor, 0);
  ExpectEnds(*a, 0);
}

TEST_F(ReplayTest, AServerWithTooLittleMemorySaysHowMuchItTakes) {
  Process server(kBinary, {"replay", "--listen", Address("a"), "--quiet"},
                 {.most_memory = rlim_t{200} << 20});
  ASSERT_TRUE(server.RunsUntil([&] { return std::filesystem::exists(Path("a.sock")); }));
  ExpectRefused(RunTrireme(Set(Learner(Address("a")), {"replay=8388608"})),
                {"no memory for 8388608 transitions", "MiB"});
  const auto actor = StartActor("a");
  EXPECT_EQ(RunTrireme(Learner(Address("a"), {"--steps", "20000"})).code, 0);
  ExpectEnds(*actor, 0);
}

TEST_F(ReplayTest, AnActorWaitsUntilALearnerHasCome) {
  const auto a = StartServer("a");
  const auto early = StartActor("a", {}, "1");
  EXPECT_FALSE(early->EndsWithin(2)) << "the server is there: " << early->Err();
  EXPECT_EQ(RunTrireme(Learner(Address("a"), {"--steps", "20000"})).code, 0);
  ExpectEnds(*early, 0, "the run is over");
  ExpectEnds(*a, 0);
}

}  // namespace
}  // namespace trireme::testing
