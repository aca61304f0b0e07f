#include "trireme/plan/runs.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>

#include "trireme/base/aligned.h"
#include "trireme/base/error.h"
#include "trireme/base/median.h"
#include "trireme/base/system.h"
#include "trireme/comm/thread_communicator.h"

namespace trireme {
namespace {

constexpr double kShortShare = 0.2;  // length of the shorter run
constexpr int kMoreAttempts = 8;     // beyond the pairs that are wanted
constexpr int kValidationPairs = 5;
constexpr double kProbeSeconds = 0.2;
constexpr double kLeast = 1e-7;  // seconds that anything takes at least

// Of child processes that have ended.
double ChildrenSeconds() {
  rusage usage;
  getrusage(RUSAGE_CHILDREN, &usage);
  const timeval &user = usage.ru_utime, &system = usage.ru_stime;
  return static_cast<double>(user.tv_sec + system.tv_sec) +
         1e-6 * static_cast<double>(user.tv_usec + system.tv_usec);
}

// Nothing when it was interrupted, or too short to tell.
std::optional<Rate> MeasurePair(const RunCase& one, const std::atomic<bool>& stop) {
  RunConfig& run = one.settings->run;
  run.stop_at_target = false;
  LeaveOutAllButTraining(run);
  RunFacts facts[2];
  double children_s[2];
  for (const int i : {0, 1}) {
    run.steps = std::max<std::int64_t>(1, std::llround(i == 0 ? kShortShare * one.steps : one.steps));
    const double begun_s = ChildrenSeconds();
    TrainResult result = RunOnce(*one.settings, one.straggler, stop);
    if (result.interrupted) return std::nullopt;
    facts[i] = std::move(result.facts);
    children_s[i] = ChildrenSeconds() - begun_s;
  }
  const auto more = static_cast<double>(facts[1].steps - facts[0].steps);
  if (more <= 0 || facts[1].wall_s <= facts[0].wall_s) return std::nullopt;
  Rate rate{.wall_s = (facts[1].wall_s - facts[0].wall_s) / more,
            .cpu_s = (facts[1].cpu_s - facts[0].cpu_s) / more,
            .servers_cpu_s = (children_s[1] - children_s[0]) / more,
            .staleness_mean = facts[1].staleness_mean};
  if (!facts[1].links.empty()) rate.link = {facts[1].links[0].latency_s, facts[1].links[0].bytes_per_s};
  return rate;
}

Rate MedianOf(const std::vector<Rate>& rates) {
  Rate median = rates.empty() ? Rate() : rates.back();
  for (double Rate::*const figure :
       {&Rate::wall_s, &Rate::cpu_s, &Rate::servers_cpu_s, &Rate::staleness_mean}) {
    std::vector<double> values(rates.size());
    std::ranges::transform(rates, values.begin(), figure);
    median.*figure = Median(std::move(values));
  }
  return median;
}

// Measures short runs and puts what they show into the constants.
struct Calibration {
  const MakeSettings& make_settings;
  double seconds;  // of a run
  int pairs;       // of them for each figure
  const std::atomic<bool>& stop;
  PlanConstants& constants;

  // Through servers they do less in the same time.
  RunCase CaseOf(const PlanWay& way, int workers) const {
    const double steps_per_s = constants.steps_per_round / (constants.RoundSeconds(1) + constants.apply_s());
    return {{&way, workers, constants.members},
            make_settings(way, workers),
            seconds * steps_per_s * (way.on_servers ? 0.3 : 1)};
  }
  // Rates become those per round of one worker. Of workers on their own, or a lone one.
  void Measure(std::span<RunCase> cases) const {
    RunInTurns(cases, pairs, stop);
    if (stop) Fail("interrupted");
    for (RunCase& one : cases) {
      if (std::isnan(one.measured.wall_s)) Fail("runs were too short to be measured: give more --seconds");
      const double steps = constants.steps_per_round * one.workers;
      for (double* const each : {&one.measured.wall_s, &one.measured.cpu_s, &one.measured.servers_cpu_s})
        *each *= steps;
    }
  }

