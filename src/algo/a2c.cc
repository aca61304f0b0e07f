// Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), for discrete and continuous actions. With
// workers in step it is A2C; in an asynchronous store it is A3C.
//
// One round of a worker, with policy pi(a|s; theta), value v(s; w) and a target value network w-:
//   pull     theta, w
//   target   w- <- tau w + (1 - tau) w-                     (target_tau = 0: v itself takes its place)
//   collect  every environment takes `horizon` steps with pi
//   returns  G_t = r_t + gamma ((1 - lambda) v(s_{t+1}; w-) + lambda G_{t+1})
//            lambda = 0: one-step targets r_t + gamma v(s_{t+1}; w-);  lambda = 1: n-step returns
//   gradient of the loss in a2c_loss.h, with advantage A_t = G_t - v(s_t; w)
//   push     the gradient, applied with one rate for the policy and one for the value
//
// An iteration is `rounds` of these, and one exchange of statistics.

#include "trireme/algo/a2c.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "trireme/algo/a2c_loss.h"
#include "trireme/algo/actor_critic.h"
#include "trireme/algo/episode_stats.h"
#include "trireme/comm/shard_sum.h"
#include "trireme/optim/average.h"
#include "trireme/optim/schedule.h"
#include "trireme/rollout/gae.h"
#include "trireme/rollout/rollout.h"

namespace trireme {
namespace {

struct A2cConfig {
  int envs = 16;
  int horizon = 8;
  int rounds = 32;
  double gamma = 0.99;
  double gae_lambda = 1.0;
  double value_coef = 0.5;
  double entropy_coef = 0.0;
  double learning_rate = 7e-4;
  double value_learning_rate = 0.0;
  ScheduleKind learning_rate_schedule = ScheduleKind::kLinear;
  double final_fraction = 0.0;
  double target_tau = 0.0;
  double max_grad_norm = 0.5;
  bool normalise_advantages = false;

  void Fields(ConfigFields& field) {
    field("envs", envs, "environments stepped in parallel, over all shards", Between(1, 1'000'000));
    field("horizon", horizon, "steps per environment in one round", Between(1, 1'000'000));
    field("rounds", rounds, "rounds of collecting and learning in one iteration, which is one row of metrics",
          Between(1, 1'000'000));
    field("gamma", gamma, "discount per step", UnitInterval());
    field("gae_lambda", gae_lambda, "0: one-step targets, 1: n-step returns, between: a mix", UnitInterval());
    field("value_coef", value_coef, "weight of the value loss", NonNegative());
    field("entropy_coef", entropy_coef, "weight of the entropy bonus", NonNegative());
    field("learning_rate", learning_rate, "initial step size", Between(1e-12, 1e30));
    field("value_learning_rate", value_learning_rate,
          "initial step size of the value function; 0: the same as the policy's", Between(0, 1e30));
    field("learning_rate_schedule", learning_rate_schedule, "course of the step sizes over the run",
          kScheduleNames);
    field("final_fraction", final_fraction, "where linear and cosine schedules end, relative to their start",
          UnitInterval());
    field("target_tau", target_tau, "how fast the target value network follows, per round; 0: there is none",
          UnitInterval());
    field("max_grad_norm", max_grad_norm, "longest gradient, longer ones are scaled down; 0: no limit",
          NonNegative());
    field("normalise_advantages", normalise_advantages, "zero mean and unit variance in every round");
  }
};

// Everything one shard owns.
struct Shard {
  Shard(const EnvEntry& env, const ShardSpec& spec, int horizon)
      : rollout(env, spec, horizon),
        values((static_cast<std::size_t>(horizon) + 1) * spec.envs),
        final_values(rollout.samples()),
        advantages(rollout.samples()),
        returns(rollout.samples()) {}

