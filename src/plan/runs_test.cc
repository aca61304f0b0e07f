// What runs with servers show is calibrated through processes of the program itself: see tests/cli/plan_test.cc.

#include "trireme/plan/runs.h"

#include <gtest/gtest.h>

#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/system.h"

namespace trireme {
namespace {

TEST(RoundsTest, HundredthsKeepTheMean) {
  std::vector<double> ratios(1000);
  std::iota(ratios.begin(), ratios.end(), 500.5);
  for (double& ratio : ratios) ratio /= 1000;  // 0.5005 ... 1.4995
  const std::vector<int> times = Hundredths(ratios);
  ASSERT_EQ(times.size(), 100u);
  EXPECT_EQ(times.front(), 505);
  EXPECT_EQ(std::accumulate(times.begin(), times.end(), 0), 100'000);
  EXPECT_EQ(Hundredths({1.0, 0.5, 1.5}), (std::vector<int>{500, 1000, 1500}));
}

// An algorithm that takes 1 ms for each of its shards, and 1 ms more, before each of two pushes. The first comes
// after 3 ms of collecting.
class KnownTimes final : public Algorithm {
 public:
  explicit KnownTimes(const WorkerContext& context) : context_(context) {}
  void Iterate(double, MetricRow&) override {
    const int parts = context_.shards / context_.own_shards;
    std::vector<double> shared = {1.5};
    Compute(3);
    context_.store.Share(shared);
    EXPECT_EQ(shared[0], 1.5 * parts);  // as if the others had sent the same
    for (int push = 0; push < 2; ++push) {
      Compute(1 + context_.own_shards);
      std::vector<float> gradient(context_.store.params().size() + 1, 1e-3f);
      context_.store.Push(gradient, {.learning_rate = 1e-3f});
      EXPECT_FLOAT_EQ(gradient.back(), 1e-3f * static_cast<float>(parts));
    }
  }
  std::int64_t steps_per_iteration() const override { return 256; }
  void Act(std::span<const float>, const std::uint8_t*, int, std::span<float>) override {}
  void Explore(const ActionRequest&) override {}
  void SaveShards(StateWriter&) const override {}
  void SaveCommon(StateWriter&) const override {}
  void LoadShards(const StateReader&) override {}
  void LoadCommon(const StateReader&) override {}

 private:
  static void Compute(int milliseconds) {
    const double end_s = CpuSeconds() + 1e-3 * milliseconds;
    while (CpuSeconds() < end_s) {
    }
  }
  WorkerContext context_;
};

class KnownTimesSettings final : public AlgorithmSettings {
 public:
  explicit KnownTimesSettings(std::unique_ptr<AlgorithmSettings> real) : real_(std::move(real)) {}
  void Fields(ConfigFields&) override {}
  void Validate(const EnvSpec&, int) const override {}
  std::uint64_t ExperienceBytes(const EnvSpec&) const override { return 0; }
  NetworkSpec MakeNetwork(const EnvSpec& env) const override { return real_->MakeNetwork(env); }
  const OptimizerSettings& optimizer() const override { return real_->optimizer(); }
  std::unique_ptr<Algorithm> Make(const WorkerContext& context) const override {
    return std::make_unique<KnownTimes>(context);
  }

 private:
  std::unique_ptr<AlgorithmSettings> real_;
};

TEST(RoundsTest, FindsWhatLiesBetweenPushes) {
  RunSettings settings("CartPole-v1", "ppo");
  settings.fields.ApplyAssignment("shards=4", "test");
  settings.Resolve();
  settings.algorithm = std::make_unique<KnownTimesSettings>(std::move(settings.algorithm));
  const std::atomic<bool> stop = false;
  PlanConstants c;
  MeasureRounds(settings, 0.3, stop, c);
  EXPECT_NEAR(c.round_split_s, 4e-3, 1e-3);
  EXPECT_NEAR(c.round_fixed_s, 1e-3 + 3e-3 / 2, 1e-3);
  EXPECT_DOUBLE_EQ(c.steps_per_round, 128);
  EXPECT_DOUBLE_EQ(c.notices_per_round, 1);  // a share and an announcement for two pushes
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  EXPECT_EQ(static_cast<std::size_t>(c.floats), network.param_count() + 1);
  // The long first round of an iteration is long in all workers: no variation.
  EXPECT_GT(c.round_times.front(), 800);
  EXPECT_LT(c.round_times[c.round_times.size() / 2], 1200);
}

TEST(RoundsTest, ACodecIsMeasuredAndItsBytesAreCounted) {
  const auto measured = [](const std::vector<std::string>& assignments) {
    RunSettings settings("CartPole-v1", "ppo");
    for (const std::string& a : assignments) settings.fields.ApplyAssignment(a, "test");
    settings.Resolve();
    PlanConstants c;
    const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
    c.floats = static_cast<int>(network.param_count()) + 10;
    MeasureExchange(settings, c);
    return c;
  };
  const PlanConstants plain = measured({"hidden=[128,128]"});
  EXPECT_EQ(plain.wire_bytes(), plain.gradient_bytes());
  EXPECT_EQ(plain.back_bytes(), plain.gradient_bytes());
  EXPECT_EQ(plain.decode_s, 0);
  const PlanConstants coded = measured({"hidden=[128,128]", "compress=int8"});
  EXPECT_LT(coded.wire_bytes(), plain.wire_bytes() / 3.5);
  EXPECT_EQ(coded.back_bytes(), coded.wire_bytes());
  EXPECT_GT(coded.encode_s, 0);
  EXPECT_GT(coded.decode_s, 0);
  const PlanConstants back = measured({"hidden=[128,128]", "compress=powersgd=4"});
  EXPECT_EQ(back.back_bytes(), coded.wire_bytes());  // as int8
  const PlanConstants averaged = measured({"hidden=[128,128]", "local_steps=4"});
  EXPECT_EQ(averaged.wire_bytes(), 3 * plain.wire_bytes());  // with the two moments of Adam
  EXPECT_EQ(averaged.exchanges_per_round, 0.25);
}

TEST(RoundsTest, ThePlanSaysWhatIsNotUsual) {
  RunConfig run;
  EXPECT_EQ(VariantOf(run), "");
  run.precision = Precision::kBf16;
  run.compress = "int8";
  run.local_steps = 2;
  run.model_parallel = "tensor=2";
  EXPECT_EQ(VariantOf(run), "precision=bf16 compress=int8 local_steps=2 model_parallel=tensor=2");
}

// A small network, two pushes per iteration of 256 steps.
TEST(RunsTest, MeasuresARealAlgorithm) {
  auto settings = std::make_unique<RunSettings>("CartPole-v1", "ppo");
  for (const char* assignment : {"envs=16", "horizon=16", "hidden=[16]", "epochs=1", "minibatches=2",
                                 "shards=4", "workers=1", "target_kl=0"}) {
    settings->fields.ApplyAssignment(assignment, "test");
  }
  settings->Resolve();
  const std::atomic<bool> stop = false, stopped = true;
  PlanConstants c;
  EXPECT_THROW(MeasureRounds(*settings, 1e6, stopped, c), Error);
  MeasureRounds(*settings, 0.3, stop, c);
  EXPECT_DOUBLE_EQ(c.steps_per_round, 128);
  EXPECT_GT(c.RoundSeconds(4), 0);
  EXPECT_LT(c.RoundSeconds(4), c.RoundSeconds(1));
  EXPECT_GE(c.notices_per_round, 1);  // statistics and an announcement in every iteration
  EXPECT_GT(Simulate(c, {.workers = 2}).steps_per_s, 0);

  RunCase cases[] = {{{&kAllReduceWay, 1}, std::move(settings), 100'000}};
  RunInTurns(cases, 1, stopped);
  EXPECT_TRUE(std::isnan(cases[0].measured.wall_s));
  RunInTurns(cases, 2, stop);
  EXPECT_GT(cases[0].measured.wall_s, 0);
  EXPECT_GT(cases[0].measured.cpu_s, 0);
  cases[0].steps = 100;  // two runs of one iteration tell nothing, so they get longer
  RunInTurns(cases, 1, stop);
  EXPECT_GT(cases[0].steps, 256);
  EXPECT_GT(cases[0].measured.wall_s, 0);
}

TEST(RunsTest, ThreadsAreQuick) {
  const Link threads = ProbeThreads(100'000);
  EXPECT_GT(threads.latency_s, 1e-9);
  EXPECT_GT(threads.bytes_per_s, 1e6);
}

// The factor that a simulated crowd was made with is found again.
TEST(RunsTest, FitsTheSimulationToARound) {
  PlanConstants constants;
  constants.floats = 1000;
  constants.steps_per_round = 1;
  constants.round_split_s = 1e-4;
  constants.trip = {8e-5, 5e-5, 2e-5};
  for (const int cores : {2, 4}) {
    const Scenario crowd{.way = &kAsyncWay,
                         .workers = cores,
                         .cores = cores,
                         .servers_on = ServersOn::kWorkers,
                         .rounds = 400};
    for (const double crowding : {0.7, 1.0, 2.5}) {
      constants.trip_crowding = crowding;
      const double round_s = Simulate(constants, crowd).round_s;
      PlanConstants fitted = constants;
      Fit(fitted, crowd, round_s, [&](double factor) { fitted.trip_crowding = factor; });
      EXPECT_NEAR(fitted.trip_crowding, crowding, 0.02 * crowding);
    }
  }
}

}  // namespace
}  // namespace trireme
