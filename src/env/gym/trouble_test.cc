// Environments and host processes that go wrong.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "trireme/env/conformance.h"
#include "trireme/env/gym/gym_test_util.h"
#include "trireme/env/host/shared_memory.h"

namespace trireme {
namespace {

class TroubleTest : public GymTest {
 protected:
  // Steps with random actions until a copy has failed; checks how its episode, and those lost with it, ended.
  struct Failure {
    int truncated = 0;
    std::string reason;
  };
  static Failure StepUntilFailure(const EnvEntry& env, EnvBatch& batch) {
    const std::int64_t before = env.processes->failures().count;
    for (int t = 0; t < 200; ++t) {
      std::vector<std::vector<float>> last;
      for (int i = 0; i < batch.size(); ++i) last.push_back(ObsRow(batch, batch.obs(), i));
      StepRandomly(batch, 0, t);
      CheckFinished(batch, batch.finished());
      for (const EpisodeEnd& end : batch.finished()) EXPECT_TRUE(end.terminated || end.length <= 20);
      if (env.processes->failures().count == before) continue;
      Failure failure{.reason = env.processes->failures().last};
      for (int i = 0; i < batch.size(); ++i) {
        if (batch.truncated()[i] == 0) continue;
        if (batch.rewards()[i] == 0) {
          EXPECT_EQ(ObsRow(batch, batch.final_obs(), i), last[i]) << "its last observation is another";
        }
        EXPECT_EQ(ObsRow(batch, batch.obs(), i)[1], 0) << "it has not begun another episode";
        ++failure.truncated;
      }
      return failure;
    }
    ADD_FAILURE() << "nothing has failed";
    return {};
  }
  static void ExpectGoesOn(const EnvEntry& env, EnvBatch& batch) {
    const std::int64_t before = env.processes->failures().count;
    int ended = 0;
    for (int t = 0; t < 60; ++t) {
      StepRandomly(batch, 0, t);
      ended += static_cast<int>(batch.finished().size());
    }
    EXPECT_GE(ended, 2 * batch.size());
    EXPECT_EQ(env.processes->failures().count, before);
  }
  std::string WriteProgram(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0755);
    return path;
  }
};

TEST_F(TroubleTest, WhatCannotBeFoundIsNamed) {
  const auto error = [](const std::string& name, Options options = {}) {
    options.emplace_back("hosts", "1");
    return ErrorOf([&] { Find(name, options); });
  };
  ExpectIn(error("py:" + File("nowhere.py") + ":Walk"), {"there is no file", "nowhere.py"});
  ExpectIn(error(InTrouble("Wlak")), {"has no class Wlak", "Walk"});
  ExpectIn(error("py:no_such_module:Walk"), {"No module named 'no_such_module'"});
  ExpectIn(error("py:Walk"), {"say which class of which file"});
  ExpectIn(error(InTrouble("NoEnvironment")), {"NoEnvironment is no environment: it has no reset"});
  ExpectIn(error(InTrouble("RaisesInConstructor")),
           {"RuntimeError: no licence for the simulator", "trouble.py"});
  ExpectIn(error(InTrouble("RaisesInReset")), {"RuntimeError: the simulator is in use"});
  ExpectIn(error(InTrouble("ForgetsInfo")), {"reset() gave array(", "not (observation, info)"});
  ExpectIn(error(InTrouble("ExitsInConstructor")), {"host 0 has ended with status 7"});
  ExpectIn(error(InTrouble("BadSpace")), {"its observation space is Graph(...)", "not supported"});
  ExpectIn(error(InTrouble("NothingToSee")), {"its observation has no elements: its space is Box(...)"});
  ExpectIn(error(InTrouble("NothingToDo")), {"its action has no elements: its space is Box(...)"});
  ExpectIn(error(InTrouble("BadAction")), {"its action space is Graph(...)", "not supported"});
  ExpectIn(ErrorOf([] {
             Find(InTrouble("Walk"), {}, {{"wind", std::int64_t{1}}});
           }),
           {"unexpected keyword argument 'wind'"});
  ExpectIn(error(InTrouble("Walk"), {{"python", "/no/such/python"}}), {"cannot start /no/such/python"});
}

TEST_F(GymnasiumTest, WhatIsNotRegisteredIsNamed) {
  const auto error = [](const std::string& name) { return ErrorOf([&] { Find(name, {{"hosts", "1"}}); }); };
  ExpectIn(error("gym:NoSuchEnv-v3"), {"gym:NoSuchEnv-v3", "NoSuchEnv"});
  ExpectIn(error("gym:no_such_package:Env-v0"), {"No module named 'no_such_package'"});
}

TEST_F(TroubleTest, APythonThatWillNotDoIsNamedWithWhatToDo) {
  const std::string bare = WriteProgram("bare", "#!/bin/sh\nexec " + TestPython() + " -I -S \"$@\"\n");
  ExpectIn(ErrorOf([&] {
             Find("gym:CartPole-v1", {{"python", bare}});
           }),
           {"No module named 'numpy'", bare + " -m pip install numpy"});
  const std::string hidden = WriteProgram("sitecustomize.py", R"(import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == "gymnasium":
            raise ModuleNotFoundError("No module named 'gymnasium'", name=name)
sys.meta_path.insert(0, Hidden())
)");
  const std::string plain = WriteProgram(
      "plain", fmt::format("#!/bin/sh\nPYTHONPATH={} exec {} \"$@\"\n", folder_.string(), TestPython()));
  ExpectIn(ErrorOf([&] {
             Find("gym:CartPole-v1", {{"python", plain}});
           }),
           {"gymnasium", plain + " -m pip install gymnasium"});
  const std::string old = WriteProgram("old", R"(#!/bin/sh
while [ "$1" != -c ]; do shift; done
exec )" + TestPython() + R"( -c 'import sys
sys.version_info = (3, 7, 17, "final", 0)
exec(sys.argv[1])' "$2"
)");
  ExpectIn(ErrorOf([&] { Find("gym:CartPole-v1", {{"python", old}}); }), {"Python 3.7 is too old", "3.9"});
  const std::string dumb = WriteProgram("dumb", "#!/bin/sh\necho I am no Python; exit 4\n");
  ExpectIn(ErrorOf([&] {
             Find("gym:CartPole-v1", {{"python", dumb}});
           }),
           {"has ended with status 4", "I am no Python"});
}

TEST_F(TroubleTest, WhoBreaksTheRulesEndsTheRunAndIsNamedWithItsStep) {
  const auto offence_of = [&](const EnvEntry& env) {
    const auto batch = MakeReset(env, 3);
    const std::string error = ErrorOf([&] {
      for (int t = 0; t < 10; ++t) StepRandomly(*batch, 0, t);
    });
    ExpectIn(error, {"breaks the rules, environment ", " at step 3 (step 3 of its episode): "});
    return error;
  };
  const auto offence = [&](const std::string& what) { return offence_of(FindTrouble(what)); };
  ExpectIn(offence("shape"), {"its observation has shape (2,), not (3,)"});
  ExpectIn(offence("scalar"), {"its observation has shape (), not (3,)"});
  ExpectIn(offence("strings"), {"its observation is of <U1, not float32"});
  ExpectIn(offence("tuple"), {"not (observation, reward, terminated, truncated, info)"});
  ExpectIn(offence("nan"), {"element 1 of its observation is nan"});
  ExpectIn(offence("infinite"), {"element 1 of its observation is inf"});
  ExpectIn(offence("reward"), {"its reward is nan"});
  ExpectIn(offence("no reward"), {"its reward is None, not a number"});
  ExpectIn(offence("text as reward"), {"its reward is '1.0', not a number"});
  ExpectIn(offence("bytes as reward"), {"its reward is b'1.0', not a number"});
  ExpectIn(offence("huge reward"), {"its reward is 1000", "not a number"});
  ExpectIn(offence("two rewards"), {"its reward is array([1., 2.]), not a number"});
  ExpectIn(offence("no flag"), {"truncated is None, not True or False"});
  ExpectIn(offence("text as flag"), {"truncated is 'no', not True or False"});
  ExpectIn(offence("two flags"), {"terminated is array([False, False]), not True or False"});
  ExpectIn(offence("unreadable"), {"what it gave cannot be read: ", "RuntimeError: nobody may look"});
  ExpectIn(offence_of(Find(InTrouble("Film"))), {"its observation is of float64, not uint8"});
}

// Rewards and flags of other types than Python's own, which are numbers all the same.
TEST_F(TroubleTest, NumbersAndFlagsOfAnyTypeWillDo) {
  const auto seen = [&](const std::string& types) {
    const EnvEntry env = Find(InTrouble("Typed"), {}, {{"types", types}});
    const auto batch = MakeReset(env, 3, 3);
    std::vector<std::vector<double>> all;
    for (int t = 0; t < 60; ++t) {
      StepRandomly(*batch, 0, t);
      for (auto& one : SeenByAll(*batch)) all.push_back(std::move(one));
    }
    return all;
  };
  const auto plain = seen("plain");
  for (const char* types : {"numpy", "arrays", "arrays of one", "integers"}) {
    SCOPED_TRACE(types);
    EXPECT_EQ(seen(types), plain);
  }
}

TEST_F(TroubleTest, SmallOffencesAreSaidOnce) {
  const auto warning = [&](const std::string& what) {
    const EnvEntry env = FindTrouble(what);
    const auto batch = MakeReset(env, 3);
    for (int t = 0; t < 30; ++t) StepRandomly(*batch, 0, t);
    EXPECT_EQ(env.processes->failures().count, 0);
    return env.processes->failures().warning;
  };
  ExpectIn(warning("dtype"), {" at step 3 ", "its observation is of float64, not float32"});
  ExpectIn(warning("list"), {" at step 3 ", "its observation is of float64, not float32"});
  ExpectIn(warning("outside"), {" at step 3 ", "element 2 of its observation is 11, outside of -10 ... 10"});
  EXPECT_EQ(warning("nothing"), "");
  const std::string ignored = "info[\"action_mask\"] is not kept to: ";
  ExpectIn(warning("mask"), {" at step 3 ", ignored + "there was none in the first steps"});
  const auto warning_of = [](const std::string& name) {
    const EnvEntry env = Find(InTrouble(name));
    const auto batch = MakeReset(env, 3);
    for (int t = 0; t < 30; ++t) StepRandomly(*batch, 0, t);
    return env.processes->failures().warning;
  };
  EXPECT_EQ(warning_of("MaskedInSteps"), "");
  ExpectIn(warning_of("MaskedNumbers"), {ignored + "its actions are no choices"});
  EXPECT_EQ(warning_of("Masked"), "");
}

TEST_F(TroubleTest, OneThatRaisesIsMadeAnewAndTheOthersGoOn) {
  const EnvEntry env = FindTrouble("raise", {}, {{"at", std::int64_t{4}}, {"once", Once()}});
  const auto batch = MakeReset(env, 5);
  const Failure failure = StepUntilFailure(env, *batch);
  EXPECT_EQ(failure.truncated, 1);
  ExpectIn(failure.reason,
           {" at step 4 ", "raised Traceback", "trouble.py", "RuntimeError: the robot fell over"});
  ExpectGoesOn(env, *batch);
  const std::vector<pid_t> makers = Makers();
  EXPECT_EQ(std::set(makers.begin(), makers.end()).size(), 2u) << "another process was started";
}

TEST_F(TroubleTest, OneThatEndsItsProcessTakesItsNeighboursAlong) {
  for (const auto& [what, text] : {std::pair{"segv", "killed by signal 11 (Segmentation fault)"},
                                   {"die", "killed by signal 9 (Killed)"},
                                   {"exit", "has ended with status 5"},
                                   {"leave", "enough"}}) {
    SCOPED_TRACE(what);
    std::filesystem::remove(Once());
    const EnvEntry env = FindTrouble(what, {}, {{"at", std::int64_t{4}}, {"once", Once()}});
    const auto batch = MakeReset(env, 5);
    const Failure failure = StepUntilFailure(env, *batch);
    EXPECT_GE(failure.truncated, 2);
    EXPECT_LE(failure.truncated, 3);
    ExpectIn(failure.reason, {"took its process down: host", text, "about to "});
    ExpectGoesOn(env, *batch);
  }
}

TEST_F(TroubleTest, OneThatDoesNotAnswerIsGivenUp) {
  for (const char* what : {"hang", "hang in reset"}) {
    SCOPED_TRACE(what);
    std::filesystem::remove(Once());
    const EnvEntry env = FindTrouble(what, {{"timeout_s", "3"}}, {{"at", std::int64_t{2}}, {"once", Once()}});
    const auto batch = MakeReset(env, 4);
    const Failure failure = StepUntilFailure(env, *batch);
    ExpectIn(failure.reason, {"has not answered for 3 s (env_timeout_s)", "trouble.py\", line"});
    ExpectGoesOn(env, *batch);
  }
}

// Before it was stepped for anybody, and while it is drawn: not only then.
TEST_F(TroubleTest, TheTimeLimitIsKeptToInTheFirstResetAndWhenDrawn) {
  const Options little = {{"timeout_s", "3"}, {"hosts", "1"}};
  ExpectIn(ErrorOf([&] { Find(InTrouble("HangsInFirstReset"), little); }),
           {"host 0 has not answered for 3 s (env_timeout_s)", "trouble.py\", line"});
  const EnvEntry env = Find(InTrouble("HangsWhenDrawn"), little);
  const auto batch = MakeDrawnBatch(env, 1, 1, Purpose::kEnvReset, 0);
  Picture picture;
  ExpectIn(ErrorOf([&] { batch->pictures()->Draw(0, picture); }),
           {"host 0 has not answered for 3 s (env_timeout_s)", "trouble.py\", line"});
}

// A worker has several batches on one host and waits for one at a time: here for one that the host does not get to, or
// for an answer, while it is stuck in another.
TEST_F(TroubleTest, AHostThatIsStuckIsGivenUpByWhoeverWaitsForIt) {
  for (const char* what : {"hang", "stop"}) {
    for (const bool asks : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", what, asks));
      std::filesystem::remove(Once());
      const EnvEntry env = FindTrouble(what, {{"timeout_s", "3"}, {"hosts", "1"}},
                                       {{"at", std::int64_t{2}}, {"once", Once()}});
      const auto a = MakeReset(env, 3), b = MakeReset(env, 3, 1, 3);
      StepRandomly(*a, 0, 0);
      StepRandomly(*b, 3, 0);
      b->StepBegin(RandomActions(*b, 3, 1));
      ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(Once()); }));
      if (asks) {
        EXPECT_NE(env.make(2), nullptr);
      } else {
        StepRandomly(*a, 0, 1);
      }
      ExpectIn(env.processes->failures().last,
               {"environment 3 at step 2 has not answered for 3 s (env_timeout_s)"});
      b->StepEnd();
      if (asks) StepRandomly(*a, 0, 1);  // learns of it now
      EXPECT_EQ(env.processes->failures().count, 1);
      ExpectGoesOn(env, *a);
      ExpectGoesOn(env, *b);
    }
  }
}

