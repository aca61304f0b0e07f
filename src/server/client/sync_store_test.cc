#include <gtest/gtest.h>

#include <limits>

#include "trireme/comm/run_ranks.h"
#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

constexpr int kPushes = 12, kStats = 3;

struct Outcome {
  std::vector<float> params, statistics;
  std::vector<double> norms, shared;
  bool operator==(const Outcome&) const = default;
};

// What a worker does in all tests here. `before(step)` is called before every push.
Outcome Train(
    const RunTerms& terms, int rank, ParameterStore& store, const UpdateRule& rule,
    const std::function<void(int)>& before = [](int) {}) {
  Outcome outcome;
  for (int step = 0; step < kPushes; ++step) {
    before(step);
    store.Pull();
    std::vector<float> gradient = Draw(rank, step, terms.params + kStats);
    outcome.norms.push_back(store.Push(gradient, rule));
    outcome.statistics.insert(outcome.statistics.end(), gradient.begin() + terms.params, gradient.end());
    if (step % 4 != 3) continue;
    outcome.shared.push_back(rank + 0.1 * step);
    store.Share(std::span(outcome.shared).last(1));
  }
  outcome.params = Copy(store.params());
  return outcome;
}

// Groups across the parts of servers, at their edges, with norms of their own and without; one is untouched.
const UpdateRule kRules[] = {
    {.learning_rate = 0.01f},
    {.learning_rate = 0.01f, .max_grad_norm = 0.5, .groups = {{700, 3000, 0.001f}}},
    {.learning_rate = 0.01f,
     .max_grad_norm = 0.5,
     .groups = {{100, 600, 0.02f, 0.3}, {700, 3000, 0.001f}, {3000, 3050, 0}, {3060, 4200, 0.005f, 0.7}}},
    {.learning_rate = 0.01f, .groups = {{1024, 2048, 0.02f, 0.3}, {2048, 4999, 0.03f, 0.4}}}};
constexpr int kPlain = 0, kClipped = 1, kGrouped = 2, kNormsOfGroups = 3;

const Outcome& TrainByAllReduce(const RunTerms& terms, int rule) {
  static std::map<std::pair<int, int>, Outcome> outcomes;
  Outcome& outcome = outcomes[{terms.workers, rule}];
  if (!outcome.params.empty()) return outcome;
  RunRanks(terms.workers, [&](Communicator& comm) {
    const auto store = MakeAllReduceStore(comm, terms.optimizer, Initial(terms));
    Outcome own = Train(terms, comm.rank(), *store, kRules[rule]);
    if (comm.rank() == 0) outcome = std::move(own);
  });
  return outcome;
}

// Trains on the servers of `cluster` and expects the bits of the allreduce store in every worker.
void ExpectTheSame(
    TestCluster& cluster, int rule,
    const std::function<void(TestWorker&, int)>& prepare = [](TestWorker&, int) {},
    const std::function<void(int, int)>& before = [](int, int) {}) {
  const Outcome& expected = TrainByAllReduce(cluster.terms, rule);
  OnThreads(cluster.terms.workers, [&](int i) {
    TestWorker worker(cluster, i + 1);
    prepare(worker, i);
    worker.session.Join();
    const Outcome outcome = Train(cluster.terms, worker.session.rank(), *worker.store, kRules[rule],
                                  [&](int step) { before(i, step); });
    EXPECT_TRUE(outcome == expected) << cluster.terms.workers << " workers, " << cluster.terms.servers
                                     << " servers, rule " << rule;
    worker.comm.Barrier();
    worker.session.Leave();
  });
}

TEST(SyncServerStore, EqualsAllReduceBitForBit) {
  for (const int workers : {1, 2, 4, 8}) {
    for (const int servers : {1, 2, 3}) {
      for (const int rule : {kPlain, kClipped, kGrouped, kNormsOfGroups}) {
        TestCluster cluster(TestTerms(Pace::kSync, workers, servers));
        ExpectTheSame(cluster, rule);
      }
    }
  }
}

