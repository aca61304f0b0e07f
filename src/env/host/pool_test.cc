// Host processes with a small host program of our own: as much of the protocol as the pool needs, and no more.
#include "trireme/env/host/pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "trireme/base/system.h"
#include "trireme/env/gym/test_python.h"

namespace trireme {
namespace {

// Takes its time when it is asked to, says what its start message says, and ends when it is told to.
constexpr const char* kHost = R"(
import json, os, socket, sys, time
connection = socket.socket(fileno=3)
start = json.loads(socket.recv_fds(connection, 1 << 16, 1)[0])
if start.get("dies"):
    print("no, thanks", flush=True)
    sys.exit(9)
connection.send(start["answer"].encode())
while True:
    message = json.loads(connection.recv(1 << 16) or '{"op": "end"}')
    if message["op"] == "end":
        break
    if message["op"] == "leave":
        print("it is late", flush=True)
        sys.exit(6)
    if message["op"] == "work":
        end = time.process_time() + message["seconds"]
        while time.process_time() < end:
            pass
    connection.send(json.dumps({"pid": os.getpid()}).encode() if message["op"] != "err" else b'{"error": "it is late"}')
)";

class HostPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = MissingInTests("json"); !missing.empty()) GTEST_SKIP() << missing;
  }
  static std::unique_ptr<HostPool> Make(HostLimits limits, const std::string& start = R"({"answer": "{}"})") {
    const HostProgram program{.command = {TestPython(), "-c", "exec(open(4).read())"}, .script = kHost};
    return std::make_unique<HostPool>("test:Env", program, start, limits);
  }
  static std::string ErrorOf(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(HostPoolTest, CopiesAreSpreadEvenly) {
  const auto pool = Make({.hosts = 3});
  EXPECT_EQ(pool->Occupy(4), 0);
  EXPECT_EQ(pool->Occupy(2), 1);
  EXPECT_EQ(pool->Occupy(3), 2);
  EXPECT_EQ(pool->Occupy(1), 1);
  pool->Release(0, 4);
  EXPECT_EQ(pool->Occupy(1), 0);
  EXPECT_NE(pool->NewPart(), pool->NewPart());
}

TEST_F(HostPoolTest, TheFirstAnswersAndSaysWhatIsWrong) {
  const auto pool = Make({.hosts = 2});
  EXPECT_EQ(pool->AskFirst(R"({"op":"who"})").text, fmt::format(R"({{"pid": {}}})", pool->Process(0)->pid()));
  EXPECT_EQ(ErrorOf([&] { pool->AskFirst(R"({"op":"err"})"); }), "test:Env: it is late");
  ASSERT_EQ(::kill(pool->Process(0)->pid(), SIGKILL), 0);
  EXPECT_EQ(ErrorOf([&] { pool->AskFirst(R"({"op":"who"})"); }).find("test:Env: host 0 "), 0u);
}

// Also when it is noticed only when something is to be said to it.
TEST_F(HostPoolTest, OneThatHasGoneIsLostWithItsLastLines) {
  const auto pool = Make({.hosts = 1});
  HostProcess& host = *pool->Process(0);
  pool->AwaitStart(host);
  host.Tell(R"({"op":"leave"})");
  for (int look = 0; look < 3000 && !host.ended(); ++look) ::usleep(10'000);
  EXPECT_EQ(
      ErrorOf([&] { host.Ask(R"({"op":"who"})", HostWork::kStep); }),
      "host 0 cannot be reached: Broken pipe; host 0 has ended with status 6. Its last lines:\nit is late");
}

TEST_F(HostPoolTest, OneThatDoesNotStartIsLost) {
  const auto refusal = [](const std::string& start) {
    const auto pool = Make({.hosts = 1}, start);
    return ErrorOf([&] { pool->AwaitStart(*pool->Process(0)); });
  };
  const std::string begin = "test:Env: its host process does not start: ";
  EXPECT_EQ(refusal(R"({"answer": "{\"error\": \"no NumPy\"}"})"), begin + "no NumPy");
  EXPECT_EQ(refusal(R"({"answer": "hello"})"), begin + "host 0 does not speak the language of hosts");
  EXPECT_EQ(refusal(R"({"dies": 1})"), begin + "host 0 has ended with status 9. Its last lines:\nno, thanks");
}

// However many have noticed: they all go on with the same other one, and it is one failure.
TEST_F(HostPoolTest, ALostOneIsReplacedOnce) {
  const auto pool = Make({.hosts = 2, .max_failures = 2});
  const std::shared_ptr<HostProcess> lost = pool->Process(1);
  EXPECT_FALSE(lost->ended());
  pool->Replace(1, lost, "it was slow");
  EXPECT_TRUE(lost->ended());
  const std::shared_ptr<HostProcess> other = pool->Process(1);
  EXPECT_NE(other, lost);
  pool->Replace(1, lost, "it was slow");
  EXPECT_EQ(pool->Process(1), other);
  pool->AwaitStart(*other);
  EXPECT_EQ(pool->failures().count, 1);
  EXPECT_EQ(pool->failures().last, "it was slow");
  EXPECT_GT(pool->failures().last_s, 1.7e9) << "after 2023";
  pool->Count(1, "it raised");
  EXPECT_EQ(pool->failures().last, "it raised");
  EXPECT_EQ(ErrorOf([&] { pool->Replace(1, other, "again"); }),
            "test:Env has failed 3 times, and env_max_failures is 2. The last time again");
}

TEST_F(HostPoolTest, ProcessorTimeIsThatOfAllAlsoOfThoseThatAreLost) {
  const auto pool = Make({.hosts = 2});
  for (int host = 0; host < 2; ++host) {
    pool->AwaitStart(*pool->Process(host));
    pool->Process(host)->Ask(R"({"op":"work","seconds":0.2})", HostWork::kStep);
  }
  const double before_s = pool->cpu_s();
  EXPECT_GE(before_s, 0.4);
  pool->Replace(1, pool->Process(1), "a test");
  EXPECT_GE(pool->cpu_s(), before_s - 0.02) << "clocks differ in their last digits";
  pool->AwaitStart(*pool->Process(1));
  pool->Process(1)->Ask(R"({"op":"work","seconds":0.2})", HostWork::kStep);
  EXPECT_GE(pool->cpu_s(), 0.6);
}

TEST_F(HostPoolTest, AWarningIsSaidOnce) {
  const auto pool = Make({.hosts = 1});
  pool->Warn("first");
  pool->Warn("second");
  EXPECT_EQ(pool->failures().warning, "first");
  EXPECT_EQ(pool->failures().count, 0);
}

TEST_F(HostPoolTest, AllEndWithIt) {
  auto pool = Make({.hosts = 3});
  std::vector<pid_t> pids;
  for (int host = 0; host < 3; ++host) pids.push_back(pool->Process(host)->pid());
  pool.reset();
  for (const pid_t pid : pids) EXPECT_NE(::kill(pid, 0), 0) << pid;
}

// One that is asked to end and finds nothing but hosts that do not answer ends all the same.
TEST_F(HostPoolTest, OnceItIsAskedToEndEachHostIsGivenUpOnce) {
  const auto pool = Make({.hosts = 2, .timeout_s = 0});
  const auto give_up = [&](int host) {
    const std::shared_ptr<HostProcess> process = pool->Process(host);
    process->GiveUp(HostWork::kStep);
    return ErrorOf([&] { pool->Replace(host, process, process->Obituary()); });
  };
  EXPECT_EQ(give_up(0), "no error");
  pool->SetStop([] { return true; });
  EXPECT_EQ(give_up(0), "no error");
  EXPECT_EQ(give_up(1), "no error");
  EXPECT_EQ(pool->failures().last,
            "host 1 has not answered for 10 s (the run was asked to end; env_timeout_s is 0)");
  EXPECT_EQ(give_up(0).find("test:Env was asked to end, and its environments do not answer"), 0u);
}

}  // namespace
}  // namespace trireme
