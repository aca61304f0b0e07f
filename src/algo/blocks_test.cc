#include "trireme/algo/blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <thread>

#include "trireme/algo/on_policy.h"
#include "trireme/algo/settings.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/env/registry.h"
#include "trireme/nn/make_executor.h"

namespace trireme {
namespace {

// The second of two workers of a run with four shards.
class BlocksTest : public testing::Test {
 protected:
  struct Shard {
    Shard(const EnvEntry&, const ShardSpec& shard_spec, float the_value)
        : spec(shard_spec), value(the_value) {}
    ShardSpec spec;
    float value;
  };

  BlocksTest() : store_(MakeAllReduceStore(comm_, {.kind = OptimizerKind::kSgd}, Initial())) {}

  std::vector<float> Initial() const { return std::vector<float>(network_.param_count(), 1.0f); }
  WorkerContext context() {
    return {.env = env_,
            .executor = *executor_,
            .store = *store_,
            .seed = 7,
            .shards = 4,
            .first_shard = 2,
            .own_shards = 2};
  }

  const EnvEntry env_ = FindEnv("CartPole-v1");
  const Network network_{
      {.towers = {{.name = "t", .inputs = 4, .hidden = {3}, .outputs = 2}}, .free_vectors = {}}};
  const std::unique_ptr<Executor> executor_ = MakeExecutor(network_);
  const std::unique_ptr<Tape> tape_ = executor_->MakeTape(1);
  ThreadGroup group_{1};
  ThreadCommunicator comm_{group_, 0};
  std::unique_ptr<ParameterStore> store_;
};

TEST_F(BlocksTest, ShardsAreNumberedOverAllWorkersAndShareTheEnvironments) {
  const std::vector<Shard> shards = MakeShards<Shard>(context(), 20, 1.5f);
  ASSERT_EQ(shards.size(), 2u);
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(shards[s].spec.index, 2 + s);
    EXPECT_EQ(shards[s].spec.envs, 5);
    EXPECT_EQ(shards[s].spec.seed, 7u);
    EXPECT_EQ(shards[s].value, 1.5f);
  }
}

TEST_F(BlocksTest, SumsBeginWithZeroEveryTime) {
  std::vector<Shard> shards = MakeShards<Shard>(context(), 20, 1.5f);
  ShardSum<double> sum(2);
  for (int round = 0; round < 3; ++round) {
    const std::span<const double> totals =
        SumOverShards(shards, *store_, sum, [](const Shard& shard, std::span<double> sums) {
          sums[0] += shard.value;
          sums[1] += shard.spec.index;
        });
    EXPECT_EQ(totals[0], 3.0);
    EXPECT_EQ(totals[1], 5.0);
  }
}

TEST_F(BlocksTest, SumsAreOverTheShardsOfAllWorkers) {
  ThreadGroup both(2);
  std::array<double, 2> found = {};
  const auto work = [&](int rank) {
    ThreadCommunicator comm(both, rank);
    const auto store = MakeAllReduceStore(comm, {.kind = OptimizerKind::kSgd}, Initial());
    WorkerContext own{.env = env_, .executor = *executor_, .store = *store, .seed = 7, .shards = 4};
    own.first_shard = 2 * rank;
    own.own_shards = 2;
    std::vector<Shard> shards = MakeShards<Shard>(own, 20, 1.5f);
    ShardSum<double> sum(1);
    found[rank] = SumOverShards(shards, *store, sum, [](const Shard& shard, std::span<double> sums) {
      sums[0] += shard.spec.index;
    })[0];
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  EXPECT_EQ(found, (std::array<double, 2>{6, 6}));
}

// Remembers how large a tape it was asked for, and makes none.
class MeasuredExecutor final : public Executor {
 public:
  MeasuredExecutor(const Network& network, int pass_size) : network_(network), pass_size_(pass_size) {}
  const Network& network() const override { return network_; }
  int pass_size() const override { return pass_size_; }
  std::unique_ptr<Tape> MakeTape(int capacity) const override {
    asked = capacity;
    return nullptr;
  }
  mutable int asked = 0;

 private:
  const Network& network_;
  int pass_size_;
};

TEST_F(BlocksTest, ATapeHasRoomForAPassForAStepOfAShardAndForActing) {
  const auto capacity = [&](int pass_size, int envs) {
    const MeasuredExecutor executor(network_, pass_size);
    const WorkerContext own{.env = env_, .executor = executor, .store = *store_, .shards = 4};
    MakeWorkerTape(own, envs);
    return executor.asked;
  };
  EXPECT_EQ(capacity(512, 4 * 300), 512);
  EXPECT_EQ(capacity(64, 4 * 300), 300);
  EXPECT_EQ(capacity(64, 4), Algorithm::kMostActed);
}

TEST_F(BlocksTest, AGradientStepMovesByTheSumAndCountsStatistics) {
  std::vector<Shard> shards = MakeShards<Shard>(context(), 20, 1.5f);
  GradientSteps steps(context(), *tape_, 2);
  const auto step = [&] {
    return steps.Step(shards, {.learning_rate = 0.25f},
                      [&](const Shard& shard, std::span<float> gradient, std::span<float> stats) {
                        ASSERT_EQ(gradient.size(), network_.param_count());
                        gradient[5] += 1.0f;
                        stats[1] += static_cast<float>(shard.spec.index);
                      });
  };
  steps.Begin();
  EXPECT_TRUE(std::isnan(steps.norm_mean()));
  const std::span<const float> stats = step();
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(stats[0], 0.0f);
  EXPECT_EQ(stats[1], 5.0f);
  step();
  std::vector<float> expected = Initial();
  expected[5] -= 2 * 0.25f * 2;
  EXPECT_TRUE(std::ranges::equal(store_->params(), expected));
  EXPECT_EQ(steps.count(), 2);
  EXPECT_EQ(steps.total(1), 10.0);
  EXPECT_EQ(steps.norm_mean(), 2.0);
  steps.Begin();
  EXPECT_EQ(steps.count(), 0);
  EXPECT_EQ(steps.total(1), 0.0);
}

TEST_F(BlocksTest, AGradientThatIsNotFiniteIsAnErrorAndMovesNothing) {
  std::vector<Shard> shards = MakeShards<Shard>(context(), 20, 1.5f);
  GradientSteps steps(context(), *tape_, 1);
  EXPECT_THROW(steps.Step(shards, {.learning_rate = 0.25f},
                          [](const Shard&, std::span<float> gradient, std::span<float>) {
                            gradient[0] = std::numeric_limits<float>::infinity();
                          }),
               Error);
  EXPECT_TRUE(std::ranges::equal(store_->params(), Initial()));
}

// With gradients of fp16, one that is not finite costs an update and half the scale, until the scale is no excuse.
TEST_F(BlocksTest, AScaledGradientThatIsNotFiniteIsLeftOut) {
  const std::unique_ptr<Executor> executor = MakeExecutor(network_, {.precision = Precision::kFp16});
  struct Scales final : Tape {
    void SetParams(std::span<const float>) override {}
    std::span<const float> params() const override { return {}; }
    void SetLossScale(float scale) override { last = scale; }
    std::span<const float> Forward(std::size_t, const float*, int) override { return {}; }
    void Backward(std::size_t, const float*, std::span<float>, float*) override {}
    void AddGradient(LossSamples&, std::span<float>) override {}
    float last = 0;
  } tape;
  const WorkerContext plain = context();
  const WorkerContext scaled{.env = env_,
                             .executor = *executor,
                             .store = *store_,
                             .seed = plain.seed,
                             .shards = plain.shards,
                             .first_shard = plain.first_shard,
                             .own_shards = plain.own_shards};
  std::vector<Shard> shards = MakeShards<Shard>(scaled, 20, 1.5f);
  GradientSteps steps(scaled, tape, 1);
  EXPECT_EQ(tape.last, LossScale::kFirst);
  const auto step = [&](float value) {
    steps.Step(shards, {.learning_rate = 0.25f},
               [&](const Shard&, std::span<float> gradient, std::span<float> stats) {
                 gradient[5] = value;
                 stats[0] += 1;
               });
  };
  const float infinity = std::numeric_limits<float>::infinity();
  steps.Begin();
  step(infinity);
  EXPECT_TRUE(std::ranges::equal(store_->params(), Initial()));
  EXPECT_EQ(tape.last, LossScale::kFirst / 2);
  step(1.0f);
  EXPECT_EQ(store_->params()[5], 1.0f - 0.25f * 2);
  MetricRow row;
  steps.Report(row);
  EXPECT_EQ(row.Get("updates"), 2);
  EXPECT_EQ(row.Get("skipped_updates"), 1);
  EXPECT_EQ(row.Get("loss_scale"), LossScale::kFirst / 2);
  EXPECT_EQ(row.Get("grad_norm"), 2.0) << "of those that were made";

  StateWriter writer;
  steps.Save(writer, "s");
  tape.last = 0;
  GradientSteps other(scaled, tape, 1);
  other.Load(StateReader(writer.Encode()), "s");
  EXPECT_EQ(tape.last, LossScale::kFirst / 2);
  other.Load(StateReader(StateWriter().Encode()), "s");  // of a run in 32 bits
  EXPECT_EQ(tape.last, LossScale::kFirst / 2);

  while (tape.last > LossScale::kLeast) step(infinity);
  EXPECT_THROW(step(infinity), Error);
}

TEST(OnPolicyStats, StandardisationAndExplainedVariance) {
  const std::vector<float> values = {1, 2, 3, 6};
  std::vector<double> sums(2);
  for (const float value : values) AddMoments(value, sums);
  const Standardisation s = Standardisation::Of(sums, 4);
  double mean = 0, square = 0;
  for (const float value : values) {
    const double z = (value - s.mean) * s.scale;
    mean += z / 4;
    square += z * z / 4;
  }
  EXPECT_NEAR(mean, 0, 1e-6);
  EXPECT_NEAR(square, 1, 1e-6);
  const std::vector<double> constant = {8, 16};  // four times 2
  EXPECT_TRUE(std::isfinite(Standardisation::Of(constant, 4).scale));
  const std::vector<double> rounded = {4, 4 - 1e-15};  // a variance below 0
  EXPECT_TRUE(std::isfinite(Standardisation::Of(rounded, 4).scale));

  std::vector<double> totals(kOnPolicyStats);
  EXPECT_TRUE(std::isnan(ExplainedVariance(totals, 4)));
  for (const float value : values) AddMoments(value, std::span(totals).subspan(kReturnMoments));
  EXPECT_EQ(ExplainedVariance(totals, 4), 1.0);  // no errors
  for (const float value : values) AddMoments(value / 2, std::span(totals).subspan(kErrorMoments));
  EXPECT_NEAR(ExplainedVariance(totals, 4), 0.75, 1e-12);
  totals[kReturnMoments] = 8, totals[kReturnMoments + 1] = 16;  // four times 2
  EXPECT_TRUE(std::isnan(ExplainedVariance(totals, 4)));
}

TEST(Settings, WhatDoesNotSplitEvenlyIsRefusedByName) {
  CheckSplitsEvenly("batch", 16, 8);
  try {
    CheckSplitsEvenly("batch", 12, 8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("batch = 12"), std::string::npos) << error.what();
  }
}

TEST(Settings, RatesFollowTheirSchedule) {
  const StepConfig step{.learning_rate = 0.5, .final_fraction = 0.5, .max_grad_norm = 3};
  EXPECT_EQ(step.Rate(0), 0.5);
  EXPECT_EQ(step.Rate(1), 0.25);
  EXPECT_EQ(step.Scheduled(8, ScheduleKind::kConstant, 1), 8);
  EXPECT_EQ(step.Rule(0.125).learning_rate, 0.125f);
  EXPECT_EQ(step.Rule(0.125).max_grad_norm, 3);
}

}  // namespace
}  // namespace trireme
