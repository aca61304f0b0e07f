// One iteration of PPO against the formulas: all its epochs and mini-batches, in plain loops and in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "trireme/algo/test_plain.h"
#include "trireme/algo/test_run.h"
#include "trireme/rollout/minibatch.h"

namespace trireme {
namespace {

struct PpoCase {
  const char* name;
  const char* env;
  int horizon = 31;
  int envs = 16;  // two in a shard
  double lambda = 0.8;
  double entropy_coef = 0;
  double value_clip = 0;
  double max_grad_norm = 0;
  double rate = 0.05;
  bool normalise = true;
  const char* hidden = "[7,5]";
};

const PpoCase kPpoCases[] = {
    {.name = "Discrete", .env = "CartPole-v1"},
    {.name = "DiscreteEverything",
     .env = "CartPole-v1",
     .entropy_coef = 0.3,
     .value_clip = 0.1,
     .max_grad_norm = 0.4},
    {.name = "NotNormalised", .env = "CartPole-v1", .lambda = 1, .normalise = false},
    {.name = "OneStepTargets", .env = "Acrobot-v1", .lambda = 0, .value_clip = 0.05},
    {.name = "Truncating", .env = "MountainCar-v0", .horizon = 203, .envs = 8, .entropy_coef = 0.1},
    {.name = "SeveralPasses", .env = "CartPole-v1", .horizon = 280, .envs = 8, .hidden = "[256]"},
    {.name = "Continuous", .env = "Pendulum-v1", .rate = 0.03},
    {.name = "ContinuousEverything",
     .env = "Pendulum-v1",
     .entropy_coef = 0.3,
     .value_clip = 0.1,
     .max_grad_norm = 0.4},
};

constexpr int kEpochs = 3, kMinibatches = 4;
constexpr double kGamma = 0.9, kClip = 0.1, kValueCoef = 0.7;
constexpr double kBeta1 = 0.8, kBeta2 = 0.9, kEps = 1e-3;

struct Sample {
  PlainStep step;
  double old_log_prob = 0, old_value = 0, advantage = 0, target = 0;
};

// What a policy says about one observation and an action there.
struct Judgement {
  double log_prob = 0, entropy = 0;
  // Of each output of the tower (logits or the mean), and of log_std.
  Numbers d_log_prob, d_entropy;
  double d_log_prob_d_log_std = 0;
};

class ReferencePpo {
 public:
  ReferencePpo(const PpoCase& c, const AlgorithmRun& run)
      : case_(c),
        run_(run),
        policy_(run.Tower(0)),
        value_(run.Tower(1)),
        discrete_(run.env().spec.action.discrete()),
        params_(ToNumbers(run.initial())),
        mean_(params_.size(), 0.0),
        square_(params_.size(), 0.0) {
    for (const TensorInfo& tensor : run.network().layout().tensors()) {
      if (tensor.name == "log_std") log_std_ = tensor.offset;
    }
    Collect();
    EstimateAdvantages();
  }

  void Update() {
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      std::vector<std::vector<int>> orders;
      for (int shard = 0; shard < AlgorithmRun::kShards; ++shard) {
        orders.emplace_back(samples_[shard].size());
        RandomStream random(AlgorithmRun::kSeed, Purpose::kShuffle, static_cast<std::uint32_t>(shard), epoch);
        FillShuffled(orders.back(), random);
      }
      for (std::size_t part = 0; part < kMinibatches; ++part) {
        std::vector<const Sample*> batch;  // a part of every shard
        for (int shard = 0; shard < AlgorithmRun::kShards; ++shard) {
          const std::size_t n = samples_[shard].size();
          for (std::size_t i = n * part / kMinibatches; i < n * (part + 1) / kMinibatches; ++i) {
            batch.push_back(&samples_[shard][orders[shard][i]]);
          }
        }
        Step(batch);
      }
    }
  }

  const Numbers& params() const { return params_; }
  int terminated = 0, truncated = 0, shortened = 0;
  // Sums over all samples of all updates.
  double policy_loss = 0, value_loss = 0, entropy = 0, kl = 0, clipped = 0, norms = 0, seen = 0;
  int values_held = 0;  // whose value was not to move further

