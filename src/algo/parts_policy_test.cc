// Sampling and greedy actions of policies with several parts and masks.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "trireme/algo/test_model.h"

namespace trireme {
namespace {

EnvSpec Spec(std::vector<int> parts, bool masks) {
  EnvSpec spec;
  spec.obs.shape = {3};
  spec.action = parts.size() == 1 ? ActionSpace::Discrete(parts[0]) : ActionSpace::MultiDiscrete(parts);
  spec.masks = masks;
  return spec;
}

// log p of a choice among the allowed ones of its part.
double LogProb(const float* logits, const std::uint8_t* mask, int choices, int chosen) {
  double sum = 0;
  for (int a = 0; a < choices; ++a) sum += mask == nullptr || mask[a] ? std::exp(double{logits[a]}) : 0.0;
  return logits[chosen] - std::log(sum);
}

TEST(PartsPolicy, DrawsByItsProbabilitiesAndNothingThatIsForbidden) {
  for (const bool masked : {false, true}) {
    for (const auto& parts : {std::vector<int>{3, 4}, {2, 2, 2, 2, 2}, {4}}) {
      if (parts.size() == 1 && !masked) continue;  // that is the plain policy
      TestModel model(Spec(parts, masked), true);
      const int choices = model.env.action.choices(), n = 2;
      const std::vector<float> obs = {0.3f, -1.0f, 0.5f, 1.0f, 0.2f, -0.4f};
      const std::vector<float> logits = model.PolicyOf(obs, n);
      std::vector<std::uint8_t> masks(static_cast<std::size_t>(n) * choices, 1);
      for (int b = 0; masked && b < n; ++b) masks[b * choices + b] = 0;  // one choice of the first part
      const std::uint8_t* given = masked ? masks.data() : nullptr;
      constexpr int kDraws = 20000;
      std::vector<double> counts(static_cast<std::size_t>(n) * choices);
      std::vector<float> actions(n * parts.size()), log_probs(n);
      for (int step = 0; step < kDraws; ++step) {
        model.actor_critic.Sample(
            {7, static_cast<std::uint64_t>(step), 0, n, obs.data(), given, actions.data(), log_probs.data()},
            *model.tape);
        for (int b = 0; b < n; ++b) {
          double expected = 0;
          int first = b * choices;
          for (std::size_t i = 0; i < parts.size(); first += parts[i++]) {
            const int chosen = static_cast<int>(actions[b * parts.size() + i]);
            ASSERT_TRUE(!masked || masks[first + chosen] != 0);
            ++counts[first + chosen];
            expected += LogProb(&logits[first], masked ? &masks[first] : nullptr, parts[i], chosen);
          }
          ASSERT_NEAR(log_probs[b], expected, 1e-4);
        }
      }
      for (int b = 0; b < n; ++b) {
        int first = b * choices;
        for (std::size_t i = 0; i < parts.size(); first += parts[i++]) {
          for (int a = 0; a < parts[i]; ++a) {
            const bool allowed = !masked || masks[first + a] != 0;
            const double p =
                allowed ? std::exp(LogProb(&logits[first], masked ? &masks[first] : nullptr, parts[i], a))
                        : 0;
            EXPECT_NEAR(counts[first + a] / kDraws, p, allowed ? 0.02 : 0.0)
                << "part " << i << " choice " << a;
          }
        }
      }
      // Greedy: the most probable allowed choice of each part.
      model.actor_critic.Greedy(obs.data(), given, n, *model.tape, actions.data());
      for (int b = 0; b < n; ++b) {
        int first = b * choices;
        for (std::size_t i = 0; i < parts.size(); first += parts[i++]) {
          const int chosen = static_cast<int>(actions[b * parts.size() + i]);
          EXPECT_TRUE(!masked || masks[first + chosen] != 0);
          for (int a = 0; a < parts[i]; ++a) {
            if (masked && masks[first + a] == 0) continue;
            EXPECT_LE(logits[first + a], logits[first + chosen]);
          }
        }
      }
    }
  }
}

// A mask that allows everything draws what the plain policy draws.
TEST(PartsPolicy, AnOpenMaskDrawsTheSame) {
  TestModel plain(Spec({4}, false), true), masked(Spec({4}, true), true);
  const std::vector<float> obs = {0.3f, -1.0f, 0.5f};
  const std::vector<std::uint8_t> open(4, 1);
  for (std::uint64_t step = 0; step < 200; ++step) {
    float action = -1, log_prob = 0, other = -2, other_log_prob = 0;
    plain.actor_critic.Sample({7, step, 3, 1, obs.data(), nullptr, &action, &log_prob}, *plain.tape);
    masked.actor_critic.Sample({7, step, 3, 1, obs.data(), open.data(), &other, &other_log_prob},
                               *masked.tape);
    ASSERT_EQ(action, other);
    ASSERT_NEAR(log_prob, other_log_prob, 1e-6);
  }
}

}  // namespace
}  // namespace trireme
