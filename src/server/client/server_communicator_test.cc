#include "trireme/server/client/server_communicator.h"

#include <gtest/gtest.h>

#include <utility>

#include "trireme/server/payload.h"
#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

// One of each operation, twice.
void Exercise(TestWorker& worker, int size) {
  Communicator& comm = worker.comm;
  const int rank = comm.rank();
  for (int i = 0; i < 2; ++i) {
    std::vector<double> sum = {1.0 * rank, 1};
    comm.AllReduceSum(std::span<double>(sum));
    EXPECT_EQ(sum, (std::vector<double>{size * (size - 1) / 2.0, 1.0 * size}));
    std::vector<float> to_first = {2.0f};
    comm.ReduceSum(std::span<float>(to_first));
    EXPECT_EQ(to_first[0], rank == 0 ? 2.0f * size : 2.0f);
    std::vector<float> from_first = {rank + 7.0f};
    comm.Broadcast(std::span<float>(from_first));
    EXPECT_EQ(from_first[0], 7.0f);
    std::string text(rank == 0 ? 1000 : rank, static_cast<char>('a' + rank));
    comm.Broadcast(text);
    EXPECT_EQ(text, std::string(1000, 'a'));
    const std::vector<std::string> all = comm.Gather(std::string(rank, 'x'));
    EXPECT_EQ(all.size(), rank == 0 ? size : 0u);
    for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r], std::string(r, 'x'));
    comm.Barrier();
  }
}

TEST(ServerCommunicator, Operations) {
  for (const int workers : {1, 2, 3, 5}) {
    TestCluster cluster(TestTerms(Pace::kSync, workers, 2));
    OnThreads(workers, [&](int i) {
      TestWorker worker(cluster, i + 1);
      worker.session.Join();
      Exercise(worker, workers);
    });
  }
}

// All workers learn why, and nothing of it was kept.
TEST(ServerCommunicator, MoreThanAMessageHoldsIsNotGathered) {
  constexpr std::size_t kLimit = 100'000;
  const std::size_t most = MostGathered(2, kLimit);
  EXPECT_LT(2 * most, kLimit);
  EXPECT_GT(2 * most, kLimit - 1000);
  TestCluster cluster(TestTerms(Pace::kSync, 2), true, {.message = kLimit});
  OnThreads(2, [&](int i) {
    TestWorker worker(cluster, i + 1);
    worker.session.Join();
    for (const std::string& part : worker.comm.Gather(std::string(most, 'x'))) EXPECT_EQ(part.size(), most);
    try {
      worker.comm.Gather(std::string(most + 1, 'x'));
      ADD_FAILURE() << "gathered";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what())
                    .find(fmt::format("2 workers have brought {} bytes for their leader", 2 * most + 2)),
                std::string::npos)
          << error.what();
    }
  });
}

TEST(ServerCommunicator, LostMessagesAndRestartsChangeNothing) {
  TestCluster cluster(TestTerms(Pace::kSync, 3), true);
  std::atomic<int> at_work = 3;
  OnThreads(4, [&](int i) {
    if (i == 3) {
      for (int restart = 0; restart < 5 && at_work == 3; ++restart) cluster.servers[0]->Restart();
      return;
    }
    TestWorker worker(cluster, i + 1);
    RandomStream random(5, Purpose::kTest, i, 0);
    worker.wire.fault = [&] { return random.NextBelow(15) == 0; };
    worker.session.Join();
    for (int j = 0; j < 5; ++j) Exercise(worker, 3);
    --at_work;
  });
}

// The lowest rank that is there stands for rank 0.
TEST(ServerCommunicator, AnotherLeadsWhenTheLeaderDies) {
  RunTerms terms = TestTerms(Pace::kSync, 3);
  terms.lease_s = 2;
  TestCluster cluster(terms);
  std::atomic<int> joined = 0;
  OnThreads(3, [&](int i) {
    TestWorker worker(cluster, i + 1);
    worker.session.Join();
    worker.comm.Barrier();
    ++joined;
    if (worker.comm.rank() == 0) {
      EXPECT_TRUE(Eventually([&] { return joined == 3; }));
      return worker.Die();
    }
    const int rank = worker.comm.rank();
    double value = rank;
    worker.comm.Broadcast(std::span(&value, 1));
    EXPECT_EQ(value, 1);
    EXPECT_EQ(worker.session.leads(), rank == 1);
    const std::vector<std::string> all = worker.comm.Gather(std::to_string(rank));
    if (rank == 1) {
      EXPECT_EQ(all, (std::vector<std::string>{"", "1", "2"}));
    } else {
      EXPECT_TRUE(all.empty());
    }
  });
}

// The only one that may lead is left behind. The others wait for it at their boundary, and it enters there.
TEST(ServerCommunicator, ABoundaryWithoutALeaderWaitsForOneWhoMayLead) {
  RunTerms terms = TestTerms(Pace::kSync, 3, 2);
  terms.backup_workers = 1;
  TestCluster cluster(terms);
  std::atomic<int> joined = 0, rounds = 0, at_boundary = 0;
  std::atomic<bool> fell_behind = false;
  OnThreads(3, [&](int i) {
    TestWorker worker(cluster, terms, i + 1, false, 30, i == 0);
    worker.session.Join();
    ++joined;
    ASSERT_TRUE(Eventually([&] { return joined == 3; })) << "nobody is a newcomer";
    worker.comm.Barrier();
    std::vector<float> gradient(terms.params, 0.5f);
    const auto push = [&] { worker.store->Push(gradient, {.learning_rate = 0.1f}); };
    if (i == 0) {
      ASSERT_TRUE(Eventually([&] { return rounds == 4; }));
      EXPECT_THROW(push(), FellBehind);
      fell_behind = true;
      ASSERT_TRUE(Eventually([&] { return at_boundary == 2; }));
      const ServerSession::Entry entry = worker.session.Join();
      EXPECT_TRUE(entry.at_boundary);
      EXPECT_EQ(entry.state, "what all hold");
      EXPECT_TRUE(worker.session.leads());
    } else {
      for (int round = 0; round < 2; ++round, ++rounds) push();
      ASSERT_TRUE(Eventually([&] { return fell_behind.load(); }));
      // The server says that it waits, or does not wait at all.
      worker.wire.lose = [&, waits = false](const std::string&, MessageKind) mutable {
        if (!std::exchange(waits, true)) ++at_boundary;
        return false;
      };
      EXPECT_EQ(worker.comm.Boundary("what all hold", true), "what all hold");
    }
    double value = i;
    worker.comm.Broadcast(std::span(&value, 1));
    EXPECT_EQ(value, 0) << "of the leader";
  });
}

}  // namespace
}  // namespace trireme
