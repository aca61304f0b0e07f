// The network that the other tests of this folder stand on: late and slow as it is told, and silent when cut.
#include "network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "hosts_test_util.h"

namespace trireme::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kDeadlineMs = 60000;

// Two ends of a connection between two hosts.
class Connection {
 public:
  Connection(const Network& network, int from, int to) {
    int listener = -1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(7000);
    inet_pton(AF_INET, Network::Address(to).c_str(), &address.sin_addr);
    network.host(to).Call([&] {
      listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const int on = 1;
      ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
      EXPECT_EQ(::listen(listener, 1), 0);
    });
    network.host(from).Call([&] { ends_[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
    EXPECT_EQ(::connect(ends_[0], reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ends_[1] = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    ::close(listener);
    const int on = 1;
    for (const int end : ends_) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~Connection() {
    for (const int end : ends_) ::close(end);
  }

  void Send(int end, std::size_t bytes) const {
    const std::string data(bytes, 'x');
    for (std::size_t sent = 0; sent < bytes;) {
      const ssize_t n = ::send(ends_[end], data.data() + sent, bytes - sent, MSG_NOSIGNAL);
      ASSERT_GT(n, 0);
      sent += static_cast<std::size_t>(n);
    }
  }
  // Expects them before the deadline.
  void Receive(int end, std::size_t bytes) const {
    char block[65536];
    for (std::size_t got = 0; got < bytes;) {
      ASSERT_TRUE(Readable(end, kDeadlineMs)) << got << " of " << bytes << " bytes arrived";
      const ssize_t n = ::recv(ends_[end], block, std::min(sizeof block, bytes - got), 0);
      ASSERT_GT(n, 0);
      got += static_cast<std::size_t>(n);
    }
  }
  bool Readable(int end, int wait_ms) const {
    pollfd wait{ends_[end], POLLIN, 0};
    return ::poll(&wait, 1, wait_ms) > 0;
  }
  void PingPong(int rounds) const {
    for (int i = 0; i < rounds; ++i) {
      Send(0, 1);
      Receive(1, 1);
      Send(1, 1);
      Receive(0, 1);
    }
  }

 private:
  int ends_[2] = {-1, -1};
};

class NetworkTest : public HostsTest {
 protected:
  // So slow that a machine that is busy with other things is not mistaken for it.
  Cable cable() const override { return {.latency = milliseconds(5), .bytes_per_s = 2.5e6}; }
};

TEST_F(NetworkTest, EveryWayTakesTheLatencyOfTwoCables) {
  const Connection connection(*network_, 1, 2);
  const auto start = Clock::now();
  connection.PingPong(10);
  EXPECT_GE(Clock::now() - start, 10 * 4 * milliseconds(5));
}

TEST_F(NetworkTest, ATransferTakesTheTimeOfItsBytes) {
  const Connection connection(*network_, 1, 2);
  constexpr std::size_t kBytes = 1'000'000;
  const auto start = Clock::now();
  std::thread sender([&] { connection.Send(0, kBytes); });
  connection.Receive(1, kBytes);
  sender.join();
  EXPECT_GE(Clock::now() - start, milliseconds(400));
  EXPECT_GE(network_->passed_bytes(), kBytes);
}

TEST_F(NetworkTest, TwoWhoSendToOneShareItsCable) {
  const Connection one(*network_, 1, 3), other(*network_, 2, 3);
  constexpr std::size_t kBytes = 500'000;
  const auto start = Clock::now();
  std::thread senders[] = {std::thread([&] { one.Send(0, kBytes); }),
                           std::thread([&] { other.Send(0, kBytes); })};
  one.Receive(1, kBytes);
  other.Receive(1, kBytes);
  for (std::thread& sender : senders) sender.join();
  EXPECT_GE(Clock::now() - start, milliseconds(400));
}

TEST_F(NetworkTest, ACutCablePassesNothingUntilItIsMended) {
  const Connection cut(*network_, 1, 2), whole(*network_, 3, 4);
  cut.PingPong(1);
  network_->Cut(2);
  cut.Send(0, 1);
  cut.Send(1, 1);
  whole.PingPong(20);
  EXPECT_FALSE(cut.Readable(0, 0));
  EXPECT_FALSE(cut.Readable(1, 0));
  network_->Mend(2);
  cut.Receive(0, 1);
  cut.Receive(1, 1);
  cut.PingPong(1);
}

TEST_F(NetworkTest, HostsHaveNamesAndRunPrograms) {
  const auto hello = network_->Start(3, "/bin/sh", {"-c", "uname -n; cat /proc/net/fib_trie; exit 7"});
  const Outcome outcome = hello->Wait(30);
  EXPECT_EQ(outcome.code, 7);
  EXPECT_TRUE(outcome.out.starts_with("node3\n")) << outcome.out;
  EXPECT_NE(outcome.out.find("10.77.0.3"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("10.77.0.4"), std::string::npos) << outcome.out;
}

TEST_F(NetworkTest, TheShellRunsWordsOnAnotherHostWithoutTheEnvironment) {
  network_->WriteShell(Path("shell"));
  ASSERT_EQ(::setenv("TRIREME_ONLY_HERE", "x", 1), 0);
  const auto shell = network_->Start(1, Path("shell"),
                                     {"-x", Network::Address(2), "uname", "-n;", "echo $TRIREME_ONLY_HERE."});
  ::unsetenv("TRIREME_ONLY_HERE");
  EXPECT_EQ(shell->Wait(30).out, "node2\n.\n");
  const Outcome nowhere = network_->Start(1, Path("shell"), {"10.77.0.99", "true"})->Wait(30);
  EXPECT_EQ(nowhere.code, 255);
}

TEST_F(NetworkTest, WhoeverIsLeftOnAHostEndsWithIt) {
  const auto left = network_->Start(1, "/bin/sleep", {"1000"});
  ASSERT_TRUE(left->RunsUntil([&] { return !network_->host(1).Processes().empty(); }));
  EXPECT_EQ(network_->host(1).Processes(), std::vector<pid_t>{left->pid()});
  network_.reset();
  EXPECT_EQ(left->Wait(30).signal, SIGKILL);
}

// False for who has ended, even if nobody has asked how.
bool Runs(pid_t pid) {
  std::error_code ended;
  return !std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/ns/net", ended).empty();
}

TEST_F(NetworkTest, AKilledTestLeavesNobodyBehind) {
  int told[2];
  ASSERT_EQ(::pipe2(told, O_CLOEXEC), 0);
  const pid_t test = ::fork();
  if (test == 0) {
    const Namespace host("doomed");
    std::vector<std::string> words = host.Enter();
    words.insert(words.end(), {"/bin/sleep", "1000"});
    const Process left(words[0], {words.begin() + 1, words.end()});
    while (host.Processes().empty()) ::usleep(1000);
    const pid_t pids[] = {host.pid(), left.pid()};
    if (::write(told[1], pids, sizeof pids) == sizeof pids) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  ::close(told[1]);
  pid_t pids[2] = {};
  EXPECT_EQ(::read(told[0], pids, sizeof pids), static_cast<ssize_t>(sizeof pids));
  ::close(told[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(test, &status, 0), test);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto deadline = Clock::now() + milliseconds(kDeadlineMs);
  while ((Runs(pids[0]) || Runs(pids[1])) && Clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_FALSE(Runs(pids[0]));
  EXPECT_FALSE(Runs(pids[1]));
}

}  // namespace
}  // namespace trireme::testing
