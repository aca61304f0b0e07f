// What runs with servers show is calibrated through processes of the program itself: see tests/cli/plan_test.cc.

#include "trireme/plan/calibrate.h"

#include <gtest/gtest.h>

#include <numeric>

#include "trireme/base/error.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/plan/rounds.h"

namespace trireme {
namespace {

TEST(RoundsTest, HundredthsKeepTheMean) {
  std::vector<double> ratios(1000);
  std::iota(ratios.begin(), ratios.end(), 500.5);
  for (double& ratio : ratios) ratio /= 1000;  // 0.5005 ... 1.4995
  const std::vector<int> times = Hundredths(ratios);
  ASSERT_EQ(times.size(), 100u);
  EXPECT_EQ(times.front(), 505);
  EXPECT_EQ(std::accumulate(times.begin(), times.end(), 0), 100'000);
  EXPECT_EQ(Hundredths({1.0, 0.5, 1.5}), (std::vector<int>{500, 1000, 1500}));
}

// Four workers, of which this is one.
TEST(RoundsTest, TheStoreNotesWhatLiesBetweenPushesAndAnswersForTheOthers) {
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  TimingStore store(MakeAllReduceStore(comm, {.kind = OptimizerKind::kSgd}, std::vector<float>(4, 1.0f)), 4);
  const auto compute = [](double seconds) {
    const double end_s = ThreadSeconds() + seconds;
    while (ThreadSeconds() < end_s) {
    }
  };
  std::vector<float> gradient = {1, 2, 3, 4, 5};
  std::vector<double> shared = {1.5};
  store.Reset();
  store.BeginIteration();
  compute(0.2);  // paused
  store.Resume();
  compute(0.02);
  store.Push(gradient, {.learning_rate = 0.5f});
  EXPECT_EQ(gradient, (std::vector<float>{4, 8, 12, 16, 20}));
  EXPECT_EQ(store.params()[1], 1.0f - 0.5f * 8);
  compute(0.005);
  store.Share(shared);
  compute(0.005);
  store.Push(gradient, {});
  ASSERT_EQ(store.rounds.size(), 2u);
  EXPECT_GE(store.rounds[0].compute_s, 0.02);
  EXPECT_LT(store.rounds[0].compute_s, 0.2);
  EXPECT_GE(store.rounds[1].compute_s, 0.01);
  EXPECT_EQ(store.rounds[1].position, 1);
  EXPECT_EQ(store.push_floats, 5u);
  EXPECT_EQ(shared[0], 6);
  EXPECT_EQ(store.share_bytes, 8u);
}

// A small network, two pushes per iteration of 256 steps.
TEST(RoundsTest, MeasuresARealAlgorithm) {
  RunSettings settings("CartPole-v1", "ppo");
  for (const char* assignment : {"envs=16", "horizon=16", "hidden=[16]", "epochs=1", "minibatches=2",
                                 "shards=4", "workers=1", "target_kl=0"}) {
    settings.fields.ApplyAssignment(assignment, "test");
  }
  settings.Resolve();
  const std::atomic<bool> stop = false, stopped = true;
  PlanConstants c;
  EXPECT_THROW(MeasureRounds(settings, 1e6, stopped, c), Error);
  MeasureRounds(settings, 0.3, stop, c);
  EXPECT_DOUBLE_EQ(c.steps_per_round, 128);
  EXPECT_GE(static_cast<std::size_t>(c.floats),
            Network(settings.algorithm->MakeNetwork(settings.env().spec)).param_count());
  EXPECT_GT(c.RoundSeconds(4), 0);
  EXPECT_LT(c.RoundSeconds(4), c.RoundSeconds(1));
  EXPECT_GE(c.notices_per_round, 1);  // statistics and an announcement in every iteration
  EXPECT_GT(c.notice_bytes, 8);
  EXPECT_GT(Simulate(c, {.workers = 2}).steps_per_s, 0);

  const auto rate = MeasureRate(settings, 100'000, {}, stop);
  ASSERT_TRUE(rate);
  EXPECT_GT(rate->cpu_s, 0);
  EXPECT_FALSE(MeasureRate(settings, 1, {}, stop));  // two runs of one iteration
  EXPECT_FALSE(MeasureRate(settings, 100'000, {}, stopped));
}

TEST(CalibrateTest, ThreadsAreQuick) {
  const Link threads = ProbeThreads(100'000);
  EXPECT_GT(threads.latency_s, 1e-9);
  EXPECT_GT(threads.bytes_per_s, 1e6);
}

// The factor that a simulated crowd was made with is found again.
TEST(CalibrateTest, FitsTheSimulationToARound) {
  PlanConstants constants;
  constants.floats = 1000;
  constants.steps_per_round = 1;
  constants.round_split_s = 1e-4;
  constants.async_trip = {8e-5, 5e-5, 2e-5};
  const Scenario crowd{
      .way = &kAsyncWay, .workers = 4, .servers_on_workers = true, .hosts = 1, .cores = 4, .rounds = 400};
  for (const double crowding : {0.7, 1.0, 2.5}) {
    constants.trip_crowding = crowding;
    const double round_s = Simulate(constants, crowd).round_s;
    const PlanConstants fitted =
        FitTo(constants, crowd, round_s, [](PlanConstants& c, double factor) { c.trip_crowding = factor; });
    EXPECT_NEAR(fitted.trip_crowding, crowding, 0.02 * crowding);
  }
}

}  // namespace
}  // namespace trireme