TEST_F(TroubleTest, WithoutATimeLimitARequestToStopFreesWhoeverWaits) {
  const EnvEntry env =
      FindTrouble("hang", {{"timeout_s", "0"}, {"hosts", "1"}}, {{"at", std::int64_t{2}}, {"once", Once()}});
  const auto batch = MakeReset(env, 3);
  const EnvStopScope stop(env.processes, [&] { return std::filesystem::exists(Once()); });
  const Failure failure = StepUntilFailure(env, *batch);
  EXPECT_EQ(failure.truncated, 3);
  ExpectIn(failure.reason, {"environment 0 at step 2 has not answered for 10 s",
                            "the run was asked to end; env_timeout_s is 0"});
}

// A batch that nobody wants any more, in the middle of a step, keeps nobody waiting.
TEST_F(TroubleTest, ABatchThatIsStuckCanBeLeft) {
  const EnvEntry env = FindTrouble("hang", {{"timeout_s", "0"}, {"hosts", "1"}});
  auto batch = MakeReset(env, 2);
  for (int t = 0; t < 2; ++t) StepRandomly(*batch, 0, t);
  batch->StepBegin(RandomActions(*batch, 0, 2));
  batch.reset();
}

TEST_F(TroubleTest, OneThatFailsInAResetHasEndedItsEpisode) {
  for (const char* what : {"raise in reset", "die in reset"}) {
    SCOPED_TRACE(what);
    std::filesystem::remove(Once());
    const EnvEntry env = FindTrouble(what, {}, {{"at", std::int64_t{1}}, {"once", Once()}});
    const auto batch = MakeReset(env, 4);
    StepUntilFailure(env, *batch);
    ExpectGoesOn(env, *batch);
  }
}

