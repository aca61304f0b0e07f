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

}  // namespace
}  // namespace trireme