TEST(SyncServerStore, AGroupOfRateZeroIsUntouched) {
  const RunTerms terms = TestTerms(Pace::kSync, 2, 1);
  const std::vector<float>& params = TrainByAllReduce(terms, kGrouped).params;
  const std::vector<float> initial = Initial(terms);
  for (std::size_t i = 0; i < params.size(); ++i)
    EXPECT_EQ(params[i] == initial[i], i >= 3000 && i < 3050) << i;
}

TEST(SyncServerStore, TreesOfAnyNumberOfWorkers) {
  TestCluster cluster(TestTerms(Pace::kSync, 7, 2));
  ExpectTheSame(cluster, kGrouped);
}

// A message in thirty is lost, with its stream.
TEST(SyncServerStore, LostMessagesChangeNothing) {
  for (const int servers : {1, 3}) {
    TestCluster cluster(TestTerms(Pace::kSync, 4, servers));
    ExpectTheSame(cluster, kGrouped, [](TestWorker& worker, int i) {
      auto random = std::make_shared<RandomStream>(5, Purpose::kTest, i, 0);
      worker.wire.fault = [random] { return random->NextBelow(30) == 0; };
    });
  }
}

// Every message of one worker is lost once.
TEST(SyncServerStore, NoLostMessageMatters) {
  std::atomic<int> events = 0;
  for (int lost = 1; lost == 1 || lost <= std::min<int>(events, 70); lost += 3) {
    TestCluster cluster(TestTerms(Pace::kSync, 2, 2));
    events = 0;
    ExpectTheSame(cluster, kGrouped, [&](TestWorker& worker, int i) {
      if (i == 1) worker.wire.fault = [&, lost] { return ++events == lost; };
    });
    if (HasFailure()) FAIL() << "message " << lost;
  }
}

TEST(SyncServerStore, RestartedServersChangeNothing) {
  for (const int servers : {1, 2}) {
    TestCluster cluster(TestTerms(Pace::kSync, 4, servers), true);
    std::mutex mutex;
    ExpectTheSame(
        cluster, 0.5, [](TestWorker&, int) {},
        [&](int i, int step) {
          if ((step * 4 + i) % 11 != 5) return;  // others are in the middle of the round then
          const std::lock_guard lock(mutex);
          cluster.servers[(step + i) % servers]->Restart();
        });
  }
}

// Both servers forget a round, and each of two workers has heard of it from the other server already: what a
// server needs again, a worker must give it while it waits for the other one.
TEST(SyncServerStore, ARoundThatBothServersForgetIsMadeAgain) {
  RunTerms terms = TestTerms(Pace::kSync, 2, 2);
  terms.round_s = 25;  // whoever is missing so long is given up
  TestCluster cluster(terms, true);
  std::atomic<bool> came[2] = {}, forgotten[2] = {};
  ExpectTheSame(cluster, kGrouped, [&](TestWorker& worker, int) {
    worker.wire.lose = [&](const std::string& address, MessageKind kind) {
      const int rank = worker.session.rank();
      if (kind != MessageKind::kNorms || address != cluster.servers[rank]->address()) return false;
      if (came[rank].exchange(true)) return false;
      // The second worker has the norms of the first server; the second server has sent its own to both.
      EXPECT_TRUE(rank == 1 || Eventually([&] { return forgotten[1].load(); }));
      cluster.servers[rank]->Restart();
      forgotten[rank] = true;
      return true;
    };
  });
  EXPECT_TRUE(forgotten[0] && forgotten[1]);
}

// The statistics of a mini-batch without an episode's end.
TEST(SyncServerStore, StatisticsMayBeAnything) {
  TestCluster cluster(TestTerms(Pace::kSync, 2, 2));
  OnThreads(2, [&](int i) {
    TestWorker worker(cluster, i + 1);
    worker.session.Join();
    std::vector<float> gradient = Draw(i, 0, cluster.terms.params + 1);
    gradient.back() = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isfinite(worker.store->Push(gradient, kRules[kGrouped])));
    EXPECT_NE(Copy(worker.store->params()), Initial(cluster.terms));
    EXPECT_TRUE(std::isnan(gradient.back()));
    worker.comm.Barrier();
  });
}

