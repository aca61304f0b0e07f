// Servers of which somebody wants too much: real servers with little memory or few descriptors, and at the
// end of each test a real worker that trains through the one that was attacked.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <list>
#include <memory>

#include "run_util.h"
#include "trireme/server/protocol.h"

namespace trireme::testing {
namespace {

using namespace std::chrono_literals;

// How a connection of HTTP/2 begins.
const std::string kHttp2("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

// A connection without gRPC.
class RawConnection {
 public:
  explicit RawConnection(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), name.sun_path);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  }
  ~RawConnection() { close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  void Send(const std::string& bytes) { (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Whether the server has closed it, or does so in time.
  bool IsClosed(Clock::duration within) {
    const Deadline end = Clock::now() + within;
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      pollfd ready{fd_, POLLIN, 0};
      if (poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) <= 0) return false;
      char bytes[4096];
      if (recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
    }
  }

 private:
  int fd_;
};

class ServerAttackTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    setenv("TRIREME_PLUGINS", TRIREME_PLUGIN_FOLDER, 1);
  }
  std::string Address() const { return "unix:" + Path("socket"); }
  void Start(const ProcessOptions& options, const Args& more = {}) {
    server_ = std::make_unique<Process>(
        kBinary, Args{"server", "--listen", Address(), "--dir", Path("state"), "--quiet"} + more, options);
    ASSERT_TRUE(server_->RunsUntil([&] { return std::filesystem::exists(Path("socket")); }));
  }
  void ExpectTraining(const std::string& name, const Args& more = {}) {
    const Outcome outcome = RunTrireme(
        SmallRun(name) + Args{"--workers", "1", "--store", "server", "--servers", Address()} + more);
    EXPECT_GE(ResultOf(outcome).value("steps", 0), 5120);
    EXPECT_FALSE(server_->EndsWithin(0)) << "it must be the server that was attacked";
  }
  // Why the server closes a stream on which `messages` are sent; empty when it does not.
  std::string WhyClosed(const std::vector<Outgoing>& messages) {
    const auto stream = LoadGrpc().Connect(Address(), {});
    for (const Outgoing& message : messages) {
      if (!stream->Send(message, Clock::now() + 60s)) break;
      stream->Receive(Clock::now() + 60s);
    }
    return stream->why();
  }

  std::unique_ptr<Process> server_;
};

TEST_F(ServerAttackTest, ConnectionsBeyondItsDescriptorsDoNotMakeItDeaf) {
  Start({.most_files = 64});
  std::list<RawConnection> silent, talking;
  for (int i = 0; i < 100; ++i) silent.emplace_back(Path("socket"));
  // Those that begin to talk HTTP/2 are gRPC's, and fill all room there is.
  for (int i = 0; i < 100; ++i) {
    talking.emplace_back(Path("socket"));
    talking.back().Send(kHttp2);
  }
  int refused = 0;
  for (RawConnection& connection : talking) refused += connection.IsClosed(20ms);
  EXPECT_GT(refused, 30) << "there is not room for all";
  talking.clear();
  // Those that say nothing make room for others.
  for (int i = 0; i < 100; ++i) silent.emplace_back(Path("socket"));
  ExpectTraining("run");
}

TEST_F(ServerAttackTest, ConnectionsThatNeverSayHelloAreClosed) {
  Start({});
  RawConnection silent(Path("socket")), half(Path("socket")), idle(Path("socket"));
  half.Send("PRI * HTTP/2.0\r\n");
  idle.Send(kHttp2);
  const auto stream = LoadGrpc().Connect(Address(), {});
  EXPECT_EQ(stream->Receive(Clock::now() + 60s), nullptr);
  EXPECT_EQ(stream->why(), "later: no hello came for 10 s");
  for (RawConnection* connection : {&silent, &half, &idle}) EXPECT_TRUE(connection->IsClosed(60s));
  ExpectTraining("run");
}

TEST_F(ServerAttackTest, LongMessagesOfStrangersAreNotHeld) {
  Start({.most_memory = rlim_t{400} << 20});
  // Only the first pages are ever written, so the test itself needs little memory.
  Header header{.kind = MessageKind::kState, .floats = 225'000'000};
  MessageWriter writer(header);
  const Outgoing huge = writer.Take();
  for (int i = 0; i < 5; ++i) {
    const std::string why = WhyClosed({huge});
    EXPECT_NE(why.find("longer than the limit of 131072"), std::string::npos) << why;
  }
  // The one that is asked for the state, of a run that is too large for this server but not for any.
  RunTerms terms;
  terms.env = terms.algo = terms.network = terms.version = "1";
  terms.params = 80'000'000;
  terms.optimizer.kind = OptimizerKind::kAdam;
  Greeting greeting;
  greeting.worker = 7;
  greeting.terms = terms;
  const Outgoing hello = MakeMessage({.kind = MessageKind::kHello, .worker = 7}, {}, {}, greeting.Encode());
  header.floats = 3 * terms.params;
  const std::string why = WhyClosed({hello, MessageWriter(header).Take()});
  EXPECT_NE(why.find("no memory"), std::string::npos) << why;
  ExpectTraining("run");
}

TEST_F(ServerAttackTest, WithoutTheTokenNothingIsHeld) {
  WriteText(Path("token"), "sesame\n");
  Start({.most_memory = rlim_t{400} << 20}, {"--token-file", Path("token")});
  const Outgoing huge = MessageWriter({.kind = MessageKind::kState, .floats = 225'000'000}).Take();
  for (int i = 0; i < 5; ++i) {
    const std::string why = WhyClosed({huge});
    EXPECT_NE(why.find("refused the token"), std::string::npos) << why;
  }
  ExpectTraining("run", {"--token-file", Path("token")});
}

}  // namespace
}  // namespace trireme::testing
