// Losses of actions with several parts and masks, against finite differences of what policy_kernels.h states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "trireme/algo/a2c_loss.h"
#include "trireme/algo/ppo_loss.h"
#include "trireme/algo/test_loss.h"
#include "trireme/base/rng.h"

namespace trireme {
namespace {

struct Case {
  std::vector<int> parts;
  bool masked;
  int n;
  int extra;  // outputs behind the logits of a sample
};

// n samples with logits, allowed actions, and what a loss needs.
struct Data {
  explicit Data(const Case& c) : parts(c.parts), n(c.n) {
    choices = std::accumulate(parts.begin(), parts.end(), 0);
    stride = choices + c.extra;
    RandomStream random(41, Purpose::kTest, static_cast<std::uint32_t>(choices), 2 * n + c.extra);
    for (int i = 0; i < n * stride; ++i) logits.push_back(static_cast<float>(2 * random.NextNormal()));
    if (c.masked) masks.resize(static_cast<std::size_t>(n) * choices);
    for (int b = 0; b < n; ++b) {
      int first = 0;
      for (const int size : parts) {
        const int chosen = static_cast<int>(random.NextBelow(static_cast<std::uint32_t>(size)));
        actions.push_back(static_cast<float>(chosen));
        for (int a = 0; c.masked && a < size; ++a) {
          masks[b * choices + first + a] = a == chosen || random.NextUniform() < 0.5;
        }
        first += size;
      }
      advantages.push_back(static_cast<float>(random.NextNormal()));
      old_log_probs.push_back(static_cast<float>(-1.5 + 0.3 * random.NextNormal()));
    }
  }

  bool Allowed(int b, int a) const { return masks.empty() || masks[b * choices + a] != 0; }
  // log pi and H of sample b, in double precision.
  std::pair<double, double> LogProbAndEntropy(int b) const {
    double log_prob = 0, entropy = 0;
    int first = 0;
    for (std::size_t i = 0; i < parts.size(); first += parts[i++]) {
      double sum = 0;
      for (int a = first; a < first + parts[i]; ++a) {
        if (Allowed(b, a)) sum += std::exp(logits[b * stride + a]);
      }
      for (int a = first; a < first + parts[i]; ++a) {
        if (!Allowed(b, a)) continue;
        const double log_p = logits[b * stride + a] - std::log(sum);
        entropy -= std::exp(log_p) * log_p;
        if (a - first == static_cast<int>(actions[b * parts.size() + i])) log_prob += log_p;
      }
    }
    return {log_prob, entropy};
  }
  std::vector<float> FloatLogits() const { return {logits.begin(), logits.end()}; }
  const std::uint8_t* Masks() const { return masks.empty() ? nullptr : masks.data(); }

