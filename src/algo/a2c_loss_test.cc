#include "trireme/algo/a2c_loss.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <vector>

#include "trireme/algo/ppo_loss.h"
#include "trireme/algo/test_loss.h"
#include "trireme/base/rng.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

using Stats = std::array<float, kA2cStats>;
using DoubleStats = std::array<double, kA2cStats>;

// The data of a batch, owned.
struct Data {
  A2cBatch batch() const {
    return {.n = static_cast<int>(advantages.size()),
            .actions = actions.data(),
            .advantages = advantages.data(),
            .returns = returns.data(),
            .advantage_mean = advantage_mean,
            .advantage_scale = advantage_scale};
  }
  double Advantage(int b) const { return (advantages[b] - double{advantage_mean}) * advantage_scale; }

  std::vector<float> actions, advantages, returns;
  float advantage_mean = 0, advantage_scale = 1;
};

Data RandomData(int n, RandomStream& random) {
  Data data;
  for (int b = 0; b < n; ++b) {
    data.advantages.push_back(static_cast<float>(2 * random.NextNormal()));
    data.returns.push_back(static_cast<float>(random.NextNormal()));
  }
  data.advantage_mean = 0.3f;
  data.advantage_scale = 0.7f;
  return data;
}

// The loss in double precision, as the header states it. Sums over samples, before any coefficient.
DoubleStats CategoricalReference(const Data& data, const std::vector<double>& logits, int choices,
                                 int stride) {
  DoubleStats stats{};
  for (int b = 0; b < data.batch().n; ++b) {
    const double* row = logits.data() + b * stride;
    double partition = 0;
    for (int a = 0; a < choices; ++a) partition += std::exp(row[a]);
    for (int a = 0; a < choices; ++a) {
      const double p = std::exp(row[a]) / partition;
      stats[kA2cEntropy] -= p * std::log(p);
      if (a == static_cast<int>(data.actions[b])) stats[kA2cPolicyLoss] -= data.Advantage(b) * std::log(p);
    }
  }
  return stats;
}

DoubleStats GaussianReference(const Data& data, const std::vector<double>& means, int stride,
                              const std::vector<double>& log_std) {
  DoubleStats stats{};
  const int size = static_cast<int>(log_std.size());
  for (int b = 0; b < data.batch().n; ++b) {
    for (int d = 0; d < size; ++d) {
      const double variance = std::exp(2 * log_std[d]);
      const double distance = data.actions[b * size + d] - means[b * stride + d];
      const double log_prob = -distance * distance / (2 * variance) - 0.5 * (kLogTwoPi + std::log(variance));
      stats[kA2cPolicyLoss] -= data.Advantage(b) * log_prob;
      stats[kA2cEntropy] += 0.5 * (1 + kLogTwoPi + std::log(variance));
    }
  }
  return stats;
}

DoubleStats ValueReference(const Data& data, const std::vector<double>& values, int stride) {
  DoubleStats stats{};
  for (int b = 0; b < data.batch().n; ++b) {
    stats[kA2cValueLoss] += 0.5 * std::pow(values[b * stride] - data.returns[b], 2);
  }
  return stats;
}

double Loss(const A2cLossRule& rule, const DoubleStats& stats) {
  return rule.per_sample * (stats[kA2cPolicyLoss] - rule.entropy_coef * stats[kA2cEntropy] +
                            rule.value_coef * stats[kA2cValueLoss]);
}

void ExpectStats(const Stats& actual, const DoubleStats& expected, double tolerance) {
  for (int i = 0; i < kA2cStats; ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << "statistic " << i;
}

class A2cBatchSizes : public testing::TestWithParam<std::tuple<int, Isa>> {
 protected:
  A2cBatchSizes() { OverrideIsa(std::get<1>(GetParam())); }
  ~A2cBatchSizes() override { OverrideIsa(best_); }
  const int n = std::get<0>(GetParam());

 private:
  const Isa best_ = CurrentIsa();
};
INSTANTIATE_TEST_SUITE_P(Sizes, A2cBatchSizes,
                         testing::Combine(testing::Values(1, 7, 8, 37),
                                          testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512)));

TEST_P(A2cBatchSizes, CategoricalGradientAndStatistics) {
  for (const int choices : {2, 3, 6}) {
    for (const int extra : {0, 1, 3}) {  // outputs of a shared tower that are not the policy's
      for (const float entropy_coef : {0.0f, 0.3f}) {
        const int stride = choices + extra;
        RandomStream random(41, Purpose::kTest, static_cast<std::uint32_t>(choices), n + extra);
        std::vector<double> logits = RandomOutputs(static_cast<std::size_t>(n) * stride, 2, random);
        Data data = RandomData(n, random);
        for (int b = 0; b < n; ++b) data.actions.push_back(static_cast<float>(random.NextBelow(choices)));
        const A2cLossRule rule{.entropy_coef = entropy_coef, .per_sample = 0.125f};

        std::vector<float> d(static_cast<std::size_t>(n) * stride, kUntouched);
        Stats stats{};
        const std::vector<float> inputs = ToFloats(logits);
        A2cCategoricalLoss(data.batch(), rule, inputs.data(), choices, stride, d.data(), stats);

        const auto loss = [&] { return Loss(rule, CategoricalReference(data, logits, choices, stride)); };
        for (int i = 0; i < n * stride; ++i) {
          if (i % stride < choices) {
            EXPECT_NEAR(d[i], Slope(logits, i, loss), 5e-6)
                << "sample " << i / stride << " logit " << i % stride;
          } else {
            EXPECT_EQ(d[i], kUntouched);
          }
        }
        ExpectStats(stats, CategoricalReference(data, logits, choices, stride), 2e-4);
      }
    }
  }
}

