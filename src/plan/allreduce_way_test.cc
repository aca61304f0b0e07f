// The exchange between hosts that the simulation of allreduce walks through. How long it takes is in
// simulate_test.cc.

#include <gtest/gtest.h>

#include <set>

#include "trireme/plan/ways.h"

namespace trireme {
namespace {

constexpr double kSmall = 8, kLarge = 1e9;

std::vector<std::vector<ExchangeStep>> PlansOf(int hosts, double bytes) {
  PlanConstants constants;
  constants.network = {.latency_s = 1e-4, .bytes_per_s = 1e9};
  std::vector<std::vector<ExchangeStep>> plans;
  for (int host = 0; host < hosts; ++host) plans.push_back(ExchangePlan(constants, host, hosts, bytes));
  return plans;
}

TEST(AllReduceWayTest, WhatOneHostSendsItsPartnerAwaits) {
  for (const double bytes : {kSmall, kLarge}) {
    for (int hosts = 1; hosts <= 17; ++hosts) {
      const auto plans = PlansOf(hosts, bytes);
      for (int host = 0; host < hosts; ++host) {
        for (const ExchangeStep& step : plans[host]) {
          EXPECT_LT(step.stage, kMostStages);
          if (step.send_bytes == 0) continue;
          int matches = 0;
          for (const ExchangeStep& other : plans[step.partner]) {
            matches +=
                other.partner == host && other.stage == step.stage && other.receive_bytes == step.send_bytes;
          }
          EXPECT_EQ(matches, 1) << "host " << host << " of " << hosts << ", stage " << step.stage;
        }
      }
    }
  }
}

// Recursive doubling sends whole sums, so they can be followed: in the end each host has added the gradient
// of every host once.
TEST(AllReduceWayTest, EveryHostEndsWithTheSumOfAll) {
  for (int hosts = 1; hosts <= 17; ++hosts) {
    const auto plans = PlansOf(hosts, kSmall);
    std::vector<std::multiset<int>> sums;
    std::multiset<int> all;
    std::set<int> stages;
    for (int host = 0; host < hosts; ++host) {
      sums.push_back({host});
      all.insert(host);
      for (const ExchangeStep& step : plans[host]) stages.insert(step.stage);
    }
    for (const int stage : stages) {
      const auto before = sums;
      for (int host = 0; host < hosts; ++host) {
        for (const ExchangeStep& step : plans[host]) {
          if (step.stage != stage || step.receive_bytes == 0) continue;
          if (!step.adds) sums[host].clear();
          sums[host].insert(before[step.partner].begin(), before[step.partner].end());
        }
      }
    }
    for (int host = 0; host < hosts; ++host) EXPECT_EQ(sums[host], all) << host << " of " << hosts;
  }
}

TEST(AllReduceWayTest, LargeGradientsAreSentInPieces) {
  for (const int hosts : {2, 8, 64}) {
    for (const std::vector<ExchangeStep>& plan : PlansOf(hosts, kLarge)) {
      double sent = 0;
      for (const ExchangeStep& step : plan) sent += step.send_bytes;
      EXPECT_NEAR(sent, 2 * kLarge * (hosts - 1) / hosts, 1);
    }
  }
}

}  // namespace
}  // namespace trireme