// Killed or frozen from outside, while steps of two batches are on their way.
TEST_F(TroubleTest, HostsThatAreKilledOrFrozenAreReplaced) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    SCOPED_TRACE(signal);
    std::filesystem::remove(folder_ / "made");
    const EnvEntry env = FindTrouble("nothing", {{"timeout_s", "3"}});
    const auto a = MakeReset(env, 4), b = MakeReset(env, 3, 1, 4);
    for (int t = 0; t < 3; ++t) StepRandomly(*a, 0, t);
    const pid_t struck = Makers().front();
    a->StepBegin(RandomActions(*a, 0, 3));
    ASSERT_EQ(::kill(struck, signal), 0);
    b->StepBegin(RandomActions(*b, 4, 3));
    a->StepEnd();
    b->StepEnd();
    for (int t = 0; t < 3 && env.processes->failures().count == 0;
         ++t) {  // it may have been done with its part
      StepRandomly(*a, 0, t);
      StepRandomly(*b, 4, t);
    }
    EXPECT_EQ(env.processes->failures().count, 1);
    EXPECT_FALSE(Exists(struck));
    StepRandomly(*b, 4, 5);  // learns of it at the latest now
    ExpectGoesOn(env, *a);
    ExpectGoesOn(env, *b);
  }
}