  // A round of the algorithm takes what it takes in a run: with what happens between iterations, and with a
  // replay that has grown.
  void ScaleRounds() const {
    RunCase cases[] = {CaseOf(kAllReduceWay, 1)};
    Measure(cases);
    // Those of a group wait for each other at every layer.
    const Rate& rate = cases[0].measured;
    const double round_s = (constants.members > 1 ? rate.wall_s : rate.cpu_s) - constants.apply_s();
    const double scale = std::max(kLeast, round_s) / constants.RoundSeconds(1);
    constants.round_fixed_s *= scale;
    constants.round_split_s *= scale;
  }
  // Workers of this way never wait, so how much slower they compute side by side shows in processor time.
  void MeasureShared() const {
    RunCase cases[] = {CaseOf(kSharedWay, 1), CaseOf(kSharedWay, UsableProcessors())};
    Measure(cases);
    const double alone_s = cases[0].measured.cpu_s, crowded_s = cases[1].measured.cpu_s / cases[1].workers;
    constants.shared_s = std::max(kLeast, alone_s - constants.RoundSeconds(1));
    constants.crowding = std::max(1.0, crowded_s / alone_s);
  }
  // What a trip takes shows where the worker waits for it, how much of that computing hides in a run as asked, and
  // how many times longer it takes in one with a worker on every processor.
  void MeasureTrips() const {
    RunCase cases[] = {CaseOf(kAsyncWay, 1), CaseOf(kAsyncWay, 1), CaseOf(kAsyncWay, UsableProcessors())};
    cases[0].settings->run.server.overlap = false;
    Measure(cases);
    FitTrip(cases[0]);
    if (cases[1].settings->run.server.overlap) FitTrip(cases[1]);
    if (cases[2].workers > 1) {
      Fit(constants, cases[2].ToSimulate(), cases[2].measured.wall_s,
          [&](double factor) { constants.trip_crowding = factor; });
    }
    const Link& link = cases[0].measured.link;
    constants.trip_fixed_share = link.latency_s / link.Seconds(constants.wire_bytes());
  }
  // Processor time at both ends, and the rest. Processor time that a trip does not wait for, such as falling
  // asleep after the answer, is no part of it. Where computing hides the trip, it costs the worker's part.
  void FitTrip(const RunCase& one) const {
    const double worker_s = std::max(kLeast, one.measured.cpu_s - constants.RoundSeconds(1));
    const double server_s = std::max(kLeast, one.measured.servers_cpu_s - constants.apply_s());
    const double latency_s = constants.trip.latency_s;
    const bool hidden = one.settings->run.server.overlap;
    Fit(constants, one.ToSimulate(), one.measured.wall_s, [&](double factor) {
      const double less = std::min(factor, 1.0), more = std::max(factor, 1.0) - 1;
      constants.trip = hidden ? Trip{factor * worker_s, server_s, latency_s}
                              : Trip{less * worker_s, less * server_s, more * (worker_s + server_s)};
    });
  }
};

}  // namespace

void LeaveOutAllButTraining(RunConfig& run) {
  run.checkpoint_every_s = 1e9;
  if (run.stop_at_target) return;
  run.eval_every = 0;
  run.eval_episodes = 1;
}

TrainResult RunOnce(const RunSettings& settings, const Straggler& straggler, const std::atomic<bool>& stop) {
  SilentObserver observer;
  return Train(settings, observer,
               {.straggler = straggler, .stop = &stop, .server_program = "/proc/self/exe"});
}

Scenario RunCase::ToSimulate() const {
  return {.way = way,
          .workers = workers,
          .cores = UsableProcessors(),
          .servers_on = ServersOn::kWorkers,
          .overlap = settings->run.server.overlap};
}

void RunInTurns(std::span<RunCase> cases, int pairs, const std::atomic<bool>& stop) {
  std::vector<std::vector<Rate>> rates(cases.size());
  for (int turn = 0; turn < pairs + kMoreAttempts; ++turn) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (stop || std::ssize(rates[i]) == pairs) continue;
      if (const auto rate = MeasurePair(cases[i], stop)) {
        rates[i].push_back(*rate);
      } else {
        cases[i].steps *= 2;
      }
    }
  }
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i].measured = MedianOf(rates[i]);
}

