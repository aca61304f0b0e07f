#include "trireme/algo/q_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <tuple>
#include <vector>

#include "trireme/algo/test_loss.h"
#include "trireme/base/rng.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Stats = std::array<float, kQStats>;
using DoubleStats = std::array<double, kQStats>;

// The Q values of row b in double precision.
std::vector<double> QValues(const QHead& head, const std::vector<double>& outputs, int b) {
  const double* row = outputs.data() + b * head.outputs();
  std::vector<double> q(row, row + head.choices);
  if (head.dueling) {
    double mean = 0;
    for (int a = 0; a < head.choices; ++a) mean += row[a] / head.choices;
    for (double& value : q) value += row[head.choices] - mean;
  }
  return q;
}

int ArgMax(const std::vector<double>& q) {
  return static_cast<int>(std::max_element(q.begin(), q.end()) - q.begin());
}

// The data of a batch, owned.
struct Data {
  QBatch batch() const {
    return {.n = static_cast<int>(targets.size()),
            .actions = actions.data(),
            .targets = targets.data(),
            .weights = weights.empty() ? nullptr : weights.data()};
  }
  std::vector<float> actions, targets, weights;
};

Data RandomData(int n, int choices, bool weighted, RandomStream& random) {
  Data data;
  for (int b = 0; b < n; ++b) {
    data.actions.push_back(static_cast<float>(random.NextBelow(choices)));
    data.targets.push_back(static_cast<float>(2 * random.NextNormal()));
    if (weighted) data.weights.push_back(static_cast<float>(0.1 + random.NextUniform()));
  }
  return data;
}

// The statistics in double precision, as the header states them.
DoubleStats Reference(const Data& data, const QLossRule& rule, const QHead& head,
                      const std::vector<double>& outputs) {
  DoubleStats stats{};
  for (std::size_t b = 0; b < data.targets.size(); ++b) {
    const double q = QValues(head, outputs, static_cast<int>(b))[static_cast<int>(data.actions[b])];
    const double distance = std::abs(q - data.targets[b]);
    const double weight = data.weights.empty() ? 1 : data.weights[b];
    const bool linear = rule.huber > 0 && distance > rule.huber;
    stats[kQLoss] +=
        weight * (linear ? rule.huber * (distance - 0.5 * rule.huber) : 0.5 * distance * distance);
    stats[kQValue] += q;
    stats[kQError] += distance;
  }
  return stats;
}

// Every test runs over all heads: those compiled for their number of choices and others.
constexpr QHead kHeads[] = {{1, false}, {2, false}, {3, false}, {6, false},
                            {1, true},  {2, true},  {3, true},  {6, true}};

class QBatchSizes : public testing::TestWithParam<std::tuple<int, Isa>> {
 protected:
  QBatchSizes() { OverrideIsa(std::get<1>(GetParam())); }
  ~QBatchSizes() override { OverrideIsa(best_); }

  std::size_t SizeFor(const QHead& head) const { return static_cast<std::size_t>(n) * head.outputs(); }

  const int n = std::get<0>(GetParam());
  RandomStream random{51, Purpose::kTest, 0, static_cast<std::uint64_t>(n)};

 private:
  const Isa best_ = CurrentIsa();
};
INSTANTIATE_TEST_SUITE_P(Sizes, QBatchSizes,
                         testing::Combine(testing::Values(1, 7, 8, 37),
                                          testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512)));

