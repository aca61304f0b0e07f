// Servers that share their workers' host, messages that cost processor time, and workers that compute while
// their push is under way. What servers do otherwise is in simulate_test.cc.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "trireme/plan/simulate.h"

namespace trireme {
namespace {

constexpr Way kServerWays[] = {Way::kServerSync, Way::kAsync, Way::kSsp};
constexpr double kCompute = 0.01, kWorker = 0.0006, kServer = 0.0008, kApply = 0.0002, kLatency = 0.0004;

// 1000 floats; a trip takes kWorker and kServer of processors and kLatency besides, on a host and between
// hosts alike.
PlanConstants Steady() {
  PlanConstants constants;
  constants.floats = 1000;
  constants.steps_per_round = 10;
  constants.round_split_s = kCompute;
  constants.apply_s_per_float = kApply / 1000;
  constants.trip_worker = {.fixed_s = kWorker / 2, .s_per_float = kWorker / 2000};
  constants.trip_server = {.fixed_s = kServer / 4, .s_per_float = kServer * 3 / 4000};
  constants.trip_latency_s = kLatency;
  constants.network = {.latency_s = kLatency / 2, .bytes_per_s = 1e18};
  return constants;
}

PlanConstants Varying() {
  PlanConstants constants = Steady();
  constants.round_times = {800, 900, 1000, 1100, 1500};
  return constants;
}

void ExpectClose(double value, double expected, double relative = 1e-9) {
  EXPECT_NEAR(value, expected, relative * std::abs(expected));
}

double RoundSeconds(const PlanConstants& constants, const Scenario& scenario) {
  return Simulate(constants, scenario).round_s;
}

TEST(ServerWayTest, OneWorkerWaitsForTheWholeTrip) {
  for (const Way way : kServerWays) {
    for (const bool shared : {false, true}) {
      for (const int cores : {1, 2, 8}) {
        const Outcome outcome =
            Simulate(Steady(), {.way = way, .servers_on_workers = shared, .cores = cores});
        ExpectClose(outcome.round_s, kCompute + kWorker + kServer + kApply + kLatency);
        ExpectClose(outcome.compute_s, kCompute);
        ExpectClose(outcome.communication_s, kWorker + kServer + kApply + kLatency);
      }
    }
  }
}

TEST(ServerWayTest, SharingAHostIsNeverFasterThanAHostOfTheServersOwn) {
  for (const Way way : kServerWays) {
    for (const bool overlap : {false, true}) {
      for (const int workers : {1, 2, 4, 7}) {
        for (const int cores : {1, 2, 4}) {
          Scenario own{.way = way, .workers = workers, .overlap = overlap, .hosts = 1, .cores = cores};
          Scenario shared = own;
          shared.servers_on_workers = true;
          const double rate = Simulate(Steady(), own).steps_per_s;
          EXPECT_LE(Simulate(Steady(), shared).steps_per_s, rate * (1 + 1e-9))
              << WayName(way) << " " << workers << " workers, " << cores << " processors";
        }
      }
    }
  }
}

// Where there are processors for all, it does not matter whose they are.
TEST(ServerWayTest, WithEnoughProcessorsAHostCanBeSharedForNothing) {
  for (const Way way : kServerWays) {
    for (const int servers : {1, 3}) {
      Scenario own{.way = way, .workers = 6, .servers = servers, .hosts = 1, .cores = 100};
      Scenario shared = own;
      shared.servers_on_workers = true;
      ExpectClose(Simulate(Varying(), shared).steps_per_s, Simulate(Varying(), own).steps_per_s, 0.01);
    }
  }
}

// Two workers and a server: the processors do no more than there is time for, and one that always has
// something to do does no less.
TEST(ServerWayTest, ProcessorsOfAHostAreShared) {
  const double work = 2 * (kCompute + kWorker + kServer + kApply);
  Scenario scenario{.way = Way::kAsync, .workers = 2, .servers_on_workers = true, .hosts = 1, .cores = 2};
  EXPECT_GE(RoundSeconds(Steady(), scenario), work / 2 * (1 - 1e-6));
  scenario.cores = 1;
  ExpectClose(RoundSeconds(Steady(), scenario), work, 0.02);
}

TEST(ServerWayTest, TripsOfNeighboursCostMore) {
  PlanConstants constants = Steady();
  constants.trip_crowding = 3;
  const Scenario alone{.way = Way::kAsync, .cores = 2};
  ExpectClose(RoundSeconds(constants, alone), RoundSeconds(Steady(), alone));
  // A server on a host of its own has no neighbours.
  const Scenario two{.way = Way::kAsync, .workers = 2, .cores = 2};
  const double more = RoundSeconds(constants, two) - RoundSeconds(Steady(), two);
  EXPECT_GT(more, 1.5 * kWorker);
  EXPECT_LT(more, 2.5 * kWorker);
}

// The trip without the worker's own part is hidden behind computing, or computing behind it.
TEST(ServerWayTest, OverlapHidesTheShorterOfComputingAndCommunication) {
  for (const Way way : {Way::kAsync, Way::kSsp}) {
    for (const bool shared : {false, true}) {
      for (const double compute : {0.0005, 0.0014, 0.01}) {
        PlanConstants constants = Steady();
        constants.round_split_s = compute;
        Scenario scenario{.way = way, .servers_on_workers = shared, .cores = 2};
        const double waiting = RoundSeconds(constants, scenario);
        scenario.overlap = true;
        const double trip = kServer + kApply + kLatency;
        ExpectClose(RoundSeconds(constants, scenario), waiting - std::min(compute, trip), 1e-6);
      }
    }
  }
}

// What is left to hide on a single processor is the latency.
TEST(ServerWayTest, OverlapHidesNoWorkOfASharedProcessor) {
  const Scenario scenario{.way = Way::kAsync, .servers_on_workers = true, .overlap = true, .cores = 1};
  ExpectClose(RoundSeconds(Steady(), scenario), kCompute + kWorker + kServer + kApply, 1e-6);
}

TEST(ServerWayTest, LookingForAnAnswerTakesAwayFromWhatOverlapHides) {
  const Scenario scenario{.way = Way::kAsync, .overlap = true};
  const double trip = kServer + kApply + kLatency;
  for (const double poll : {0.0, 0.25 * trip, 0.75 * trip, 1.5 * trip}) {
    PlanConstants constants = Steady();
    constants.poll_s = poll;
    const Outcome outcome = Simulate(constants, scenario);
    ExpectClose(outcome.round_s, kCompute + kWorker + std::min(poll, trip), 1e-6);
    // Who has waited long enough computes with what its own last push has given.
    EXPECT_NEAR(outcome.staleness.mean(), poll > trip ? 0 : 1, 0.01);
  }
}

// A gradient is older by the worker's own push that is under way, and by one more of each other worker.
TEST(ServerWayTest, OverlapMakesGradientsOlder) {
  for (const int workers : {1, 2, 8}) {
    Scenario scenario{.way = Way::kAsync, .workers = workers};
    EXPECT_NEAR(Simulate(Varying(), scenario).staleness.mean(), workers - 1, 0.05 * workers);
    scenario.overlap = true;
    EXPECT_NEAR(Simulate(Varying(), scenario).staleness.mean(), 2 * workers - 1, 0.05 * workers);
  }
}

// Workers in step need the answer before they can compute.
TEST(ServerWayTest, WorkersInStepDoNotOverlap) {
  Scenario scenario{.way = Way::kServerSync, .workers = 4};
  const double waiting = RoundSeconds(Varying(), scenario);
  scenario.overlap = true;
  EXPECT_EQ(RoundSeconds(Varying(), scenario), waiting);
}

// One round more than the bound: the one that is computed while the answer is held back.
TEST(ServerWayTest, OverlapIsBoundedToo) {
  for (const int bound : {0, 2}) {
    const Outcome outcome = Simulate(Varying(), {.way = Way::kSsp,
                                                 .workers = 6,
                                                 .bound = bound,
                                                 .servers = 2,
                                                 .overlap = true,
                                                 .slow = {.worker = 1, .factor = 4}});
    EXPECT_EQ(outcome.widest_gap, bound + 1);
    ExpectClose(outcome.round_s, 4 * kCompute, 0.25);  // all go at the pace of the slow one
  }
}

TEST(ServerWayTest, ARoundMovesTwoGradientsPerWorkerWhereverServersAre) {
  for (const Way way : kServerWays) {
    for (const bool overlap : {false, true}) {
      for (const int servers : {1, 2}) {
        const Outcome outcome = Simulate(Steady(), {.way = way,
                                                    .workers = 4,
                                                    .servers = servers,
                                                    .servers_on_workers = true,
                                                    .overlap = overlap,
                                                    .cores = 2,
                                                    .rounds = 1000});
        ExpectClose(outcome.bytes_per_round, 2 * 4 * 4000.0, 0.002);  // the last ones may be on their way
        ExpectClose(outcome.messages_per_round, 2 * 4 * servers, 0.002);
      }
    }
  }
}

TEST(ServerWayTest, TheSameSeedGivesTheSameBits) {
  for (const Way way : kServerWays) {
    const auto run = [&](std::uint64_t seed) {
      return Simulate(Varying(), {.way = way,
                                  .workers = 3,
                                  .servers_on_workers = true,
                                  .overlap = true,
                                  .hosts = 1,
                                  .cores = 2,
                                  .seed = seed});
    };
    const Outcome a = run(5), b = run(5), other = run(6);
    EXPECT_EQ(a.steps_per_s, b.steps_per_s);
    EXPECT_EQ(a.staleness.pushes, b.staleness.pushes);
    EXPECT_NE(a.steps_per_s, other.steps_per_s);
    ExpectClose(a.steps_per_s, other.steps_per_s, 0.1);
  }
}

}  // namespace
}  // namespace trireme
