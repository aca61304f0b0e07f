#include "trireme/plan/simulate.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "trireme/plan/ways.h"

namespace trireme {
namespace {

constexpr Way kWays[] = {Way::kAllReduce, Way::kServerSync, Way::kAsync, Way::kSsp};

// Round figures of a large model on a modest network; every round takes the same time.
PlanConstants Steady() {
  PlanConstants constants;
  constants.floats = 1'000'000;
  constants.steps_per_round = 256;
  constants.round_fixed_s = 0.002;
  constants.round_split_s = 0.1;
  constants.apply_s_per_float = 1e-9;
  constants.add_s_per_float = 0.5e-9;
  constants.copy_s_per_float = 0.25e-9;
  constants.shared_s_per_float = 2e-9;
  constants.network = {.latency_s = 50e-6, .bytes_per_s = 1e9};
  constants.loopback = {.latency_s = 10e-6, .bytes_per_s = 4e9};
  constants.threads = {.latency_s = 1e-6, .bytes_per_s = 8e9};
  return constants;
}

// Nothing but computing costs anything.
PlanConstants Free() {
  PlanConstants constants = Steady();
  constants.round_fixed_s = 0;
  constants.apply_s_per_float = constants.add_s_per_float = constants.copy_s_per_float = 0;
  constants.shared_s_per_float = 0;
  constants.network = constants.loopback = constants.threads = {.latency_s = 0, .bytes_per_s = 1e18};
  return constants;
}

PlanConstants Varying() {
  PlanConstants constants = Steady();
  constants.round_times = {800, 900, 1000, 1100, 1500};
  return constants;
}

double StepsPerSecond(const PlanConstants& constants, const Scenario& scenario) {
  return Simulate(constants, scenario).steps_per_s;
}
double Speedup(const PlanConstants& constants, const Scenario& scenario) {
  return StepsPerSecond(constants, scenario) / StepsPerSecond(constants, {.seed = scenario.seed});
}

void ExpectClose(double value, double expected, double relative = 1e-9) {
  EXPECT_NEAR(value, expected, relative * std::abs(expected));
}

TEST(SimulateTest, OneWorkerHasASpeedupOfOne) {
  ExpectClose(Speedup(Varying(), {.way = Way::kAllReduce}), 1);
  for (const Way way : kWays) ExpectClose(Speedup(Free(), {.way = way}), 1);
  ExpectClose(Speedup(Free(), {.way = Way::kShared}), 1);
}

TEST(SimulateTest, OneWorkerPaysForTheWayToItsServer) {
  const PlanConstants c = Steady();
  const double there = c.network.latency_s + 4e6 / c.network.bytes_per_s, copy = 0.25e-3, apply = 1e-3;
  ExpectClose(Simulate(c, {.way = Way::kAsync}).round_s, 0.102 + 2 * copy + 2 * there + apply);
  ExpectClose(Simulate(c, {.way = Way::kSsp}).round_s, 0.102 + 2 * copy + 2 * there + apply);
  ExpectClose(Simulate(c, {.way = Way::kServerSync}).round_s, 0.102 + 2 * copy + 2 * there + apply + 0.5e-3);
}

TEST(SimulateTest, WhereNothingElseCostsSpeedupIsIdeal) {
  for (const Way way : kWays) {
    for (const int workers : {2, 16, 100}) {
      const Outcome outcome = Simulate(Free(), {.way = way, .workers = workers});
      ExpectClose(outcome.steps_per_s, workers * 2560.0, 1e-6);
      EXPECT_NEAR(outcome.idle(), 0, 1e-6);
    }
  }
}

TEST(SimulateTest, AllReduceOfLargeGradientsIsReduceScatterAndAllgather) {
  const PlanConstants c = Steady();
  for (const int m : {2, 8, 64}) {
    const double stages = std::log2(m), bytes = 4e6 * (m - 1) / m;
    const double round = 0.002 + 0.1 / m + 1e-3 + 2 * stages * 50e-6 + 2 * bytes / 1e9 + bytes / 4 * 0.5e-9;
    const Outcome outcome = Simulate(c, {.way = Way::kAllReduce, .workers = m});
    ExpectClose(outcome.round_s, round);
    ExpectClose(outcome.compute_s, 0.003 + 0.1 / m);
    EXPECT_NEAR(outcome.waiting_s, 0, 1e-12);
    // Each worker sends 2 d (m - 1) / m floats, in 2 log2(m) messages.
    ExpectClose(outcome.bytes_per_round, m * 2 * bytes);
    ExpectClose(outcome.messages_per_round, m * 2 * stages);
  }
}

TEST(SimulateTest, AllReduceOfSmallGradientsIsRecursiveDoubling) {
  PlanConstants c = Steady();
  c.floats = 1000;
  const Outcome outcome = Simulate(c, {.way = Way::kAllReduce, .workers = 16});
  ExpectClose(outcome.round_s, 0.002 + 0.1 / 16 + 1e-6 + 4 * (50e-6 + 4000 / 1e9 + 1000 * 0.5e-9));
  ExpectClose(outcome.bytes_per_round, 16 * 4 * 4000.0);
  ExpectClose(outcome.messages_per_round, 16 * 4);
}

TEST(SimulateTest, ThreadsOfAHostAddTheirsFirst) {
  const PlanConstants c = Steady();
  const Outcome outcome = Simulate(c, {.way = Way::kAllReduce, .workers = 16, .cores = 4});
  EXPECT_EQ(outcome.hosts, 4);
  const double inside = 2 * (1e-6 + 3e6 / 8e9), between = 4 * 50e-6 + 2 * 3e6 / 1e9 + 3e6 / 4 * 0.5e-9;
  ExpectClose(outcome.round_s, 0.002 + 0.1 / 16 + 1e-3 + inside + between);
  ExpectClose(outcome.bytes_per_round, 4 * 2 * 3e6);
}

TEST(SimulateTest, HostsBeyondAPowerOfTwoCostOneMoreMessageEachWay) {
  const PlanConstants c = Steady();
  for (const int m : {3, 5, 6, 7}) {
    const Outcome outcome = Simulate(c, {.way = Way::kAllReduce, .workers = m});
    EXPECT_GE(outcome.round_s * (1 + 1e-9), outcome.compute_s + AllReduceSeconds(c, m, 1, 4e6)) << m;
    const int core = std::bit_floor(static_cast<unsigned>(m));
    ExpectClose(outcome.bytes_per_round, 2.0 * (core - 1) * 4e6 + 2.0 * (m - core) * 4e6);
  }
  ExpectClose(Simulate(c, {.workers = 3}).round_s,
              0.003 + 0.1 / 3 + 2 * 0.00405 + 0.5e-3 + 2 * (50e-6 + 2e-3) + 0.25e-3);
}

TEST(SimulateTest, SynchronousServersMoveTwoGradientsPerWorkerAndRound) {
  const PlanConstants c = Steady();
  for (const int servers : {1, 4}) {
    for (const int m : {1, 8, 64}) {
      const Outcome outcome = Simulate(c, {.way = Way::kServerSync, .workers = m, .servers = servers});
      ExpectClose(outcome.bytes_per_round, 2 * m * 4e6);
      ExpectClose(outcome.messages_per_round, 2 * m * servers);
    }
  }
}

// The server answers one worker after the other, so their next pushes arrive one after the other, too, and
// only the last one's is waited for: the answers to all, and one push.
TEST(SimulateTest, ASynchronousServersLinkIsShared) {
  const PlanConstants c = Steady();
  const int m = 8;
  const Outcome outcome = Simulate(c, {.way = Way::kServerSync, .workers = m});
  const double copies = 0.5e-3, add = 0.5e-3, apply = 1e-3;
  ExpectClose(outcome.round_s, 0.002 + 0.1 / m + copies + (m + 1) * 4e6 / 1e9 + 2 * 50e-6 + add + apply);
}

TEST(SimulateTest, AsynchronousWorkersSaturateTheServersLink) {
  PlanConstants c = Steady();
  c.round_split_s = 0.01;
  const Outcome outcome = Simulate(c, {.way = Way::kAsync, .workers = 64});
  ExpectClose(outcome.steps_per_s, 256 * 1e9 / 4e6, 1e-6);
  EXPECT_GT(outcome.waiting_s, 0.2);
  // Four servers have four links.
  ExpectClose(StepsPerSecond(c, {.way = Way::kAsync, .workers = 64, .servers = 4}), 4 * 256 * 1e9 / 4e6,
              0.01);
}

TEST(SimulateTest, AsynchronousWorkersSaturateTheServersProcessor) {
  PlanConstants c = Steady();
  c.round_split_s = 0.01;
  c.apply_s_per_float = 8e-9;
  const Outcome outcome = Simulate(c, {.way = Way::kAsync, .workers = 64});
  ExpectClose(outcome.steps_per_s, 256 / 8e-3, 1e-6);
  EXPECT_NEAR(outcome.server_busy, 1, 0.02);
}

TEST(SimulateTest, ASlowWorkerSlowsWorkersInStepToItsPace) {
  for (const Way way : {Way::kAllReduce, Way::kServerSync}) {
    for (const int m : {2, 8, 32}) {
      const Scenario even{.way = way, .workers = m};
      Scenario slow = even;
      slow.slow = {.worker = m - 1, .factor = 5};
      ExpectClose(StepsPerSecond(Free(), slow) / StepsPerSecond(Free(), even), 1.0 / 5, 1e-6);
      // All others wait four fifths of the time.
      ExpectClose(Simulate(Free(), slow).idle(), 0.8 * (m - 1) / m, 1e-6);
    }
  }
}

TEST(SimulateTest, ASlowWorkerCostsAsynchronousWorkersOnlyItsOwnShare) {
  for (const Way way : {Way::kAsync, Way::kShared}) {
    for (const int m : {2, 8, 32}) {
      const Scenario even{.way = way, .workers = m, .hosts = way == Way::kShared ? 1 : 0, .cores = 32};
      Scenario slow = even;
      slow.slow = {.worker = 0, .factor = 5};
      ExpectClose(StepsPerSecond(Free(), slow) / StepsPerSecond(Free(), even), (m - 1 + 0.2) / m, 0.01);
    }
  }
}

TEST(SimulateTest, BoundedStalenessEndsAtTheSlowWorkersPace) {
  const Scenario even{.way = Way::kSsp, .workers = 8, .bound = 3};
  Scenario slow = even;
  slow.slow = {.worker = 2, .factor = 5};
  ExpectClose(StepsPerSecond(Free(), slow) / StepsPerSecond(Free(), even), 1.0 / 5, 0.01);
}

TEST(SimulateTest, BoundedStalenessHidesWhatIsSlowNowAndThen) {
  PlanConstants c = Free();
  const Slowness now_and_then{.chance = 0.05, .slowdown = 5};
  const auto rate = [&](Way way, int bound) {
    return StepsPerSecond(c,
                          {.way = way, .workers = 16, .bound = bound, .split = false, .slow = now_and_then});
  };
  const double in_step = rate(Way::kServerSync, 0);
  EXPECT_GT(rate(Way::kSsp, 4), 1.3 * in_step);
  EXPECT_GT(rate(Way::kSsp, 16), rate(Way::kSsp, 4));
  EXPECT_GE(rate(Way::kAsync, 0), rate(Way::kSsp, 16));
  EXPECT_GT(rate(Way::kSsp, 100), 0.98 * rate(Way::kAsync, 0));
}

// The simulation checks the bound at the start of every round; this shows that it is reached and that the
// check sees it.
TEST(SimulateTest, BoundedStalenessIsNeverExceeded) {
  for (const int bound : {0, 1, 3, 10}) {
    for (const int servers : {1, 3}) {
      const Outcome outcome =
          Simulate(Varying(), {.way = Way::kSsp,
                               .workers = 12,
                               .bound = bound,
                               .servers = servers,
                               .slow = {.worker = 1, .factor = 4, .chance = 0.1, .slowdown = 3}});
      EXPECT_EQ(outcome.widest_gap, bound);
      EXPECT_LE(outcome.staleness.most, static_cast<std::uint64_t>(12 * (2 * bound + 2)));
    }
  }
  const Outcome free =
      Simulate(Varying(), {.way = Way::kAsync, .workers = 12, .slow = {.worker = 1, .factor = 4}});
  EXPECT_GT(free.widest_gap, 10);
}

TEST(SimulateTest, AsynchronousGradientsAreAsOldAsThereAreOthers) {
  for (const int m : {1, 4, 64}) {
    const Outcome outcome = Simulate(Varying(), {.way = Way::kAsync, .workers = m});
    EXPECT_NEAR(outcome.staleness.mean(), m - 1, 0.05 * m + 1e-9);
  }
  EXPECT_NEAR(Simulate(Varying(), {.way = Way::kShared, .workers = 4, .cores = 4}).staleness.mean(), 3, 0.1);
}

TEST(SimulateTest, MoreWorkersThanProcessorsBringNothing) {
  for (const Way way : {Way::kAllReduce, Way::kAsync, Way::kShared}) {
    const auto rate = [&](int workers) {
      return StepsPerSecond(Free(), {.way = way, .workers = workers, .hosts = 1, .cores = 4});
    };
    ExpectClose(rate(8), rate(4), 1e-6);
  }
}

TEST(SimulateTest, ACrowdedHostIsSlower) {
  PlanConstants c = Free();
  c.crowding = 1.5;
  const auto compute = [&](int workers) {
    return Simulate(c, {.way = Way::kShared, .workers = workers, .cores = 5}).compute_s;
  };
  ExpectClose(compute(1), 0.1);
  ExpectClose(compute(3), 0.125);
  ExpectClose(compute(5), 0.15);
}

TEST(SimulateTest, EveryCostOnlyEverSlows) {
  for (const Way way : kWays) {
    const Scenario scenario{.way = way, .workers = 16};
    const double rate = StepsPerSecond(Steady(), scenario);
    const auto with = [&](auto change) {
      PlanConstants c = Steady();
      change(c);
      return StepsPerSecond(c, scenario);
    };
    EXPECT_LT(with([](PlanConstants& c) { c.network.latency_s *= 20; }), rate) << WayName(way);
    EXPECT_LT(with([](PlanConstants& c) { c.network.bytes_per_s /= 20; }), rate) << WayName(way);
    EXPECT_LT(with([](PlanConstants& c) { c.apply_s_per_float *= 20; }), rate) << WayName(way);
    EXPECT_LT(with([](PlanConstants& c) { c.round_split_s *= 2; }), rate) << WayName(way);
    EXPECT_LE(rate, 16 * StepsPerSecond(Steady(), {})) << WayName(way);
  }
}

TEST(SimulateTest, NoticesAreExchangedAsOftenAsSaid) {
  PlanConstants c = Steady();
  c.notices_per_round = 0.25;
  c.notice_bytes = 64;
  int notices = 0;
  for (int round = 0; round < 400; ++round) notices += NoticesBefore(c, round);
  EXPECT_EQ(notices, 100);
  const double plain = Simulate(Steady(), {.workers = 4, .rounds = 400}).round_s;
  ExpectClose(Simulate(c, {.workers = 4, .rounds = 400}).round_s,
              plain + 0.25 * 2 * (50e-6 + 64e-9 + 16 * 0.5e-9));
  const Scenario server{.way = Way::kServerSync, .workers = 4, .rounds = 400};
  EXPECT_GT(Simulate(c, server).round_s, Simulate(Steady(), server).round_s + 0.25 * 2 * 50e-6);
}

TEST(SimulateTest, TheSameSeedGivesTheSameBits) {
  for (const Way way : kWays) {
    const auto run = [&](std::uint64_t seed) {
      return Simulate(Varying(),
                      {.way = way, .workers = 24, .slow = {.chance = 0.02, .slowdown = 4}, .seed = seed});
    };
    const Outcome a = run(7), b = run(7), other = run(8);
    EXPECT_EQ(a.steps_per_s, b.steps_per_s);
    EXPECT_EQ(a.waiting_s, b.waiting_s);
    EXPECT_EQ(a.staleness.pushes, b.staleness.pushes);
    EXPECT_NE(a.steps_per_s, other.steps_per_s);
    ExpectClose(a.steps_per_s, other.steps_per_s, 0.1);
  }
}

// A thousand workers are few enough events to be simulated in well under a second.
TEST(SimulateTest, AThousandWorkersAreFewEvents) {
  for (const Way way : kWays) {
    const Outcome outcome = Simulate(Varying(), {.way = way, .workers = 1024});
    EXPECT_LT(outcome.events, 5'000'000u) << WayName(way);
    EXPECT_GT(outcome.steps_per_s, 0);
  }
}

}  // namespace
}  // namespace trireme
