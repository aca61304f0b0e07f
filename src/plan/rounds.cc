#include "trireme/plan/rounds.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/nn/fused_executor.h"
#include "trireme/plan/figures.h"

namespace trireme {
namespace {

constexpr double kLongestWarmUp = 60;  // seconds
constexpr int kTurns = 8;              // so that what changes on the machine touches all alike

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

  void RunFor(double seconds, const std::atomic<bool>& stop) {
    store_.Resume();
    const double end_s = MonotonicSeconds() + seconds;
    do Iterate();
    while (MonotonicSeconds() < end_s && !stop);
    store_.Pause();
  }
  const TimingStore& store() const { return store_; }
  double IterationsPerRound() const { return iterations_ / static_cast<double>(store_.rounds.size()); }
  double StepsPerRound() const {
    return IterationsPerRound() * static_cast<double>(algorithm_->steps_per_iteration());
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
    } while (store_.rounds.empty());
    Iterate();
    store_.Reset();
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
  double iterations_ = 0;
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

}  // namespace

double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TimingStore::TimingStore(std::unique_ptr<ParameterStore> store, int parts)
    : store_(std::move(store)), parts_(parts) {
  Resume();
}

void TimingStore::Reset() {
  rounds.clear();
  push_s = computed_s_ = 0;
  shares = share_bytes = 0;
}

double TimingStore::MeanRound() const {
  if (rounds.empty()) Fail("too few gradients to measure: give more --seconds");
  double sum = 0;
  for (const Round& round : rounds) sum += round.compute_s;
  return sum / static_cast<double>(rounds.size());
}

double TimingStore::Push(std::span<float> gradient, const UpdateRule& rule) {
  Pause();
  rounds.push_back({position_++, std::exchange(computed_s_, 0)});
  if (parts_ > 1) {
    for (float& value : gradient) value *= static_cast<float>(parts_);
  }
  const double begun_s = ThreadSeconds();
  const double norm = store_->Push(gradient, rule);
  push_s += ThreadSeconds() - begun_s;
  push_floats = gradient.size();
  Resume();
  return norm;
}

void TimingStore::Share(std::span<double> values) {
  Pause();
  for (double& value : values) value *= parts_;
  store_->Share(values);
  shares += 1;
  share_bytes += values.size_bytes();
  Resume();
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

void MeasureRounds(const RunSettings& settings, double seconds, const std::atomic<bool>& stop,
                   PlanConstants& constants) {
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  const int shards = settings.run.shards;
  LoneWorker whole(settings, network, 1), part(settings, network, shards);
  for (int turn = 0; turn < kTurns && !stop; ++turn) {
    whole.RunFor(seconds / 2 / kTurns, stop);
    part.RunFor(seconds / 2 / kTurns, stop);
  }
  if (stop) Fail("interrupted");
  const TimingStore& store = whole.store();
  const double whole_s = store.MeanRound(), part_s = part.store().MeanRound();
  constants.round_split_s =
      shards == 1 ? whole_s : std::clamp((whole_s - part_s) * shards / (shards - 1), 0.0, whole_s);
  constants.round_fixed_s = whole_s - constants.round_split_s;

  const auto rounds = static_cast<double>(store.rounds.size());
  constants.round_times = Hundredths(Ratios(store.rounds));
  constants.floats = static_cast<int>(store.push_floats);
  constants.steps_per_round = whole.StepsPerRound();
  constants.apply_s_per_float = store.push_s / rounds / constants.floats;
  // After every iteration the first worker tells the others how to go on: two doubles.
  const double announcements = whole.IterationsPerRound();
  const double notices = static_cast<double>(store.shares) / rounds + announcements;
  constants.notices_per_round = notices;
  constants.notice_bytes =
      (static_cast<double>(store.share_bytes) / rounds + 2 * sizeof(double) * announcements) / notices;
}

}  // namespace trireme