TEST_P(A2cBatchSizes, GaussianGradientAndStatistics) {
  for (const int size : {1, 3, 6}) {
    for (const int extra : {0, 1, 3}) {
      for (const float entropy_coef : {0.0f, 0.3f}) {
        const int stride = size + extra;
        RandomStream random(42, Purpose::kTest, static_cast<std::uint32_t>(size), n + extra);
        std::vector<double> means = RandomOutputs(static_cast<std::size_t>(n) * stride, 1, random);
        std::vector<double> log_std = RandomOutputs(size, 0.5, random);
        Data data = RandomData(n, random);
        for (int i = 0; i < n * size; ++i) data.actions.push_back(static_cast<float>(random.NextNormal()));
        const A2cLossRule rule{.entropy_coef = entropy_coef, .per_sample = 0.125f};

        std::vector<float> d(static_cast<std::size_t>(n) * stride, kUntouched);
        std::vector<float> d_log_std(size, 100.0f);  // it adds to what is there
        Stats stats{};
        const std::vector<float> inputs = ToFloats(means), spread = ToFloats(log_std);
        A2cGaussianLoss(data.batch(), rule, inputs.data(), size, stride, spread, d.data(), d_log_std, stats);

        const DoubleStats expected = GaussianReference(data, means, stride, log_std);
        const auto loss = [&] { return Loss(rule, GaussianReference(data, means, stride, log_std)); };
        for (int i = 0; i < n * stride; ++i) {
          if (i % stride < size) {
            const double slope = Slope(means, i, loss);
            EXPECT_NEAR(d[i], slope, 5e-6 * (1 + std::abs(slope)))
                << "sample " << i / stride << " dimension " << i % stride;
          } else {
            EXPECT_EQ(d[i], kUntouched);
          }
        }
        for (int k = 0; k < size; ++k) {
          EXPECT_NEAR(d_log_std[k] - 100.0f, Slope(log_std, k, loss), 5e-4) << "log_std " << k;
        }
        ExpectStats(stats, expected, 1e-3);
      }
    }
  }
}

TEST_P(A2cBatchSizes, ValueGradientAndStatistics) {
  for (const int stride : {1, 4}) {
    RandomStream random(43, Purpose::kTest, 0, n + stride);
    std::vector<double> values = RandomOutputs(static_cast<std::size_t>(n) * stride, 1, random);
    const Data data = RandomData(n, random);
    const A2cLossRule rule{.value_coef = 0.6f, .per_sample = 0.125f};
    std::vector<float> d(static_cast<std::size_t>(n) * stride, kUntouched);
    Stats stats{};
    const std::vector<float> inputs = ToFloats(values);
    A2cValueLoss(data.batch(), rule, inputs.data(), stride, d.data(), stats);

    const auto loss = [&] { return Loss(rule, ValueReference(data, values, stride)); };
    for (int i = 0; i < n * stride; ++i) {
      if (i % stride == 0) {
        EXPECT_NEAR(d[i], Slope(values, i, loss), 2e-6) << "sample " << i / stride;
      } else {
        EXPECT_EQ(d[i], kUntouched);
      }
    }
    ExpectStats(stats, ValueReference(data, values, stride), 1e-4);
  }
}

// The same samples as PPO sees them before the first update: old log-probabilities that make the ratio 1.
PpoBatch AtRatioOne(const Data& data, const std::vector<float>& log_probs) {
  return {.n = static_cast<int>(log_probs.size()),
          .actions = data.actions.data(),
          .old_log_probs = log_probs.data(),
          .advantages = data.advantages.data(),
          .returns = data.returns.data(),
          .advantage_mean = data.advantage_mean,
          .advantage_scale = data.advantage_scale};
}

