// Servers that answer what no server of ours would: the worker says so and ends well.
#include <gtest/gtest.h>

#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

// What joining such a server, and a pull from it, end with. `change` sees every answer.
std::string Outcome(const std::function<void(Header&)>& change) {
  const RunTerms terms = TestTerms(Pace::kAsync);
  MemoryTransport transport;
  const TestServer server(transport, "server:0", [&](ServerTransport& to, PeerId peer, Incoming& message) {
    const Header asked = ReadHeader(message);
    Header answer{.kind = MessageKind::kWelcome, .worker = 0, .sequence = asked.sequence};
    if (asked.kind == MessageKind::kPull) answer.kind = MessageKind::kParams;
    change(answer);
    to.Send(peer, MakeMessage(answer, std::vector<float>(terms.params)));
  });
  ServerSession session({{.transport = &transport, .address = server.address(), .security = {}}}, terms, 1);
  session.Offer(std::vector<float>(terms.params));
  try {
    session.Join();
    session.Pull();
    return "well";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(HostileServer, NumbersThatCannotBeTrueAreRefused) {
  EXPECT_EQ(Outcome([](Header&) {}), "well");
  const std::function<void(Header&)> changes[] = {
      [](Header& answer) { answer.worker = kHighestRank + 1; },
      [](Header& answer) { answer.steps = -1; },
      [](Header& answer) { answer.steps = INT64_MAX; },
      [](Header& answer) { answer.number = UINT64_MAX; },
      [](Header& answer) { answer.version = UINT64_MAX; },
      [](Header& answer) { answer.clock = kMostUpdates + 1; },
      [](Header& answer) { answer.clock = UINT64_MAX; },
  };
  for (const auto& change : changes) {
    EXPECT_EQ(Outcome(change), "server server:1 sends numbers that cannot be true");
  }
}

// The norm of a round is made of as many sums as the worker's groups cut the parameters into.
TEST(HostileServer, ANormOfOtherSumsIsRefused) {
  const RunTerms terms = TestTerms(Pace::kSync);
  for (const std::size_t sums : {0, 5, 6, 7}) {
    MemoryTransport transport;
    const TestServer server(transport, "server:0", [&](ServerTransport& to, PeerId peer, Incoming& message) {
      const Header asked = ReadHeader(message);
      const bool push = asked.kind == MessageKind::kPush;
      const Header answer{.kind = push ? MessageKind::kParams : MessageKind::kWelcome,
                          .worker = 0,
                          .sequence = asked.sequence};
      to.Send(peer, MakeMessage(answer, std::vector<float>(terms.params), std::vector<double>(sums)));
    });
    ServerSession session({{.transport = &transport, .address = server.address(), .security = {}}}, terms, 1);
    session.Offer(std::vector<float>(terms.params));
    ServerCommunicator comm(session);
    const auto store = MakeSyncServerStore(session, comm);
    session.Join();
    std::vector<float> gradient(terms.params);
    const UpdateRule rule{.learning_rate = 1, .groups = {{0, 100, 1, 0.5}, {200, 300, 1}}};
    std::string outcome = "well";
    try {
      store->Push(gradient, rule);
    } catch (const Error& error) {
      outcome = error.what();
    }
    const std::string refusal =
        fmt::format("server server:1 has sent {} sums of squares where 6 are due", sums);
    EXPECT_EQ(outcome, sums == 6 ? "well" : refusal);
  }
}

}  // namespace
}  // namespace trireme
