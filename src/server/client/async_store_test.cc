#include <gtest/gtest.h>

#include "trireme/comm/run_ranks.h"
#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

const UpdateRule kRule{
    .learning_rate = 0.01f,
    .max_grad_norm = 0.5,
    .groups = {{100, 600, 0.02f, 0.3}, {700, 3000, 0.001f}, {3000, 3050, 0}, {3060, 4200, 0.005f, 0.7}}};

void PushOnce(TestWorker& worker, int entity, int step, const UpdateRule& rule = kRule) {
  worker.store->Pull();
  std::vector<float> gradient = Draw(entity, step, worker.session.terms().params);
  worker.store->Push(gradient, rule);
}

std::vector<float> PushLocally(const RunTerms& terms, int pushes) {
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  const auto store = MakeAllReduceStore(comm, terms.optimizer, Initial(terms));
  for (int step = 0; step < pushes; ++step) {
    std::vector<float> gradient = Draw(0, step, terms.params);
    store->Push(gradient, kRule);
  }
  return Copy(store->params());
}

TEST(AsyncServerStore, OneWorkerEqualsTheLocalStore) {
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kRmsprop, OptimizerKind::kAdamw}) {
    for (const int servers : {1, 2, 3}) {
      RunTerms terms = TestTerms(Pace::kAsync, 1, servers);
      terms.optimizer = {.kind = kind, .weight_decay = 0.01};
      TestCluster cluster(terms);
      TestWorker worker(cluster, 1);
      for (int step = 0; step < 20; ++step) PushOnce(worker, 0, step);
      EXPECT_EQ(Copy(worker.store->params()), PushLocally(terms, 20)) << servers;
      EXPECT_EQ(worker.store->staleness().count(), 20u);
      EXPECT_EQ(worker.store->staleness().most, 0u);
    }
  }
}

// A gradient does not depend on the parameters here, so what overlapping changes is only when they are seen.
TEST(AsyncServerStore, OverlapAppliesTheSameUpdates) {
  const RunTerms terms = TestTerms(Pace::kAsync, 1, 2);
  TestCluster cluster(terms);
  TestWorker worker(cluster, 1, true);
  for (int step = 0; step < 20; ++step) PushOnce(worker, 0, step);
  worker.store->Refresh();
  EXPECT_EQ(Copy(worker.store->params()), PushLocally(terms, 20));
  EXPECT_EQ(worker.store->staleness().count(), 20u);
  EXPECT_LE(worker.store->staleness().most, 1u);
}

TEST(AsyncServerStore, SavedStateContinuesOnOtherServers) {
  const RunTerms terms = TestTerms(Pace::kAsync, 1, 2);
  StateWriter out;
  {
    TestCluster cluster(terms);
    TestWorker worker(cluster, 1, true);
    for (int step = 0; step < 10; ++step) PushOnce(worker, 0, step);
    worker.store->Save(out);  // with a push still under way
  }
  const StateReader in(out.Encode());
  TestCluster cluster(terms);
  TestWorker worker(cluster, 2);
  worker.store->Load(in);
  for (int step = 10; step < 20; ++step) PushOnce(worker, 0, step);
  EXPECT_EQ(Copy(worker.store->params()), PushLocally(terms, 20));
}

TEST(AsyncServerStore, EveryPushOfEveryWorkerIsAppliedOnce) {
  const int workers = 4, pushes = 25;
  for (const int servers : {1, 2}) {
    TestCluster cluster(TestTerms(Pace::kAsync, 1, servers));
    std::vector<Staleness> staleness(workers);
    std::atomic<int> ranks = 0;
    OnThreads(workers, [&](int i) {
      TestWorker worker(cluster, i + 1, i % 2 == 1);
      for (int step = 0; step < pushes; ++step) {
        worker.session.AddSteps(3);
        PushOnce(worker, i, step);
      }
      ranks |= 1 << worker.session.rank();
      worker.store->Refresh();
      staleness[i] = worker.store->staleness();
    });
    EXPECT_EQ(ranks, 15);
    TestWorker observer(cluster, 100);
    observer.store->Pull();
    for (int server = 0; server < servers; ++server) {
      EXPECT_EQ(observer.session.version(server), static_cast<std::uint64_t>(workers * pushes));
    }
    EXPECT_EQ(observer.session.steps(), 3 * workers * pushes);
    for (const Staleness& own : staleness) EXPECT_EQ(own.count(), static_cast<std::uint64_t>(pushes));
  }
}

TEST(AsyncServerStore, StalenessIsTheNumberOfUpdatesInBetween) {
  TestCluster cluster(TestTerms(Pace::kAsync));
  TestWorker slow(cluster, 1), fast(cluster, 2);
  slow.store->Pull();
  for (int step = 0; step < 3; ++step) PushOnce(fast, 1, step);
  std::vector<float> gradient = Draw(0, 0, cluster.terms.params);
  slow.store->Push(gradient, kRule);
  EXPECT_EQ(slow.store->staleness().most, 3u);
  EXPECT_EQ(fast.store->staleness().most, 0u);
  PushOnce(fast, 1, 3);  // pulled one version before slow's push came
  EXPECT_EQ(fast.store->staleness().most, 1u);
}