TEST_P(QBatchSizes, GradientErrorsAndStatistics) {
  for (const QHead& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.choices << " choices, dueling " << head.dueling);
    const std::size_t size = SizeFor(head);
    for (const bool weighted : {false, true}) {
      for (const float huber : {0.0f, 1.5f}) {
        std::vector<double> outputs = RandomOutputs(size, 2, random);
        const Data data = RandomData(n, head.choices, weighted, random);
        const QLossRule rule{.huber = huber, .per_sample = 0.125f};
        std::vector<float> d(size + 1, kUntouched), errors(n + 1, kUntouched);
        Stats stats;
        stats.fill(10);  // it adds to what is there
        const std::vector<float> inputs = ToFloats(outputs);
        QLoss(data.batch(), rule, head, inputs.data(), d.data(), errors.data(), stats);

        const auto loss = [&] { return rule.per_sample * Reference(data, rule, head, outputs)[kQLoss]; };
        for (std::size_t i = 0; i < size; ++i) {
          EXPECT_NEAR(d[i], Slope(outputs, i, loss), 2e-6)
              << "sample " << i / head.outputs() << " output " << i % head.outputs() << " huber " << huber;
        }
        for (int b = 0; b < n; ++b) {
          const double q = QValues(head, outputs, b)[static_cast<int>(data.actions[b])];
          EXPECT_NEAR(errors[b], std::abs(q - data.targets[b]), 5e-6) << "sample " << b;
        }
        EXPECT_EQ(d[size], kUntouched);
        EXPECT_EQ(errors[n], kUntouched);
        const DoubleStats expected = Reference(data, rule, head, outputs);
        for (int i = 0; i < kQStats; ++i) {
          EXPECT_NEAR(stats[i] - 10, expected[i], 2e-6 * (10 + std::abs(expected[i]) + n))
              << "statistic " << i;
        }
      }
    }
  }
}

TEST_P(QBatchSizes, GreedyTakesTheHighest) {
  for (const QHead& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.choices << " choices, dueling " << head.dueling);
    const std::size_t size = SizeFor(head);
    const std::vector<double> outputs = RandomOutputs(size, 2, random);
    const std::vector<float> inputs = ToFloats(outputs);
    std::vector<float> actions(n + 1, kUntouched);
    QGreedy(head, inputs.data(), n, actions.data());
    for (int b = 0; b < n; ++b) EXPECT_EQ(actions[b], ArgMax(QValues(head, outputs, b))) << "sample " << b;
    EXPECT_EQ(actions[n], kUntouched);
  }
}

TEST_P(QBatchSizes, TargetsPlainAndDouble) {
  for (const QHead& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.choices << " choices, dueling " << head.dueling);
    const std::size_t size = SizeFor(head);
    const std::vector<double> target = RandomOutputs(size, 2, random),
                              online = RandomOutputs(size, 2, random);
    const std::vector<float> target_outputs = ToFloats(target), online_outputs = ToFloats(online);
    std::vector<float> returns, discounts;
    for (int b = 0; b < n; ++b) {
      returns.push_back(static_cast<float>(random.NextNormal()));
      discounts.push_back(static_cast<float>(random.NextUniform()));
    }
    std::vector<float> plain(n + 1, kUntouched), twofold(n + 1, kUntouched);
    QTargets(head, target_outputs.data(), nullptr, returns.data(), discounts.data(), n, plain.data());
    QTargets(head, target_outputs.data(), online_outputs.data(), returns.data(), discounts.data(), n,
             twofold.data());
    for (int b = 0; b < n; ++b) {
      const std::vector<double> q = QValues(head, target, b);
      const double ret = returns[b], discount = discounts[b];
      EXPECT_NEAR(plain[b], ret + discount * q[ArgMax(q)], 3e-6) << "sample " << b;
      EXPECT_NEAR(twofold[b], ret + discount * q[ArgMax(QValues(head, online, b))], 3e-6) << "sample " << b;
    }
    EXPECT_EQ(plain[n], kUntouched);
    EXPECT_EQ(twofold[n], kUntouched);
  }
}