TEST_F(TroubleTest, TooManyFailuresEndTheRunWithTheTraceback) {
  for (const char* what : {"raise", "die"}) {
    const EnvEntry env = FindTrouble(what, {{"max_failures", "4"}});
    const auto batch = MakeReset(env, 2);
    const std::string error = ErrorOf([&] {
      for (int t = 0; t < 100; ++t) StepRandomly(*batch, 0, t);
    });
    ExpectIn(error, {"has failed", "times, and env_max_failures is 4", "The last time environment "});
    ExpectIn(error,
             {std::string(what) == "raise" ? "RuntimeError: the robot fell over" : "killed by signal 9"});
  }
}

// What a constructor raises in the place of a host that is lost is a failure like any other.
TEST_F(TroubleTest, AConstructorThatRaisesLaterIsTriedAgain) {
  const EnvEntry env = FindTrouble("die", {},
                                   {{"at", std::int64_t{4}},
                                    {"once", Once()},
                                    {"refuse_from", std::int64_t{5}},
                                    {"refuse_to", std::int64_t{6}}});
  const auto batch = MakeReset(env, 4);
  ASSERT_EQ(Makers().size(), 4u);
  const Failure failure = StepUntilFailure(env, *batch);
  EXPECT_EQ(env.processes->failures().count, 3) << "a crash, and two that were not made";
  ExpectIn(failure.reason, {"cannot be made: Traceback", "RuntimeError: no licence for number 6"});
  ExpectGoesOn(env, *batch);
}

