#include "trireme/algo/a2c.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "trireme/algo/on_policy.h"
#include "trireme/algo/test_plain.h"
#include "trireme/algo/test_run.h"

namespace trireme {
namespace {

const RunCase kRunCases[] = {
    {"CartPole", "a2c", "CartPole-v1", {"envs=16", "rounds=4", "hidden=[16,16]"}},
    {"SharedTower",
     "a2c",
     "CartPole-v1",
     {"envs=16", "rounds=4", "hidden=[16]", "shared_tower=true", "activation=relu"}},
    {"GaeEntropyAdamClipped",
     "a2c",
     "CartPole-v1",
     {"envs=24", "horizon=5", "rounds=4", "hidden=[16]", "gae_lambda=0.9", "entropy_coef=0.01",
      "optimizer=adam", "max_grad_norm=0.1"}},
    {"TargetWithOneStepTargets",
     "a2c",
     "CartPole-v1",
     {"envs=16", "rounds=4", "hidden=[16]", "target_tau=0.1", "gae_lambda=0", "value_learning_rate=0.003"}},
    {"TargetOfASharedTower",
     "a2c",
     "CartPole-v1",
     {"envs=16", "rounds=4", "hidden=[16]", "target_tau=0.1", "shared_tower=true"}},
    {"NormalisedAdvantages",
     "a2c",
     "CartPole-v1",
     {"envs=16", "rounds=4", "hidden=[16]", "normalise_advantages=true", "optimizer=momentum"}},
    // More samples in a shard than fit into one pass.
    {"SeveralPasses", "a2c", "CartPole-v1", {"envs=16", "horizon=40", "rounds=1", "hidden=[256]"}},
    // Episodes are cut off by the limit of 200 steps in the third iteration.
    {"Pendulum", "a2c", "Pendulum-v1", {"envs=8", "horizon=14", "rounds=5", "hidden=[16]"}},
    {"MountainCarTruncating", "a2c", "MountainCar-v0", {"envs=8", "horizon=70", "rounds=1", "hidden=[8]"}},
};

class A2cCases : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, A2cCases, testing::ValuesIn(kRunCases), NameOfCase);

TEST_P(A2cCases, BitIdenticalForAnyNumberOfWorkers) { ExpectSameBitsForAnyNumberOfWorkers(GetParam()); }
TEST_P(A2cCases, ContinuesBitForBitWithAnotherNumberOfWorkers) {
  ExpectContinuationWithAnotherNumberOfWorkers(GetParam());
}

TEST(A2c, RowsHoldWhatWasMeasured) {
  const AlgorithmRun run("a2c", "CartPole-v1", {"envs=16", "horizon=16", "rounds=4", "hidden=[16]"});
  const MetricRow row = run.Iterate(2, 0, 1).rows[0];
  ExpectPromisedRow("a2c", row);
  EXPECT_EQ(row.Get("updates"), 4);
  EXPECT_GT(row.Get("episodes"), 10);
  EXPECT_EQ(row.Get("episode_return_mean"), row.Get("episode_length_mean"));  // CartPole pays 1 per step
  EXPECT_NEAR(row.Get("episode_return_mean"), 22, 10);  // of a policy that knows nothing
  EXPECT_NEAR(row.Get("entropy"), std::log(2.0), 0.02);
  EXPECT_GT(row.Get("value_loss"), 0);
  EXPECT_GT(row.Get("grad_norm"), 0);
}

TEST(A2c, LearningRatesFollowTheirSchedule) {
  const AlgorithmRun linear("a2c", "CartPole-v1",
                            {"envs=8", "rounds=1", "hidden=[8]", "learning_rate=0.01", "final_fraction=0.5"});
  const std::vector<MetricRow> rows = linear.Iterate(1, 0, 3).rows;
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(rows[i].Get("learning_rate"), 0.01 * (1 - 0.05 * i), 1e-9);
}

// At the end of the run both rates are zero.
TEST(A2c, RateOfTheValueFollowsTheSchedule) {
  const Assignments assignments = {"envs=8", "rounds=1", "hidden=[8]", "value_learning_rate=0.01"};
  const AlgorithmRun run("a2c", "CartPole-v1", assignments);
  EXPECT_NE(run.Iterate(1, 9, 10).params, run.initial());
  EXPECT_EQ(run.Iterate(1, 10, 11).params, run.initial());
}

TEST(A2c, RolloutsAreTheMemoryOfExperience) {
  const EnvSpec& env = FindEnv("CartPole-v1").spec;
  EXPECT_EQ(SettingsWith("a2c", {"envs=16", "horizon=5"})->ExperienceBytes(env),
            16 * 6 * OnPolicyShard::BytesPerSample(env));
}

TEST(A2c, ActsWithoutExploring) {
  ExpectGreedyActions("a2c", "Acrobot-v1", {"hidden=[16]"});
  ExpectGreedyActions("a2c", "Acrobot-v1", {"hidden=[16]", "shared_tower=true"});
  ExpectGreedyActions("a2c", "Acrobot-v1", {"hidden=[512]"});  // whose passes are shorter than what is asked
}

TEST(A2c, DivergenceIsAnErrorThatSaysWhatToDo) {
  for (const char* normalise : {"normalise_advantages=false", "normalise_advantages=true"}) {
    ExpectDivergenceIsAnError("a2c", {"envs=8", "horizon=8", "rounds=1", "hidden=[8]", normalise});
  }
}

TEST(A2cSettings, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(Refusal("a2c", {}), "");
  EXPECT_EQ(Refusal("a2c", {"envs=12"}, 4), "");
  EXPECT_TRUE(Mentions(Refusal("a2c", {"envs=12"}), "envs = 12"));
  EXPECT_TRUE(Mentions(Refusal("a2c", {"envs=12"}), "shards = 8"));
  EXPECT_NE(Refusal("a2c", {"envs=4"}), "");  // fewer than shards

  EXPECT_EQ(Refusal("a2c", {"value_learning_rate=0.1"}), "");
  EXPECT_EQ(Refusal("a2c", {"shared_tower=true"}), "");
  EXPECT_TRUE(Mentions(Refusal("a2c", {"value_learning_rate=0.1", "shared_tower=true"}), "shared_tower"));
}

TEST(A2cSettings, RefusesValuesOutOfRange) {
  ExpectOutOfRange("a2c", {"envs=0", "envs=-8", "horizon=0", "rounds=0", "gamma=1.1", "gae_lambda=-0.1",
                           "value_coef=-1", "entropy_coef=-0.1", "learning_rate=0", "learning_rate=nan",
                           "value_learning_rate=-1", "final_fraction=2", "target_tau=1.5", "target_tau=-0.1",
                           "max_grad_norm=-1", "hidden=[0]", "activation=sine", "optimizer=none"});
  EXPECT_THROW(SettingsWith("a2c", {"hidden=[]"})->MakeNetwork(FindEnv("CartPole-v1").spec), Error);
}

// ---- One round by hand ----

struct RoundCase {
  const char* name;
  const char* env;
  int horizon;
  double lambda;
  double entropy_coef = 0;
  bool normalise = false;
  const char* hidden = "[7,5]";
};

const RoundCase kRoundCases[] = {
    {.name = "OneStepTargets", .env = "CartPole-v1", .horizon = 30, .lambda = 0},
    {.name = "NStepReturns", .env = "CartPole-v1", .horizon = 30, .lambda = 1},
    {.name = "AMix", .env = "CartPole-v1", .horizon = 30, .lambda = 0.8},
    {.name = "Entropy", .env = "CartPole-v1", .horizon = 30, .lambda = 1, .entropy_coef = 0.5},
    {.name = "Normalised", .env = "CartPole-v1", .horizon = 30, .lambda = 1, .normalise = true},
    {.name = "OneStepTruncated", .env = "MountainCar-v0", .horizon = 210, .lambda = 0},
    {.name = "NStepTruncated", .env = "MountainCar-v0", .horizon = 210, .lambda = 1},
    {.name = "SeveralPasses", .env = "CartPole-v1", .horizon = 70, .lambda = 1, .hidden = "[256]"},
};

class A2cRound : public testing::TestWithParam<RoundCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, A2cRound, testing::ValuesIn(kRoundCases),
                         [](const auto& info) { return info.param.name; });

