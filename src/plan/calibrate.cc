#include "trireme/plan/calibrate.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/nn/fused_executor.h"
#include "trireme/plan/probe.h"
#include "trireme/plan/simulate.h"
#include "trireme/plan/timing_store.h"
#include "trireme/train/speedup.h"

namespace trireme {
namespace {

constexpr double kLongestWarmUp = 60;  // seconds

// One worker with 1/parts of the work, which goes on whenever it is told to.
class LoneWorker {
 public:
  LoneWorker(const RunSettings& settings, const Network& network, int parts)
      : executor_(network),
        group_(1),
        comm_(group_, 0),
        store_(MakeAllReduceStore(comm_, settings.algorithm->optimizer(), Initial(settings, network)), parts),
        algorithm_(settings.algorithm->Make({.env = settings.env(),
                                             .executor = executor_,
                                             .store = store_,
                                             .seed = settings.run.seed,
                                             .shards = settings.run.shards,
                                             .first_shard = 0,
                                             .own_shards = settings.run.shards / parts})) {
    WarmUp();
  }

  void RunFor(double seconds) {
    store_.Resume();
    const double end_s = MonotonicSeconds() + seconds;
    do Iterate();
    while (MonotonicSeconds() < end_s);
    store_.Pause();
  }

  const TimingStore::Account& account() const { return store_.account(); }
  double SecondsPerRound() const {
    double sum = 0;
    for (const TimingStore::Round& round : account().rounds) sum += round.compute_s;
    return sum / static_cast<double>(account().rounds.size());
  }
  double StepsPerRound() const {
    return static_cast<double>(iterations_ * algorithm_->steps_per_iteration()) /
           static_cast<double>(account().rounds.size());
  }
  double IterationsPerRound() const {
    return static_cast<double>(iterations_) / static_cast<double>(account().rounds.size());
  }

 private:
  static std::vector<float> Initial(const RunSettings& settings, const Network& network) {
    std::vector<float> params(network.param_count());
    network.Initialise(settings.run.seed, params);
    return params;
  }

  // Kernels are generated and a replay is filled before the first push; neither is a part of the rounds.
  void WarmUp() {
    const double begun_s = MonotonicSeconds();
    do {
      Iterate();
      if (MonotonicSeconds() - begun_s > kLongestWarmUp) {
        Fail("there was no gradient within {:g} s: reduce what is collected before learning starts",
             kLongestWarmUp);
      }
    } while (account().rounds.empty());
    Iterate();
    store_.Start();
    store_.Pause();
    iterations_ = 0;
  }

  void Iterate() {
    MetricRow row;
    store_.BeginIteration();
    algorithm_->Iterate(0, row);
    ++iterations_;
  }

