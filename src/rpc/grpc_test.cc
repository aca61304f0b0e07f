// What only a real network has: peers that vanish, strangers, stale sockets, certificates.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/rpc/test_child.h"
#include "trireme/rpc/test_util.h"

namespace trireme {
namespace {

struct GrpcTest : testing::Test {
  void SetUp() override {
    if (!HaveGrpc()) GTEST_SKIP() << "built without gRPC";
  }

  // The message of the Error that listening causes.
  std::string ListenError(const std::string& address, const Security& security = {}) {
    try {
      Grpc().Listen(address, security);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  // Whether a client with `security` gets its echo; what it says otherwise.
  std::string Talk(const std::string& address, const Security& security = {}, Clock::duration within = 10s) {
    const auto stream = Grpc().Connect(address, security);
    const Deadline deadline = In(within);
    if (stream->Send(Message(Pattern(1000, 1)), deadline) && stream->Receive(deadline) != nullptr)
      return "echo";
    return stream->why();
  }

  // What a client says that is refused. It tries again until its deadline, which is longer each time in case
  // the machine is too busy for an answer.
  std::string Refusal(const std::string& address, const Security& security = {}) {
    std::string said;
    for (Clock::duration within = 200ms; within < 20s; within *= 3) {
      said = Talk(address, security, within);
      if (!said.empty() && !said.ends_with(": no answer")) break;
    }
    return said;
  }

  TempFolder folder;
};

// A connection that speaks whatever it likes.
class RawClient {
 public:
  explicit RawClient(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Send(const std::string& bytes) { (void)send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // Until the other end closes, or for some seconds.
  bool SeesTheEnd() {
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    char buffer[4096];
    ssize_t count = 0;
    while ((count = recv(fd_, buffer, sizeof(buffer), 0)) > 0) {
    }
    return count == 0 || errno == ECONNRESET;
  }

 private:
  int fd_;
};

// ----------------------------------------------------------------------------------- peers that vanish

TEST_F(GrpcTest, AServerThatIsKilledEndsTheStreamAndItsSuccessorIsFound) {
  const std::string address = "unix:" + folder.path() + "/socket";
  auto child = std::make_unique<Child>("server", address);
  const auto stream = Grpc().Connect(address, {});
  const Outgoing message = Message(Pattern(50'000'000, 1));
  ASSERT_TRUE(stream->Send(message, In(20s)));
  ASSERT_NE(stream->Receive(In(20s)), nullptr);
  ASSERT_TRUE(stream->Send(message, In(20s)));
  child->Kill();  // in the middle of the message
  EXPECT_EQ(stream->Receive(In(10s)), nullptr);
  EXPECT_TRUE(stream->closed());
  EXPECT_TRUE(stream->why().starts_with(address + ": ")) << stream->why();
  EXPECT_EQ(Refusal(address), address + ": connection refused");
  child = std::make_unique<Child>("server", address);  // the socket of the first is still there
  EXPECT_EQ(Talk(address, {}, 20s), "echo");
}

TEST_F(GrpcTest, AServerThatIsFrozenHoldsNobodyBeyondTheDeadline) {
  const std::string address = "unix:" + folder.path() + "/socket";
  Child child("server", address);
  const auto stream = Grpc().Connect(address, {});
  const Outgoing message = Message(Pattern(50'000'000, 1));
  ASSERT_TRUE(stream->Send(message, In(20s)));
  ASSERT_NE(stream->Receive(In(20s)), nullptr);
  child.Signal(SIGSTOP);
  ASSERT_TRUE(stream->Send(message, In(10s)));
  const Deadline start = Clock::now();
  EXPECT_FALSE(stream->Send(message, start + 100ms)) << "the one before cannot have left";
  EXPECT_EQ(stream->Receive(start + 200ms), nullptr);
  EXPECT_FALSE(stream->closed());
  EXPECT_EQ(Talk(address, {}, 300ms), address + ": no answer");
  EXPECT_LT(Clock::now(), start + 20s);
  child.Signal(SIGCONT);
  Incoming* answer = stream->Receive(In(20s));
  ASSERT_NE(answer, nullptr) << stream->why();
  EXPECT_EQ(answer->size(), message->size());
}

TEST_F(GrpcTest, AClientThatIsKilledInTheMiddleOfAMessageIsNoticed) {
  EchoServer server(Grpc(), "127.0.0.1:0");
  Child child("client", server.address());
  ASSERT_TRUE(Eventually([&] { return server.opened() == 1; }));
  child.Kill();
  EXPECT_TRUE(Eventually([&] { return server.closed() == 1; }));
  EXPECT_EQ(Talk(server.address()), "echo");
}

// ------------------------------------------------------------------------------------------ strangers

TEST_F(GrpcTest, GarbageIsDisconnectedAndOthersAreServed) {
  EchoServer server(Grpc(), "127.0.0.1:0");
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  const std::vector<std::string> garbage = {
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string(100'000, '\xff'),
      std::string(100'000, '\0'),
      preface + std::string(50'000, 'x'),
      preface + settings + std::string("\xff\xff\xff\1\4\0\0\0\1", 9) +
          std::string(50'000, 'y'),  // a huge header
  };
  for (const std::string& bytes : garbage) {
    RawClient client(server.address());
    client.Send(bytes);
    EXPECT_TRUE(client.SeesTheEnd()) << bytes.substr(0, 30);
    EXPECT_EQ(Talk(server.address()), "echo");
  }
  // One that says nothing, and one that stops in the middle, stay connected meanwhile.
  RawClient silent(server.address()), half(server.address());
  half.Send(preface + settings + std::string("\0\0\xff\1\4\0\0\0\1", 9));
  EXPECT_EQ(Talk(server.address()), "echo");
  EXPECT_EQ(server.opened(), static_cast<int>(garbage.size()) + 1);
}

TEST_F(GrpcTest, ManyConnectionsThatComeAndGo) {
  EchoServer server(Grpc(), "127.0.0.1:0");
  for (int i = 0; i < 200; ++i) RawClient(server.address()).Send("PRI * HT");
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Talk(server.address()), "echo");
  EXPECT_TRUE(Eventually([&] { return server.closed() == 50; }));
}

TEST_F(GrpcTest, AClientOfSomethingElseSaysSo) {
  // A listener that greets like another kind of server.
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(listen(fd, 5), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  std::thread greeter([&] {
    while (true) {
      const int client = accept(fd, nullptr, nullptr);
      if (client < 0) return;
      (void)send(client, "220 mail.example ESMTP\r\n", 24, MSG_NOSIGNAL);
      close(client);
    }
  });
  EXPECT_EQ(Refusal(address), address + ": what listens there is not a server of Trireme");
  shutdown(fd, SHUT_RDWR);
  greeter.join();
  close(fd);
}

// --------------------------------------------------------------------------------------------- addresses

TEST_F(GrpcTest, AddressesThatMakeNoSenseAreRefused) {
  const std::string advice = "is no address; write host:port (127.0.0.1:7000) or unix:/path";
  for (const std::string address :
       {"", "7000", ":7000", "host", "host:", "host:x", "host:70000", "a b:1", "http://a:1"}) {
    EXPECT_EQ(ListenError(address), "'" + address + "' " + advice);
    EXPECT_THROW(Grpc().Connect(address, {}), Error) << address;
  }
  EXPECT_EQ(ListenError("unix:"), "'unix:' names no file; write unix:/path");
  EXPECT_NE(ListenError("unix:/" + std::string(200, 'x')).find("choose a shorter one"), std::string::npos);
  EXPECT_EQ(ListenError("unix:/no/such/folder/socket"),
            "cannot listen on unix:/no/such/folder/socket: no such file or directory");
  EXPECT_EQ(ListenError("203.0.113.1:7000"),
            "cannot listen on 203.0.113.1:7000: cannot assign requested address");
}

TEST_F(GrpcTest, AHostThatDoesNotExistIsNamed) {
  const std::string why = Talk("no-such-host.invalid:7000", {}, 300ms);
  EXPECT_TRUE(why.starts_with("no-such-host.invalid:7000: ")) << why;
}

TEST_F(GrpcTest, ASocketIsRemovedAtTheEndAndOtherFilesNever) {
  const std::string path = folder.path() + "/socket";
  {
    EchoServer server(Grpc(), "unix:" + path);
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "precious";
  EXPECT_EQ(ListenError("unix:" + path), "cannot listen on unix:" + path + ": there is a file of that name");
  EXPECT_EQ(ReadFile(path), "precious");
}

TEST_F(GrpcTest, AServerOfAnotherUserIsNotGivenTheToken) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const TempFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  ASSERT_EQ(seteuid(65534), 0);
  const EchoServer server(Grpc(), "unix:" + folder.path() + "/socket", {.token = "sesame"});
  ASSERT_EQ(seteuid(0), 0);
  const auto stream = Grpc().Connect(server.address(), {.token = "sesame"});
  EXPECT_FALSE(stream->Send(Message(Pattern(10, 1)), In(20s)));
  EXPECT_NE(stream->why().find("user 65534 listens there, and is not given your token"), std::string::npos)
      << stream->why();
}

TEST_F(GrpcTest, AStaleSocketIsReplaced) {
  const std::string path = folder.path() + "/socket";
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strcpy(name.sun_path, path.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  EXPECT_EQ(ListenError("unix:" + path), "cannot listen on unix:" + path + ": another server does");
  EXPECT_TRUE(std::filesystem::exists(path));
  close(fd);
  EchoServer server(Grpc(), "unix:" + path);
  EXPECT_EQ(Talk(server.address()), "echo");
}

TEST_F(GrpcTest, IpVersion6AndNames) {
  {
    EchoServer server(Grpc(), "localhost:0");
    EXPECT_EQ(Talk(server.address()), "echo");
  }
  const int fd = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  const bool can = bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) == 0;
  close(fd);
  if (!can) GTEST_SKIP() << "no IPv6 here";
  EchoServer server(Grpc(), "[::1]:0");
  EXPECT_EQ(Talk(server.address()), "echo");
}

TEST_F(GrpcTest, ProxiesOfTheEnvironmentAreNotUsed) {
  setenv("http_proxy", "http://127.0.0.1:9", 1);
  setenv("grpc_proxy", "http://127.0.0.1:9", 1);
  EchoServer server(Grpc(), "127.0.0.1:0");
  EXPECT_EQ(Talk(server.address()), "echo");
  unsetenv("http_proxy");
  unsetenv("grpc_proxy");
}

// ----------------------------------------------------------------------------------------- certificates

constexpr char kAtOnce[] =
    ": the server ended the connection at once; both ends must use TLS or none, and the server may demand a "
    "certificate";

struct Pair {
  std::string certificate, key;
};

struct TlsTest : GrpcTest {
  void SetUp() override {
    GrpcTest::SetUp();
    if (std::system("openssl version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no openssl command";
  }

  std::string File(const std::string& name) { return folder.path() + "/" + name; }
  void OpenSsl(const std::string& arguments) {
    const std::string command = "cd " + folder.path() + " && openssl " + arguments + " > openssl.log 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0) << ReadFile(File("openssl.log"));
  }
  // An authority that signs itself.
  Pair Authority(const std::string& name) {
    OpenSsl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=" + name +
            " -keyout " + name + ".key -out " + name + ".pem");
    return {ReadFile(File(name + ".pem")), ReadFile(File(name + ".key"))};
  }
  Pair Signed(const std::string& name, const std::string& authority, const std::string& names,
              const std::string& days = "2") {
    OpenSsl("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + name + " -keyout " +
            name + ".key -out " + name + ".csr");
    std::ofstream(File("names")) << "subjectAltName=" << names << "\n";
    OpenSsl("x509 -req -in " + name + ".csr -CA " + authority + ".pem -CAkey " + authority +
            ".key -CAcreateserial -days " + days + " -extfile names -out " + name + ".pem");
    return {ReadFile(File(name + ".pem")), ReadFile(File(name + ".key"))};
  }
};

TEST_F(TlsTest, TheServerProvesWhoItIs) {
  const Pair authority = Authority("root"), stranger = Authority("other");
  const Pair own = Signed("server", "root", "IP:127.0.0.1,DNS:localhost");
  EchoServer server(Grpc(), "127.0.0.1:0",
                    {.token = "sesame", .certificate = own.certificate, .private_key = own.key, .tls = true});
  const std::string& address = server.address();
  EXPECT_EQ(Talk(address, {.token = "sesame", .authority = authority.certificate, .tls = true}), "echo");
  EXPECT_EQ(Talk(address, {.token = "x", .authority = authority.certificate, .tls = true}),
            address + ": the server refused the token");
  EXPECT_EQ(Refusal(address, {.token = "sesame", .authority = stranger.certificate, .tls = true}),
            address + ": the server's certificate has expired, or is not signed by the given authority");
  EXPECT_EQ(Refusal(address, {.token = "sesame"}), address + kAtOnce) << "a client without TLS";
  EchoServer plain(Grpc(), "127.0.0.1:0");
  EXPECT_EQ(Refusal(plain.address(), {.authority = authority.certificate, .tls = true}),
            plain.address() + ": the server does not use TLS");
  EXPECT_EQ(server.opened(), 1);

  EchoServer by_file(Grpc(), "unix:" + folder.path() + "/socket",
                     {.certificate = own.certificate, .private_key = own.key, .tls = true});
  EXPECT_EQ(Talk(by_file.address(), {.authority = authority.certificate, .tls = true}), "echo");
}

// Whoever has it says so; the other end cannot tell this from another authority's.
TEST_F(TlsTest, AnExpiredCertificateIsCalledExpired) {
  const Pair authority = Authority("root"), old = Signed("old", "root", "IP:127.0.0.1", "-1");
  const auto expect_expired = [&](const char* whose, const std::string& message) {
    EXPECT_TRUE(message.starts_with(std::string("the ") + whose + " has expired on ")) << message;
  };
  expect_expired(
      "certificate",
      ListenError("127.0.0.1:0", {.certificate = old.certificate, .private_key = old.key, .tls = true}));
  try {
    Grpc().Connect("127.0.0.1:1", {.certificate = old.certificate,
                                   .private_key = old.key,
                                   .authority = authority.certificate,
                                   .tls = true});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    expect_expired("certificate", error.what());
  }
  try {
    Grpc().Connect("127.0.0.1:1", {.authority = old.certificate, .tls = true});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    expect_expired("authority", error.what());
  }
}

TEST_F(TlsTest, ACertificateForAnotherNameIsRefused) {
  const Pair authority = Authority("root"), own = Signed("server", "root", "DNS:elsewhere.example");
  EchoServer server(Grpc(), "127.0.0.1:0",
                    {.certificate = own.certificate, .private_key = own.key, .tls = true});
  EXPECT_EQ(Refusal(server.address(), {.authority = authority.certificate, .tls = true}),
            server.address() + ": peer name 127.0.0.1 is not in peer certificate");
}

TEST_F(TlsTest, MutualTlsAdmitsOnlyClientsOfTheAuthority) {
  const Pair authority = Authority("root"), stranger = Authority("other");
  const Pair own = Signed("server", "root", "IP:127.0.0.1");
  const Pair friendly = Signed("friend", "root", "DNS:friend"), foe = Signed("foe", "other", "DNS:foe");
  EchoServer server(Grpc(), "127.0.0.1:0",
                    {.certificate = own.certificate,
                     .private_key = own.key,
                     .authority = authority.certificate,
                     .tls = true});
  const auto with = [&](const Pair& pair) {
    return Refusal(server.address(), {.certificate = pair.certificate,
                                      .private_key = pair.key,
                                      .authority = authority.certificate,
                                      .tls = true});
  };
  EXPECT_EQ(with(friendly), "echo");
  EXPECT_EQ(with({}), server.address() + kAtOnce);
  EXPECT_EQ(with(foe), server.address() + kAtOnce);
  EXPECT_EQ(server.opened(), 1);
}

TEST_F(TlsTest, KeysThatCannotBeUsedAreNamed) {
  const Pair authority = Authority("root"), other = Authority("other");
  const auto error = [&](const Security& security) { return ListenError("127.0.0.1:0", security); };
  EXPECT_EQ(error({.tls = true}), "a server with TLS needs a certificate and its private key");
  EXPECT_EQ(error({.certificate = authority.certificate, .tls = true}),
            "a certificate and its private key must be given together");
  EXPECT_EQ(error({.certificate = "nonsense", .private_key = authority.key, .tls = true}),
            "the certificate is not a certificate in PEM form");
  EXPECT_EQ(error({.certificate = authority.certificate, .private_key = "nonsense", .tls = true}),
            "the private key is not a key in PEM form, or needs a pass phrase");
  EXPECT_EQ(error({.certificate = authority.certificate, .private_key = other.key, .tls = true}),
            "the private key does not belong to the certificate");
  EXPECT_EQ(error({.certificate = authority.certificate,
                   .private_key = authority.key,
                   .authority = "x",
                   .tls = true}),
            "the authority is not a certificate in PEM form");
  EXPECT_EQ(error({.certificate = authority.certificate, .private_key = authority.key}),
            "certificates and keys are given, but TLS is off: turn it on, or leave them out");
  EXPECT_EQ(error({.token = "two words"}),
            "a token may have letters, digits and signs of ASCII only, without spaces");
}

}  // namespace
}  // namespace trireme
