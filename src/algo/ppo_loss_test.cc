#include "trireme/algo/ppo_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "trireme/algo/test_loss.h"
#include "trireme/base/rng.h"

namespace trireme {
namespace {

using Stats = std::array<float, kPpoStats>;
using DoubleStats = std::array<double, kPpoStats>;

// The data of a batch, owned.
struct Data {
  PpoBatch batch() const {
    return {.n = static_cast<int>(advantages.size()),
            .actions = actions.data(),
            .old_log_probs = old_log_probs.data(),
            .advantages = advantages.data(),
            .returns = returns.data(),
            .old_values = old_values.data(),
            .advantage_mean = advantage_mean,
            .advantage_scale = advantage_scale};
  }
  std::vector<float> actions, old_log_probs, advantages, returns, old_values;
  float advantage_mean = 0, advantage_scale = 1;
};

Data RandomData(int n, int action_size, RandomStream& random) {
  Data data;
  data.actions.resize(static_cast<std::size_t>(n) * action_size);
  data.old_log_probs.resize(n);
  for (int b = 0; b < n; ++b) {
    data.advantages.push_back(static_cast<float>(2 * random.NextNormal()));
    data.returns.push_back(static_cast<float>(random.NextNormal()));
    data.old_values.push_back(static_cast<float>(random.NextNormal()));
  }
  data.advantage_mean = 0.3f;
  data.advantage_scale = 0.7f;
  return data;
}

// Old log-probabilities that put the ratios on both sides of both ends of the clip range, and inside.
void SpreadRatios(Data& data, const std::vector<double>& log_probs) {
  constexpr double kRatios[] = {1.5, 0.5, 1.1, 0.9, 1.0, 3.0, 0.1};
  for (std::size_t b = 0; b < log_probs.size(); ++b) {
    data.old_log_probs[b] = static_cast<float>(log_probs[b] - std::log(kRatios[b % 7]));
  }
}

// The loss in double precision, as the header states it. Sums over samples, before any coefficient.
void AddPolicyStats(const Data& data, const PpoLossRule& rule, int b, double log_prob, double entropy,
                    DoubleStats& stats) {
  const double advantage = (data.advantages[b] - double{data.advantage_mean}) * data.advantage_scale;
  const double log_ratio = log_prob - data.old_log_probs[b];
  const double ratio = std::exp(log_ratio);
  const double clipped = std::clamp(ratio, 1.0 - rule.clip, 1.0 + rule.clip);
  stats[kPolicyLoss] -= std::min(ratio * advantage, clipped * advantage);
  stats[kEntropy] += entropy;
  stats[kApproxKl] += ratio - 1 - log_ratio;
  stats[kClipped] += ratio != clipped;
}

double PolicyLoss(const PpoLossRule& rule, const DoubleStats& stats) {
  return rule.per_sample * (stats[kPolicyLoss] - rule.entropy_coef * stats[kEntropy]);
}

double CategoricalLogProb(const double* logits, int choices, int action) {
  double sum = 0;
  for (int a = 0; a < choices; ++a) sum += std::exp(logits[a]);
  return logits[action] - std::log(sum);
}

DoubleStats CategoricalReference(const Data& data, const PpoLossRule& rule, const std::vector<double>& logits,
                                 int choices, int stride) {
  DoubleStats stats{};
  for (std::size_t b = 0; b < data.advantages.size(); ++b) {
    const double* row = logits.data() + b * stride;
    double entropy = 0;
    for (int a = 0; a < choices; ++a) {
      const double log_p = CategoricalLogProb(row, choices, a);
      entropy -= std::exp(log_p) * log_p;
    }
    AddPolicyStats(data, rule, static_cast<int>(b),
                   CategoricalLogProb(row, choices, static_cast<int>(data.actions[b])), entropy, stats);
  }
  return stats;
}

double GaussianLogProb(const float* action, const double* mean, const std::vector<double>& log_std) {
  double log_prob = 0;
  for (std::size_t d = 0; d < log_std.size(); ++d) {
    const double z = (action[d] - mean[d]) / std::exp(log_std[d]);
    log_prob -= 0.5 * z * z + log_std[d] + 0.5 * kLogTwoPi;
  }
  return log_prob;
}

DoubleStats GaussianReference(const Data& data, const PpoLossRule& rule, const std::vector<double>& means,
                              int stride, const std::vector<double>& log_std) {
  DoubleStats stats{};
  double entropy = 0;
  for (const double s : log_std) entropy += s + 0.5 * (1 + kLogTwoPi);
  for (std::size_t b = 0; b < data.advantages.size(); ++b) {
    const double log_prob =
        GaussianLogProb(data.actions.data() + b * log_std.size(), means.data() + b * stride, log_std);
    AddPolicyStats(data, rule, static_cast<int>(b), log_prob, entropy, stats);
  }
  return stats;
}

double ValueReference(const Data& data, const PpoLossRule& rule, const std::vector<double>& values,
                      int stride) {
  double sum = 0;
  for (std::size_t b = 0; b < data.advantages.size(); ++b) {
    const double value = values[b * stride], old = data.old_values[b], target = data.returns[b];
    double loss = 0.5 * std::pow(value - target, 2);
    if (rule.value_clip > 0) {
      const double near = old + std::clamp(value - old, -double{rule.value_clip}, double{rule.value_clip});
      loss = std::max(loss, 0.5 * std::pow(near - target, 2));
    }
    sum += loss;
  }
  return sum;
}

void ExpectStats(const Stats& actual, const DoubleStats& expected, double tolerance) {
  for (int i = 0; i < kPpoStats; ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << "statistic " << i;
}

class BatchSizes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, BatchSizes, testing::Values(1, 7, 8, 20));

TEST_P(BatchSizes, CategoricalGradientAndStatistics) {
  const int n = GetParam();
  for (const int choices : {2, 3, 7}) {
    for (const int extra : {0, 1}) {  // 1: a shared tower, whose last output is the value
      for (const float entropy_coef : {0.0f, 0.3f}) {
        const int stride = choices + extra;
        RandomStream random(31, Purpose::kTest, static_cast<std::uint32_t>(choices), n + extra);
        std::vector<double> logits = RandomOutputs(static_cast<std::size_t>(n) * stride, 2, random);
        Data data = RandomData(n, 1, random);
        std::vector<double> log_probs;
        for (int b = 0; b < n; ++b) {
          data.actions[b] = static_cast<float>(random.NextBelow(choices));
          log_probs.push_back(
              CategoricalLogProb(logits.data() + b * stride, choices, static_cast<int>(data.actions[b])));
        }
        SpreadRatios(data, log_probs);
        const PpoLossRule rule{.clip = 0.2f, .entropy_coef = entropy_coef, .per_sample = 0.125f};

        std::vector<float> d(static_cast<std::size_t>(n) * stride, kUntouched);
        Stats stats{};
        const std::vector<float> inputs = ToFloats(logits);
        CategoricalPolicyLoss(data.batch(), rule, inputs.data(), choices, stride, d.data(), stats);

        const auto loss = [&] {
          return PolicyLoss(rule, CategoricalReference(data, rule, logits, choices, stride));
        };
        for (int b = 0; b < n; ++b) {
          for (int a = 0; a < choices; ++a) {
            const std::size_t i = static_cast<std::size_t>(b) * stride + a;
            EXPECT_NEAR(d[i], Slope(logits, i, loss), 2e-5) << "sample " << b << " logit " << a;
          }
          if (extra == 1) {
            EXPECT_EQ(d[b * stride + choices], kUntouched);
          }
        }
        ExpectStats(stats, CategoricalReference(data, rule, logits, choices, stride), 2e-4);
      }
    }
  }
}

TEST_P(BatchSizes, GaussianGradientAndStatistics) {
  const int n = GetParam();
  for (const int size : {1, 3, 6}) {
    for (const int extra : {0, 1}) {
      for (const float entropy_coef : {0.0f, 0.3f}) {
        const int stride = size + extra;
        RandomStream random(32, Purpose::kTest, static_cast<std::uint32_t>(size), n + extra);
        std::vector<double> means = RandomOutputs(static_cast<std::size_t>(n) * stride, 1, random);
        std::vector<double> log_std = RandomOutputs(size, 0.5, random);
        Data data = RandomData(n, size, random);
        std::vector<double> log_probs;
        for (int b = 0; b < n; ++b) {
          for (int k = 0; k < size; ++k) {
            data.actions[b * size + k] =
                static_cast<float>(means[b * stride + k] + std::exp(log_std[k]) * random.NextNormal());
          }
          log_probs.push_back(
              GaussianLogProb(data.actions.data() + b * size, means.data() + b * stride, log_std));
        }
        SpreadRatios(data, log_probs);
        const PpoLossRule rule{.clip = 0.2f, .entropy_coef = entropy_coef, .per_sample = 0.125f};

        std::vector<float> d(static_cast<std::size_t>(n) * stride, kUntouched);
        std::vector<float> d_log_std(size, 100.0f);  // it adds to what is there
        Stats stats{};
        const std::vector<float> inputs = ToFloats(means), spread = ToFloats(log_std);
        GaussianPolicyLoss(data.batch(), rule, inputs.data(), size, stride, spread, d.data(), d_log_std,
                           stats);

        const auto loss = [&] {
          return PolicyLoss(rule, GaussianReference(data, rule, means, stride, log_std));
        };
        for (int b = 0; b < n; ++b) {
          for (int k = 0; k < size; ++k) {
            const std::size_t i = static_cast<std::size_t>(b) * stride + k;
            const double slope = Slope(means, i, loss);
            EXPECT_NEAR(d[i], slope, 5e-5 * (1 + std::abs(slope))) << "sample " << b << " dimension " << k;
          }
          if (extra == 1) {
            EXPECT_EQ(d[b * stride + size], kUntouched);
          }
        }
        for (int k = 0; k < size; ++k) {
          EXPECT_NEAR(d_log_std[k] - 100.0f, Slope(log_std, k, loss), 5e-4) << "log_std " << k;
        }
        ExpectStats(stats, GaussianReference(data, rule, means, stride, log_std), 1e-3);
      }
    }
  }
}

TEST_P(BatchSizes, ValueGradientAndStatistics) {
  const int n = GetParam();
  for (const float value_clip : {0.0f, 0.4f}) {
    for (const int stride : {1, 4}) {
      RandomStream random(33, Purpose::kTest, 0, n + stride);
      std::vector<double> values = RandomOutputs(static_cast<std::size_t>(n) * stride, 1, random);
      const Data data = RandomData(n, 1, random);
      const PpoLossRule rule{.value_clip = value_clip, .value_coef = 0.6f, .per_sample = 0.125f};
      std::vector<float> d(static_cast<std::size_t>(n) * stride, kUntouched);
      Stats stats{};
      const std::vector<float> inputs = ToFloats(values);
      ValueLoss(data.batch(), rule, inputs.data(), stride, d.data(), stats);

      const auto loss = [&] {
        return double{rule.value_coef} * rule.per_sample * ValueReference(data, rule, values, stride);
      };
      for (int i = 0; i < n * stride; ++i) {
        if (i % stride == 0) {
          EXPECT_NEAR(d[i], Slope(values, i, loss), 2e-6) << "sample " << i / stride;
        } else {
          EXPECT_EQ(d[i], kUntouched);
        }
      }
      DoubleStats expected{};
      expected[kValueLoss] = ValueReference(data, rule, values, stride);
      ExpectStats(stats, expected, 1e-4);
    }
  }
}

// One sample of two equally likely actions, the first chosen; dL/dlogit_0 = g (1 - 1/2).
float FirstLogitGradient(float ratio, float advantage) {
  Data data;
  data.actions = {0};
  data.old_log_probs = {std::log(0.5f) - std::log(ratio)};
  data.advantages = {advantage};
  data.returns = data.old_values = {0};
  const float logits[2] = {0, 0};
  float d[2];
  Stats stats{};
  CategoricalPolicyLoss(data.batch(), {.clip = 0.2f}, logits, 2, 2, d, stats);
  return d[0];
}

TEST(PpoLoss, EachBranchOfTheMinimum) {
  EXPECT_NEAR(FirstLogitGradient(1.1f, 2), -1.1, 1e-5);  // inside: -r A / 2
  EXPECT_NEAR(FirstLogitGradient(1.1f, -2), 1.1, 1e-5);
  EXPECT_EQ(FirstLogitGradient(1.5f, 2), 0);             // good, and already more likely: enough
  EXPECT_NEAR(FirstLogitGradient(1.5f, -2), 1.5, 1e-5);  // bad, and more likely: push back
  EXPECT_NEAR(FirstLogitGradient(0.5f, 2), -0.5, 1e-5);  // good, and less likely: pull back
  EXPECT_EQ(FirstLogitGradient(0.5f, -2), 0);            // bad, and already less likely: enough
}

struct ValueCase {
  float value, old, target, gradient;
};

TEST(PpoLoss, EachBranchOfValueClipping) {
  constexpr float kClip = 0.5f;
  const ValueCase cases[] = {
      {1.2f, 1.0f, 3.0f, -1.8f},  // within reach of the old value: as without clipping
      {2.0f, 1.0f, 3.0f, 0.0f},   // moved towards the target, beyond the clip: the clipped error is larger
      {0.0f, 1.0f, 3.0f, -3.0f},  // moved away, beyond the clip: the plain error is larger
      {4.0f, 1.0f, 2.0f, 2.0f},   // far past the target: the plain error is larger
  };
  for (const ValueCase& c : cases) {
    Data data;
    data.advantages = {0};
    data.returns = {c.target};
    data.old_values = {c.old};
    float d = kUntouched;
    Stats stats{};
    ValueLoss(data.batch(), {.value_clip = kClip, .value_coef = 1}, &c.value, 1, &d, stats);
    EXPECT_NEAR(d, c.gradient, 1e-6) << c.value;
  }
}

// Within the limit old + (value - old) is the value again but for rounding. With an old value far larger, the
// rounding makes the clipped error the larger one; that must not silence the gradient.
TEST(PpoLoss, RoundingWithinTheValueLimitKeepsTheGradient) {
  constexpr float kValue = 0.1f, kOld = 1000, kTarget = 1, kLimit = 2000;
  constexpr float kRounded = kOld + (kValue - kOld);
  static_assert((kRounded - kTarget) * (kRounded - kTarget) > (kValue - kTarget) * (kValue - kTarget));
  constexpr int kSamples = 9;  // a full vector and one more
  Data data;
  data.advantages.assign(kSamples, 0);
  data.returns.assign(kSamples, kTarget);
  data.old_values.assign(kSamples, kOld);
  const std::vector<float> values(kSamples, kValue);
  std::vector<float> d(kSamples, kUntouched);
  Stats stats{};
  ValueLoss(data.batch(), {.value_clip = kLimit, .value_coef = 1}, values.data(), 1, d.data(), stats);
  for (const float g : d) EXPECT_EQ(g, kValue - kTarget);
}

TEST(PpoLoss, StatisticsAreAddedToWhatIsThere) {
  Data data;
  data.advantages = {0};
  data.returns = {1};
  data.old_values = {0};
  const float value = 3;
  float d = 0;
  Stats stats{};
  stats.fill(10);
  ValueLoss(data.batch(), {}, &value, 1, &d, stats);
  EXPECT_EQ(stats[kValueLoss], 12);
  EXPECT_EQ(stats[kPolicyLoss], 10);
}

// Logits far apart must not overflow, and an impossible action's gradient stays finite.
TEST(PpoLoss, ExtremeLogitsStayFinite) {
  Data data;
  data.actions = {0};
  data.old_log_probs = {-1};
  data.advantages = {1};
  data.returns = data.old_values = {0};
  const float logits[3] = {-500, 500, 0};
  float d[3];
  Stats stats{};
  CategoricalPolicyLoss(data.batch(), {.entropy_coef = 0.01f}, logits, 3, 3, d, stats);
  for (const float g : d) EXPECT_TRUE(std::isfinite(g)) << g;
  for (const float s : stats) EXPECT_TRUE(std::isfinite(s)) << s;
}

}  // namespace
}  // namespace trireme