TEST(AsyncServerStore, TheRateOfOldGradientsIsScaled) {
  RunTerms terms = TestTerms(Pace::kAsync);
  terms.optimizer = {.kind = OptimizerKind::kSgd};
  terms.staleness_scaled = true;
  TestCluster cluster(terms);
  TestWorker slow(cluster, 1), fast(cluster, 2);
  const UpdateRule rule{.learning_rate = 1, .groups = {{2, 3, 8}, {3, 4, 0}}};
  const std::vector<float> zeros(terms.params), ones(terms.params, 1.0f);
  slow.store->Pull();
  for (int step = 0; step < 3; ++step) {
    std::vector<float> gradient = zeros;
    fast.store->Pull();
    fast.store->Push(gradient, rule);
  }
  std::vector<float> gradient = ones;
  const std::vector<float> before = Initial(terms);
  slow.store->Push(gradient, rule);  // three updates later
  EXPECT_FLOAT_EQ(slow.store->params()[0], before[0] - 0.25f);
  EXPECT_FLOAT_EQ(slow.store->params()[2], before[2] - 2.0f);
  EXPECT_EQ(slow.store->params()[3], before[3]);
}

// Every message of a short run is lost once, with its stream.
TEST(AsyncServerStore, NoLostMessageLosesOrDoublesAnUpdate) {
  const RunTerms terms = TestTerms(Pace::kAsync, 1, 2);
  const std::vector<float> expected = PushLocally(terms, 4);
  int events = 0;
  for (int lost = 1; lost == 1 || lost <= events; ++lost) {
    TestCluster cluster(terms);
    TestWorker worker(cluster, 1, lost % 2 == 1);
    events = 0;
    worker.wire.fault = [&] { return ++events == lost; };
    for (int step = 0; step < 4; ++step) PushOnce(worker, 0, step);
    worker.store->Refresh();
    ASSERT_EQ(Copy(worker.store->params()), expected) << "message " << lost;
    ASSERT_EQ(worker.session.version(0), 4u);
  }
  EXPECT_GT(events, 20);
}

TEST(AsyncServerStore, ARestartedServerGoesOnWhereItWas) {
  const RunTerms terms = TestTerms(Pace::kAsync, 1, 2);
  TestCluster cluster(terms, true);
  TestWorker worker(cluster, 1);
  for (int step = 0; step < 12; ++step) {
    if (step % 3 == 2) cluster.servers[step % 2]->Restart();
    PushOnce(worker, 0, step);
  }
  EXPECT_EQ(Copy(worker.store->params()), PushLocally(terms, 12));
}

TEST(AsyncServerStore, AServerThatForgotEverythingIsRefused) {
  TestCluster cluster(TestTerms(Pace::kAsync));  // no folder
  TestWorker worker(cluster, 1);
  PushOnce(worker, 0, 0);
  cluster.servers[0]->Restart();
  try {
    PushOnce(worker, 0, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has no parameters"), std::string::npos) << error.what();
  }
}

TEST(AsyncServerStore, ALostServerIsReportedInTime) {
  TestCluster cluster(TestTerms(Pace::kAsync));
  TestWorker worker(cluster, 1, false, 2);
  PushOnce(worker, 0, 0);
  cluster.servers[0]->Stop();
  try {
    PushOnce(worker, 0, 1);
    FAIL();
  } catch (const ServerLost& lost) {
    const std::string text = lost.what();
    EXPECT_NE(text.find("worker 0 waited 2 s for server server:1"), std::string::npos) << text;
    EXPECT_NE(text.find("refused"), std::string::npos) << text;
  }
  worker.session.Leave();
  // What the worker saw last can still be kept.
  StateWriter out;
  worker.store->Save(out);
  const StateReader in(out.Encode());
  std::vector<float> params(cluster.terms.params);
  in.Get<float>("params", params);
  EXPECT_EQ(params, Copy(worker.store->params()));
}

TEST(AsyncServerStore, FinishReachesEverybody) {
  TestCluster cluster(TestTerms(Pace::kAsync));
  TestWorker first(cluster, 1, true), second(cluster, 2, true);
  PushOnce(first, 0, 0);
  PushOnce(second, 1, 0);
  second.store->Refresh();
  EXPECT_FALSE(second.session.finished());
  first.session.Finish();
  second.store->Refresh();
  EXPECT_TRUE(second.session.finished());
}

TEST(AsyncServerStore, TheLowestRankLeadsUntilItIsGone) {
  TestCluster cluster(TestTerms(Pace::kAsync));
  TestWorker second(cluster, 2);
  {
    TestWorker first(cluster, 1);
    first.store->Pull();
    second.store->Pull();
    EXPECT_TRUE(first.session.leads());
    EXPECT_FALSE(second.session.leads());
    EXPECT_EQ(second.session.members(), 2);
    first.session.Leave();
  }
  EXPECT_TRUE(Eventually([&] {
    second.store->Refresh();
    return second.session.leads();
  }));
}

}  // namespace
}  // namespace trireme