TEST_P(A2cBatchSizes, EqualsPpoAtRatioOne) {
  constexpr int kSize = 3;
  RandomStream random(44, Purpose::kTest, 0, n);
  const std::vector<double> outputs = RandomOutputs(static_cast<std::size_t>(n) * kSize, 1, random);
  const std::vector<float> inputs = ToFloats(outputs);
  const A2cLossRule rule{.entropy_coef = 0.1f, .per_sample = 0.125f};
  const PpoLossRule ppo_rule{.clip = 0.2f, .entropy_coef = 0.1f, .per_sample = 0.125f};
  Stats stats{};
  std::array<float, kPpoStats> ppo_stats{};
  std::vector<float> d(inputs.size()), ppo_d(inputs.size());
  // The log-probability of one sample: minus the loss of an advantage of 1.
  Data one;
  one.advantages = {1};
  one.returns = {0};

  Data data = RandomData(n, random);
  std::vector<float> log_probs;
  for (int b = 0; b < n; ++b) {
    data.actions.push_back(static_cast<float>(random.NextBelow(kSize)));
    one.actions = {data.actions[b]};
    const std::vector<double> row(outputs.begin() + b * kSize, outputs.begin() + (b + 1) * kSize);
    log_probs.push_back(static_cast<float>(-CategoricalReference(one, row, kSize, kSize)[kA2cPolicyLoss]));
  }
  A2cCategoricalLoss(data.batch(), rule, inputs.data(), kSize, kSize, d.data(), stats);
  CategoricalPolicyLoss(AtRatioOne(data, log_probs), ppo_rule, inputs.data(), kSize, kSize, ppo_d.data(),
                        ppo_stats);
  for (std::size_t i = 0; i < d.size(); ++i) EXPECT_NEAR(d[i], ppo_d[i], 2e-6) << "logit " << i;

  const std::vector<double> log_std = {0.25, -0.5, 0.125};
  const std::vector<float> spread = ToFloats(log_std);
  std::vector<float> d_log_std(kSize), ppo_d_log_std(kSize);
  data.actions.clear();
  for (int i = 0; i < n * kSize; ++i) data.actions.push_back(static_cast<float>(random.NextNormal()));
  for (int b = 0; b < n; ++b) {
    one.actions.assign(data.actions.begin() + b * kSize, data.actions.begin() + (b + 1) * kSize);
    const std::vector<double> row(outputs.begin() + b * kSize, outputs.begin() + (b + 1) * kSize);
    log_probs[b] = static_cast<float>(-GaussianReference(one, row, kSize, log_std)[kA2cPolicyLoss]);
  }
  A2cGaussianLoss(data.batch(), rule, inputs.data(), kSize, kSize, spread, d.data(), d_log_std, stats);
  GaussianPolicyLoss(AtRatioOne(data, log_probs), ppo_rule, inputs.data(), kSize, kSize, spread, ppo_d.data(),
                     ppo_d_log_std, ppo_stats);
  for (std::size_t i = 0; i < d.size(); ++i) {
    EXPECT_NEAR(d[i], ppo_d[i], 5e-6 * (1 + std::abs(d[i]))) << "mean " << i;
  }
  for (int k = 0; k < kSize; ++k) {
    EXPECT_NEAR(d_log_std[k], ppo_d_log_std[k], 5e-5 * (1 + std::abs(d_log_std[k]))) << "log_std " << k;
  }
}

// Without an advantage only the entropy pulls; going against the gradient must raise it.
TEST(A2cLoss, DescentRaisesEntropy) {
  Data data;
  data.actions = {0};
  data.advantages = {0};
  data.returns = {0};
  const A2cLossRule rule{.entropy_coef = 0.5f};
  const float logits[3] = {2, 0, 0};
  float d[3];
  Stats stats{};
  A2cCategoricalLoss(data.batch(), rule, logits, 3, 3, d, stats);
  EXPECT_GT(d[0], 0.01f);  // the likeliest becomes less likely
  EXPECT_LT(d[1], -0.005f);
  EXPECT_LT(d[2], -0.005f);

  const float mean = 0.3f, log_std = -1;
  float d_mean = kUntouched, d_log_std = 0;
  A2cGaussianLoss(data.batch(), rule, &mean, 1, 1, {&log_std, 1}, &d_mean, {&d_log_std, 1}, stats);
  EXPECT_EQ(d_mean, 0);
  EXPECT_EQ(d_log_std, -0.5f);  // the distribution becomes wider
}

TEST(A2cLoss, DescentMakesGoodActionsLikelier) {
  Data data;
  data.actions = {1};
  data.advantages = {3};
  data.returns = {0};
  const float logits[2] = {0, 0};
  float d[2];
  Stats stats{};
  A2cCategoricalLoss(data.batch(), {}, logits, 2, 2, d, stats);
  EXPECT_NEAR(d[0], 1.5, 1e-6);  // A p_0
  EXPECT_NEAR(d[1], -1.5, 1e-6);
  EXPECT_NEAR(stats[kA2cPolicyLoss], 3 * std::log(2.0), 1e-5);
}

TEST(A2cLoss, StatisticsAreAddedToWhatIsThere) {
  Data data;
  data.advantages = {0};
  data.returns = {1};
  const float value = 3;
  float d = 0;
  Stats stats;
  stats.fill(10);
  A2cValueLoss(data.batch(), {}, &value, 1, &d, stats);
  EXPECT_EQ(stats[kA2cValueLoss], 12);
  EXPECT_EQ(stats[kA2cPolicyLoss], 10);
  EXPECT_EQ(stats[kA2cEntropy], 10);
}

}  // namespace
}  // namespace trireme