 private:
  Judgement Judge(const PlainStep& step) const {
    const Numbers out = policy_.Forward(params_, step.obs);
    Judgement j;
    if (!discrete_) {
      // log pi = -((a - m) / s)^2 / 2 - log s - log(2 pi) / 2, and H = log s + (1 + log(2 pi)) / 2.
      const double log_std = params_[log_std_], z = (step.torque - out[0]) / std::exp(log_std);
      const double log_two_pi = std::log(2 * std::numbers::pi);
      j.log_prob = -z * z / 2 - log_std - log_two_pi / 2;
      j.entropy = log_std + (1 + log_two_pi) / 2;
      j.d_log_prob = {z / std::exp(log_std)};
      j.d_log_prob_d_log_std = z * z - 1;
      j.d_entropy = {0.0};
      return j;
    }
    const Numbers p = Softmax(out);
    j.log_prob = std::log(p[step.action]);
    for (const double q : p) j.entropy -= q * std::log(q);
    for (int a = 0; a < static_cast<int>(p.size()); ++a) {
      j.d_log_prob.push_back((a == step.action ? 1 : 0) - p[a]);
      j.d_entropy.push_back(-p[a] * (std::log(p[a]) + j.entropy));
    }
    return j;
  }
  double Value(const Numbers& obs) const { return value_.Forward(params_, obs)[0]; }

  void Collect() {
    const int per_shard = case_.envs / AlgorithmRun::kShards;
    samples_.resize(AlgorithmRun::kShards);
    PlainEnvs envs(run_.env(), case_.envs, 0);
    for (int t = 0; t < case_.horizon; ++t) {
      const std::vector<PlainStep> steps =
          discrete_ ? envs.Step([&](const Numbers& obs, const PhiloxBlock& draws) {
            return SampleAction(Softmax(policy_.Forward(params_, obs)), draws);
          })
                    : envs.StepContinuous([&](const Numbers& obs, double normal) {
                        return policy_.Forward(params_, obs)[0] + std::exp(params_[log_std_]) * normal;
                      });
      for (int b = 0; b < case_.envs; ++b) {
        samples_[b / per_shard].push_back(
            {.step = steps[b], .old_log_prob = Judge(steps[b]).log_prob, .old_value = Value(steps[b].obs)});
        terminated += steps[b].terminated;
        truncated += steps[b].truncated;
      }
    }
  }

  // A_t = sum over k >= 0 of (gamma lambda)^k delta_{t+k}, as long as the episode and the collecting last,
  // with delta = r + gamma V(next) - V(now), where nothing follows a terminated episode. R_t = A_t + V_t.
  void EstimateAdvantages() {
    const std::size_t stride =
        case_.envs / AlgorithmRun::kShards;  // from one step of an environment to the next
    for (std::vector<Sample>& shard : samples_) {
      for (std::size_t first = 0; first < shard.size(); ++first) {
        double weight = 1;
        for (std::size_t i = first; i < shard.size(); i += stride) {
          const PlainStep& step = shard[i].step;
          const double future = step.terminated ? 0 : Value(step.next_obs);
          shard[first].advantage += weight * (step.reward + kGamma * future - shard[i].old_value);
          weight *= kGamma * case_.lambda;
          if (step.terminated || step.truncated) break;
        }
        shard[first].target = shard[first].advantage + shard[first].old_value;
      }
    }
  }

  // One gradient step on
  //   mean of -min(r A, clip(r, 1 - c, 1 + c) A) - c_H H + c_V / 2 max((V - R)^2, (V_near - R)^2),
  // where V_near is V moved no further than value_clip from the old one (without value_clip: V).
  void Step(const std::vector<const Sample*>& batch) {
    const auto n = static_cast<double>(batch.size());
    double mean = 0, square = 0;
    for (const Sample* sample : batch) mean += sample->advantage / n;
    for (const Sample* sample : batch) square += std::pow(sample->advantage - mean, 2) / n;
    Numbers gradient(params_.size(), 0.0);
    for (const Sample* sample : batch) {
      const double a =
          case_.normalise ? (sample->advantage - mean) / (std::sqrt(square) + 1e-8) : sample->advantage;
      AddPolicyGradient(*sample, a, n, gradient);
      AddValueGradient(*sample, n, gradient);
    }
    seen += n;
    Descend(std::move(gradient));
  }

  void AddPolicyGradient(const Sample& sample, double advantage, double n, Numbers& gradient) {
    const Judgement j = Judge(sample.step);
    const double ratio = std::exp(j.log_prob - sample.old_log_prob);
    const double plain = ratio * advantage;
    const double near = std::clamp(ratio, 1 - kClip, 1 + kClip) * advantage;
    const double d_log_prob = plain <= near ? -plain : 0;
    Numbers d_out;
    for (std::size_t i = 0; i < j.d_log_prob.size(); ++i) {
      d_out.push_back((d_log_prob * j.d_log_prob[i] - case_.entropy_coef * j.d_entropy[i]) / n);
    }
    policy_.AddGradient(params_, sample.step.obs, d_out, gradient);
    if (!discrete_) gradient[log_std_] += (d_log_prob * j.d_log_prob_d_log_std - case_.entropy_coef) / n;
    policy_loss -= std::min(plain, near);
    entropy += j.entropy;
    kl += ratio - 1 - (j.log_prob - sample.old_log_prob);
    clipped += ratio < 1 - kClip || ratio > 1 + kClip;
  }