constexpr int kEnvs = 8;
constexpr double kGamma = 0.9, kValueCoef = 0.7, kRate = 30, kValueRate = 7;

// The return from step t of `steps` (of one environment, in order) by its definition. With the n-step returns
//   G(n) = r_t + gamma r_{t+1} + ... + gamma^{n-1} r_{t+n-1} + gamma^n v(s_{t+n})
// and N steps until the episode or the collecting ends, it is
//   (1 - lambda) (G(1) + lambda G(2) + ... + lambda^{N-2} G(N-1)) + lambda^{N-1} G(N).
double ReturnOf(const std::vector<PlainStep>& steps, std::size_t t, double lambda, const PlainTower& value,
                const Numbers& params) {
  double mix = 0, rewards = 0, discount = 1, weight = 1;
  for (;; ++t) {
    rewards += discount * steps[t].reward;
    discount *= kGamma;
    const double future = steps[t].terminated ? 0 : value.Forward(params, steps[t].next_obs)[0];
    const double n_step = rewards + discount * future;
    if (steps[t].terminated || steps[t].truncated || t + 1 == steps.size()) return mix + weight * n_step;
    mix += (1 - lambda) * weight * n_step;
    weight *= lambda;
  }
}

TEST_P(A2cRound, MovesTheParametersAsTheFormulasSay) {
  const RoundCase& c = GetParam();
  const AlgorithmRun run(
      "a2c", c.env,
      {fmt::format("envs={}", kEnvs), fmt::format("horizon={}", c.horizon), "rounds=1",
       fmt::format("hidden={}", c.hidden), "policy_gain=1", "optimizer=sgd", "max_grad_norm=0",
       fmt::format("gamma={}", kGamma), fmt::format("gae_lambda={}", c.lambda),
       fmt::format("value_coef={}", kValueCoef), fmt::format("entropy_coef={}", c.entropy_coef),
       fmt::format("learning_rate={}", kRate), fmt::format("value_learning_rate={}", kValueRate),
       fmt::format("normalise_advantages={}", c.normalise)});
  const PlainTower policy = run.Tower(0), value = run.Tower(1);
  const Numbers params = ToNumbers(run.initial());

  PlainEnvs envs(run.env(), kEnvs, 0);
  std::vector<std::vector<PlainStep>> by_env(kEnvs);
  int terminated = 0, truncated = 0;
  for (int t = 0; t < c.horizon; ++t) {
    const auto steps = envs.Step([&](const Numbers& obs, const PhiloxBlock& draws) {
      return SampleAction(Softmax(policy.Forward(params, obs)), draws);
    });
    for (int b = 0; b < kEnvs; ++b) {
      by_env[b].push_back(steps[b]);
      terminated += steps[b].terminated;
      truncated += steps[b].truncated;
    }
  }
  EXPECT_GT(terminated + truncated, 0);

  const double samples = kEnvs * c.horizon;
  std::vector<Numbers> returns(kEnvs), advantages(kEnvs);
  double mean = 0, square = 0;
  for (int b = 0; b < kEnvs; ++b) {
    for (std::size_t t = 0; t < by_env[b].size(); ++t) {
      returns[b].push_back(ReturnOf(by_env[b], t, c.lambda, value, params));
      const double advantage = returns[b][t] - value.Forward(params, by_env[b][t].obs)[0];
      advantages[b].push_back(advantage);
      mean += advantage / samples;
      square += advantage * advantage / samples;
    }
  }

  Numbers gradient(params.size(), 0.0);
  double value_loss = 0, entropy_sum = 0;
  for (int b = 0; b < kEnvs; ++b) {
    for (std::size_t t = 0; t < by_env[b].size(); ++t) {
      const PlainStep& step = by_env[b][t];
      const double advantage =
          c.normalise ? (advantages[b][t] - mean) / std::sqrt(square - mean * mean) : advantages[b][t];
      const Numbers p = Softmax(policy.Forward(params, step.obs));
      double entropy = 0;
      for (const double q : p) entropy -= q * std::log(q);
      Numbers d_logits;
      for (int a = 0; a < static_cast<int>(p.size()); ++a) {
        const double d_log_pi = (a == step.action ? 1 : 0) - p[a];
        const double d_entropy = -p[a] * (std::log(p[a]) + entropy);
        d_logits.push_back((-advantage * d_log_pi - c.entropy_coef * d_entropy) / samples);
      }
      policy.AddGradient(params, step.obs, d_logits, gradient);
      const double error = value.Forward(params, step.obs)[0] - returns[b][t];
      value.AddGradient(params, step.obs, {kValueCoef * error / samples}, gradient);
      value_loss += error * error / 2;
      entropy_sum += entropy;
    }
  }
  Numbers expected = params;
  const ParamRange value_range = run.network().TowerRange(1);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool of_value = value_range.begin <= i && i < value_range.end;
    expected[i] -= (of_value ? kValueRate : kRate) * gradient[i];
  }

  const AlgorithmRun::Outcome found = run.Iterate(1, 0, 1);
  ExpectSameMove(run, found.params, expected);
  EXPECT_NEAR(found.rows[0].Get("value_loss"), value_loss / samples, 1e-5 * value_loss / samples);
  EXPECT_NEAR(found.rows[0].Get("entropy"), entropy_sum / samples, 1e-5);
}

}  // namespace
}  // namespace trireme
