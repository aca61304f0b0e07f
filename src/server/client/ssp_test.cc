#include <gtest/gtest.h>

#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

constexpr UpdateRule kRule{.learning_rate = 0.01f};

RunTerms Terms(std::int64_t bound, double lease_s = 5) {
  RunTerms terms = TestTerms(Pace::kSsp);
  terms.staleness_bound = bound;
  terms.lease_s = lease_s;
  return terms;
}

void PushOnce(TestWorker& worker, int step) {
  worker.store->Pull();
  std::vector<float> gradient =
      Draw(static_cast<std::uint32_t>(worker.session.id()), step, worker.session.terms().params);
  worker.store->Push(gradient, kRule);
}

// Pushes on a thread, and counts.
class Pusher {
 public:
  Pusher(TestWorker& worker, int pushes)
      : thread_([this, &worker, pushes] {
          try {
            for (int step = 0; step < pushes && !stop; ++step, ++done) PushOnce(worker, step);
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
          }
        }) {}
  ~Pusher() {
    stop = true;
    thread_.join();
  }
  std::atomic<int> done = 0;
  std::atomic<bool> stop = false;

 private:
  std::thread thread_;
};

TEST(Ssp, NobodyGoesOnMoreThanTheBoundAhead) {
  for (const int bound : {0, 2}) {
    TestCluster cluster(Terms(bound));
    TestWorker slow(cluster, 1), fast(cluster, 2);
    slow.session.Join();
    fast.session.Join();
    Pusher pusher(fast, 10);
    for (int step = 0; step < 8; ++step) {
      ASSERT_TRUE(Eventually([&] { return pusher.done == step + bound; }));
      slow.store->Refresh();
      // One more is applied, but its worker has to wait.
      ASSERT_TRUE(Eventually([&] {
        slow.store->Refresh();
        return slow.session.version(0) == static_cast<std::uint64_t>(2 * step + bound + 1);
      }));
      ASSERT_EQ(pusher.done, step + bound);
      PushOnce(slow, step);
    }
    slow.session.Leave();
    ASSERT_TRUE(Eventually([&] { return pusher.done == 10; }));
  }
}

TEST(Ssp, ALostAnswerDoesNotFreeItsWorker) {
  TestCluster cluster(Terms(0));
  TestWorker slow(cluster, 1), fast(cluster, 2);
  slow.session.Join();
  fast.session.Join();
  Pusher pusher(fast, 2);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Eventually([&] {
      slow.store->Refresh();
      return slow.session.version(0) == 1;
    }));
    fast.wire.Cut();
  }
  EXPECT_EQ(pusher.done, 0);
  PushOnce(slow, 0);
  EXPECT_TRUE(Eventually([&] { return pusher.done == 1; }));
  PushOnce(slow, 1);
  EXPECT_TRUE(Eventually([&] { return pusher.done == 2; }));
}

TEST(Ssp, ADeadWorkerReleasesTheOthersWithinTheLease) {
  TestCluster cluster(Terms(1, 0.5));
  TestWorker dead(cluster, 1), alive(cluster, 2);
  dead.session.Join();
  alive.session.Join();
  dead.Die();
  const Deadline begun = Clock::now();
  for (int step = 0; step < 5; ++step) PushOnce(alive, step);
  EXPECT_LT(Clock::now() - begun, 50s) << "the patience of a round, which is 60 s, is not for the dead";
  // It comes back level with the others.
  dead.Revive();
  PushOnce(dead, 0);
  EXPECT_EQ(dead.session.version(0), 6u);
}

TEST(Ssp, AWorkerThatHangsIsNotWaitedForBeyondTheRound) {
  RunTerms terms = Terms(0);
  terms.round_s = 0.5;
  TestCluster cluster(terms);
  TestWorker hung(cluster, 1), alive(cluster, 2);  // both have a heartbeat
  hung.session.Join();
  alive.session.Join();
  for (int step = 0; step < 3; ++step) PushOnce(alive, step);
}

// All steps are made, as far as one worker knows; another is in the middle of an iteration.
TEST(Ssp, NobodyWaitsForAWorkerThatRests) {
  TestCluster cluster(Terms(1));
  TestWorker resting(cluster, 1), other(cluster, 2);
  resting.session.Join();
  other.session.Join();
  Pusher pusher(other, 20);
  ASSERT_TRUE(Eventually([&] { return pusher.done == 1; }));
  resting.session.Pull(true);
  ASSERT_TRUE(Eventually([&] { return pusher.done == 20; }));
  EXPECT_EQ(resting.session.leader(), resting.session.rank());  // it may still lead
  // Whoever pushes again begins level with the slowest, and is waited for.
  PushOnce(resting, 0);
  Pusher again(other, 20);
  ASSERT_TRUE(Eventually([&] { return again.done >= 1; }));
  EXPECT_LE(again.done, 2);
  resting.session.Leave();
}

TEST(Ssp, TheBoundHoldsOverARestart) {
  TestCluster cluster(Terms(1, 2), true);
  TestWorker slow(cluster, 1), fast(cluster, 2);
  slow.session.Join();
  fast.session.Join();
  PushOnce(slow, 0);
  Pusher pusher(fast, 20);
  ASSERT_TRUE(Eventually([&] { return pusher.done == 2; }));
  ASSERT_TRUE(Eventually([&] {
    slow.store->Refresh();
    return slow.session.version(0) == 4;
  }));
  cluster.servers[0]->Restart();
  slow.store->Refresh();  // is back in time
  // For longer than a lease, after which whoever is not back is no longer waited for.
  EXPECT_FALSE(Eventually(
      [&] {
        slow.store->Refresh();
        return slow.session.version(0) != 4 || pusher.done != 2;
      },
      3s));
  PushOnce(slow, 1);
  ASSERT_TRUE(Eventually([&] { return pusher.done == 3; }));
  slow.session.Leave();
  ASSERT_TRUE(Eventually([&] { return pusher.done == 20; }));
}

}  // namespace
}  // namespace trireme
