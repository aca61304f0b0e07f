#include "trireme/rpc/memory_transport.h"

#include <gtest/gtest.h>

#include "trireme/rpc/test_util.h"

namespace trireme {
namespace {

const Deadline kNow = Clock::now();  // has passed when a test begins: no call waits

struct Recorder : TestHandler {
  explicit Recorder(ServerTransport& server) : server(server) {}
  void OnOpen(PeerId peer, const std::string&) override {
    events.push_back("open " + std::to_string(peer));
    server.Allow(peer, SIZE_MAX);
  }
  void OnMessage(PeerId peer, Incoming& message) override {
    events.push_back("message " + std::to_string(peer));
    server.Send(peer, Message(ReadAll(message)));
  }
  void OnClose(PeerId peer) override { events.push_back("close " + std::to_string(peer)); }
  Deadline OnTime(Deadline now) override {
    times.push_back(now);
    return now + 10s;
  }

  ServerTransport& server;
  std::vector<std::string> events;
  std::vector<Deadline> times;
};

struct MemoryTransportTest : testing::Test {
  MemoryTransport transport;
  std::unique_ptr<ServerTransport> server = transport.Listen("server", {});
  Recorder handler{*server};
  const Outgoing message = Message(Pattern(5, 1));
};

TEST_F(MemoryTransportTest, OneThreadRunsBothEndsInAFixedOrder) {
  const auto first = transport.Connect("server", {}), second = transport.Connect("server", {});
  ASSERT_TRUE(second->Send(message, kNow));
  ASSERT_TRUE(first->Send(message, kNow));
  ASSERT_TRUE(second->Send(message, kNow));
  EXPECT_EQ(first->Receive(kNow), nullptr);
  transport.Pump(*server, handler);
  EXPECT_EQ(handler.events,
            (std::vector<std::string>{"open 1", "open 2", "message 1", "message 2", "message 2"}));
  EXPECT_NE(first->Receive(kNow), nullptr);
  EXPECT_NE(second->Receive(kNow), nullptr);
  EXPECT_NE(second->Receive(kNow), nullptr);
  EXPECT_EQ(second->Receive(kNow), nullptr);
}

TEST_F(MemoryTransportTest, TimeIsWhatTheTestSays) {
  transport.Pump(*server, handler, kNow);
  transport.Pump(*server, handler, kNow + 9s);
  transport.Pump(*server, handler, kNow + 10s);
  EXPECT_EQ(handler.times, (std::vector<Deadline>{kNow, kNow + 10s}));
}

TEST_F(MemoryTransportTest, ACutLosesWhatIsOnItsWayAndBothEndsLearnIt) {
  const auto stream = transport.Connect("server", {});
  ASSERT_TRUE(stream->Send(message, kNow));
  transport.Pump(*server, handler);
  ASSERT_TRUE(stream->Send(message, kNow));
  transport.Cut(1);
  EXPECT_EQ(stream->Receive(kNow), nullptr);
  EXPECT_TRUE(stream->closed());
  EXPECT_EQ(stream->why(), "server: the connection was lost");
  transport.Pump(*server, handler);
  EXPECT_EQ(handler.events, (std::vector<std::string>{"open 1", "message 1", "close 1"}));
}

TEST_F(MemoryTransportTest, AFrozenStreamDeliversNothingUntilItThaws) {
  const auto stream = transport.Connect("server", {});
  ASSERT_TRUE(stream->Send(message, kNow));
  transport.Pump(*server, handler);
  transport.Freeze(1);
  ASSERT_TRUE(stream->Send(message, kNow));
  transport.Pump(*server, handler);
  EXPECT_EQ(stream->Receive(kNow), nullptr);
  EXPECT_FALSE(stream->closed());
  EXPECT_EQ(handler.events, (std::vector<std::string>{"open 1", "message 1"}));
  transport.Thaw(1);
  EXPECT_NE(stream->Receive(kNow), nullptr);
  transport.Pump(*server, handler);
  EXPECT_NE(stream->Receive(kNow), nullptr);
}

TEST_F(MemoryTransportTest, AFrozenClientThatWasClosedLearnsItWhenItThaws) {
  const auto stream = transport.Connect("server", {});
  ASSERT_TRUE(stream->Send(message, kNow));
  transport.Pump(*server, handler);
  ASSERT_NE(stream->Receive(kNow), nullptr);
  transport.Freeze(1);
  server->Close(1, "too slow");
  transport.Pump(*server, handler);
  EXPECT_EQ(handler.events.back(), "close 1");
  EXPECT_EQ(stream->Receive(kNow), nullptr);
  EXPECT_FALSE(stream->closed());
  transport.Thaw(1);
  EXPECT_EQ(stream->Receive(kNow), nullptr);
  EXPECT_EQ(stream->why(), "too slow");
}

TEST_F(MemoryTransportTest, AStreamHoldsOnlySoMuchForAServerThatDoesNotRead) {
  const auto stream = transport.Connect("server", {});
  const Outgoing large = Message(Pattern(900'000, 1));
  ASSERT_TRUE(stream->Send(large, kNow));
  ASSERT_TRUE(stream->Send(large, kNow));
  EXPECT_FALSE(stream->Send(large, kNow));
  EXPECT_FALSE(stream->closed());
  transport.Pump(*server, handler);
  EXPECT_TRUE(stream->Send(large, kNow));
}

TEST_F(MemoryTransportTest, AServerMayStopAndAnotherTakeItsPlace) {
  const auto before = transport.Connect("server", {});
  ASSERT_TRUE(before->Send(message, kNow));
  server.reset();
  EXPECT_EQ(before->Receive(kNow), nullptr);
  EXPECT_EQ(before->why(), "server: the server has stopped");
  server = transport.Listen("server", {});
  Recorder next(*server);
  const auto after = transport.Connect("server", {});
  ASSERT_TRUE(after->Send(message, kNow));
  transport.Pump(*server, next);
  EXPECT_NE(after->Receive(kNow), nullptr);
  EXPECT_EQ(next.events, (std::vector<std::string>{"open 2", "message 2"}));
}

}  // namespace
}  // namespace trireme