  std::vector<int> parts;
  int n, choices, stride;
  std::vector<double> logits;
  std::vector<std::uint8_t> masks;
  std::vector<float> actions, advantages, old_log_probs;
};

// d holds what `loss`, in double precision, has as slopes; exactly 0 where a choice is not allowed.
template <class Loss>
void ExpectSlopes(Data& data, const std::vector<float>& d, Loss&& loss) {
  for (int b = 0; b < data.n; ++b) {
    for (int a = 0; a < data.stride; ++a) {
      const std::size_t i = static_cast<std::size_t>(b) * data.stride + a;
      if (a >= data.choices) {
        EXPECT_EQ(d[i], kUntouched);
        continue;
      }
      if (!data.Allowed(b, a)) {
        EXPECT_EQ(d[i], 0.0f);
        continue;
      }
      EXPECT_NEAR(d[i], Slope(data.logits, i, loss), 2e-5) << "sample " << b << " logit " << a;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& parts : {std::vector<int>{4}, {3, 4}, {2, 1, 5}}) {
    for (const bool masked : {false, true}) {
      for (const int extra : {0, 1}) cases.push_back({parts, masked, 11, extra});
    }
  }
  return cases;
}

TEST(PartsLoss, PpoGradientAndStatistics) {
  for (const Case& c : Cases()) {
    Data data(c);
    const PpoBatch batch{.n = data.n,
                         .actions = data.actions.data(),
                         .old_log_probs = data.old_log_probs.data(),
                         .advantages = data.advantages.data(),
                         .advantage_mean = 0.1f,
                         .advantage_scale = 0.8f};
    const PpoLossRule rule{.clip = 0.2f, .entropy_coef = 0.3f, .per_sample = 0.125f};
    double entropy_sum = 0;
    const auto loss = [&] {
      double sum = 0;
      entropy_sum = 0;
      for (int b = 0; b < data.n; ++b) {
        const auto [log_prob, entropy] = data.LogProbAndEntropy(b);
        const double advantage = (data.advantages[b] - 0.1) * 0.8;
        const double ratio = std::exp(log_prob - data.old_log_probs[b]);
        sum -= std::min(ratio * advantage, std::clamp(ratio, 0.8, 1.2) * advantage) + 0.3 * entropy;
        entropy_sum += entropy;
      }
      return sum * rule.per_sample;
    };
    std::vector<float> d(data.logits.size(), kUntouched);
    std::vector<float> stats(kPpoStats);
    PartsPolicyLoss(batch, rule, data.FloatLogits().data(), data.parts, data.Masks(), data.stride, d.data(),
                    stats);
    ExpectSlopes(data, d, loss);
    loss();
    EXPECT_NEAR(stats[kEntropy], entropy_sum, 1e-4);
  }
}

TEST(PartsLoss, A2cGradientAndStatistics) {
  for (const Case& c : Cases()) {
    Data data(c);
    const A2cBatch batch{.n = data.n, .actions = data.actions.data(), .advantages = data.advantages.data()};
    const A2cLossRule rule{.entropy_coef = 0.3f, .per_sample = 0.125f};
    double policy_loss = 0;
    const auto loss = [&] {
      double sum = 0;
      policy_loss = 0;
      for (int b = 0; b < data.n; ++b) {
        const auto [log_prob, entropy] = data.LogProbAndEntropy(b);
        policy_loss -= data.advantages[b] * log_prob;
        sum -= data.advantages[b] * log_prob + 0.3 * entropy;
      }
      return sum * rule.per_sample;
    };
    std::vector<float> d(data.logits.size(), kUntouched);
    std::vector<float> stats(kA2cStats);
    A2cPartsLoss(batch, rule, data.FloatLogits().data(), data.parts, data.Masks(), data.stride, d.data(),
                 stats);
    ExpectSlopes(data, d, loss);
    loss();
    EXPECT_NEAR(stats[kA2cPolicyLoss], policy_loss, 1e-4);
  }
}

// A mask that allows everything is no mask, to the bit.
TEST(PartsLoss, AnOpenMaskChangesNothing) {
  Data data({{3, 4}, false, 20, 1});
  const A2cBatch batch{.n = data.n, .actions = data.actions.data(), .advantages = data.advantages.data()};
  const std::vector<std::uint8_t> open(static_cast<std::size_t>(data.n) * data.choices, 1);
  std::vector<float> with(data.logits.size()), without(data.logits.size());
  std::vector<float> stats_with(kA2cStats), stats_without(kA2cStats);
  const A2cLossRule rule{.entropy_coef = 0.3f, .per_sample = 0.125f};
  A2cPartsLoss(batch, rule, data.FloatLogits().data(), data.parts, open.data(), data.stride, with.data(),
               stats_with);
  A2cPartsLoss(batch, rule, data.FloatLogits().data(), data.parts, nullptr, data.stride, without.data(),
               stats_without);
  EXPECT_EQ(with, without);
  EXPECT_EQ(stats_with, stats_without);
}

}  // namespace
}  // namespace trireme
