#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "trireme/base/aligned.h"
#include "trireme/base/error.h"
#include "trireme/base/median.h"
#include "trireme/base/rng.h"
#include "trireme/base/system.h"
#include "trireme/codec/codec.h"
#include "trireme/comm/group_of_one.h"
#include "trireme/nn/make_executor.h"
#include "trireme/plan/runs.h"

namespace trireme {
namespace {

constexpr double kLongestWarmUp = 60;   // seconds
constexpr double kCodecSeconds = 0.05;  // for encoding, and for decoding
constexpr int kTurns = 8;               // so that what changes on the machine touches all alike

// One worker with 1/parts of the work, which goes on whenever it is told to. It is the store of its algorithm,
// too: it notes how much time lies between pushes, which is what the worker computes, hands them to a store
// that is alone, and answers pushes and shares as if `parts` workers had sent the same.
class LoneWorker final : ParameterStore {
 public:
  LoneWorker(const RunSettings& settings, const Network& network, std::span<const float> initial, int parts)
      : parts_(parts),
        executor_(MakeExecutor(network, settings.run.ComputingOf(0))),
        store_(MakeAllReduceStore(alone_.comm(), settings.algorithm->optimizer(), initial)),
        algorithm_(settings.algorithm->Make({.env = settings.env(),
                                             .executor = *executor_,
                                             .store = *this,
                                             .seed = settings.run.seed,
                                             .shards = settings.run.shards,
                                             .first_shard = 0,
                                             .own_shards = settings.run.shards / parts})) {
    // Kernels are generated and a replay is filled before the first push; neither is a part of the rounds.
    for (const double begun_s = MonotonicSeconds(); compute_s.empty(); Iterate()) {
      if (MonotonicSeconds() - begun_s > kLongestWarmUp) {
        Fail("there was no gradient within {:g} s: reduce what is collected before learning starts",
             kLongestWarmUp);
      }
    }
    Iterate();
    compute_s.clear();
    iterations = pushes = shares = computed_s = push_s = 0;
    since_s_ = paused_s_ = CpuSeconds();
  }

  void RunFor(double seconds, const std::atomic<bool>& stop) {
    since_s_ += CpuSeconds() - paused_s_;
    const double end_s = MonotonicSeconds() + seconds;
    do Iterate();
    while (MonotonicSeconds() < end_s && !stop);
    paused_s_ = CpuSeconds();
  }

  std::vector<std::vector<double>> compute_s;  // before each push, by its position in the iteration
  double iterations = 0, pushes = 0, shares = 0;
  double computed_s = 0, push_s = 0;  // between pushes, and in them
  std::size_t push_floats = 0;        // of the last one

  double steps() const { return iterations * static_cast<double>(algorithm_->steps_per_iteration()); }
  double MeanRound() const {
    if (pushes == 0) Fail("too few gradients to measure: give more --seconds");
    return computed_s / pushes;
  }
  // Each round relative to the median of its position, which a single disturbed round does not move.
  std::vector<double> Ratios() const {
    std::vector<double> ratios;
    for (const std::vector<double>& seconds : compute_s) {
      const double median_s = Median(seconds);
      for (const double each : seconds) {
        if (median_s > 0) ratios.push_back(each / median_s);
      }
    }
    return ratios;
  }

 private:
  void Iterate() {
    MetricRow row;
    position_ = 0;
    algorithm_->Iterate(0, row);
    ++iterations;
  }

  double Push(std::span<float> gradient, const UpdateRule& rule) override {
    if (position_ == compute_s.size()) compute_s.emplace_back();
    compute_s[position_++].push_back(CpuSeconds() - since_s_);
    computed_s += compute_s[position_ - 1].back();
    ++pushes;
    for (float& value : gradient) value *= static_cast<float>(parts_);
    const double begun_s = CpuSeconds();
    const double norm = store_->Push(gradient, rule);
    since_s_ = CpuSeconds();
    push_s += since_s_ - begun_s;
    push_floats = gradient.size();
    return norm;
  }
  void Share(std::span<double> values) override {
    for (double& value : values) value *= parts_;
    ++shares;
  }
  std::span<const float> Pull() override { return store_->Pull(); }
  std::span<const float> params() const override { return store_->params(); }
  void Refresh() override { store_->Refresh(); }
  Traffic traffic() const override { return store_->traffic(); }
  Staleness staleness() const override { return store_->staleness(); }
  void Save(StateWriter& out) const override { store_->Save(out); }
  void Load(const StateReader& in) override { store_->Load(in); }