  void AddValueGradient(const Sample& sample, double n, Numbers& gradient) {
    const double value = Value(sample.step.obs), v = case_.value_clip;
    const double moved = v > 0 ? std::clamp(value - sample.old_value, -v, v) : value - sample.old_value;
    const double error = value - sample.target, near_error = sample.old_value + moved - sample.target;
    const bool held = moved != value - sample.old_value && near_error * near_error > error * error;
    value_loss += std::max(error * error, near_error * near_error) / 2;
    values_held += held;
    value_.AddGradient(params_, sample.step.obs, {held ? 0 : kValueCoef * error / n}, gradient);
  }

  // Adam (Kingma and Ba 2015), with a gradient no longer than max_grad_norm.
  void Descend(Numbers gradient) {
    double norm = 0;
    for (const double g : gradient) norm += g * g;
    norm = std::sqrt(norm);
    norms += norm;
    const bool too_long = case_.max_grad_norm > 0 && norm > case_.max_grad_norm;
    shortened += too_long;
    ++t_;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double g = too_long ? gradient[i] * case_.max_grad_norm / norm : gradient[i];
      mean_[i] = kBeta1 * mean_[i] + (1 - kBeta1) * g;
      square_[i] = kBeta2 * square_[i] + (1 - kBeta2) * g * g;
      const double m = mean_[i] / (1 - std::pow(kBeta1, t_)), v = square_[i] / (1 - std::pow(kBeta2, t_));
      params_[i] -= case_.rate * m / (std::sqrt(v) + kEps);
    }
  }

  const PpoCase& case_;
  const AlgorithmRun& run_;
  const PlainTower policy_, value_;
  const bool discrete_;
  std::size_t log_std_ = 0;  // its place among the parameters
  Numbers params_, mean_, square_;
  int t_ = 0;
  std::vector<std::vector<Sample>> samples_;  // of each shard, [T, B]
};

class PpoUpdate : public testing::TestWithParam<PpoCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, PpoUpdate, testing::ValuesIn(kPpoCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(PpoUpdate, MovesTheParametersAsTheFormulasSay) {
  const PpoCase& c = GetParam();
  const AlgorithmRun run(
      "ppo", c.env,
      {fmt::format("envs={}", c.envs), fmt::format("horizon={}", c.horizon),
       fmt::format("epochs={}", kEpochs), fmt::format("minibatches={}", kMinibatches),
       fmt::format("hidden={}", c.hidden), "policy_gain=1", "optimizer=adam", fmt::format("beta1={}", kBeta1),
       fmt::format("beta2={}", kBeta2), fmt::format("optimizer_eps={}", kEps),
       fmt::format("gamma={}", kGamma), fmt::format("gae_lambda={}", c.lambda), fmt::format("clip={}", kClip),
       fmt::format("value_clip={}", c.value_clip), fmt::format("value_coef={}", kValueCoef),
       fmt::format("entropy_coef={}", c.entropy_coef), fmt::format("learning_rate={}", c.rate),
       fmt::format("max_grad_norm={}", c.max_grad_norm),
       fmt::format("normalise_advantages={}", c.normalise)});
  ReferencePpo reference(c, run);
  reference.Update();
  if (std::string(c.env) != "Pendulum-v1" && std::string(c.env) != "Acrobot-v1") {
    EXPECT_GT(reference.terminated + reference.truncated, 0);
  }
  EXPECT_GT(reference.clipped, 0);
  EXPECT_EQ(reference.values_held > 0, c.value_clip > 0);
  EXPECT_EQ(reference.shortened > 0, c.max_grad_norm > 0);

  const AlgorithmRun::Outcome found = run.Iterate(1, 0, 1);
  ExpectSameMove(run, found.params, reference.params());
  const MetricRow& row = found.rows[0];
  EXPECT_EQ(row.Get("updates"), kEpochs * kMinibatches);
  const std::pair<const char*, double> sums[] = {{"policy_loss", reference.policy_loss},
                                                 {"value_loss", reference.value_loss},
                                                 {"entropy", reference.entropy},
                                                 {"approx_kl", reference.kl},
                                                 {"clip_fraction", reference.clipped}};
  for (const auto& [name, sum] : sums) {
    const double mean = sum / reference.seen;
    EXPECT_NEAR(row.Get(name), mean, 1e-4 * std::max(0.1, std::abs(mean))) << name;
  }
  const double norm = reference.norms / (kEpochs * kMinibatches);
  EXPECT_NEAR(row.Get("grad_norm"), norm, 1e-4 * norm);
}

}  // namespace
}  // namespace trireme