  Rollout rollout;
  AlignedBuffer<float> values;        // [T + 1, B]
  AlignedBuffer<float> final_values;  // [T, B]
  AlignedBuffer<float> advantages;    // [T, B]
  AlignedBuffer<float> returns;       // [T, B]
};

class A2c final : public Algorithm {
 public:
  A2c(const A2cConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override;
  std::int64_t steps_per_iteration() const override {
    return std::int64_t{config_.envs} * config_.horizon * config_.rounds;
  }
  void Act(std::span<const float> obs, int n, std::span<float> actions) override;
  void SaveShards(StateWriter& out) const override;
  void SaveCommon(StateWriter& out) const override;
  void LoadShards(const StateReader& in) override;
  void LoadCommon(const StateReader& in) override;

 private:
  double Round(const UpdateRule& update);
  void Collect(Shard& shard);
  void EstimateReturns(Shard& shard, std::span<const float> params);
  void NormaliseAdvantages();
  void ShardGradient(const Shard& shard, std::span<float> gradient);

  A2cConfig config_;
  WorkerContext context_;
  ActorCritic model_;
  std::vector<Shard> shards_;
  bool has_target_;
  AlignedBuffer<float> target_;  // with target_tau: laid out as the parameters; only the value's part is used
  std::unique_ptr<Tape> tape_;
  ShardSum<float> gradient_;  // parameters, then kA2cStats statistics
  std::array<double, kA2cStats> loss_sums_ = {};
  float advantage_mean_ = 0, advantage_scale_ = 1;  // of the round
  OutputGradients d_outputs_;
};

A2c::A2c(const A2cConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      model_(context.executor, context.env.spec),
      has_target_(config.target_tau > 0),
      target_(has_target_ ? context.executor.network().param_count() : 0),
      tape_(context.executor.MakeTape(
          std::max({context.executor.pass_size(), kMostActed, config.envs / context.shards}))),
      gradient_(context.executor.network().param_count() + kA2cStats),
      d_outputs_(model_.MakeOutputGradients(context.executor.pass_size())) {
  for (int s = 0; s < context.own_shards; ++s) {
    const ShardSpec spec{context.first_shard + s, config.envs / context.shards, context.seed};
    shards_.emplace_back(context.env, spec, config.horizon);
  }
  if (has_target_) std::ranges::copy(context.store.params(), target_.begin());
}

void A2c::Iterate(double progress, MetricRow& row) {
  const double factor = ScheduleFactor(config_.learning_rate_schedule, config_.final_fraction, progress);
  UpdateRule update{static_cast<float>(config_.learning_rate * factor), config_.max_grad_norm};
  if (config_.value_learning_rate > 0) {
    const auto [begin, end] = context_.executor.network().TowerRange(1);
    update.special = {begin, end, static_cast<float>(config_.value_learning_rate * factor)};
  }
  loss_sums_ = {};
  double norm_sum = 0;
  for (int round = 0; round < config_.rounds; ++round) norm_sum += Round(update);
  CheckFinite(context_.store.params());

  ShareEpisodes(shards_, context_.store, row);
  const auto samples = static_cast<double>(steps_per_iteration());
  row.Set("policy_loss", loss_sums_[kA2cPolicyLoss] / samples);
  row.Set("value_loss", loss_sums_[kA2cValueLoss] / samples);
  row.Set("entropy", loss_sums_[kA2cEntropy] / samples);
  row.Set("learning_rate", update.learning_rate);
  row.Set("grad_norm", norm_sum / config_.rounds);
  row.Set("updates", config_.rounds);
}

// Returns the norm of the gradient.
double A2c::Round(const UpdateRule& update) {
  const std::span<const float> params = context_.store.Pull();
  if (has_target_) {
    const NetworkSpec& spec = context_.executor.network().spec();
    const auto [begin, end] = context_.executor.network().TowerRange(spec.towers.size() - 1);
    MoveTowards(target_.span().subspan(begin, end - begin), params.subspan(begin, end - begin),
                static_cast<float>(config_.target_tau));
  }
  tape_->SetParams(params);
  for (Shard& shard : shards_) {
    Collect(shard);
    EstimateReturns(shard, params);
  }
  if (config_.normalise_advantages) NormaliseAdvantages();

  for (const Shard& shard : shards_) {
    ShardGradient(shard, gradient_.Next());
    gradient_.Add();
  }
  const std::span<float> total = gradient_.Total();
  const double norm = context_.store.Push(total, update);
  CheckFinite(norm, "the gradient");
  for (int i = 0; i < kA2cStats; ++i) loss_sums_[i] += total[context_.executor.network().param_count() + i];
  return norm;
}

void A2c::Collect(Shard& shard) {
  shard.rollout.Collect(nullptr, {},
                        [&](std::uint64_t step, const float* obs, float* actions, float* log_probs) {
                          model_.Sample(obs, shard.rollout.envs(), shard.rollout.shard().seed,
                                        shard.rollout.shard().first_env(), step, *tape_, actions, log_probs);
                        });
}

// G_t and A_t = G_t - v(s_t; w). GAE with the values of the target network gives G_t = advantage + value.
void A2c::EstimateReturns(Shard& shard, std::span<const float> params) {
  const Rollout& r = shard.rollout;
  if (has_target_) tape_->SetParams(target_.span());
  model_.RolloutValues(r, *tape_, shard.values.span(), shard.final_values.span());
  ComputeGae({.steps = r.steps(),
              .envs = r.envs(),
              .rewards = shard.rollout.rewards(),
              .values = shard.values.span(),
              .terminated = r.terminated(),
              .truncated = r.truncated(),
              .final_values = shard.final_values.span(),
              .gamma = static_cast<float>(config_.gamma),
              .lambda = static_cast<float>(config_.gae_lambda)},
             shard.advantages.span(), shard.returns.span());
  if (!has_target_) return;
  tape_->SetParams(params);
  model_.RolloutValues(r, *tape_, shard.values.span(), shard.final_values.span());
  for (int i = 0; i < r.samples(); ++i) shard.advantages[i] = shard.returns[i] - shard.values[i];
}

void A2c::NormaliseAdvantages() {
  ShardSum<double> sums(2);
  for (const Shard& shard : shards_) {
    const std::span<double> own = sums.Next();
    for (const float advantage : shard.advantages) {
      own[0] += advantage;
      own[1] += double{advantage} * advantage;
    }
    sums.Add();
  }
  const std::span<double> totals = sums.Total();
  context_.store.Share(totals);
  const double n = static_cast<double>(config_.envs) * config_.horizon;
  const double mean = totals[0] / n;
  advantage_mean_ = static_cast<float>(mean);
  advantage_scale_ = static_cast<float>(1.0 / (std::sqrt(std::max(0.0, totals[1] / n - mean * mean)) + 1e-8));
}

// The gradient of one shard's part of a round, in passes that fit the caches. Samples are used in the order
// they were collected, where they lie.
void A2c::ShardGradient(const Shard& shard, std::span<float> gradient) {
  const std::size_t obs_size = context_.env.spec.obs_size, action_size = context_.env.spec.action.size();
  const std::span<float> stats = gradient.subspan(context_.executor.network().param_count());
  const A2cLossRule rule{
      .value_coef = static_cast<float>(config_.value_coef),
      .entropy_coef = static_cast<float>(config_.entropy_coef),
      .per_sample = 1.0f / (static_cast<float>(config_.envs) * static_cast<float>(config_.horizon))};
  const int samples = shard.rollout.samples(), pass_size = context_.executor.pass_size();
  for (int first = 0; first < samples; first += pass_size) {
    const A2cBatch batch{.n = std::min(pass_size, samples - first),
                         .actions = shard.rollout.actions().data() + first * action_size,
                         .advantages = shard.advantages.data() + first,
                         .returns = shard.returns.data() + first,
                         .advantage_mean = advantage_mean_,
                         .advantage_scale = advantage_scale_};
    model_.AddGradient(
        shard.rollout.obs().data() + first * obs_size, batch.n, *tape_, d_outputs_, gradient,
        [&](const float* outputs, int stride, float* d_outputs) {
          if (model_.discrete()) {
            A2cCategoricalLoss(batch, rule, outputs, model_.policy_size(), stride, d_outputs, stats);
          } else {
            A2cGaussianLoss(batch, rule, outputs, model_.policy_size(), stride,
                            model_.LogStd(tape_->params()), d_outputs, model_.LogStd(gradient), stats);
          }
        },
        [&](const float* values, int stride, float* d_values) {
          A2cValueLoss(batch, rule, values, stride, d_values, stats);
        });
  }
}

void A2c::Act(std::span<const float> obs, int n, std::span<float> actions) {
  tape_->SetParams(context_.store.params());
  model_.Greedy(obs.data(), n, *tape_, actions.data());
}

void A2c::SaveShards(StateWriter& out) const {
  for (const Shard& shard : shards_) shard.rollout.Save(out);
}

void A2c::SaveCommon(StateWriter& out) const {
  if (has_target_) out.Put<float>("a2c/target", target_.span());
}

void A2c::LoadShards(const StateReader& in) {
  for (Shard& shard : shards_) shard.rollout.Load(in);
}

void A2c::LoadCommon(const StateReader& in) {
  if (has_target_) in.Get<float>("a2c/target", target_.span());
}

class A2cSettings final : public AlgorithmSettings {
 public:
  void Fields(ConfigFields& field) override {
    field.Add(config_);
    field.Add(network_);
    field.Add(optimizer_);
  }
  void Validate(const EnvSpec&, int shards) const override {
    CheckEnvsFillShards(config_.envs, shards);
    if (config_.value_learning_rate > 0 && network_.shared_tower) {
      Fail("value_learning_rate needs parameters that only the value function has: use shared_tower=false");
    }
  }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const override {
    // Per sample: observation, action, log-probability, reward, value, value of a cut-off end, advantage,
    // return, and two flags.
    const std::uint64_t floats = env.obs_size + env.action.size() + 6;
    return std::uint64_t(config_.envs) * (config_.horizon + 1) * (floats * sizeof(float) + 2);
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const override { return MakeActorCriticNetwork(network_, env); }
  const OptimizerSettings& optimizer() const override { return optimizer_; }
  std::unique_ptr<Algorithm> Make(const WorkerContext& context) const override {
    return std::make_unique<A2c>(config_, context);
  }

 private:
  A2cConfig config_;
  ActorCriticSettings network_;
  OptimizerSettings optimizer_{.kind = OptimizerKind::kRmsprop, .eps = 1e-5};
};

}  // namespace

AlgorithmEntry A2cEntry() {
  return {
      .name = "a2c",
      .help = "advantage actor-critic: a gradient step after every few steps; with --store shared it is A3C",
      .discrete = true,
      .continuous = true,
      .metrics =
          "episode_return_mean episode_length_mean episodes policy_loss value_loss entropy learning_rate "
          "grad_norm updates",
      .make_settings = [] { return std::unique_ptr<AlgorithmSettings>(std::make_unique<A2cSettings>()); }};
}

}  // namespace trireme