  const int parts_;
  std::size_t position_ = 0;
  double since_s_ = 0, paused_s_ = 0;  // the end of the last push, as if there had been no pauses since
  std::unique_ptr<Executor> executor_;
  GroupOfOne alone_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<Algorithm> algorithm_;
};

// What it takes when others disturb it least.
template <class Act>
double Least(Act&& act) {
  double least_s = INFINITY;
  const double end_s = MonotonicSeconds() + kCodecSeconds;
  do {
    const double begun_s = MonotonicSeconds();
    act();
    least_s = std::min(least_s, MonotonicSeconds() - begun_s);
  } while (MonotonicSeconds() < end_s);
  return std::max(least_s, 1e-9);
}

}  // namespace

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
  std::vector<float> initial(network.param_count());
  network.Initialise(settings.run.seed, initial);
  LoneWorker whole(settings, network, initial, 1), part(settings, network, initial, shards);
  for (int turn = 0; turn < kTurns && !stop; ++turn) {
    whole.RunFor(seconds / 2 / kTurns, stop);
    part.RunFor(seconds / 2 / kTurns, stop);
  }
  if (stop) Fail("interrupted");
  const double whole_s = whole.MeanRound(), part_s = part.MeanRound();
  constants.round_split_s =
      shards == 1 ? whole_s : std::clamp((whole_s - part_s) * shards / (shards - 1), 0.0, whole_s);
  constants.round_fixed_s = whole_s - constants.round_split_s;
  constants.round_times = Hundredths(whole.Ratios());
  constants.floats = static_cast<int>(whole.push_floats);
  constants.steps_per_round = whole.steps() / whole.pushes;
  constants.apply_s_per_float = whole.push_s / whole.pushes / constants.floats;
  // After every iteration the first worker tells the others how to go on.
  constants.notices_per_round = (whole.shares + whole.iterations) / whole.pushes;
}

std::string VariantOf(const RunConfig& run) {
  std::string text;
  const auto add = [&](const char* name, const auto& value, const auto& usual) {
    if (value != usual) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  };
  add("precision", NameOf(run.precision), NameOf(Precision::kFp32));
  add("compress", run.gradient_codec(), kNoCodec);
  add("local_steps", run.local_steps, 0);
  add("model_parallel", run.model_parallel, "none");
  return text;
}

void MeasureExchange(const RunSettings& settings, PlanConstants& constants) {
  const RunConfig& run = settings.run;
  if (run.local_steps > 0) {
    const std::size_t moments = OptimizerRule(settings.algorithm->optimizer()).moments();
    constants.exchange_bytes = static_cast<double>(1 + moments) * constants.gradient_bytes();
    constants.exchanges_per_round = 1.0 / run.local_steps;
    constants.notices_per_round += 1;  // statistics of the loss
  }
  const std::string name = run.gradient_codec();
  if (name == kNoCodec) return;
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  const std::size_t params = network.param_count();
  const std::unique_ptr<Codec> codec = MakeCodec(name), back = MakeCodecOrNone(run.params_codec());
  const double statistics = constants.gradient_bytes() - static_cast<double>(sizeof(float) * params);
  constants.exchange_bytes = static_cast<double>(codec->bytes(params)) + statistics;
  if (back != nullptr) constants.answer_bytes = static_cast<double>(back->bytes(params)) + statistics;
  AlignedBuffer<float> gradient(params), decoded(params);
  RandomStream random(run.seed, Purpose::kPlan, 0, 0);
  for (float& value : gradient) value = static_cast<float>(random.NextUniform() - 0.5);
  CodecState state = codec->MakeState(params);
  std::vector<std::byte> message(codec->bytes(params));
  constants.encode_s = Least([&] { codec->Encode(gradient.span(), state, message); });
  constants.decode_s = Least([&] { codec->Decode(message, decoded.span()); });
}

}  // namespace trireme
