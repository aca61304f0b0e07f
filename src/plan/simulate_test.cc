#include "trireme/plan/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme {
namespace {

constexpr const PlanWay* kWays[] = {&kAllReduceWay, &kAsyncWay, &kSspWay};
constexpr const PlanWay* kServerWays[] = {&kAsyncWay, &kSspWay};
constexpr double kWorker = 0.0006, kServer = 0.0008, kApply = 0.001, kLatency = 0.0004;

// A large model on a modest network; every round takes the same time.
PlanConstants Steady() {
  PlanConstants constants;
  constants.floats = 1'000'000;
  constants.steps_per_round = 256;
  constants.round_fixed_s = 0.002;
  constants.round_split_s = 0.1;
  constants.apply_s_per_float = 1e-9;
  constants.shared_s = 2e-3;
  constants.network = {.latency_s = 50e-6, .bytes_per_s = 1e9};
  constants.threads = {.latency_s = 1e-6, .bytes_per_s = 8e9};
  constants.trip = {kWorker, kServer, kLatency};
  return constants;
}

// Nothing but computing costs anything.
PlanConstants Free() {
  PlanConstants constants = Steady();
  constants.round_fixed_s = constants.apply_s_per_float = constants.shared_s = 0;
  constants.network = constants.threads = {.latency_s = 0, .bytes_per_s = 1e18};
  constants.trip = {};
  return constants;
}

PlanConstants Varying(PlanConstants constants = Steady()) {
  constants.round_times = {800, 900, 1000, 1100, 1500};
  return constants;
}

double Rate(const PlanConstants& constants, const Scenario& scenario) {
  return Simulate(constants, scenario).steps_per_s;
}
double Round(const PlanConstants& constants, const Scenario& scenario) {
  return Simulate(constants, scenario).round_s;
}
void ExpectClose(double value, double expected, double relative = 1e-9) {
  EXPECT_NEAR(value, expected, relative * std::abs(expected));
}

TEST(SimulateTest, WhereNothingElseCostsSpeedupIsIdeal) {
  for (const PlanWay* const way : kWays) {
    for (const int workers : {1, 2, 16, 100}) {
      const Outcome outcome = Simulate(Free(), {.way = way, .workers = workers});
      ExpectClose(outcome.steps_per_s, workers * 2560.0, 1e-6);
      EXPECT_NEAR(outcome.idle(), 0, 1e-6);
    }
  }
}

TEST(SimulateTest, OneWorkerWaitsForTheWholeTrip) {
  const double trip = kWorker + kServer + kApply;
  for (const PlanWay* const way : kServerWays) {
    for (const int cores : {1, 2, 8}) {
      Scenario scenario{.way = way, .cores = cores};
      ExpectClose(Round(Steady(), scenario), 0.102 + trip + 2 * (50e-6 + 4e6 / 1e9));
      scenario.servers_on = ServersOn::kWorkers;
      const Outcome near = Simulate(Steady(), scenario);
      ExpectClose(near.round_s, 0.102 + trip + kLatency);
      ExpectClose(near.communication_s, trip + kLatency);
    }
  }
  ExpectClose(Round(Steady(), {.way = &kSharedWay}), 0.104);
}

TEST(SimulateTest, AllReduceOfLargeGradientsIsReduceScatterAndAllgather) {
  for (const int m : {2, 8, 64}) {
    const double stages = std::log2(m), bytes = 4e6 * (m - 1) / m;
    const Outcome outcome = Simulate(Steady(), {.workers = m});
    ExpectClose(outcome.round_s, 0.002 + 0.1 / m + 1e-3 + 2 * stages * 50e-6 + 2 * bytes / 1e9 + bytes / 8e9);
    ExpectClose(outcome.compute_s, 0.003 + 0.1 / m);
    EXPECT_NEAR(outcome.waiting_s, 0, 1e-12);
  }
}

TEST(SimulateTest, AllReduceOfSmallGradientsIsRecursiveDoubling) {
  PlanConstants c = Steady();
  c.floats = 1000;
  const Outcome outcome = Simulate(c, {.workers = 16});
  ExpectClose(outcome.round_s, 0.002 + 0.1 / 16 + 1e-6 + 4 * (50e-6 + 4000 / 1e9 + 4000 / 8e9));
  c.notices_per_round = 0.25;
  ExpectClose(Round(c, {.workers = 16}), outcome.round_s + 0.25 * 4 * 50e-6);
}

TEST(SimulateTest, ThreadsOfAHostAddTheirsFirst) {
  const Outcome outcome = Simulate(Steady(), {.workers = 16, .cores = 4});
  EXPECT_EQ(outcome.hosts, 4);
  const double inside = 2 * (1e-6 + 3e6 / 8e9), between = 4 * 50e-6 + 2 * 3e6 / 1e9 + 3e6 / 8e9;
  ExpectClose(outcome.round_s, 0.002 + 0.1 / 16 + 1e-3 + inside + between);
  EXPECT_EQ(Simulate(Steady(), {.workers = 5, .cores = 2}).hosts, 3);
}

TEST(SimulateTest, MessagesOfACodecGoToAllHostsAndAreDecodedByAll) {
  PlanConstants c = Steady();
  c.exchange_bytes = 1e6;
  c.encode_s = 0.0003;
  c.decode_s = 0.0002;
  ExpectClose(Round(c, {.workers = 8}),
              0.002 + 0.1 / 8 + 1e-3 + 0.0003 + 8 * 0.0002 + 6 * 50e-6 + 7 * 1e6 / 1e9);
  // Threads of one host send nothing.
  ExpectClose(Round(c, {.workers = 4, .cores = 4}), Round(Steady(), {.workers = 4, .cores = 4}));
  // Through a server: what a codec takes is part of the measured trip.
  c.answer_bytes = 2e6;
  for (const PlanWay* const way : kServerWays) {
    ExpectClose(Round(c, {.way = way}),
                0.102 + kWorker + kServer + kApply + 2 * 50e-6 + 1e6 / 1e9 + 2e6 / 1e9);
  }
}

TEST(SimulateTest, LocalStepsExchangeNowAndThen) {
  PlanConstants c = Steady();
  const double compute_s = 0.002 + 0.1 / 8 + 1e-3, exchange_s = Round(c, {.workers = 8}) - compute_s;
  c.exchanges_per_round = 0.25;
  ExpectClose(Round(c, {.workers = 8}), compute_s + exchange_s / 4);
}

// Two groups of two on one host of four processors, and then one on each of two hosts: a member applies, and adds up
// with its like, half of the parameters.
TEST(SimulateTest, GroupsFillTheProcessorsOfAHost) {
  PlanConstants c = Steady();
  c.members = 2;
  const double compute_s = 0.002 + 0.1 / 2 + 1e-3 / 2;
  const Outcome inside = Simulate(c, {.workers = 2, .cores = 4});
  EXPECT_EQ(inside.hosts, 1);
  ExpectClose(inside.round_s, compute_s + 2 * (1e-6 + 1e6 / 8e9));
  const Outcome apart = Simulate(c, {.workers = 2, .cores = 2});
  EXPECT_EQ(apart.hosts, 2);
  ExpectClose(apart.round_s, compute_s + 2 * 50e-6 + 2 * 2e6 / 1e9 + 2e6 / 8e9);
}

// The slowest of four, each of which takes twice as long every second time: 15 times of 16 somebody does.
TEST(SimulateTest, WorkersInStepWaitForTheSlowest) {
  PlanConstants c = Free();
  c.round_times = {1000, 2000};
  ExpectClose(Round(c, {.workers = 4, .rounds = 20'000}), 0.1 / 4 / 1.5 * (1 + 15.0 / 16), 0.01);
}

TEST(SimulateTest, AsynchronousWorkersSaturateTheServersLinkOrItsProcessor) {
  PlanConstants c = Steady();
  c.round_split_s = 0.01;
  const Outcome link = Simulate(c, {.way = &kAsyncWay, .workers = 64});
  ExpectClose(link.steps_per_s, 256 * 1e9 / 4e6, 1e-6);
  EXPECT_GT(link.waiting_s, 0.2);
  c.trip_fixed_share = 0;
  ExpectClose(Rate(c, {.way = &kAsyncWay, .workers = 64, .servers = 4}), 4 * 256 * 1e9 / 4e6, 0.01);
  c.apply_s_per_float = 8e-9;
  const Outcome processor = Simulate(c, {.way = &kAsyncWay, .workers = 64});
  ExpectClose(processor.steps_per_s, 256 / (8e-3 + kServer), 1e-6);
  EXPECT_NEAR(processor.server_busy, 1, 0.02);
}

// One message after the other in each direction, whoever sends it. The servers have links enough.
TEST(SimulateTest, WorkersOfAHostShareItsLink) {
  PlanConstants c = Steady();
  c.round_split_s = c.trip_fixed_share = 0;
  Scenario scenario{.way = &kAsyncWay, .workers = 4, .cores = 4, .servers = 16, .overlap = true};
  ExpectClose(Rate(c, scenario), 256 * 1e9 / 4e6, 0.01);
  scenario.cores = 1;
  EXPECT_GT(Rate(c, scenario), 3 * 256 * 1e9 / 4e6);
}

// Answers that come when all have pushed: so nothing goes in while anything goes out. Worker by worker the host sends
// parts to all servers; the last worker's to the first server lets the answers begin. They come in from the servers in
// turn, so that the first worker has all of its own, and goes on, six messages before the last one has.
TEST(SimulateTest, AHostSendsOneMessageAfterTheOther) {
  PlanConstants c = Steady();
  c.round_split_s = c.apply_s_per_float = 0;
  c.trip = {};
  const int workers = 4, parts = 16;
  const double all = 4e6 / 1e9, part = all / parts;
  const Scenario scenario{
      .way = &kSspWay, .workers = workers, .cores = workers, .servers = parts, .bound = 0};
  ExpectClose(Round(c, scenario), 0.002 + 2 * 50e-6 + (workers - 1) * all + part + workers * all - 6 * part,
              0.001);
}

// A part of a trip does not get shorter with the gradient.
TEST(SimulateTest, SeveralServersShareWhatGrowsWithTheGradient) {
  PlanConstants c = Steady();
  c.network = {.latency_s = 0, .bytes_per_s = 1e18};
  c.apply_s_per_float = 0;
  c.trip_fixed_share = 0.25;
  const double share = 0.25 + 0.75 / 4;
  // The worker has four messages, one after the other.
  ExpectClose(Round(c, {.way = &kAsyncWay, .servers = 4}), 0.102 + share * (4 * kWorker + kServer));
}

TEST(SimulateTest, ASlowWorkerSlowsWorkersInStepToItsPaceAndOthersByItsOwnShare) {
  for (const PlanWay* const way : {&kAllReduceWay, &kAsyncWay, &kSspWay, &kSharedWay}) {
    for (const int m : {2, 8}) {
      const Scenario even{.way = way, .workers = m, .cores = 8};
      Scenario slow = even;
      slow.slow = {.worker = m - 1, .factor = 5};
      const double kept = Rate(Free(), slow) / Rate(Free(), even);
      ExpectClose(kept, way->in_step || way->bounded ? 1.0 / 5 : (m - 1 + 0.2) / m, 0.01);
      if (way->in_step) ExpectClose(Simulate(Free(), slow).idle(), 0.8 * (m - 1) / m, 1e-6);
    }
  }
}

TEST(SimulateTest, BoundedStalenessHidesWhatIsSlowNowAndThen) {
  const auto rate = [&](const PlanWay& way, int bound) {
    return Rate(Free(),
                {.way = &way, .workers = 16, .bound = bound, .slow = {.chance = 0.05, .slowdown = 5}});
  };
  EXPECT_GT(rate(kSspWay, 4), 1.3 * rate(kSspWay, 0));
  EXPECT_GT(rate(kSspWay, 16), rate(kSspWay, 4));
  EXPECT_GT(rate(kSspWay, 100), 0.98 * rate(kAsyncWay, 0));
  for (const int bound : {0, 3}) {
    for (const int servers : {1, 3}) {
      const Outcome outcome = Simulate(Varying(), {.way = &kSspWay,
                                                   .workers = 12,
                                                   .servers = servers,
                                                   .bound = bound,
                                                   .slow = {.worker = 1, .factor = 4}});
      EXPECT_LE(outcome.staleness.most, static_cast<std::uint64_t>(12 * (2 * bound + 2)));
      EXPECT_GE(outcome.staleness.most, static_cast<std::uint64_t>(bound));
    }
  }
}

// With overlap a gradient is older by the worker's own push that is under way, and by one more of each other.
TEST(SimulateTest, GradientsAreAsOldAsThereAreOthers) {
  for (const int m : {1, 4, 32}) {
    Scenario scenario{.way = &kAsyncWay, .workers = m, .cores = 32};
    EXPECT_NEAR(Simulate(Varying(), scenario).staleness.mean(), m - 1, 0.05 * m);
    scenario.overlap = true;
    EXPECT_NEAR(Simulate(Varying(), scenario).staleness.mean(), 2 * m - 1, 0.05 * m);
    scenario.way = &kSharedWay;
    EXPECT_NEAR(Simulate(Varying(), scenario).staleness.mean(), m - 1, 0.05 * m);
  }
}

// The trip without the worker's own part is hidden behind computing, or computing behind it.
TEST(SimulateTest, OverlapHidesTheShorterOfComputingAndCommunication) {
  const double trip = kServer + kApply + kLatency;
  for (const double compute : {0.0005, 0.0014, 0.1}) {
    PlanConstants constants = Steady();
    constants.round_fixed_s = compute;
    constants.round_split_s = 0;
    Scenario scenario{.way = &kAsyncWay, .cores = 2, .servers_on = ServersOn::kWorkers};
    const double waiting = Round(constants, scenario);
    scenario.overlap = true;
    ExpectClose(Round(constants, scenario), waiting - std::min(compute, trip), 1e-6);
    // What is left to hide on a single processor is the latency.
    scenario.cores = 1;
    if (compute > trip) ExpectClose(Round(constants, scenario), waiting - kLatency, 1e-6);
  }
}

// With a server, a host whose processors all have a worker has one process too many.
TEST(SimulateTest, ProcessorsOfAHostAreShared) {
  PlanConstants near = Steady();  // a network as quick as the host
  near.network = {.latency_s = kLatency / 2, .bytes_per_s = 1e18};
  near.round_split_s = 0;
  for (const PlanWay* const way : kServerWays) {
    Scenario own{.way = way, .workers = 2, .cores = 2, .overlap = true}, shared = own;
    shared.servers_on = ServersOn::kWorkers;
    const double work_s = 2 * (0.002 + kWorker + kServer + kApply);  // of two workers in a round
    ExpectClose(Rate(near, shared), 2 * 256 / (work_s / 2), 0.02);
    EXPECT_GT(Rate(near, own), 1.2 * Rate(near, shared));
    own.cores = shared.cores = 100;
    ExpectClose(Rate(near, shared), Rate(near, own), 1e-6);
  }
}

TEST(SimulateTest, ACrowdedHostIsSlower) {
  PlanConstants c = Free();
  c.crowding = 1.5;
  for (const auto& [workers, seconds] : {std::pair(1, 0.1), {3, 0.125}, {5, 0.15}}) {
    ExpectClose(Simulate(c, {.way = &kSharedWay, .workers = workers, .cores = 5}).compute_s, seconds);
  }
  PlanConstants crowded = Steady();
  crowded.trip_crowding = 3;
  // A server on a host of its own has no neighbours.
  const Scenario two{.way = &kAsyncWay, .workers = 2, .cores = 2};
  ExpectClose(Round(crowded, two) - Round(Steady(), two), 2 * kWorker, 0.2);
  // Where trips cost less in a crowd than alone, a round still has no more parts than it is long.
  crowded.trip_crowding = 0.01;
  crowded.round_fixed_s = crowded.round_split_s = 1e-5;
  const Outcome quick =
      Simulate(crowded, {.way = &kAsyncWay, .workers = 2, .cores = 2, .servers_on = ServersOn::kWorkers});
  ExpectClose(quick.compute_s + quick.communication_s + quick.waiting_s, quick.round_s);
}

TEST(SimulateTest, TheSameSeedGivesTheSameBits) {
  for (const PlanWay* const way : kWays) {
    const auto run = [&](std::uint64_t seed) {
      return Simulate(Varying(),
                      {.way = way, .workers = 24, .slow = {.chance = 0.02, .slowdown = 4}, .seed = seed});
    };
    const Outcome a = run(7), b = run(7), other = run(8);
    EXPECT_EQ(a.steps_per_s, b.steps_per_s);
    EXPECT_EQ(a.staleness.pushes, b.staleness.pushes);
    EXPECT_NE(a.steps_per_s, other.steps_per_s);
    ExpectClose(a.steps_per_s, other.steps_per_s, 0.1);
  }
}

}  // namespace
}  // namespace trireme