TEST(SyncServerStore, GradientsThatOverflowAreRefusedToAll) {
  for (const int servers : {1, 2}) {
    RunTerms terms = TestTerms(Pace::kSync, 2, servers);
    terms.lease_s = 2;
    TestCluster cluster(terms);
    OnThreads(2, [&](int i) {
      TestWorker worker(cluster, i + 1);
      worker.session.Join();
      std::vector<float> gradient(cluster.terms.params, 3e38f);
      try {
        worker.store->Push(gradient, kRules[kGrouped]);
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("diverged"), std::string::npos) << error.what();
      }
    });
    TestWorker later(cluster, 9);
    later.session.Join();
    EXPECT_EQ(Copy(later.store->params()), Initial(cluster.terms));
  }
}

// Where losses are scaled, a gradient that is not finite is left out by all, wherever it was, and the next one counts.
TEST(SyncServerStore, AnExpectedOverflowIsLeftOutByAll) {
  for (const char* codec : {"none", "fp16"}) {
    RunTerms terms = TestTerms(Pace::kSync, 2, 2);
    terms.compress = terms.compress_params = codec;
    TestCluster cluster(terms);
    const auto push = [&](TestWorker& worker, int i, int step, bool overflow) {
      std::vector<float> gradient = Draw(i, step, terms.params);
      gradient.push_back(0.5f);
      if (overflow) gradient[100] = std::numeric_limits<float>::infinity();
      const double norm = worker.store->Push(gradient, kRules[kGrouped]);
      EXPECT_EQ(gradient.back(), 1.0f) << "the sum over both";
      return norm;
    };
    OnThreads(2, [&](int i) {
      TestWorker worker(cluster, static_cast<std::uint64_t>(i + 1));
      worker.store->ExpectOverflow();
      worker.session.Join();
      const int rank = worker.session.rank();
      const std::vector<float> before = Copy(worker.store->params());
      for (const int who : {0, 1}) {
        EXPECT_FALSE(std::isfinite(push(worker, rank, 7, rank == who)));
        EXPECT_TRUE(Copy(worker.store->params()) == before);
        EXPECT_EQ(worker.store->ResidualNorm(), 0);
      }
      EXPECT_TRUE(std::isfinite(push(worker, rank, 8, false)));
      EXPECT_FALSE(Copy(worker.store->params()) == before);
      worker.comm.Barrier();
      worker.session.Leave();
    });
  }
}

// Three of four make every round; the fourth gets the result.
TEST(SyncServerStore, BackupWorkersAreNotWaitedFor) {
  for (const int servers : {1, 2}) {
    RunTerms terms = TestTerms(Pace::kSync, 4, servers);
    terms.backup_workers = 1;
    terms.optimizer = {.kind = OptimizerKind::kSgd};
    TestCluster cluster(terms);
    std::atomic<int> joined = 0, pushed = 0;
    OnThreads(4, [&](int i) {
      TestWorker worker(cluster, i + 1);
      worker.session.Join();
      ++joined;
      EXPECT_TRUE(Eventually([&] { return joined == 4; }));  // three could begin without the fourth
      std::vector<float> gradient(terms.params + 1, 3.0f);
      if (i == 2) {
        EXPECT_TRUE(Eventually([&] { return pushed == 3; }));
        gradient.assign(gradient.size(), 1000.0f);
      }
      EXPECT_NEAR(worker.store->Push(gradient, {.learning_rate = 1}), 12 * std::sqrt(1.0 * terms.params),
                  1e-3);
      ++pushed;
      // A sum of three, scaled to four.
      EXPECT_FLOAT_EQ(worker.store->params()[100], Initial(terms)[100] - 12);
      EXPECT_FLOAT_EQ(gradient.back(), 12);
    });
  }
}

}  // namespace
}  // namespace trireme