// Every other sample is terminal, with a next state whose outputs are not numbers.
TEST_P(QBatchSizes, TerminalTargetsIgnoreTheNextState) {
  for (const QHead& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.choices << " choices, dueling " << head.dueling);
    const std::size_t size = SizeFor(head);
    std::vector<float> outputs = ToFloats(RandomOutputs(size, 2, random));
    std::vector<float> returns(n, 0.5f), discounts(n, 0.9f), expected(n), targets(n);
    QTargets(head, outputs.data(), nullptr, returns.data(), discounts.data(), n, expected.data());
    for (const float next : {kNan, kInfinity, -kInfinity}) {
      for (int b = 0; b < n; b += 2) {
        std::fill_n(outputs.begin() + b * head.outputs(), head.outputs(), next);
        discounts[b] = 0;
        expected[b] = 0.5f;
      }
      QTargets(head, outputs.data(), nullptr, returns.data(), discounts.data(), n, targets.data());
      EXPECT_EQ(targets, expected);
      QTargets(head, outputs.data(), outputs.data(), returns.data(), discounts.data(), n, targets.data());
      EXPECT_EQ(targets, expected);
    }
  }
}

TEST_P(QBatchSizes, FirstOfSeveralHighest) {
  for (const QHead& head : kHeads) {
    SCOPED_TRACE(testing::Message() << head.choices << " choices, dueling " << head.dueling);
    const std::size_t size = SizeFor(head);
    const int last = head.choices - 1;
    for (int first = 0; first <= last; ++first) {
      // `first` and `last` tie. The target network tells them apart.
      std::vector<float> online(size, -1.0f), target(size);
      for (int b = 0; b < n; ++b) {
        float* row = online.data() + b * head.outputs();
        row[first] = row[last] = 3;
        for (int a = 0; a < head.choices; ++a) target[b * head.outputs() + a] = static_cast<float>(a);
      }
      std::vector<float> actions(n), targets(n);
      QGreedy(head, online.data(), n, actions.data());
      EXPECT_EQ(actions, std::vector<float>(n, static_cast<float>(first)));
      const std::vector<float> returns(n, 0.0f), discounts(n, 1.0f);
      QTargets(head, target.data(), online.data(), returns.data(), discounts.data(), n, targets.data());
      const float mean = head.dueling ? 0.5f * last : 0.0f;
      for (const float y : targets) EXPECT_NEAR(y, first - mean, 1e-6);
    }
  }
}

TEST(QTargets, DoubleTakesTheTargetNetworksValueOfTheOnlineChoice) {
  const QHead head{.choices = 2};
  const float target[2] = {1, 5}, online[2] = {3, 2}, ret = 10, discount = 0.5f;
  float y = 0;
  QTargets(head, target, nullptr, &ret, &discount, 1, &y);
  EXPECT_EQ(y, 12.5f);  // 10 + 0.5 * 5
  QTargets(head, target, online, &ret, &discount, 1, &y);
  EXPECT_EQ(y, 10.5f);  // 10 + 0.5 * 1
}

TEST(QTargets, NumbersThatAreNotReachTargetsThatBootstrap) {
  const QHead head{.choices = 2};
  const float target[2] = {kNan, kNan}, ret = 1, discount = 0.9f;
  float y = 0;
  QTargets(head, target, nullptr, &ret, &discount, 1, &y);
  EXPECT_TRUE(std::isnan(y));
}

struct LossCase {
  float huber, weight, q, target, loss, gradient;
};

TEST(QLoss, EachBranchOfTheHuberLoss) {
  const LossCase cases[] = {
      {0, 1, 5, 2, 4.5f, 3},          // squares everywhere
      {1, 1, 2.5f, 2, 0.125f, 0.5f},  // within the limit
      {1, 1, 5, 2, 2.5f, 1},          // above: h (|e| - h / 2)
      {1, 1, -1, 2, 2.5f, -1},        // below
      {1, 2, 5, 2, 5, 2},             // the weight comes after the limit
      {2, 0.5f, 5, 2, 2, 1},
  };
  for (const LossCase& c : cases) {
    const QHead head{.choices = 2};
    const float outputs[2] = {7, c.q}, action = 1;
    float d[2] = {kUntouched, kUntouched}, error = 0;
    Stats stats{};
    QLoss({1, &action, &c.target, &c.weight}, {.huber = c.huber}, head, outputs, d, &error, stats);
    EXPECT_EQ(d[0], 0);
    EXPECT_EQ(d[1], c.gradient);
    EXPECT_EQ(error, std::abs(c.q - c.target));
    EXPECT_EQ(stats[kQLoss], c.loss);
    EXPECT_EQ(stats[kQValue], c.q);
    EXPECT_EQ(stats[kQError], std::abs(c.q - c.target));
  }
}

