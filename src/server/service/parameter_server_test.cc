// What a server refuses, and that nothing of it harms the run.
#include "trireme/server/service/parameter_server.h"

#include <gtest/gtest.h>

#include <limits>

#include "trireme/server/payload.h"
#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

const std::string_view kNaN = "not finite";

// A server that is pumped, and clients that write messages by hand.
class ByHand : public testing::Test {
 protected:
  explicit ByHand(Pace pace = Pace::kAsync) : terms_(TestTerms(pace, 2)), server_(*listener_, {}) {
    terms_.params = 10;
  }

  struct Client {
    std::unique_ptr<Stream> stream;
    std::uint64_t id = 0;
    Header answer;
  };

  Client Connect(std::uint64_t id) { return {transport_.Connect("server", {}), id, {}}; }
  // Sends, and takes the answer; false: the stream was closed.
  bool Ask(Client& client, const Outgoing& message) {
    client.stream->Send(message, In(1s));
    transport_.Pump(*listener_, server_);
    Incoming* const in = client.stream->Receive(Clock::now());
    if (in != nullptr) client.answer = ReadHeader(*in);
    return in != nullptr;
  }
  Outgoing Hello(const Client& client, const RunTerms& terms, int server = 0) {
    const Greeting greeting{.worker = client.id, .server = server, .terms = terms};
    return MakeMessage({.kind = MessageKind::kHello, .worker = client.id, .sequence = 1}, {}, {},
                       greeting.Encode());
  }
  Header Request(const Client& client, MessageKind kind) {
    return {.kind = kind, .worker = client.id, .sequence = ++sequence_, .learning_rate = 0.1f};
  }
  Client Joined(std::uint64_t id) {
    Client client = Connect(id);
    EXPECT_TRUE(Ask(client, Hello(client, terms_)));
    if (client.answer.kind == MessageKind::kNeedState) {
      EXPECT_TRUE(Ask(client, MakeMessage({.kind = MessageKind::kState}, std::vector<float>(10, 1.0f))));
    }
    EXPECT_EQ(client.answer.kind, MessageKind::kWelcome);
    return client;
  }
  std::string Refusal(Client& client, const Outgoing& message) {
    EXPECT_FALSE(Ask(client, message));
    EXPECT_TRUE(client.stream->closed());
    return client.stream->why();
  }

  RunTerms terms_;
  MemoryTransport transport_;
  std::unique_ptr<ServerTransport> listener_ = transport_.Listen("server", {});
  ParameterServer server_;
  std::uint64_t sequence_ = 1;
};

class ByHandInStep : public ByHand {
 protected:
  ByHandInStep() : ByHand(Pace::kSync) {}
};