  FusedExecutor executor_;
  ThreadGroup group_;
  ThreadCommunicator comm_;
  TimingStore store_;
  std::unique_ptr<Algorithm> algorithm_;
  std::int64_t iterations_ = 0;
};

// Every round relative to the median of its position, which a single disturbed round does not move.
std::vector<double> Ratios(const std::vector<TimingStore::Round>& rounds) {
  std::map<int, std::vector<double>> by_position;
  for (const TimingStore::Round& round : rounds) by_position[round.position].push_back(round.compute_s);
  std::vector<double> ratios;
  for (const auto& [position, seconds] : by_position) {
    const double median_s = Median(seconds);
    for (const double each : seconds) {
      if (median_s > 0) ratios.push_back(each / median_s);
    }
  }
  return ratios;
}

// The mean round of as many workers as there are processors, each with a model of its own, at the same time,
// relative to that of `alone`, taken in turns.
double MeasureCrowding(const RunSettings& settings, const Network& network, double seconds) {
  const int processors = UsableProcessors();
  if (processors == 1) return 1;
  LoneWorker alone(settings, network, 1);
  std::vector<std::unique_ptr<LoneWorker>> crowd;
  crowd.reserve(processors);
  for (int i = 0; i < processors; ++i) crowd.push_back(std::make_unique<LoneWorker>(settings, network, 1));
  constexpr int kTurns = 4;
  for (int turn = 0; turn < kTurns; ++turn) {
    alone.RunFor(seconds / 2 / kTurns);
    std::vector<std::exception_ptr> errors(processors);
    std::vector<std::thread> threads;
    threads.reserve(processors);
    for (int i = 0; i < processors; ++i) {
      threads.emplace_back([&, i] {
        try {
          crowd[i]->RunFor(seconds / 2 / kTurns);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }
  double crowded_s = 0;
  for (const auto& worker : crowd) crowded_s += worker->SecondsPerRound() / processors;
  return std::max(1.0, crowded_s / alone.SecondsPerRound());
}

void MeasureRounds(const RunSettings& settings, const Network& network, double seconds,
                   PlanConstants& constants) {
  std::vector<std::unique_ptr<LoneWorker>> workers;
  std::vector<int> parts;
  for (int k = 1; k <= settings.run.shards; k *= 2) {
    parts.push_back(k);
    workers.push_back(std::make_unique<LoneWorker>(settings, network, k));
  }
  constexpr int kTurns = 4;  // alternately, so that what changes on the machine touches all alike
  for (int turn = 0; turn < kTurns; ++turn) {
    for (const auto& worker : workers) {
      worker->RunFor(seconds / kTurns / static_cast<double>(workers.size()));
    }
  }
  std::vector<PartTime> times;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (workers[i]->account().rounds.empty()) Fail("too few gradients to measure: give more --seconds");
    times.push_back({parts[i], workers[i]->SecondsPerRound()});
  }
  const RoundFit fit = FitRounds(times);
  constants.round_fixed_s = fit.fixed_s;
  constants.round_split_s = fit.split_s;

  const LoneWorker& whole = *workers.front();
  const TimingStore::Account& account = whole.account();
  const auto rounds = static_cast<double>(account.rounds.size());
  constants.round_times = Hundredths(Ratios(account.rounds));
  constants.floats = static_cast<int>(account.push_floats);
  constants.steps_per_round = whole.StepsPerRound();
  constants.apply_s_per_float = account.push_s / rounds / constants.floats;
  // After every iteration the first worker tells the others how to go on: two doubles.
  const double announcements = whole.IterationsPerRound();
  const double notices = static_cast<double>(account.shares) / rounds + announcements;
  constants.notices_per_round = notices;
  constants.notice_bytes =
      (static_cast<double>(account.share_bytes) / rounds + 2 * sizeof(double) * announcements) / notices;
}

}  // namespace

RoundFit FitRounds(std::span<const PartTime> times) {
  TRIREME_CHECK(!times.empty());
  // Least squares of (fixed + split x - y) / y over x = 1 / parts: two linear equations.
  double s1 = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
  for (const PartTime& time : times) {
    const double x = 1.0 / time.parts, w = 1 / (time.seconds * time.seconds);
    s1 += w;
    sx += w * x;
    sxx += w * x * x;
    sy += w * time.seconds;
    sxy += w * x * time.seconds;
  }
  const double determinant = s1 * sxx - sx * sx;
  if (times.size() == 1 || determinant <= 0) return {.fixed_s = 0, .split_s = sxy / sxx};
  const double fixed_s = (sy * sxx - sx * sxy) / determinant;
  const double split_s = (s1 * sxy - sx * sy) / determinant;
  if (fixed_s < 0) return {.fixed_s = 0, .split_s = sxy / sxx};
  if (split_s < 0) return {.fixed_s = sy / s1, .split_s = 0};
  return {.fixed_s = fixed_s, .split_s = split_s};
}

std::vector<int> Hundredths(std::vector<double> ratios) {
  std::ranges::sort(ratios);
  const std::size_t parts = std::min<std::size_t>(100, ratios.size());
  std::vector<int> thousandths;
  for (std::size_t i = 0; i < parts; ++i) {
    const auto begin = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() * i / parts);
    const auto end = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() * (i + 1) / parts);
    const double mean = std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
    thousandths.push_back(static_cast<int>(std::lround(1000 * mean)));
  }
  return thousandths;
}

void Calibrate(const RunSettings& settings, double seconds, ConstantTable& table) {
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  PlanConstants& constants = table.values;
  constants.env = settings.run.env;
  constants.algo = settings.run.algo;
  MeasureRounds(settings, network, 2 * seconds / 3, constants);
  constants.crowding = MeasureCrowding(settings, network, seconds / 3);
  const auto floats = static_cast<std::size_t>(constants.floats);
  constants.add_s_per_float = ProbeAdd(floats);
  constants.copy_s_per_float = ProbeCopy(floats);
  constants.shared_s_per_float = ProbeShared(settings.algorithm->optimizer(), floats);
  constants.threads = ProbeThreads(floats);
  constants.loopback = ProbeLoopback();
  constants.network = constants.loopback;
  table.SetOrigin("", "measured");
  table.SetOrigin("network_", "the loopback's");
  for (const char* name : {"trip_", "poll_"}) table.SetOrigin(name, "not measured");
}

double FitTripCrowding(const PlanConstants& constants, int workers, double think_s, double round_s) {
  if (workers == 1) return 1;
  PlanConstants crowd = constants;
  crowd.round_fixed_s = think_s;
  crowd.round_split_s = 0;
  crowd.round_times = {1000};
  crowd.crowding = 1;
  double low = 0.1, high = 100;
  for (int i = 0; i < 24; ++i) {
    crowd.trip_crowding = std::sqrt(low * high);
    const Scenario scenario{.way = Way::kAsync,
                            .workers = workers,
                            .servers_on_workers = true,
                            .hosts = 1,
                            .cores = workers,
                            .rounds = 400};
    (Simulate(crowd, scenario).round_s < round_s ? low : high) = crowd.trip_crowding;
  }
  return std::sqrt(low * high);
}

void CalibrateTrips(const RunSettings& settings, double seconds, ConstantTable& table) {
  PlanConstants& constants = table.values;
  const ServerTrips trips = ProbeServer({.optimizer = settings.algorithm->optimizer(),
                                         .floats = static_cast<std::size_t>(constants.floats),
                                         .think_s = constants.RoundSeconds(1),
                                         .apply_s_per_float = constants.apply_s_per_float,
                                         .seconds = seconds});
  constants.trip_worker = trips.worker;
  constants.trip_server = trips.server;
  constants.trip_latency_s = trips.latency_s;
  constants.trip_overlapped = trips.overlapped;
  constants.poll_s = trips.poll_s;
  constants.trip_crowding =
      FitTripCrowding(constants, trips.crowd, constants.RoundSeconds(1), trips.crowded_round_s);
  for (const char* name : {"trip_", "poll_"}) table.SetOrigin(name, "measured");
}

}  // namespace trireme
