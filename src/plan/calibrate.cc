#include "trireme/plan/calibrate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "trireme/base/aligned.h"
#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/plan/rounds.h"
#include "trireme/store/shared_store.h"

namespace trireme {
namespace {

constexpr double kProbeSeconds = 0.1;
constexpr double kLeast = 1e-7;  // seconds that anything takes at least

// Of one allreduce of two threads, in the batch of calls that others disturbed least.
double ThreadsAllReduce(std::size_t floats) {
  const std::size_t calls = std::clamp<std::size_t>(500'000 / floats, 2, 20);
  ThreadGroup group(2);
  double least_s = std::numeric_limits<double>::infinity();
  const double end_s = MonotonicSeconds() + kProbeSeconds;
  const auto body = [&](int rank) {
    ThreadCommunicator comm(group, rank);
    AlignedBuffer<float> values(floats);
    for (float more = 1; more != 0;) {
      const double begun_s = MonotonicSeconds();
      for (std::size_t i = 0; i < calls; ++i) comm.AllReduceSum(values.span());
      if (rank == 0) least_s = std::min(least_s, (MonotonicSeconds() - begun_s) / static_cast<double>(calls));
      more = MonotonicSeconds() < end_s ? 1 : 0;
      comm.Broadcast(std::span(&more, 1));
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return least_s;
}

// The medians of so many pairs of runs; those that are too short to tell a rate are made longer.
Rate RateOf(RunSettings& settings, double steps, int pairs, const std::atomic<bool>& stop) {
  std::vector<double> walls, cpus, servers;
  std::optional<Rate> last;
  for (int attempt = 0; attempt < 8 + pairs && std::ssize(walls) < pairs && !stop; ++attempt) {
    const std::optional<Rate> rate = MeasureRate(settings, steps, {}, stop);
    if (!rate) {
      steps *= 2;
      continue;
    }
    walls.push_back(rate->wall_s);
    cpus.push_back(rate->cpu_s);
    servers.push_back(rate->servers_cpu_s);
    last = rate;
  }
  if (stop) Fail("interrupted");
  if (!last) Fail("runs were too short to be measured: give more --seconds");
  return {Median(walls), Median(cpus), Median(servers), last->staleness_mean, last->links};
}

// Measures short runs and puts what they show into the constants.
struct Calibration {
  const MakeSettings& make_settings;
  double seconds;  // of a run
  int pairs;       // of them for each figure
  const std::atomic<bool>& stop;
  PlanConstants& constants;

  // Per round of one worker. Through servers they do less in the same time.
  Rate RunOf(const PlanWay& way, int workers, RunSettings& settings) const {
    const double steps_per_s = constants.steps_per_round / (constants.RoundSeconds(1) + constants.apply_s());
    Rate rate = RateOf(settings, seconds * steps_per_s * (way.on_servers ? 0.3 : 1), pairs, stop);
    for (double* const each : {&rate.wall_s, &rate.cpu_s, &rate.servers_cpu_s}) {
      *each *= constants.steps_per_round * workers;
    }
    return rate;
  }

  // A round of the algorithm takes what it takes in a run: with what happens between iterations, and with a
  // replay that has grown.
  void ScaleRounds() const {
    const auto settings = make_settings(kAllReduceWay, 1);
    const double round_s = RunOf(kAllReduceWay, 1, *settings).cpu_s - constants.apply_s();
    const double scale = std::max(kLeast, round_s) / constants.RoundSeconds(1);
    constants.round_fixed_s *= scale;
    constants.round_split_s *= scale;
  }

  // Workers of this way never wait, so how much slower they compute side by side shows in processor time.
  void MeasureShared() const {
    const int crowd = UsableProcessors();
    const auto lone = make_settings(kSharedWay, 1), crowded = make_settings(kSharedWay, crowd);
    const double alone_s = RunOf(kSharedWay, 1, *lone).cpu_s;
    constants.shared_s = std::max(kLeast, alone_s - constants.RoundSeconds(1));
    constants.crowding = std::max(1.0, RunOf(kSharedWay, crowd, *crowded).cpu_s / crowd / alone_s);
  }

  // Processor time at both ends, and the rest. Processor time that a trip does not wait for, such as falling
  // asleep after the answer, is no part of it. Where computing hides the trip, it costs the worker's part.
  void MeasureTrip(const PlanWay& way) const {
    const auto settings = make_settings(way, 1);
    const Rate rate = RunOf(way, 1, *settings);
    const double worker_s = std::max(kLeast, rate.cpu_s - constants.RoundSeconds(1));
    const double server_s = std::max(kLeast, rate.servers_cpu_s - constants.apply_s());
    const double hidden_s = constants.sync_trip.latency_s;
    const bool hides = !way.in_step && settings->run.server.overlap;
    const auto set = [&](PlanConstants& c, double factor) {
      const double less = std::min(factor, 1.0), more = std::max(factor, 1.0) - 1;
      (way.in_step ? c.sync_trip : c.async_trip) =
          hides ? Trip{factor * worker_s, server_s, hidden_s}
                : Trip{less * worker_s, less * server_s, more * (worker_s + server_s)};
    };
    constants = FitTo(constants, ScenarioHere(way, 1, settings->run), rate.wall_s, set);
    if (rate.links.empty()) return;
    const Link link{rate.links.front().latency_s, rate.links.front().bytes_per_s};
    constants.trip_fixed_share = link.latency_s / link.Seconds(constants.gradient_bytes());
  }

  // How many times longer a trip takes with a worker on every processor, each on its own.
  void MeasureTripCrowding() const {
    const int crowd = UsableProcessors();
    if (crowd == 1) return;
    const auto settings = make_settings(kAsyncWay, crowd);
    constants = FitTo(constants, ScenarioHere(kAsyncWay, crowd, settings->run),
                      RunOf(kAsyncWay, crowd, *settings).wall_s,
                      [](PlanConstants& c, double factor) { c.trip_crowding = factor; });
  }
};

}  // namespace

Link ProbeThreads(std::size_t floats) {
  const double one_s = ThreadsAllReduce(1), all_s = ThreadsAllReduce(floats);
  const auto bytes = static_cast<double>(floats * sizeof(float));
  // Below the noise of the two figures there is no rate to be seen; a memory's is not above this.
  constexpr double kFastest = 1e12;
  return {.latency_s = one_s / 2, .bytes_per_s = std::min(kFastest, bytes / std::max(all_s - one_s, 1e-12))};
}

PlanConstants FitTo(const PlanConstants& constants, const Scenario& scenario, double round_s,
                    const std::function<void(PlanConstants&, double)>& set) {
  PlanConstants fitted = constants;
  Scenario brief = scenario;
  brief.rounds = 400;
  double low = 1e-3, high = 1e3;
  for (int i = 0; i < 30; ++i) {
    const double factor = std::sqrt(low * high);
    set(fitted, factor);
    (Simulate(fitted, brief).round_s < round_s ? low : high) = factor;
  }
  set(fitted, std::sqrt(low * high));
  return fitted;
}

void Calibrate(const MakeSettings& make_settings, double seconds, const std::atomic<bool>& stop,
               ConstantTable& table, std::vector<std::string>& notes) {
  const auto settings = make_settings(kAllReduceWay, 1);
  PlanConstants& constants = table.values;
  constants.env = settings->run.env;
  constants.algo = settings->run.algo;
  MeasureRounds(*settings, seconds / 2, stop, constants);
  constants.threads = ProbeThreads(static_cast<std::size_t>(constants.floats));
  const int pairs = static_cast<int>(std::clamp(seconds / 2, 1.0, 3.0));
  const Calibration calibration{make_settings, seconds / 8 / pairs, pairs, stop, constants};
  calibration.ScaleRounds();
  table.SetOrigin("", "measured");
  table.SetOrigin("network_", "assumed");
  const auto attempt = [&](const char* ways, const char* prefix, auto measure) {
    table.SetOrigin(prefix, "not measured");
    try {
      if (stop) Fail("interrupted");
      measure();
      table.SetOrigin(prefix, "measured");
      return true;
    } catch (const Error& error) {
      notes.push_back(fmt::format("left out: {}: {}", ways, error.what()));
      return false;
    }
  };
  attempt("shared", "shared_", [&] { calibration.MeasureShared(); });
  for (const char* prefix : {"async_", "trip_"}) table.SetOrigin(prefix, "not measured");
  attempt("server-sync, async and ssp", "sync_", [&] { calibration.MeasureTrip(kServerSyncWay); }) &&
      attempt("async and ssp", "async_", [&] { calibration.MeasureTrip(kAsyncWay); }) &&
      attempt("", "trip_", [&] { calibration.MeasureTripCrowding(); });
}

}  // namespace trireme