TEST_F(TroubleTest, AConstructorThatKeepsRaisingEndsTheRunWithItsTraceback) {
  const EnvEntry env = FindTrouble("die", {{"max_failures", "3"}},
                                   {{"at", std::int64_t{4}},
                                    {"once", Once()},
                                    {"refuse_from", std::int64_t{5}},
                                    {"refuse_to", std::int64_t{1000}}});
  const auto batch = MakeReset(env, 4);
  const std::string error = ErrorOf([&] {
    for (int t = 0; t < 10; ++t) StepRandomly(*batch, 0, t);
  });
  ExpectIn(error, {"has failed 4 times, and env_max_failures is 3", "trouble.py\", line", "no licence for"});
}

// A batch that is made in the middle of a run, for its evaluation.
TEST_F(TroubleTest, AConstructorThatRaisesIsTriedAgainOnceThereWereObservations) {
  const Options one_host = {{"hosts", "1"}};
  const EnvArgs third = {{"refuse_from", std::int64_t{3}}, {"refuse_to", std::int64_t{3}}};
  {
    const EnvEntry env = FindTrouble("nothing", one_host, third);
    const auto first = MakeReset(env, 2), second = MakeReset(env, 2, 1, 2);
    EXPECT_EQ(env.processes->failures().count, 1);
    ExpectGoesOn(env, *second);
    ExpectGoesOn(env, *first);
  }
  std::filesystem::remove(folder_ / "made");
  const EnvEntry env = FindTrouble("nothing", one_host, third);
  ExpectIn(ErrorOf([&] { MakeReset(env, 3); }), {"cannot be made: Traceback", "no licence for number 3"});
  EXPECT_EQ(env.processes->failures().count, 0);
}

