#include "trireme/plan/calibrate.h"

#include <gtest/gtest.h>

#include <numeric>

#include "trireme/plan/simulate.h"

namespace trireme {
namespace {

TEST(CalibrateTest, FitsTheTwoTermsOfARound) {
  std::vector<PartTime> times;
  for (const int parts : {1, 2, 4, 8}) times.push_back({parts, 0.25 + 2.0 / parts});
  const RoundFit fit = FitRounds(times);
  EXPECT_NEAR(fit.fixed_s, 0.25, 1e-12);
  EXPECT_NEAR(fit.split_s, 2, 1e-12);
}

TEST(CalibrateTest, NoTermIsNegative) {
  // Halving the work saves more than half.
  const PartTime better[] = {{1, 1.0}, {2, 0.4}};
  const RoundFit fit = FitRounds(better);
  EXPECT_EQ(fit.fixed_s, 0);
  EXPECT_GT(fit.split_s, 0.8);
  EXPECT_LT(fit.split_s, 1);
  // Halving the work costs more.
  const PartTime worse[] = {{1, 1.0}, {2, 1.2}};
  EXPECT_EQ(FitRounds(worse).split_s, 0);
  EXPECT_NEAR(FitRounds(worse).fixed_s, 1.1, 0.05);
  const PartTime one[] = {{1, 3.0}};
  EXPECT_EQ(FitRounds(one).fixed_s, 0);
  EXPECT_EQ(FitRounds(one).split_s, 3);
}

TEST(CalibrateTest, HundredthsKeepTheMean) {
  std::vector<double> ratios(1000);
  std::iota(ratios.begin(), ratios.end(), 500.5);
  for (double& ratio : ratios) ratio /= 1000;  // 0.5005 ... 1.4995
  const std::vector<int> times = Hundredths(ratios);
  ASSERT_EQ(times.size(), 100u);
  EXPECT_EQ(times.front(), 505);
  EXPECT_EQ(times.back(), 1495);
  EXPECT_EQ(std::accumulate(times.begin(), times.end(), 0), 100'000);
  EXPECT_EQ(Hundredths({1.0, 0.5, 1.5}), (std::vector<int>{500, 1000, 1500}));
}

// The factor that a simulated crowd was made with is found again.
TEST(CalibrateTest, FitsHowMuchLongerTripsTakeInACrowd) {
  PlanConstants constants;
  constants.floats = 1000;
  constants.steps_per_round = 1;
  constants.round_split_s = 1e-4;
  constants.trip_worker.fixed_s = 8e-5;
  constants.trip_server.fixed_s = 5e-5;
  constants.trip_latency_s = 2e-5;
  for (const double crowding : {0.7, 1.0, 2.5}) {
    constants.trip_crowding = crowding;
    const double round_s = Simulate(constants, {.way = Way::kAsync,
                                                .workers = 4,
                                                .servers_on_workers = true,
                                                .hosts = 1,
                                                .cores = 4,
                                                .rounds = 400})
                               .round_s;
    EXPECT_NEAR(FitTripCrowding(constants, 4, 1e-4, round_s), crowding, 0.02 * crowding);
  }
  EXPECT_EQ(FitTripCrowding(constants, 1, 1e-4, 1), 1);
}

// A small network, two pushes per iteration of 256 steps.
TEST(CalibrateTest, MeasuresARealAlgorithm) {
  RunSettings settings("CartPole-v1", "ppo");
  for (const char* assignment : {"envs=16", "horizon=16", "hidden=[16]", "epochs=1", "minibatches=2",
                                 "shards=4", "workers=1", "target_kl=0"}) {
    settings.fields.ApplyAssignment(assignment, "test");
  }
  settings.Resolve();
  ConstantTable table;
  Calibrate(settings, 0.3, table);
  const PlanConstants& c = table.values;
  EXPECT_EQ(c.env, "CartPole-v1");
  EXPECT_EQ(c.algo, "ppo");
  EXPECT_DOUBLE_EQ(c.steps_per_round, 128);
  const NetworkSpec spec = settings.algorithm->MakeNetwork(settings.env().spec);
  EXPECT_GE(static_cast<std::size_t>(c.floats), Network(spec).param_count());
  EXPECT_GT(c.RoundSeconds(1), 0);
  EXPECT_LT(c.RoundSeconds(4), c.RoundSeconds(1));
  // One exchange of statistics and one announcement per iteration.
  EXPECT_GE(c.notices_per_round, 1);
  EXPECT_GT(c.notice_bytes, 8);
  EXPECT_GE(c.crowding, 1);
  for (const ConstantTable::Row& row : table.Rows()) {
    const bool of_servers = row.name.starts_with("trip_") || row.name == "poll_s";
    const bool of_network = row.name.starts_with("network_");
    EXPECT_EQ(row.origin, of_network   ? "the loopback's"
                          : of_servers ? "not measured"
                                       : "measured")
        << row.name;
  }
  EXPECT_GT(Simulate(c, {.workers = 2}).steps_per_s, 0);
}

}  // namespace
}  // namespace trireme