void ExpectIn(std::string_view part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(ByHand, OtherRunsAreRefused) {
  Joined(1);
  const std::pair<const char*, std::function<void(RunTerms&)>> changes[] = {
      {"seed 7, the worker 8", [](RunTerms& t) { t.seed = 8; }},
      {"network", [](RunTerms& t) { t.network = "other"; }},
      {"version", [](RunTerms& t) { t.version = "2"; }},
      {"optimizer", [](RunTerms& t) { t.optimizer.kind = OptimizerKind::kSgd; }},
      {"workers 2, the worker 3", [](RunTerms& t) { t.workers = 3; }}};
  for (const auto& [text, change] : changes) {
    RunTerms terms = terms_;
    change(terms);
    Client client = Connect(2);
    const std::string why = Refusal(client, Hello(client, terms));
    ExpectIn(text, why);
    EXPECT_FALSE(why.starts_with(kLater));
  }
}

TEST_F(ByHand, WhatNoSaneWorkerSendsClosesItsStreamAndChangesNothing) {
  Client good = Joined(1);
  const auto refuse = [&](std::string_view why, Header header, std::vector<float> floats,
                          std::string_view bytes = {}) {
    Client bad = Joined(2);
    header.worker = 2;
    ExpectIn(why, Refusal(bad, MakeMessage(header, floats, {}, bytes)));
  };
  const std::vector<float> gradient(10, 1.0f);
  std::vector<float> broken = gradient;
  broken[9] = std::numeric_limits<float>::quiet_NaN();
  Header push = Request(good, MessageKind::kPush);
  refuse(kNaN, push, broken);
  broken[9] = -std::numeric_limits<float>::infinity();
  refuse(kNaN, push, broken);
  refuse("9 floats", push, std::vector<float>(9));
  refuse("beyond the parameters", push, gradient, EncodeGroups({{5, 11, 1}}));
  refuse("they overlap", push, gradient, EncodeGroups({{0, 5, 1}}) + EncodeGroups({{4, 6, 1}}));
  refuse("bytes of parameter groups", push, gradient, "abc");
  push.version = 1;
  refuse("for version 1", push, gradient);
  push.version = 0;
  push.steps = -1;
  refuse("steps", push, gradient);
  push.steps = 0;
  push.learning_rate = std::numeric_limits<float>::infinity();
  refuse(kNaN, push, gradient);
  refuse("no place here", {.kind = MessageKind::kCollect}, {});
  refuse("no place here", {.kind = MessageKind::kCommit}, {});
  refuse("no place here", {.kind = MessageKind::kNorms}, {});
  refuse("no place here", {.kind = static_cast<MessageKind>(77)}, {});
  refuse("nobody asked for", {.kind = MessageKind::kState}, gradient);

  Client stranger = Connect(3);
  ExpectIn("before a hello", Refusal(stranger, MakeMessage(Request(stranger, MessageKind::kPull))));
  Client liar = Joined(4);
  Header as_good = Request(good, MessageKind::kPush);
  ExpectIn("given up", Refusal(liar, MakeMessage(as_good, gradient)));

  ASSERT_TRUE(Ask(good, MakeMessage(Request(good, MessageKind::kPull))));
  EXPECT_EQ(good.answer.version, 0u);
  ASSERT_TRUE(Ask(good, MakeMessage(Request(good, MessageKind::kPush), gradient)));
  EXPECT_EQ(good.answer.version, 1u);
}

TEST_F(ByHand, StatesThatDoNotFitAreRefused) {
  const auto refuse = [&](std::string_view why, const Header& header, const std::vector<float>& floats) {
    Client client = Connect(1);
    ASSERT_TRUE(Ask(client, Hello(client, terms_)));
    ASSERT_EQ(client.answer.kind, MessageKind::kNeedState);
    ExpectIn(why, Refusal(client, MakeMessage(header, floats)));
  };
  refuse("11 floats", {.kind = MessageKind::kState}, std::vector<float>(11));
  refuse(kNaN, {.kind = MessageKind::kState}, std::vector<float>(10, std::numeric_limits<float>::infinity()));
  refuse("updates", {.kind = MessageKind::kState, .number = UINT64_MAX}, std::vector<float>(10));
  refuse("steps", {.kind = MessageKind::kState, .steps = -1}, std::vector<float>(10));
  Joined(1);
}

// The first newcomer was asked for the parameters and went away.
TEST_F(ByHand, TheNextNewcomerIsAskedForTheState) {
  Client first = Connect(1), second = Connect(2);
  ASSERT_TRUE(Ask(first, Hello(first, terms_)));
  EXPECT_FALSE(Ask(second, Hello(second, terms_)));
  EXPECT_FALSE(second.stream->closed());
  first.stream.reset();
  transport_.Pump(*listener_, server_);
  Incoming* const in = second.stream->Receive(Clock::now());
  ASSERT_NE(in, nullptr);
  EXPECT_EQ(ReadHeader(*in).kind, MessageKind::kNeedState);
}

TEST_F(ByHand, ASecondHelloIsRefusedAndLeavesNothingBehind) {
  for (const int server : {0, 1}) {
    RunTerms others = terms_;
    others.servers = 2;
    others.seed = 100 + server;
    Client twice = Connect(1);
    ASSERT_TRUE(Ask(twice, Hello(twice, others)));
    ExpectIn("second hello", Refusal(twice, Hello(twice, others, server)));
  }
  Client joined = Joined(2);
  ExpectIn("second hello", Refusal(joined, Hello(joined, terms_)));
  Joined(3);
}

TEST_F(ByHand, AHelloThatNestsDeeplyIsRefused) {
  Client client = Connect(1);
  std::string text = "x";
  for (int i = 0; i < 31'500; ++i) text += ".x";
  ExpectIn("nest more than",
           Refusal(client, MakeMessage({.kind = MessageKind::kHello}, {}, {}, text + " = 1\n")));
  Joined(2);
}

TEST_F(ByHand, ControlCharactersOfAClientDoNotReachTheLog) {
  std::vector<std::string> lines;
  ParameterServerOptions options;
  options.say = [&](const std::string& line) { lines.push_back(line); };
  ParameterServer server(*listener_, options);
  const auto send = [&](Client& client, const Outgoing& message) {
    client.stream->Send(message, In(1s));
    transport_.Pump(*listener_, server);
  };
  terms_.env = "\x1b[2Jnowhere\n";
  Client first = Connect(1), other = Connect(2), wrong = Connect(3);
  send(first, Hello(first, terms_));
  send(first, MakeMessage({.kind = MessageKind::kState}, std::vector<float>(10, 1.0f)));
  terms_.env = "\x9b";
  send(other, Hello(other, terms_));
  send(wrong, MakeMessage({.kind = MessageKind::kHello}, {}, {}, "\x1b]0;\a = 1\n"));
  ASSERT_GE(lines.size(), 4u);
  for (const std::string& line : lines) {
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c <= '~') << line;
  }
}

TEST_F(ByHand, StrangersAreFewAndDoNotStay) {
  const auto open = [&](std::uint64_t id) {
    Client client = Connect(id);
    client.stream->Receive(In(1ms));
    transport_.Pump(*listener_, server_);
    return client;
  };
  const auto why = [](const Client& client) {
    client.stream->Receive(Clock::now());
    return client.stream->why();
  };
  Client worker = Joined(1);
  Client heartbeat = open(1);
  const std::uint64_t ids[] = {1};
  heartbeat.stream->Send(
      MakeMessage({.kind = MessageKind::kAlive}, {}, {}, {reinterpret_cast<const char*>(ids), sizeof ids}),
      In(1s));
  std::vector<Client> strangers;
  for (int i = 0; i < 40; ++i) strangers.push_back(open(100 + i));
  for (int i = 0; i < 40; ++i) EXPECT_EQ(why(strangers[i]).starts_with(kLater), i < 8) << i;
  Joined(2);

  // Whoever goes on saying something, but no hello, is none the better for it.
  const std::uint64_t nobody[] = {77};
  strangers[39].stream->Send(MakeMessage({.kind = MessageKind::kAlive}, {}, {},
                                         {reinterpret_cast<const char*>(nobody), sizeof nobody}),
                             In(1s));
  transport_.Pump(*listener_, server_, In(9s));
  EXPECT_EQ(why(strangers[39]), "");
  transport_.Pump(*listener_, server_, In(30s));
  for (const Client& stranger : strangers) EXPECT_TRUE(why(stranger).starts_with(kLater));
  EXPECT_EQ(why(strangers[39]), "later: no hello came for 10 s");
  EXPECT_EQ(why(heartbeat), "");
}

// A hello alone allows no more than a stranger has.
TEST_F(ByHand, OnlyTheOneThatWasAskedMaySendAState) {
  terms_.params = 100'000;
  const auto state = [](std::size_t floats) {
    return MakeMessage({.kind = MessageKind::kState}, std::vector<float>(floats, 1.0f));
  };
  Client stranger = Connect(9), first = Connect(1), second = Connect(2), third = Connect(3);
  ExpectIn("longer than the limit of 131072", Refusal(stranger, state(40'000)));
  ASSERT_TRUE(Ask(first, Hello(first, terms_)));
  EXPECT_FALSE(Ask(second, Hello(second, terms_)));
  EXPECT_FALSE(Ask(third, Hello(third, terms_)));
  ExpectIn("longer than the limit of 131072", Refusal(second, state(100'000)));
  ExpectIn(fmt::format("longer than the limit of {}", sizeof(Header) + 1'200'000),
           Refusal(first, state(300'001)));
  ASSERT_NE(third.stream->Receive(Clock::now()), nullptr) << "the next one is asked";
  ASSERT_TRUE(Ask(third, state(300'000)));
  EXPECT_EQ(third.answer.kind, MessageKind::kWelcome);
  ASSERT_TRUE(Ask(third, MakeMessage(Request(third, MessageKind::kPush), std::vector<float>(100'000))));

  RunTerms huge = terms_;
  huge.params = 1'000'000'000'000;
  Client greedy = Connect(4);
  ExpectIn("params 100000, the worker 1000000000000", Refusal(greedy, Hello(greedy, huge)));
}

TEST_F(ByHand, WhatThereIsNoMemoryForClosesItsStreamOnly) {
  struct NoMemory final : Incoming {
    std::size_t size() const override { return sizeof(Header); }
    void Read(std::span<std::byte>) override { throw std::bad_alloc(); }
  } no_memory;
  Client good = Joined(1), greedy = Joined(2);  // streams 1 and 2
  server_.OnMessage(2, no_memory);
  EXPECT_EQ(greedy.stream->Receive(Clock::now()), nullptr);
  ExpectIn("no memory left", greedy.stream->why());
  EXPECT_TRUE(Ask(good, MakeMessage(Request(good, MessageKind::kPull))));
}

TEST_F(ByHand, ARunTooLargeForOneServerIsRefused) {
  terms_.params = 1'000'000'000'000;
  Client greedy = Connect(4);
  ExpectIn("give the run more servers", Refusal(greedy, Hello(greedy, terms_)));
}

TEST(ServerFolder, HasOneServerAtATime) {
  const TempFolder folder;
  MemoryTransport transport;
  const auto one = transport.Listen("one", {}), other = transport.Listen("other", {});
  const ParameterServerOptions options{.folder = folder.path()};
  auto server = std::make_unique<ParameterServer>(*one, options);
  try {
    ParameterServer(*other, options);
    ADD_FAILURE() << "two servers in one folder";
  } catch (const Error& error) {
    ExpectIn("another server uses " + folder.path(), error.what());
  }
  server.reset();
  ParameterServer(*other, options);
}

TEST_F(ByHandInStep, AllPlacesTakenIsTemporary) {
  Joined(1);
  Joined(2);
  Client third = Connect(3);
  const std::string why = Refusal(third, Hello(third, terms_));
  EXPECT_EQ(why, "later: all 2 places of this run are taken");
}

TEST_F(ByHandInStep, WhatNoSaneWorkerSendsInStep) {
  const auto refuse = [&](std::string_view why, Header header, const std::vector<float>& floats = {},
                          std::string_view bytes = {}) {
    Client bad = Joined(2);
    header.worker = 2;
    ExpectIn(why, Refusal(bad, MakeMessage(header, floats, {}, bytes)));
  };
  Client first = Joined(1);
  refuse("operation of kind 9", {.kind = MessageKind::kCollect, .operation = 9});
  refuse("it has lost", {.kind = MessageKind::kCollect, .operation = 1, .number = 5});
  refuse("it has lost", {.kind = MessageKind::kAskNorms, .version = 5});
  refuse("it has lost", {.kind = MessageKind::kCommit, .version = 5}, {1});
  refuse("a scale of 7", {.kind = MessageKind::kCommit}, {7});
  refuse("a scale of nan", {.kind = MessageKind::kCommit}, {1, std::numeric_limits<float>::quiet_NaN()});
  refuse("0 scales", {.kind = MessageKind::kCommit});
  refuse("10 scales", {.kind = MessageKind::kCommit}, std::vector<float>(10, 1.0f));
  refuse("ranks", {.kind = MessageKind::kAskNorms}, {}, "xyz");
  refuse("9 floats", {.kind = MessageKind::kPush}, std::vector<float>(9));
  refuse("99990 statistics", {.kind = MessageKind::kPush}, std::vector<float>(100000));
  const std::vector<float> gradient(10, 1.0f);
  refuse("they overlap", {.kind = MessageKind::kPush}, gradient,
         EncodeGroups({{0, 5, 1}}) + EncodeGroups({{4, 6, 1}}));
  // The first worker has pushed: the round has no groups.
  EXPECT_FALSE(Ask(first, MakeMessage(Request(first, MessageKind::kPush), gradient)));
  refuse("other parameter groups", {.kind = MessageKind::kPush}, gradient, EncodeGroups({{0, 5, 1}}));
  ExpectIn("2 scales, where 1 are due",
           Refusal(first, MakeMessage(Request(first, MessageKind::kCommit), std::vector<float>(2, 1.0f))));
}

// Whatever bytes come, the server lives, and what it holds stays right.
class Fuzz : public testing::TestWithParam<Pace> {};
INSTANTIATE_TEST_SUITE_P(Paces, Fuzz, testing::Values(Pace::kAsync, Pace::kSsp, Pace::kSync));

TEST_P(Fuzz, RandomMessagesHarmNothing) {
  RandomStream random(3, Purpose::kTest, 1, 0);
  MemoryTransport transport;
  const auto listener = transport.Listen("server", {});
  ParameterServer server(*listener, {});
  RunTerms terms = TestTerms(GetParam(), 3);
  terms.params = 10;
  Deadline now = Clock::now();
  std::vector<std::unique_ptr<Stream>> streams(6);
  const auto number = [&]() -> std::uint64_t {
    const std::uint64_t odd[] = {0, 1, 2, 3, 9, 10, UINT64_MAX, std::uint64_t{1} << 63};
    return odd[random.NextBelow(8)];
  };
  int closed = 0;
  for (int i = 0; i < 3000; ++i) {
    auto& stream = streams[random.NextBelow(6)];
    if (!stream) {
      stream = transport.Connect("server", {});
      Greeting greeting{.worker = random.NextBelow(4),
                        .rank = static_cast<int>(random.NextBelow(5)) - 1,
                        .clock = random.NextBelow(3),
                        .continues = random.NextBelow(4) == 0,
                        .terms = terms};
      stream->Send(MakeMessage({.kind = MessageKind::kHello}, {}, {}, greeting.Encode()), now);
    }
    Header header{.kind = static_cast<MessageKind>(random.NextBelow(20)),
                  .worker = random.NextBelow(4),
                  .sequence = number(),
                  .version = random.NextBelow(3) == 0 ? number() : random.NextBelow(2),
                  .steps = static_cast<std::int64_t>(number()),
                  .learning_rate = 0.1f,
                  .operation = static_cast<std::uint32_t>(random.NextBelow(5)),
                  .max_grad_norm = random.NextBelow(2) * 0.5,
                  .number = random.NextBelow(3),
                  .flags = static_cast<std::uint32_t>(random.NextBelow(16))};
    std::vector<float> floats(std::array{0, 10, 10, 10, 11, 20, 30}[random.NextBelow(7)], 0.5f);
    if (!floats.empty() && random.NextBelow(10) == 0) floats[0] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<double> doubles(random.NextBelow(3), 1.0);
    std::string bytes(random.NextBelow(3) * 4, static_cast<char>(random.NextBelow(2)));
    if (random.NextBelow(3) == 0) {
      ParameterGroups groups;
      for (std::uint32_t g = random.NextBelow(4); g > 0; --g) {
        groups.Append({number(), number(), random.NextBelow(2) * 0.5f, random.NextBelow(3) - 1.0});
      }
      bytes = EncodeGroups(groups);
    }
    const Outgoing message = MakeMessage(header, floats, doubles, bytes);
    std::vector<std::byte> wire(message->begin(), message->end());
    if (random.NextBelow(4) == 0) wire[random.NextBelow(wire.size())] ^= std::byte{0x41};
    if (random.NextBelow(10) == 0) wire.resize(random.NextBelow(wire.size() + 1));
    stream->Send(Message(wire), now);
    if (random.NextBelow(5) == 0) now += std::chrono::milliseconds(random.NextBelow(3000));
    transport.Pump(*listener, server, now);
    while (stream->Receive(Deadline::min()) != nullptr) {
    }
    if (stream->closed()) {
      ++closed;
      stream.reset();
    }
  }
  EXPECT_GT(closed, 300);

  // An honest worker still finds finite parameters.
  streams.clear();
  transport.Pump(*listener, server, now + 100s);
  auto stream = transport.Connect("server", {});
  const Greeting greeting{.worker = 99, .terms = terms};
  stream->Send(MakeMessage({.kind = MessageKind::kHello, .worker = 99}, {}, {}, greeting.Encode()), now);
  transport.Pump(*listener, server, now + 101s);
  Header header;
  do {
    Incoming* const in = stream->Receive(Clock::now());
    ASSERT_NE(in, nullptr) << stream->why();
    header = ReadHeader(*in);
    if (header.kind != MessageKind::kWelcome) continue;
    std::vector<float> params(10);
    ReadFloats(*in, params);
    for (const float value : params) EXPECT_TRUE(std::isfinite(value));
  } while (header.kind == MessageKind::kWaiting);
  EXPECT_EQ(header.kind, MessageKind::kWelcome);
}

}  // namespace
}  // namespace trireme