// One that dies again while it is begun anew is begun once more.
TEST_F(TroubleTest, OneThatDiesTwiceInARowIsBegunOnceMore) {
  const EnvEntry env = FindTrouble("die", {{"hosts", "1"}}, {{"at", std::int64_t{2}}});
  const auto batch = MakeReset(env, 2);
  for (int t = 0; t < 12; ++t) StepRandomly(*batch, 0, t);
  EXPECT_GE(env.processes->failures().count, 4);
}

TEST_F(TroubleTest, WhatDoesNotFitIntoMemoryIsRefused) {
  const EnvEntry env = Find(InTrouble("Huge"));
  ExpectIn(ErrorOf([&] { env.make(1 << 20); }), {"bytes of shared memory", "Cannot allocate memory"});
}

TEST_F(TroubleTest, ASnapshotWithoutAHostBeginsNewEpisodes) {
  const EnvEntry env = FindTrouble("nothing", {{"hosts", "1"}});
  const auto original = MakeReset(env, 2), restored = MakeReset(env, 2, 9);
  for (int t = 0; t < 3; ++t) StepRandomly(*original, 0, t);
  ASSERT_EQ(::kill(Makers().front(), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] {
    return !Exists(Makers().front()) ||
           ReadFile(fmt::format("/proc/{}/stat", Makers().front())).find(") Z") != std::string::npos;
  }));
  StateWriter out;
  original->snapshots()->Save(out, "env");
  StepRandomly(*restored, 0, 0);  // has another host by now
  restored->snapshots()->Load(StateReader(out.Encode()), "env");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(ObsRow(*restored, restored->obs(), i)[1], 0);
  ExpectGoesOn(env, *restored);
}

TEST(SharedMemoryTest, WhatThereIsNotIsRefused) {
  try {
    const SharedMemory memory(std::size_t{1} << 50, "a test");
    FAIL() << "there was that much";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("shared memory for a test: Cannot allocate memory"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace trireme
