// What only shared memory has: peers that lie in it, and processes that die or stand still with it in their hands.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstring>
#include <fstream>
#include <random>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/rpc/shared_memory/message.h"
#include "trireme/rpc/shared_memory/protocol.h"
#include "trireme/rpc/test_child.h"
#include "trireme/rpc/test_util.h"

namespace trireme {
namespace {

// ------------------------------------------------------------------------------------------------- streams

struct SharedMemoryTest : testing::Test {
  std::string Address() const { return "shm:" + folder.path() + "/socket"; }

  static std::string ListenError(const std::string& address, const Security& security = {}) {
    try {
      SharedMemoryStreams().Listen(address, security);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  // Whether a client gets its echo; what it says otherwise.
  static std::string Talk(const std::string& address, Clock::duration within = 20s) {
    const auto stream = SharedMemoryStreams().Connect(address, {});
    const Deadline deadline = In(within);
    if (stream->Send(Message(Pattern(1000, 1)), deadline) && stream->Receive(deadline) != nullptr)
      return "echo";
    return stream->why();
  }
  static int Segments() {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find("/memfd:trireme") != std::string::npos;
    return count;
  }

  TempFolder folder;
};

// Each message comes while the other end falls asleep. One call that got lost would be waited for until the deadline.
TEST_F(SharedMemoryTest, NobodySleepsWhileSomethingIsThere) {
  EchoServer server(SharedMemoryStreams(), Address());
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      const auto stream = SharedMemoryStreams().Connect(Address(), {});
      const Outgoing messages[] = {Message(Pattern(10, 1)), Message(Pattern(kRingBytes / 3, 1)),
                                   Message(Pattern(2 * kRingBytes, 1))};
      for (int i = 0; i < 10'000; ++i) {
        const Outgoing& message = messages[i % 64 == 0 ? 2 : i % 16 == 0 ? 1 : 0];
        for (int k = 0; k < 1 + i % 3; ++k) ASSERT_TRUE(stream->Send(message, Deadline::max()));
        for (int k = 0; k < 1 + i % 3; ++k) ASSERT_NE(stream->Receive(In(60s)), nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The end is in the memory, too: nobody has to look at the socket for it, or to fill the ring first.
TEST_F(SharedMemoryTest, TheFirstMessageAfterTheEndFails) {
  TestServer server(SharedMemoryStreams(), Address(), [](ServerTransport& transport, PeerId peer, Incoming&) {
    transport.Close(peer, "enough");
  });
  const auto stream = SharedMemoryStreams().Connect(Address(), {});
  ASSERT_TRUE(stream->Send(Message(Pattern(10, 1)), In(20s)));
  ASSERT_TRUE(Eventually([&] { return server.closed() == 1; }));
  EXPECT_FALSE(stream->Send(Message(Pattern(10, 1)), In(20s)));
  EXPECT_EQ(stream->why(), "enough");
}

// It is given a moment, which may be too short on a busy machine: not always.
TEST_F(SharedMemoryTest, AMessageLongerThanTheRingLeavesWithItsStream) {
  std::atomic<bool> sent = false;
  std::atomic<int> received = 0;
  TestServer server(SharedMemoryStreams(), Address(), [&](ServerTransport&, PeerId, Incoming& message) {
    while (!sent) std::this_thread::yield();  // so that the long one cannot have left before
    received += message.size() > 0;
  });
  EXPECT_TRUE(Eventually([&] {
    const int closed = server.closed();
    sent = false;
    {
      const auto stream = SharedMemoryStreams().Connect(Address(), {});
      EXPECT_TRUE(stream->Send(Message({}), In(20s)));
      EXPECT_TRUE(stream->Send(Message(Pattern(2 * kRingBytes, 1)), In(20s)));
      sent = true;
    }
    EXPECT_TRUE(Eventually([&] { return server.closed() == closed + 1; }));
    return received > 0;
  }));
}

TEST_F(SharedMemoryTest, AServerThatIsKilledEndsTheStreamAndItsSuccessorIsFound) {
  auto child = std::make_unique<Child>("server", Address());
  const auto stream = SharedMemoryStreams().Connect(Address(), {});
  const Outgoing message = Message(Pattern(50'000'000, 1));
  ASSERT_TRUE(stream->Send(message, In(20s)));
  ASSERT_NE(stream->Receive(In(20s)), nullptr);
  ASSERT_TRUE(stream->Send(message, In(20s)));
  child->Kill();  // in the middle of the message
  EXPECT_EQ(stream->Receive(In(20s)), nullptr);
  EXPECT_EQ(stream->why(), Address() + ": the connection was lost");
  EXPECT_EQ(Talk(Address(), 100ms), Address() + ": connection refused");
  child = std::make_unique<Child>("server", Address());  // the socket of the first is still there
  EXPECT_EQ(Talk(Address()), "echo");
}

TEST_F(SharedMemoryTest, AServerThatIsFrozenHoldsNobodyBeyondTheDeadline) {
  Child child("server", Address());
  const auto stream = SharedMemoryStreams().Connect(Address(), {});
  const Outgoing message = Message(Pattern(50'000'000, 1));
  ASSERT_TRUE(stream->Send(message, In(20s)));
  ASSERT_NE(stream->Receive(In(20s)), nullptr);
  child.Signal(SIGSTOP);
  ASSERT_TRUE(stream->Send(message, In(20s)));
  const Deadline start = Clock::now();
  EXPECT_FALSE(stream->Send(message, start + 100ms)) << "the one before cannot have left";
  EXPECT_EQ(stream->Receive(start + 200ms), nullptr);
  EXPECT_FALSE(stream->closed());
  EXPECT_EQ(Talk(Address(), 300ms), Address() + ": no answer");
  child.Signal(SIGCONT);
  Incoming* const answer = stream->Receive(In(20s));
  ASSERT_NE(answer, nullptr) << stream->why();
  EXPECT_EQ(ReadAll(*answer), Pattern(50'000'000, 1));
}

TEST_F(SharedMemoryTest, AClientThatIsKilledInTheMiddleOfAMessageIsNoticedAndLeavesNothing) {
  EchoServer server(SharedMemoryStreams(), Address());
  for (int i = 1; i <= 3; ++i) {
    Child child("client", Address());
    ASSERT_TRUE(Eventually([&] { return server.opened() == i; }));
    EXPECT_EQ(Segments(), 1);
    child.Kill();
    EXPECT_TRUE(Eventually([&] { return server.closed() == i; }));
  }
  EXPECT_EQ(Segments(), 0);
  EXPECT_EQ(Talk(Address()), "echo");
}

TEST_F(SharedMemoryTest, AClientThatIsFrozenHoldsUpNobody) {
  EchoServer server(SharedMemoryStreams(), Address(), {}, {.queued = 30'000'000});
  Child child("client", Address());
  ASSERT_TRUE(Eventually([&] { return server.opened() == 1; }));
  child.Signal(SIGSTOP);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Talk(Address()), "echo");
  EXPECT_TRUE(Eventually([&] { return server.closed() >= 20; }));
  child.Signal(SIGCONT);
  // It reads nothing, until too much waits for it.
  EXPECT_TRUE(Eventually([&] { return server.closed() == 21; }));
}

// ------------------------------------------------------------------------------------------ liars, strangers

// A client that writes what it likes: first into the socket, and once it is let in, into its segment.
class RawClient {
 public:
  explicit RawClient(const std::string& address) : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un name = UnixName(address.substr(4));
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  }

  void Say(const std::string& bytes) { (void)send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void Join() {
    Say(std::string(kHello) + "\n");
    char byte = 0;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec part{&byte, 1};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ASSERT_EQ(recvmsg(socket_.get(), &message, 0), 1);
    ASSERT_EQ(byte, kWelcome);
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    segment_ = Segment::Attach(Descriptor(fd));
  }
  SegmentHead& head() const { return segment_.head(); }
  std::byte* bytes() const { return segment_.to_server(); }
  void Leave() { socket_ = Descriptor(); }
  // What the server says until it closes the stream, which it has to.
  std::string End() {
    std::string said;
    char bytes[4096];
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    for (ssize_t got = 0; (got = recv(socket_.get(), bytes, sizeof bytes, 0)) != 0;) {
      if (got < 0) return errno == ECONNRESET ? said : "it is not closed";
      for (ssize_t i = 0; i < got; ++i) {
        if (!said.empty() || bytes[i] != kWake) said += bytes[i];
      }
    }
    return said;
  }

 private:
  Descriptor socket_;
  Segment segment_;
};

TEST_F(SharedMemoryTest, ClientsThatLieAreClosedWithAReason) {
  struct Lie {
    const char* what;
    std::function<void(RawClient&)> tell;
    std::string reason;
  };
  const std::string damaged = std::string(1, kReason) + "the other end has damaged the memory that it shares";
  const auto length = [](RawClient& client, std::uint64_t bytes) {
    std::memcpy(client.bytes(), &bytes, sizeof bytes);
    client.head().to_server.written = 8;
  };
  const std::vector<Lie> lies = {
      {"more than fits", [](auto& c) { c.head().to_server.written = kRingBytes + 1; }, damaged},
      {"less than nothing", [](auto& c) { c.head().to_server.written = std::uint64_t(-1); }, damaged},
      {"taken what was not sent",
       [](auto& c) {
         c.head().to_client.read = 5;
         c.head().to_server.written = 8;
       },
       damaged},
      {"a length of everything", [&](auto& c) { length(c, std::uint64_t(-1)); },
       std::string(1, kReason) + "a message of 18446744073709551615 bytes is longer than the limit of 5000"},
      {"a length above the limit", [&](auto& c) { length(c, 5001); },
       std::string(1, kReason) + "a message of 5001 bytes is longer than the limit of 5000"},
  };
  EchoServer server(SharedMemoryStreams(), Address(), {}, {.message = 5000});
  const auto honest = SharedMemoryStreams().Connect(Address(), {});
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.what);
    RawClient client(Address());
    client.Join();
    lie.tell(client);
    client.Say(std::string(1, kWake));
    EXPECT_EQ(client.End(), lie.reason);
    ASSERT_TRUE(honest->Send(Message(Pattern(100, 1)), In(20s)));
    ASSERT_NE(honest->Receive(In(20s)), nullptr) << honest->why();
  }
}

// Whatever a client writes while the server reads, and whenever: the server closes it or waits, and serves others.
TEST_F(SharedMemoryTest, AClientThatWritesAnythingHurtsNobodyElse) {
  EchoServer server(SharedMemoryStreams(), Address(), {}, {.message = 100'000, .queued = 1'000'000});
  const auto honest = SharedMemoryStreams().Connect(Address(), {});
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    RawClient client(Address());
    client.Join();
    SegmentHead& head = client.head();
    for (int step = 0; step < 50; ++step) {
      const std::uint64_t value = random() >> (random() % 64);
      std::memcpy(client.bytes() + random() % 64 * 8, &value, sizeof value);
      std::atomic<std::uint64_t>* const counts[] = {&head.to_server.written, &head.to_server.read,
                                                    &head.to_client.written, &head.to_client.read};
      const std::size_t which = random() % 8;
      if (which < 4) *counts[which] += value % (kRingBytes / 8);
      if (which == 4) head.to_client.reader_sleeps = static_cast<std::uint32_t>(value);
      if (which == 5) head.to_server.writer_sleeps = static_cast<std::uint32_t>(value);
      if (which == 6) head.ended = 1;
      client.Say(std::string(1 + value % 300, kWake));
    }
    ASSERT_TRUE(honest->Send(Message(Pattern(1000, 1)), In(20s)));
    Incoming* const answer = honest->Receive(In(20s));
    ASSERT_NE(answer, nullptr) << honest->why();
    ASSERT_EQ(ReadAll(*answer), Pattern(1000, 1));
  }
  EXPECT_TRUE(Eventually([&] { return server.closed() == 200; }));
}

// Nobody lives on by its memory alone: of what is written after the end of the socket nothing is read.
TEST_F(SharedMemoryTest, AClientThatLeavesAndGoesOnWritingIsGone) {
  std::atomic<RingState*> ring = nullptr;
  // Whenever a message is read there is another one, without a byte.
  TestServer server(SharedMemoryStreams(), Address(),
                    [&](ServerTransport&, PeerId, Incoming&) { ring.load()->written += 8; });
  RawClient client(Address());
  client.Join();
  ring = &client.head().to_server;
  client.head().to_server.written = 8;
  client.Say(std::string(1, kWake));
  EXPECT_TRUE(Eventually([&] { return server.messages() > 1000; }));
  EXPECT_EQ(server.closed(), 0);
  client.Leave();
  EXPECT_TRUE(Eventually([&] { return server.closed() == 1; }));
}

TEST_F(SharedMemoryTest, StrangersAreDisconnectedAndOthersAreServed) {
  EchoServer server(SharedMemoryStreams(), Address(), {.token = "sesame"});
  const auto friendly = SharedMemoryStreams().Connect(Address(), {.token = "sesame"});
  const std::string hello(kHello);
  const std::pair<std::string, std::string> said[] = {
      {"GET / HTTP/1.1\r\n\r\n", ""},
      {"\n", ""},
      {"trireme shm", "it is not closed"},  // it may go on
      {std::string(100'000, '\0'), ""},
      {hello + std::string(100'000, 'x'), ""},
      {hello + "\n", std::string(1, kCause) + "the server refused the token"},
      {hello + "sesame!\n", std::string(1, kCause) + "the server refused the token"},
      {"trireme shm 2 sesame\n", std::string(1, kCause) + "this is a server of Trireme, of another version"},
  };
  for (const auto& [words, answer] : said) {
    RawClient client(Address());
    client.Say(words);
    if (answer != "it is not closed") {
      EXPECT_EQ(client.End(), answer) << words.substr(0, 20);
    }
    ASSERT_TRUE(friendly->Send(Message(Pattern(100, 1)), In(20s)));
    ASSERT_NE(friendly->Receive(In(20s)), nullptr) << friendly->why();
  }
  EXPECT_EQ(server.opened(), 1) << "the handler must not hear of strangers";
}

// Whoever has put a socket where one's own server was to be.
TEST_F(SharedMemoryTest, AServerOfAnotherUserIsNotGivenTheToken) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  ASSERT_EQ(seteuid(65534), 0);
  const EchoServer server(SharedMemoryStreams(), Address());
  ASSERT_EQ(seteuid(0), 0);
  const auto stream = SharedMemoryStreams().Connect(Address(), {.token = "sesame"});
  EXPECT_FALSE(stream->Send(Message(Pattern(10, 1)), In(20s)));
  EXPECT_NE(stream->why().find("user 65534 listens there, and is not given your token"), std::string::npos)
      << stream->why();
  EXPECT_EQ(Talk(Address()), "echo") << "where there is no secret to keep";
}

// More than the server has descriptors for, if it kept them all.
TEST_F(SharedMemoryTest, ThousandsWhoBeginToSayHelloKeepNobodyOut) {
  EchoServer server(SharedMemoryStreams(), Address());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);  // as the server has raised it
  const auto count = std::min<std::size_t>(limit.rlim_cur, 4096) * 5 / 8;
  std::vector<std::unique_ptr<RawClient>> strangers;
  for (std::size_t i = 0; i < count; ++i) {
    strangers.push_back(std::make_unique<RawClient>(Address()));
    strangers.back()->Say("t");
  }
  EXPECT_EQ(Talk(Address(), 5s), "echo");
  EXPECT_EQ(strangers.front()->End(), "") << "the oldest have made way";
  strangers.back()->Say(std::string(kHello).substr(1));
  strangers.back()->Say("\n");
  EXPECT_TRUE(Eventually([&] { return server.opened() == 2; })) << "the last may go on";
}

TEST_F(SharedMemoryTest, WhatIsNoServerOfItsKindIsSaidToBeNone) {
  const std::string path = folder.path() + "/socket";
  const Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un name = UnixName(path);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  ASSERT_EQ(listen(listener.get(), 5), 0);
  std::thread greeter([&] {
    for (int client = 0; (client = accept(listener.get(), nullptr, nullptr)) >= 0; close(client))
      (void)send(client, "220 mail.example ESMTP\r\n", 24, MSG_NOSIGNAL);
  });
  EXPECT_EQ(Talk(Address()), Address() + ": what listens there is not a server of Trireme for shm:");
  shutdown(listener.get(), SHUT_RDWR);
  greeter.join();
}

// ------------------------------------------------------------------------------- addresses, and what is scarce

TEST_F(SharedMemoryTest, AddressesThatMakeNoSenseAreRefused) {
  EXPECT_EQ(ListenError("127.0.0.1:0"), "'127.0.0.1:0' is no address of shared memory; write shm:/path");
  EXPECT_EQ(ListenError("shm:"), "'shm:' names no file; write shm:/path");
  EXPECT_NE(ListenError("shm:/" + std::string(200, 'x')).find("choose a shorter one"), std::string::npos);
  EXPECT_THROW(SharedMemoryStreams().Connect("shm:/" + std::string(200, 'x'), {}), Error);
  EXPECT_EQ(ListenError("shm:/no/such/folder/socket"),
            "cannot listen on shm:/no/such/folder/socket: no such file or directory");
  EXPECT_EQ(&TransportFor("shm:/x"), &SharedMemoryStreams());
  EXPECT_TRUE(OnThisMachineOnly("shm:/x"));
}

TEST_F(SharedMemoryTest, AFolderThatCannotBeWrittenToIsSaid) {
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0555));
  const uid_t user = geteuid();
  const uid_t other = user == 0 ? 65534 : user;  // root may write anywhere
  ASSERT_EQ(seteuid(other), 0);
  EXPECT_EQ(ListenError(Address()), "cannot listen on " + Address() + ": permission denied");
  ASSERT_EQ(seteuid(user), 0);
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
}

TEST_F(SharedMemoryTest, ASocketIsRemovedAtTheEndAndOtherFilesNever) {
  const std::string path = folder.path() + "/socket";
  {
    EchoServer server(SharedMemoryStreams(), Address());
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  std::ofstream(path) << "precious";
  EXPECT_EQ(ListenError(Address()), "cannot listen on " + Address() + ": there is a file of that name");
  EXPECT_EQ(ReadFile(path), "precious");
}

TEST_F(SharedMemoryTest, CertificatesAreRefused) {
  const std::string no = "certificates and keys are for what leaves the machine, and shm: does not";
  EXPECT_EQ(ListenError(Address(), {.certificate = "x", .private_key = "x"}).substr(0, no.size()), no);
  EXPECT_EQ(ListenError(Address(), {.tls = true}).substr(0, no.size()), no);
  EXPECT_THROW(SharedMemoryStreams().Connect(Address(), {.authority = "x"}), Error);
  EXPECT_EQ(ListenError(Address(), {.token = "a b"}),
            "a token may have letters, digits and signs of ASCII only, without spaces");
}

// The system refuses the memory of a stream, as it does when there is none: here by a limit on the length of files.
TEST_F(SharedMemoryTest, WithoutMemoryAClientIsToldAndOthersGoOn) {
  EchoServer server(SharedMemoryStreams(), Address());
  const auto before = SharedMemoryStreams().Connect(Address(), {});
  ASSERT_TRUE(before->Send(Message(Pattern(100, 1)), In(20s)));
  ASSERT_NE(before->Receive(In(20s)), nullptr);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const auto old = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4096, .rlim_max = limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string said = Talk(Address());
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, old);
  EXPECT_EQ(said, Address() + ": there is no shared memory for another stream: file too large");
  ASSERT_TRUE(before->Send(Message(Pattern(100, 1)), In(20s)));
  EXPECT_NE(before->Receive(In(20s)), nullptr) << before->why();
  EXPECT_EQ(Talk(Address()), "echo");
}

TEST_F(SharedMemoryTest, ManyIdleClientsAndManyThatComeAndGo) {
  EchoServer server(SharedMemoryStreams(), Address());
  {
    std::vector<std::unique_ptr<RawClient>> silent;
    for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<RawClient>(Address()));
    EXPECT_EQ(Talk(Address()), "echo");
    std::vector<std::unique_ptr<Stream>> idle;
    for (int i = 0; i < 50; ++i) {
      idle.push_back(SharedMemoryStreams().Connect(Address(), {}));
      ASSERT_TRUE(idle.back()->Send(Message(Pattern(10, 1)), In(20s)));
    }
    for (int i = 0; i < 100; ++i) EXPECT_EQ(Talk(Address()), "echo");
  }
  EXPECT_TRUE(Eventually([&] { return server.closed() == 151; }));
  EXPECT_EQ(Segments(), 0);
}

}  // namespace
}  // namespace trireme
