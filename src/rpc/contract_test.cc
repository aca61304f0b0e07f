// The contract of transport.h, for every transport: in memory, gRPC over TCP, gRPC over Unix sockets, shared memory.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/rpc/memory_transport.h"
#include "trireme/rpc/test_util.h"

namespace trireme {
namespace {

enum class Kind { kMemory, kTcp, kUnix, kShared };

class Contract : public testing::TestWithParam<Kind> {
 protected:
  Contract() {
    if (GetParam() == Kind::kShared) transport_ = &SharedMemoryStreams();
    if (NeedsGrpc() && HaveGrpc()) transport_ = &Grpc();
  }
  void SetUp() override {
    if (NeedsGrpc() && !HaveGrpc()) GTEST_SKIP() << "built without gRPC";
  }

  Transport& transport() { return *transport_; }
  std::string AnyAddress() {
    if (!IsFile()) return "127.0.0.1:0";
    return (GetParam() == Kind::kUnix ? "unix:" : "shm:") + folder_.path() + "/socket";
  }
  static bool IsFile() { return GetParam() == Kind::kUnix || GetParam() == Kind::kShared; }

 private:
  static bool NeedsGrpc() { return GetParam() == Kind::kTcp || GetParam() == Kind::kUnix; }

  TempFolder folder_;
  MemoryTransport memory_;
  Transport* transport_ = &memory_;
};

std::string Name(Kind kind) {
  constexpr const char* kNames[] = {"Memory", "Tcp", "Unix", "Shared"};
  return kNames[static_cast<int>(kind)];
}
void PrintTo(Kind kind, std::ostream* out) { *out << Name(kind); }
INSTANTIATE_TEST_SUITE_P(Transports, Contract,
                         testing::Values(Kind::kMemory, Kind::kTcp, Kind::kUnix, Kind::kShared),
                         [](const auto& info) { return Name(info.param); });

TEST_P(Contract, MessagesOfAllSizesComeBackWhole) {
  EchoServer server(transport(), AnyAddress());
  const auto stream = transport().Connect(server.address(), {});
  for (const std::size_t size : {0, 1, 3, 20'000, 65'535, 65'536, 1'000'000, 8'000'000, 0, 5}) {
    const std::vector<std::byte> bytes = Pattern(size, 3);
    ASSERT_TRUE(stream->Send(Message(bytes), In(10s)));
    Incoming* answer = stream->Receive(In(10s));
    ASSERT_NE(answer, nullptr) << stream->why();
    EXPECT_EQ(answer->size(), size);
    EXPECT_EQ(ReadAll(*answer), bytes);
    EXPECT_EQ(answer->size(), 0u);
  }
  EXPECT_FALSE(stream->closed());
  EXPECT_EQ(stream->why(), "");
}

TEST_P(Contract, AMessageIsReadInPartsOfAnySize) {
  EchoServer server(transport(), AnyAddress());
  const auto stream = transport().Connect(server.address(), {});
  const std::vector<std::byte> bytes = Pattern(300'001, 1);
  ASSERT_TRUE(stream->Send(Message(bytes), In(10s)));
  Incoming* answer = stream->Receive(In(10s));
  ASSERT_NE(answer, nullptr);
  std::vector<std::byte> read;
  for (std::size_t part = 0; answer->size() > 0; part = 2 * part + 1) {
    std::vector<std::byte> piece(std::min(part, answer->size()));
    answer->Read(piece);
    read.insert(read.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(read, bytes);
}

TEST_P(Contract, MessagesArriveInOrderWithoutWaitingForAnswers) {
  EchoServer server(transport(), AnyAddress());
  const auto stream = transport().Connect(server.address(), {});
  constexpr int kMessages = 500;
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(stream->Send(Message(Pattern(100 + i, i)), In(10s)));
  for (int i = 0; i < kMessages; ++i) {
    Incoming* answer = stream->Receive(In(10s));
    ASSERT_NE(answer, nullptr) << stream->why();
    EXPECT_EQ(ReadAll(*answer), Pattern(100 + i, i));
  }
}

// Whoever has flushed may be busy with something else for ever.
TEST_P(Contract, WhatWasFlushedArrivesWhileNobodyLooksAfterTheStream) {
  TestServer server(transport(), AnyAddress(), [](ServerTransport&, PeerId, Incoming&) {});
  const auto stream = transport().Connect(server.address(), {});
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(stream->Send(Message(Pattern(20'000'000, 1)), In(20s))) << stream->why();
    ASSERT_TRUE(stream->Flush(In(20s))) << stream->why();
    EXPECT_TRUE(Eventually([&] { return server.messages() == i; }));
  }
}

TEST_P(Contract, ManyStreamsKeepApart) {
  EchoServer server(transport(), AnyAddress());
  constexpr int kStreams = 24;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int s = 0; s < kStreams; ++s) streams.push_back(transport().Connect(server.address(), {}));
  for (int round = 0; round < 5; ++round) {
    for (int s = 0; s < kStreams; ++s) ASSERT_TRUE(streams[s]->Send(Message(Pattern(5000 + s, s)), In(10s)));
    for (int s = kStreams; s-- > 0;) {
      Incoming* answer = streams[s]->Receive(In(10s));
      ASSERT_NE(answer, nullptr) << streams[s]->why();
      EXPECT_EQ(ReadAll(*answer), Pattern(5000 + s, s));
    }
  }
  EXPECT_EQ(server.opened(), kStreams);
}

TEST_P(Contract, StreamsOfSeveralThreads) {
  EchoServer server(transport(), AnyAddress());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto stream = transport().Connect(server.address(), {});
      for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(stream->Send(Message(Pattern(1000 * t + i, i)), In(10s)));
        Incoming* answer = stream->Receive(In(10s));
        ASSERT_NE(answer, nullptr) << stream->why();
        EXPECT_EQ(ReadAll(*answer), Pattern(1000 * t + i, i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(Contract, WithoutServerTheStreamIsClosedAtTheFirstDeadline) {
  std::string address;
  { address = EchoServer(transport(), AnyAddress()).address(); }
  // On a busy machine the answer may take longer than the first deadlines.
  std::string why;
  for (Clock::duration patience = 300ms; patience < 30s && (why.empty() || why.ends_with(": no answer"));
       patience *= 3) {
    const auto stream = transport().Connect(address, {});
    EXPECT_FALSE(stream->closed());
    const Deadline start = Clock::now();
    EXPECT_FALSE(stream->Send(Message(Pattern(10, 0)), start + patience));
    EXPECT_GE(Clock::now(), start + patience - 10ms);
    EXPECT_LT(Clock::now(), start + patience + 20s);
    EXPECT_TRUE(stream->closed());
    why = stream->why();
    EXPECT_TRUE(why.starts_with(address + ": ")) << why;
    EXPECT_EQ(stream->Receive(In(10s)), nullptr);
  }
  const std::string cause = IsFile() ? "no such file or directory" : "connection refused";
  EXPECT_TRUE(why.ends_with(": " + cause)) << why;
}

TEST_P(Contract, AServerThatStartsLaterIsReachedWithinTheDeadline) {
  std::string address;
  { address = EchoServer(transport(), AnyAddress()).address(); }
  std::atomic<bool> connecting = false;
  std::thread later([&] {
    while (!connecting) std::this_thread::yield();
    const Deadline end = In(200ms);
    while (Clock::now() < end) std::this_thread::yield();
    EchoServer server(transport(), address);
    while (connecting) std::this_thread::yield();
  });
  const auto stream = transport().Connect(address, {});
  connecting = true;
  EXPECT_TRUE(stream->Send(Message(Pattern(10, 0)), In(10s))) << stream->why();
  Incoming* answer = stream->Receive(In(10s));
  EXPECT_NE(answer, nullptr) << stream->why();
  connecting = false;
  later.join();
}

TEST_P(Contract, NothingToReceiveUntilTheDeadlineIsNoEnd) {
  EchoServer server(transport(), AnyAddress());
  const auto stream = transport().Connect(server.address(), {});
  ASSERT_TRUE(stream->Send(Message(Pattern(7, 1)), In(10s)));
  ASSERT_NE(stream->Receive(In(10s)), nullptr);
  const Deadline start = Clock::now();
  EXPECT_EQ(stream->Receive(start + 100ms), nullptr);
  EXPECT_GE(Clock::now(), start + 99ms);
  EXPECT_FALSE(stream->closed());
  ASSERT_TRUE(stream->Send(Message(Pattern(8, 2)), In(10s)));
  Incoming* answer = stream->Receive(In(10s));
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(ReadAll(*answer), Pattern(8, 2));
}

TEST_P(Contract, CloseComesAfterWhatWasSentAndTellsTheReason) {
  TestServer server(transport(), AnyAddress(), [](ServerTransport& transport, PeerId peer, Incoming&) {
    for (int i = 0; i < 3; ++i) transport.Send(peer, Message(Pattern(200'000, i)));
    transport.Close(peer, "another network: 64 inputs, not 4\n50 % more");
    transport.Send(peer, Message(Pattern(1, 0)));  // too late, and no error
  });
  const auto stream = transport().Connect(server.address(), {});
  ASSERT_TRUE(stream->Send(Message(Pattern(7, 1)), In(10s)));
  for (int i = 0; i < 3; ++i) {
    Incoming* answer = stream->Receive(In(10s));
    ASSERT_NE(answer, nullptr) << stream->why();
    EXPECT_EQ(ReadAll(*answer), Pattern(200'000, i));
  }
  EXPECT_EQ(stream->Receive(In(10s)), nullptr);
  EXPECT_TRUE(stream->closed());
  EXPECT_EQ(stream->why(), "another network: 64 inputs, not 4\n50 % more");
  EXPECT_FALSE(stream->Send(Message(Pattern(7, 1)), In(10s)));
  EXPECT_TRUE(Eventually([&] { return server.closed() == 1; }));
}

TEST_P(Contract, SendingToAServerThatClosedFailsWithItsReason) {
  TestServer server(transport(), AnyAddress(), [](ServerTransport& transport, PeerId peer, Incoming&) {
    transport.Send(peer, Message(Pattern(10, 0)));
    transport.Close(peer, "enough");
  });
  const auto stream = transport().Connect(server.address(), {});
  EXPECT_TRUE(Eventually([&] { return !stream->Send(Message(Pattern(1000, 1)), In(10s)); }));
  EXPECT_TRUE(stream->closed());
  EXPECT_EQ(stream->why(), "enough");
}

TEST_P(Contract, AfterCloseNoMessageOfThePeerIsHandled) {
  std::atomic<bool> sent = false;
  TestServer server(transport(), AnyAddress(), [&](ServerTransport& transport, PeerId peer, Incoming&) {
    while (!sent) std::this_thread::yield();
    transport.Close(peer, "enough");
  });
  const auto stream = transport().Connect(server.address(), {});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(stream->Send(Message(Pattern(10, i)), In(10s)));
  sent = true;
  EXPECT_EQ(stream->Receive(In(10s)), nullptr);
  EXPECT_EQ(stream->why(), "enough");
  EXPECT_TRUE(Eventually([&] { return server.closed() == 1; }));
  EXPECT_EQ(server.messages(), 1);
}

TEST_P(Contract, TheServerNoticesAClientThatLeavesAfterItsLastMessage) {
  std::atomic<std::size_t> received = 0;
  TestServer server(transport(), AnyAddress(),
                    [&](ServerTransport&, PeerId, Incoming& message) { received += message.size(); });
  {
    const auto stream = transport().Connect(server.address(), {});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream->Send(Message(Pattern(100'000, i)), In(10s)));
  }
  EXPECT_TRUE(Eventually([&] { return server.closed() == 1; }));
  EXPECT_EQ(received, 300'000u);
}

TEST_P(Contract, AServerThatStopsLetsItsMessagesLeaveAndEndsTheStreams) {
  auto server = std::make_unique<EchoServer>(transport(), AnyAddress());
  const auto stream = transport().Connect(server->address(), {});
  ASSERT_TRUE(stream->Send(Message(Pattern(10'000, 1)), In(10s)));
  ASSERT_TRUE(Eventually([&] { return server->messages() == 1; }));
  const std::string address = server->address();
  server.reset();
  Incoming* answer = stream->Receive(In(10s));
  ASSERT_NE(answer, nullptr) << stream->why();
  EXPECT_EQ(ReadAll(*answer), Pattern(10'000, 1));
  EXPECT_EQ(stream->Receive(In(10s)), nullptr);
  EXPECT_EQ(stream->why(), address + ": the server has stopped");
}

TEST_P(Contract, TheTokenDecides) {
  EchoServer server(transport(), AnyAddress(), {.token = "sesame"});
  for (const std::string token : {"", "sesamE", "sesame!", "sesam", "sesame"}) {
    const auto stream = transport().Connect(server.address(), {.token = token});
    stream->Send(Message(Pattern(10, 0)), In(10s));
    Incoming* answer = stream->Receive(In(10s));
    EXPECT_EQ(answer != nullptr, token == "sesame") << token;
    if (token == "sesame") continue;
    EXPECT_TRUE(stream->closed());
    EXPECT_EQ(stream->why(), server.address() + ": the server refused the token");
  }
  EXPECT_EQ(server.opened(), 1) << "the handler must not hear of strangers";
  EXPECT_TRUE(Eventually([&] { return server.messages() == 1; }));
}

TEST_P(Contract, AnAddressInUseIsRefused) {
  EchoServer server(transport(), AnyAddress());
  try {
    transport().Listen(server.address(), {});
    FAIL() << "two servers at " << server.address();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("cannot listen on " + server.address() + ": ")) << message;
    EXPECT_TRUE(message.ends_with("address already in use") || message.ends_with("another server does"))
        << message;
  }
  const auto stream = transport().Connect(server.address(), {});
  ASSERT_TRUE(stream->Send(Message(Pattern(10, 0)), In(10s)));
  EXPECT_NE(stream->Receive(In(10s)), nullptr) << "the first server must still be there";
}

TEST_P(Contract, MessagesBeyondTheLimitCloseTheStream) {
  const Limits small{.message = 100'000};
  EchoServer server(transport(), AnyAddress(), {}, small);
  const auto careful = transport().Connect(server.address(), {}, small);
  ASSERT_TRUE(careful->Send(Message(Pattern(100'000, 1)), In(10s)));
  EXPECT_NE(careful->Receive(In(10s)), nullptr);
  EXPECT_FALSE(careful->Send(Message(Pattern(100'001, 1)), In(10s)));
  EXPECT_EQ(careful->why(),
            server.address() + ": a message of 100001 bytes is longer than the limit of 100000");

  const auto careless = transport().Connect(server.address(), {});
  careless->Send(Message(Pattern(100'001, 1)), In(10s));
  EXPECT_EQ(careless->Receive(In(10s)), nullptr);
  EXPECT_TRUE(careless->closed());
  EXPECT_NE(careless->why().find("limit of 100000"), std::string::npos) << careless->why();
  EXPECT_TRUE(Eventually([&] { return server.messages() == 1; }));
}

// What a server holds for a client depends on what it knows of it.
TEST_P(Contract, AtFirstMessagesMustBeShortAndTheHandlerAllowsMore) {
  const Limits limits{.message = 50'000'000, .first = 1000};
  TestServer server(
      transport(), AnyAddress(),
      [](ServerTransport& transport, PeerId peer, Incoming& message) {
        const std::vector<std::byte> bytes = ReadAll(message);
        if (bytes.size() == 4) transport.Allow(peer, 30'000'000);
        if (bytes.size() == 5) transport.Allow(peer, SIZE_MAX);
        transport.Send(peer, Message(bytes));
      },
      {}, limits, /*knows_all=*/false);
  const auto send = [](Stream& stream, std::size_t size) {
    stream.Send(Message(Pattern(size, 3)), In(20s));
    Incoming* const answer = stream.Receive(In(20s));
    return answer != nullptr && ReadAll(*answer) == Pattern(size, 3);
  };
  const std::pair<std::size_t, std::size_t> most[] = {{0, 1000}, {4, 30'000'000}, {5, 50'000'000}};
  for (const auto& [password, limit] : most) {
    const auto stream = transport().Connect(server.address(), {});
    EXPECT_TRUE(send(*stream, password));
    EXPECT_TRUE(send(*stream, limit));
    EXPECT_FALSE(send(*stream, limit + 1));
    EXPECT_TRUE(stream->closed());
    EXPECT_NE(stream->why().find(
                  fmt::format("a message of {} bytes is longer than the limit of {}", limit + 1, limit)),
              std::string::npos)
        << stream->why();
  }
  EXPECT_TRUE(Eventually([&] { return server.closed() == 3; }));
  EXPECT_EQ(server.messages(), 6);
}

// A message that comes while another one is sent is not lost.
TEST_P(Contract, WhatArrivesDuringSendIsReceivedLater) {
  EchoServer server(transport(), AnyAddress());
  const auto stream = transport().Connect(server.address(), {});
  ASSERT_TRUE(stream->Send(Message(Pattern(20, 1)), In(10s)));
  ASSERT_NE(stream->Receive(In(10s)), nullptr);
  EXPECT_EQ(stream->Receive(Deadline::min()), nullptr);
  ASSERT_TRUE(stream->Send(Message(Pattern(10, 1)), In(10s)));
  const Outgoing large = Message(Pattern(20'000'000, 2));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(stream->Send(large, In(20s)));
  for (const std::size_t size : {std::size_t{10}, large->size(), large->size()}) {
    Incoming* const answer = stream->Receive(In(20s));
    ASSERT_NE(answer, nullptr) << stream->why();
    EXPECT_EQ(answer->size(), size);
  }
}

TEST_P(Contract, AClientThatDoesNotReadIsClosedBeforeItsMessagesFillTheMemory) {
  // Ten megabytes for each message that comes in, of which four may wait.
  std::atomic<std::int64_t> alive = 0;
  TestServer server(transport(), AnyAddress(),
                    [&](ServerTransport& transport, PeerId peer, Incoming&) {
                      alive += 1;
                      auto* buffer = new AlignedBuffer<std::byte>(10'000'000);
                      transport.Send(peer, Outgoing(buffer, [&](auto* b) {
                                       delete b;
                                       alive -= 1;
                                     }));
                    },
                    {}, {.queued = 40'000'000});
  const auto lazy = transport().Connect(server.address(), {});
  EXPECT_TRUE(Eventually([&] {
    EXPECT_LE(alive, 8);
    return !lazy->Send(Message(Pattern(50'000, 0)), In(10s));
  }));
  EXPECT_TRUE(lazy->closed());
  EXPECT_NE(lazy->why().find("its messages were not received here"), std::string::npos) << lazy->why();
  EXPECT_TRUE(Eventually([&] { return alive == 0 && server.closed() == 1; }));
  const auto busy = transport().Connect(server.address(), {});
  ASSERT_TRUE(busy->Send(Message(Pattern(10, 0)), In(10s)));
  EXPECT_NE(busy->Receive(In(10s)), nullptr) << "others are served as before";
}

TEST_P(Contract, OnTimeIsCalledWhenItAskedFor) {
  struct Ticker : TestHandler {
    Deadline OnTime(Deadline now) override {
      EXPECT_GE(now, next);
      ++ticks;
      return next = now + 20ms;
    }
    Deadline next = Deadline::min();
    int ticks = 0;
  } ticker;
  const auto server = transport().Listen(AnyAddress(), {});
  const Deadline start = Clock::now();
  server->Run(ticker, [&] { return ticker.ticks == 10 || Clock::now() > start + 20s; });
  EXPECT_EQ(ticker.ticks, 10);
  EXPECT_GE(Clock::now(), start + 9 * 20ms);
}

// Once more for each time that somebody has woken it, or for several together.
TEST_P(Contract, OnTimeIsCalledWhenAnotherThreadWakesTheServer) {
  struct Sleeper : TestHandler {
    Deadline OnTime(Deadline) override {
      ++ticks;
      return Deadline::max();
    }
    std::atomic<int> ticks{0};
  } sleeper;
  const auto server = transport().Listen(AnyAddress(), {});
  std::atomic<bool> done{false};
  std::thread other([&] {
    const Deadline end = In(60s);
    for (int i = 0; i < 50; ++i) {
      const int before = sleeper.ticks;
      server->Wake();
      while (sleeper.ticks == before && Clock::now() < end) std::this_thread::yield();
    }
    done = true;
  });
  server->Run(sleeper, [&] { return done.load(); });
  other.join();
  EXPECT_GE(sleeper.ticks, 50);
  server->Wake();  // nobody runs it
}

TEST_P(Contract, AServerThatHasNothingToDoStops) {
  const auto server = transport().Listen(AnyAddress(), {});
  struct Sleeper : TestHandler {
    Deadline OnTime(Deadline) override { return Deadline::max(); }
  } sleeper;
  const Deadline end = In(200ms);
  server->Run(sleeper, [&] { return Clock::now() > end; });
  EXPECT_LT(Clock::now(), end + 20s);
}

}  // namespace
}  // namespace trireme