Link ProbeThreads(std::size_t floats) {
  const std::size_t sizes[] = {1, floats};
  double least_s[] = {1e9, 1e9};  // of a call, in the batch that others disturbed least
  ThreadGroup group(2);
  const double end_s = MonotonicSeconds() + kProbeSeconds;
  const auto body = [&](int rank) {
    ThreadCommunicator comm(group, rank);
    AlignedBuffer<float> values(floats);
    for (float more = 1; more != 0;) {
      for (const int which : {0, 1}) {
        const int calls = static_cast<int>(std::clamp<std::size_t>(500'000 / sizes[which], 2, 20));
        const double begun_s = MonotonicSeconds();
        for (int i = 0; i < calls; ++i) comm.AllReduceSum(values.span().first(sizes[which]));
        const double call_s = (MonotonicSeconds() - begun_s) / calls;
        if (rank == 0) least_s[which] = std::min(least_s[which], call_s);
      }
      more = MonotonicSeconds() < end_s ? 1 : 0;
      comm.Broadcast(std::span(&more, 1));
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  // Below the noise of the two figures there is no rate to be seen; a memory's is not above 1e12.
  const auto bytes = static_cast<double>(floats * sizeof(float));
  return {.latency_s = least_s[0] / 2,
          .bytes_per_s = bytes / std::max(least_s[1] - least_s[0], bytes / 1e12)};
}

void Fit(const PlanConstants& constants, Scenario scenario, double round_s,
         const std::function<void(double)>& set) {
  scenario.rounds = 400;
  double low = 1e-3, high = 1e3;
  for (int i = 0; i < 30; ++i) {
    const double factor = std::sqrt(low * high);
    set(factor);
    (Simulate(constants, scenario).round_s < round_s ? low : high) = factor;
  }
  set(std::sqrt(low * high));
}

void Calibrate(const MakeSettings& make_settings, double seconds, const std::atomic<bool>& stop,
               PlanConstants& constants, std::vector<std::string>& notes) {
  const auto settings = make_settings(kAllReduceWay, 1);
  constants.env = settings->run.env_identity();
  constants.algo = settings->run.algo;
  constants.variant = VariantOf(settings->run);
  constants.members = settings->run.split().members;
  if (constants.members > UsableProcessors()) {
    Fail("model_parallel = {} is measured by a group of {} workers, and this machine has {} processors",
         settings->run.model_parallel, constants.members, UsableProcessors());
  }
  MeasureRounds(*settings, seconds / 2, stop, constants);
  MeasureExchange(*settings, constants);
  constants.threads = ProbeThreads(static_cast<std::size_t>(constants.floats));
  constants.origins = {{"", "measured"}, {"network_", "assumed"}};

  const int pairs = static_cast<int>(std::clamp(seconds / 2, 1.0, 3.0));
  const Calibration calibration{make_settings, seconds / 8 / pairs, pairs, stop, constants};
  calibration.ScaleRounds();
  const auto attempt = [&](const char* ways, const char* prefix, auto measure) {
    try {
      measure();
    } catch (const Error& error) {
      constants.origins.emplace_back(prefix, "not measured");
      notes.push_back(fmt::format("left out: {}: {}", ways, error.what()));
    }
  };
  attempt("shared", "shared_", [&] { calibration.MeasureShared(); });
  attempt("async and ssp", "trip_", [&] { calibration.MeasureTrips(); });
}

void Validate(const PlanConstants& constants, const MakeSettings& make_settings, double seconds,
              const std::atomic<bool>& stop, Forecast& forecast) {
  const Scenario& asked = forecast.question.scenario;
  const Slowness& slow = asked.slow;
  std::vector<RunCase> cases;
  for (const PlanWay* const way : kPlanWays) {
    if (!constants.Knows(*way)) continue;
    for (int workers = 1; workers * constants.members <= UsableProcessors(); workers *= 2) {
      try {
        RunCase one{{way, workers, constants.members}, make_settings(*way, workers)};
        if (slow.factor > 1 && slow.worker < workers) one.straggler = {slow.worker, slow.factor};
        Scenario here = one.ToSimulate();
        here.bound = asked.bound;
        here.slow = slow;
        one.outcome = Simulate(constants, here);
        one.steps = seconds * one.outcome.steps_per_s;
        cases.push_back(std::move(one));
      } catch (const Error& error) {
        forecast.notes.push_back(
            fmt::format("not validated: {}, {} workers: {}", way->name, workers, error.what()));
      }
    }
  }
  RunInTurns(cases, kValidationPairs, stop);
  for (const RunCase& one : cases) {
    if (!std::isnan(one.measured.wall_s)) forecast.Add(one);
  }
  if (stop) forecast.notes.emplace_back("interrupted: some runs are missing");
}

}  // namespace trireme
