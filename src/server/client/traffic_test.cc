// What a round costs, counted on the messages that were really exchanged, against the formulas: m workers and
// d parameters on s servers move 2 m d floats.
#include <gtest/gtest.h>

#include <numeric>

#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

constexpr std::uint64_t kRounds = 10;
constexpr UpdateRule kRule{.learning_rate = 0.01f, .max_grad_norm = 0.5};

// Of all workers together, after kRounds pushes of each.
Traffic Train(TestCluster& cluster, int workers) {
  std::vector<Traffic> each(workers);
  OnThreads(workers, [&](int i) {
    TestWorker worker(cluster, i + 1);
    worker.session.Join();
    worker.session.MeasureLinks();
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      worker.store->Pull();
      std::vector<float> gradient = Draw(i, round, cluster.terms.params);
      worker.store->Push(gradient, kRule);
    }
    each[i] = worker.store->traffic();
    worker.session.Leave();
  });
  Traffic total;
  for (const Traffic& traffic : each) total += traffic;
  return total;
}

TEST(ServerTraffic, AsynchronousRoundsMoveTheParametersTwice) {
  for (const int workers : {1, 2, 4}) {
    for (const int servers : {1, 2, 3}) {
      TestCluster cluster(TestTerms(Pace::kAsync, workers, servers));
      const Traffic traffic = Train(cluster, workers);
      const std::uint64_t m = workers, s = servers, d = cluster.terms.params;
      EXPECT_EQ(traffic.pushes, m * kRounds);
      EXPECT_EQ(traffic.messages, kRounds * 2 * m * s);
      EXPECT_EQ(traffic.bytes, kRounds * 2 * m * (d * sizeof(float) + s * sizeof(Header)));
    }
  }
}

// The answer also tells norms of blocks and whose gradients were added; several servers agree on both before
// they apply anything, which takes two messages more.
TEST(ServerTraffic, RoundsInStepMoveTheParametersTwice) {
  for (const int workers : {1, 2, 4}) {
    for (const int servers : {1, 2}) {
      TestCluster cluster(TestTerms(Pace::kSync, workers, servers));
      const Traffic traffic = Train(cluster, workers);
      const std::uint64_t m = workers, s = servers, d = cluster.terms.params;
      const std::uint64_t messages = kRounds * (s == 1 ? 2 : 4) * m * s;
      EXPECT_EQ(traffic.pushes, m * kRounds);
      EXPECT_EQ(traffic.messages, messages);
      const std::uint64_t floats = kRounds * 2 * m * d * sizeof(float);
      EXPECT_GE(traffic.bytes, floats + messages * sizeof(Header));
      const std::uint64_t blocks = (d + 1023) / 1024, text = 4 * m;
      EXPECT_LE(traffic.bytes, floats + messages * (sizeof(Header) + blocks * sizeof(double) + text));
    }
  }
}

TEST(ServerTraffic, LinksAreMeasuredOnceAndTrialsAreNotCounted) {
  TestCluster cluster(TestTerms(Pace::kAsync, 1, 2));
  TestWorker worker(cluster, 1);
  worker.session.Join();
  for (const ProcessLink& link : worker.session.links()) EXPECT_FALSE(link.measured());
  worker.session.MeasureLinks();
  const std::vector<ProcessLink> links = worker.session.links();
  ASSERT_EQ(links.size(), 2u);
  for (std::size_t server = 0; server < links.size(); ++server) {
    EXPECT_EQ(links[server].to, cluster.servers[server]->address());
    EXPECT_GT(links[server].latency_s, 0);
    EXPECT_GT(links[server].bytes_per_s, 0);
    EXPECT_EQ(links[server].messages, 0u);
    EXPECT_EQ(links[server].estimate_s(), 0);
  }
  worker.session.Pull();
  worker.session.MeasureLinks();
  const ProcessLink after = worker.session.links()[0];
  EXPECT_EQ(after.latency_s, links[0].latency_s);
  EXPECT_EQ(after.messages, 2u);
  EXPECT_DOUBLE_EQ(after.estimate_s(),
                   2 * after.latency_s + static_cast<double>(after.bytes) / after.bytes_per_s);
}

}  // namespace
}  // namespace trireme
