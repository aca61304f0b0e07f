#include "trireme/server/client/server_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

// What joining a server ends with that takes in nobody, because of `why`, and how often it was tried.
struct Tried {
  std::string message;
  bool lost = false;
  int times = 0;
};
Tried Join(const std::string& why, double patience_s) {
  const RunTerms terms = TestTerms(Pace::kAsync);
  MemoryTransport transport;
  std::atomic<int> times = 0;
  const TestServer server(transport, "server:0", [&](ServerTransport& to, PeerId peer, Incoming&) {
    ++times;
    to.Close(peer, why);
  });
  ServerSession session(
      {{.transport = &transport, .address = server.address(), .security = {}, .patience_s = patience_s}},
      terms, 1);
  session.Offer(std::vector<float>(terms.params));
  try {
    session.Join();
    return {};
  } catch (const ServerLost& lost) {
    return {lost.what(), true, times};
  } catch (const Error& error) {
    return {error.what(), false, times};
  }
}

TEST(ServerLinkTest, AServerThatSaysLaterIsAskedAgainUntilPatienceEnds) {
  const Tried tried = Join(fmt::format("{}the disk is full", kLater), 0.5);
  EXPECT_TRUE(tried.lost);
  EXPECT_EQ(tried.message, "a new worker waited 0.5 s for server server:1 to take it in: the disk is full");
  EXPECT_GT(tried.times, 1);
}

TEST(ServerLinkTest, AnyOtherReasonEndsTheWorkerAtOnce) {
  const Tried tried = Join("this run is over", 600);
  EXPECT_FALSE(tried.lost);
  EXPECT_EQ(tried.message, "server server:1: this run is over");
  EXPECT_EQ(tried.times, 1);
}

}  // namespace
}  // namespace trireme