TEST(QLoss, DuelingSharesTheGradientOut) {
  const QHead head{.choices = 4, .dueling = true};
  const float outputs[5] = {1, 3, 5, 7, 10}, action = 2, target = 3;  // Q = 10 + 5 - 4 = 11
  float d[5], error = 0;
  Stats stats{};
  QLoss({1, &action, &target, nullptr}, {.per_sample = 0.5f}, head, outputs, d, &error, stats);
  EXPECT_EQ(error, 8);
  const float expected[5] = {-1, -1, 3, -1, 4};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(d[i], expected[i]) << i;
}

// Only allowed choices count, for acting and for targets; a mask that allows everything changes nothing.
TEST(QMasks, TheBestAllowedChoiceIsTaken) {
  for (const bool dueling : {false, true}) {
    for (const int choices : {2, 3, 5}) {
      const QHead head{choices, dueling};
      constexpr int kN = 21;
      RandomStream random(5, Purpose::kTest, static_cast<std::uint32_t>(choices), dueling);
      std::vector<float> online(kN * head.outputs()), target(online.size()), returns(kN), discounts(kN);
      for (float& x : online) x = static_cast<float>(random.NextNormal());
      for (float& x : target) x = static_cast<float>(random.NextNormal());
      for (int b = 0; b < kN; ++b) {
        returns[b] = static_cast<float>(random.NextNormal());
        discounts[b] = b % 4 == 0 ? 0.0f : 0.9f;
      }
      std::vector<std::uint8_t> masks(kN * choices), open(masks.size(), 1);
      for (int b = 0; b < kN; ++b) {
        for (int a = 0; a < choices; ++a) masks[b * choices + a] = random.NextUniform() < 0.5;
        masks[b * choices + random.NextBelow(static_cast<std::uint32_t>(choices))] = 1;
      }
      std::vector<float> greedy(kN), plain(kN), single(kN), doubled(kN), unmasked(kN), opened(kN);
      QGreedy(head, online.data(), kN, greedy.data(), masks.data());
      QTargets(head, target.data(), nullptr, returns.data(), discounts.data(), kN, single.data(),
               masks.data());
      QTargets(head, target.data(), online.data(), returns.data(), discounts.data(), kN, doubled.data(),
               masks.data());
      const auto best = [&](const std::vector<float>& outputs, int b) {
        int found = -1;
        for (int a = 0; a < choices; ++a) {
          const float value = outputs[b * head.outputs() + a];
          if (masks[b * choices + a] && (found < 0 || value > outputs[b * head.outputs() + found])) found = a;
        }
        return found;
      };
      const auto q = [&](int b, int a) {
        const float* row = target.data() + b * head.outputs();
        double mean = 0;
        for (int k = 0; k < choices; ++k) mean += row[k] / static_cast<double>(choices);
        return row[a] + (dueling ? row[choices] - mean : 0.0);
      };
      for (int b = 0; b < kN; ++b) {
        EXPECT_EQ(greedy[b], static_cast<float>(best(online, b)));
        EXPECT_NEAR(single[b], returns[b] + discounts[b] * q(b, best(target, b)), 1e-5);
        EXPECT_NEAR(doubled[b], returns[b] + discounts[b] * q(b, best(online, b)), 1e-5);
      }
      QGreedy(head, online.data(), kN, plain.data());
      QGreedy(head, online.data(), kN, greedy.data(), open.data());
      EXPECT_EQ(greedy, plain);
      QTargets(head, target.data(), online.data(), returns.data(), discounts.data(), kN, unmasked.data());
      QTargets(head, target.data(), online.data(), returns.data(), discounts.data(), kN, opened.data(),
               open.data());
      for (int b = 0; b < kN; ++b) EXPECT_NEAR(opened[b], unmasked[b], 1e-6);
    }
  }
}

}  // namespace
}  // namespace trireme
