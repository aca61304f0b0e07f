// Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347), for discrete and continuous actions.
//
// One iteration:
//   collect     every environment takes `horizon` steps with the current policy
//   advantages  generalised advantage estimation, bootstrapping where an episode was cut off
//   update      `epochs` passes over the experience in `minibatches` shuffled parts; each part is one
//               gradient step on the clipped surrogate loss (ppo_loss.h)
//
// Each shard contributes its own environments to every mini-batch. Its gradient is computed on its own and
// added to the others' in a fixed order, so the result is the same bit for bit however shards are spread over
// workers.

#include "trireme/algo/ppo.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "trireme/algo/actor_critic.h"
#include "trireme/algo/episode_stats.h"
#include "trireme/algo/ppo_loss.h"
#include "trireme/comm/shard_sum.h"
#include "trireme/optim/schedule.h"
#include "trireme/rollout/gae.h"
#include "trireme/rollout/minibatch.h"
#include "trireme/rollout/normaliser.h"
#include "trireme/rollout/rollout.h"

namespace trireme {
namespace {

struct PpoConfig {
  int envs = 64;
  int horizon = 128;
  int epochs = 4;
  int minibatches = 4;
  double gamma = 0.99;
  double gae_lambda = 0.95;
  double clip = 0.2;
  ScheduleKind clip_schedule = ScheduleKind::kConstant;
  double value_clip = 0.0;
  double value_coef = 0.5;
  double entropy_coef = 0.0;
  double learning_rate = 3e-4;
  ScheduleKind learning_rate_schedule = ScheduleKind::kLinear;
  double final_fraction = 0.0;
  double desired_kl = 0.0;
  double target_kl = 0.0;
  double max_grad_norm = 0.5;
  bool normalise_advantages = true;
  bool normalise_obs = false;
  bool normalise_rewards = false;

  void Fields(ConfigFields& field) {
    field("envs", envs, "environments stepped in parallel, over all shards", Between(1, 1'000'000));
    field("horizon", horizon, "steps per environment in one iteration", Between(1, 1'000'000));
    field("epochs", epochs, "passes over the experience of an iteration", Between(1, 1000));
    field("minibatches", minibatches, "gradient steps per pass", Between(1, 1'000'000));
    field("gamma", gamma, "discount per step", UnitInterval());
    field("gae_lambda", gae_lambda, "mix of short and long advantage estimates", UnitInterval());
    field("clip", clip, "how far the probability ratio may leave 1", Positive());
    field("clip_schedule", clip_schedule, "course of the clip range over the run", kScheduleNames);
    field("value_clip", value_clip, "how far a value may move in one iteration; 0: no limit", NonNegative());
    field("value_coef", value_coef, "weight of the value loss", NonNegative());
    field("entropy_coef", entropy_coef, "weight of the entropy bonus", NonNegative());
    field("learning_rate", learning_rate, "initial step size", Between(1e-12, 1e30));
    field("learning_rate_schedule", learning_rate_schedule, "course of the step size over the run",
          kScheduleNames);
    field("final_fraction", final_fraction, "where linear and cosine schedules end, relative to their start",
          UnitInterval());
    field("desired_kl", desired_kl,
          "adapt the step size so that updates see this mean KL divergence from the old policy; 0: off",
          Between(0, 100));
    field("target_kl", target_kl, "end an iteration's updates beyond 1.5 times this KL divergence; 0: off",
          NonNegative());
    field("max_grad_norm", max_grad_norm, "longest gradient, longer ones are scaled down; 0: no limit",
          NonNegative());
    field("normalise_advantages", normalise_advantages, "zero mean and unit variance in every mini-batch");
    field("normalise_obs", normalise_obs, "scale observations by their running mean and deviation");
    field("normalise_rewards", normalise_rewards, "scale rewards by the running deviation of returns");
  }
};

// Everything one shard owns.
struct Shard {
  Shard(const EnvEntry& env, const ShardSpec& spec, const PpoConfig& config)
      : rollout(env, spec, config.horizon),
        values((static_cast<std::size_t>(config.horizon) + 1) * spec.envs),
        final_values(rollout.samples()),
        advantages(rollout.samples()),
        returns(rollout.samples()),
        order(static_cast<std::size_t>(config.epochs) * rollout.samples()) {}

  // The samples of mini-batch `part`, counted over all epochs.
  std::span<const int> Minibatch(int part, int minibatches) const {
    const std::size_t n = rollout.samples();
    const std::size_t epoch = part / minibatches, index = part % minibatches;
    const std::size_t begin = n * index / minibatches, end = n * (index + 1) / minibatches;
    return std::span(order).subspan(epoch * n + begin, end - begin);
  }

  Rollout rollout;
  AlignedBuffer<float> values;        // [T + 1, B]
  AlignedBuffer<float> final_values;  // [T, B]
  AlignedBuffer<float> advantages;    // [T, B]
  AlignedBuffer<float> returns;       // [T, B]
  std::vector<int> order;             // [epochs, T * B], the samples in the order they are visited
};

class Ppo final : public Algorithm {
 public:
  Ppo(const PpoConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override;
  std::int64_t steps_per_iteration() const override { return std::int64_t{config_.envs} * config_.horizon; }
  void Act(std::span<const float> obs, int n, std::span<float> actions) override;
  void SaveShards(StateWriter& out) const override;
  void SaveCommon(StateWriter& out) const override;
  void LoadShards(const StateReader& in) override;
  void LoadCommon(const StateReader& in) override;

 private:
  void Collect();
  void NormaliseRewards();
  void Shuffle(Shard& shard);
  void ShareStatistics(MetricRow& row);
  void Update(double progress, MetricRow& row);
  double GradientStep(int part, PpoLossRule rule, const UpdateRule& update);
  void ShardGradient(const Shard& shard, int part, const PpoLossRule& rule, std::span<float> gradient);
  int MinibatchSize(int part) const;

  PpoConfig config_;
  WorkerContext context_;
  ActorCritic model_;
  std::vector<Shard> shards_;
  std::uint64_t iteration_ = 0;
  Normaliser obs_normaliser_;
  Normaliser return_normaliser_;
  std::optional<KlAdaptiveRate> adaptive_rate_;  // with desired_kl
  std::unique_ptr<Tape> tape_;
  ShardSum<float> gradient_;                      // parameters, then kPpoStats statistics
  std::array<float, kPpoStats> step_stats_ = {};  // of the last gradient step, over all workers
  ShardSum<double> statistics_;
  std::vector<float> advantage_mean_, advantage_scale_;  // [epochs, minibatches]
  // One mini-batch of one shard, gathered.
  std::vector<float> obs_, actions_, old_log_probs_, advantages_, returns_, old_values_;
  OutputGradients d_outputs_;
};

// What ShareStatistics sums behind the episodes, in this order; sums of each mini-batch's advantages follow.
enum Statistic { kErrorSum = kEpisodeStats, kErrorSquares, kReturnSum, kReturnSquares, kStatistics };

Ppo::Ppo(const PpoConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      model_(context.executor, context.env.spec),
      obs_normaliser_(context.env.spec.obs_size, true, 10.0f),
      return_normaliser_(1, false, 10.0f),
      tape_(context.executor.MakeTape(
          std::max({context.executor.pass_size(), kMostActed, config.envs / context.shards}))),
      gradient_(context.executor.network().param_count() + kPpoStats),
      statistics_(kStatistics + 2 * static_cast<std::size_t>(config.epochs) * config.minibatches),
      advantage_mean_(static_cast<std::size_t>(config.epochs) * config.minibatches),
      advantage_scale_(advantage_mean_.size(), 1.0f) {
  if (config.desired_kl > 0) {
    adaptive_rate_.emplace(config.learning_rate, config.desired_kl, config.learning_rate * 1e-2,
                           config.learning_rate * 1e2);
  }
  for (int s = 0; s < context.own_shards; ++s) {
    const ShardSpec spec{context.first_shard + s, config.envs / context.shards, context.seed};
    shards_.emplace_back(context.env, spec, config);
  }
  const std::size_t obs_size = context.env.spec.obs_size, action_size = context.env.spec.action.size();
  const std::size_t pass_size = std::max(context.executor.pass_size(), kMostActed);
  obs_.resize(pass_size * obs_size);
  actions_.resize(pass_size * action_size);
  for (auto* values : {&old_log_probs_, &advantages_, &returns_, &old_values_}) values->resize(pass_size);
  d_outputs_ = model_.MakeOutputGradients(pass_size);
}

void Ppo::Iterate(double progress, MetricRow& row) {
  Collect();
  for (Shard& shard : shards_) {
    model_.RolloutValues(shard.rollout, *tape_, shard.values.span(), shard.final_values.span());
  }
  if (config_.normalise_rewards) NormaliseRewards();
  for (Shard& shard : shards_) {
    const Rollout& r = shard.rollout;
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
    Shuffle(shard);
  }
  ShareStatistics(row);
  Update(progress, row);
  ++iteration_;
}

void Ppo::Collect() {
  tape_->SetParams(context_.store.params());
  const Normaliser* normaliser = config_.normalise_obs ? &obs_normaliser_ : nullptr;
  ShardSum<double> sums(obs_normaliser_.sums_size());
  for (Shard& shard : shards_) {
    const std::span<double> raw_sums = config_.normalise_obs ? sums.Next() : std::span<double>();
    shard.rollout.Collect(
        normaliser, raw_sums, [&](std::uint64_t step, const float* obs, float* actions, float* log_probs) {
          model_.Sample(obs, shard.rollout.envs(), shard.rollout.shard().seed,
                        shard.rollout.shard().first_env(), step, *tape_, actions, log_probs);
        });
    if (config_.normalise_obs) sums.Add();
  }
  if (!config_.normalise_obs) return;
  const std::span<double> totals = sums.Total();
  context_.store.Share(totals);
  obs_normaliser_.Merge(totals);
}

// Rewards are divided by the running standard deviation of the discounted returns.
void Ppo::NormaliseRewards() {
  ShardSum<double> sums(return_normaliser_.sums_size());
  for (Shard& shard : shards_) {
    shard.rollout.AddReturnsTo(sums.Next(), static_cast<float>(config_.gamma), return_normaliser_);
    sums.Add();
  }
  const std::span<double> totals = sums.Total();
  context_.store.Share(totals);
  return_normaliser_.Merge(totals);
  for (Shard& shard : shards_) {
    for (float& reward : shard.rollout.rewards()) return_normaliser_.Apply(&reward, &reward);
  }
}

// A fresh order for every epoch, from the shard's own random stream.
void Ppo::Shuffle(Shard& shard) {
  const std::size_t n = shard.rollout.samples();
  for (int epoch = 0; epoch < config_.epochs; ++epoch) {
    RandomStream random(shard.rollout.shard().seed, Purpose::kShuffle,
                        static_cast<std::uint32_t>(shard.rollout.shard().index),
                        iteration_ * config_.epochs + epoch);
    FillShuffled(std::span(shard.order).subspan(epoch * n, n), random);
  }
}

// Over all shards.
int Ppo::MinibatchSize(int part) const {
  return static_cast<int>(shards_[0].Minibatch(part, config_.minibatches).size()) * context_.shards;
}

// One exchange for all that must be known over the whole batch before the updates: how episodes went, how
// well values predict returns, and mean and deviation of the advantages of every mini-batch.
void Ppo::ShareStatistics(MetricRow& row) {
  for (Shard& shard : shards_) {
    const std::span<double> sums = statistics_.Next();
    AddEpisodes(shard.rollout.TakeEpisodes(), sums);
    for (int i = 0; i < shard.rollout.samples(); ++i) {
      sums[kErrorSum] += shard.advantages[i];  // return minus value: what the value function did not foresee
      sums[kErrorSquares] += double{shard.advantages[i]} * shard.advantages[i];
      sums[kReturnSum] += shard.returns[i];
      sums[kReturnSquares] += double{shard.returns[i]} * shard.returns[i];
    }
    for (int part = 0; config_.normalise_advantages && part < config_.epochs * config_.minibatches; ++part) {
      for (const int i : shard.Minibatch(part, config_.minibatches)) {
        sums[kStatistics + 2 * part] += shard.advantages[i];
        sums[kStatistics + 2 * part + 1] += double{shard.advantages[i]} * shard.advantages[i];
      }
    }
    statistics_.Add();
  }
  const std::span<double> totals = statistics_.Total();
  context_.store.Share(totals);

  for (int part = 0; config_.normalise_advantages && part < config_.epochs * config_.minibatches; ++part) {
    const double n = MinibatchSize(part);
    const double mean = totals[kStatistics + 2 * part] / n;
    const double variance = std::max(0.0, totals[kStatistics + 2 * part + 1] / n - mean * mean);
    advantage_mean_[part] = static_cast<float>(mean);
    advantage_scale_[part] = static_cast<float>(1.0 / (std::sqrt(variance) + 1e-8));
  }
  const double samples = static_cast<double>(steps_per_iteration());
  const auto variance = [&](Statistic sum, Statistic squares) {
    const double mean = totals[sum] / samples;
    return totals[squares] / samples - mean * mean;
  };
  const double return_variance = variance(kReturnSum, kReturnSquares);
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  ReportEpisodes(totals, row);
  row.Set("explained_variance",
          return_variance > 0 ? 1.0 - variance(kErrorSum, kErrorSquares) / return_variance : kNone);
}

void Ppo::Update(double progress, MetricRow& row) {
  const auto scheduled = [&](double initial, ScheduleKind kind) {
    return initial * ScheduleFactor(kind, config_.final_fraction, progress);
  };
  const double learning_rate = adaptive_rate_
                                   ? adaptive_rate_->rate()
                                   : scheduled(config_.learning_rate, config_.learning_rate_schedule);
  const PpoLossRule rule{.clip = static_cast<float>(scheduled(config_.clip, config_.clip_schedule)),
                         .value_clip = static_cast<float>(config_.value_clip),
                         .value_coef = static_cast<float>(config_.value_coef),
                         .entropy_coef = static_cast<float>(config_.entropy_coef)};
  const UpdateRule update{static_cast<float>(learning_rate), config_.max_grad_norm};

  double sums[kPpoStats] = {}, norm_sum = 0, samples = 0;
  int part = 0;
  while (part < config_.epochs * config_.minibatches) {
    const double norm = GradientStep(part, rule, update);
    const int size = MinibatchSize(part);
    for (int i = 0; i < kPpoStats; ++i) sums[i] += step_stats_[i];
    norm_sum += norm;
    samples += size;
    ++part;
    if (config_.target_kl > 0 && step_stats_[kApproxKl] / size > 1.5 * config_.target_kl) break;
  }
  if (adaptive_rate_) adaptive_rate_->Update(sums[kApproxKl] / samples);
  CheckFinite(context_.store.params());

  row.Set("policy_loss", sums[kPolicyLoss] / samples);
  row.Set("value_loss", sums[kValueLoss] / samples);
  row.Set("entropy", sums[kEntropy] / samples);
  row.Set("approx_kl", sums[kApproxKl] / samples);
  row.Set("clip_fraction", sums[kClipped] / samples);
  row.Set("learning_rate", learning_rate);
  row.Set("grad_norm", norm_sum / part);
  row.Set("updates", part);
}

// One update with mini-batch `part`, counted over all epochs. Leaves its statistics in step_stats_ and
// returns the norm of the gradient.
double Ppo::GradientStep(int part, PpoLossRule rule, const UpdateRule& update) {
  tape_->SetParams(context_.store.Pull());
  rule.per_sample = 1.0f / static_cast<float>(MinibatchSize(part));
  for (const Shard& shard : shards_) {
    ShardGradient(shard, part, rule, gradient_.Next());
    gradient_.Add();
  }
  const std::span<float> total = gradient_.Total();
  const double norm = context_.store.Push(total, update);
  CheckFinite(norm, "the gradient");
  std::ranges::copy(total.subspan(context_.executor.network().param_count()), step_stats_.begin());
  return norm;
}

// The gradient of one shard's part of a mini-batch, in passes that fit the caches.
void Ppo::ShardGradient(const Shard& shard, int part, const PpoLossRule& rule, std::span<float> gradient) {
  const std::span<const int> samples = shard.Minibatch(part, config_.minibatches);
  const std::size_t obs_size = context_.env.spec.obs_size, action_size = context_.env.spec.action.size();
  const std::span<float> stats = gradient.subspan(context_.executor.network().param_count());
  const std::size_t pass_size = context_.executor.pass_size();
  for (std::size_t first = 0; first < samples.size(); first += pass_size) {
    const int n = static_cast<int>(std::min(pass_size, samples.size() - first));
    const std::span<const int> pass = samples.subspan(first, n);
    GatherRows(shard.rollout.obs(), obs_size, pass, obs_);
    GatherRows(shard.rollout.actions(), action_size, pass, actions_);
    GatherRows(shard.rollout.extra(), 1, pass, old_log_probs_);
    GatherRows(shard.advantages.span(), 1, pass, advantages_);
    GatherRows(shard.returns.span(), 1, pass, returns_);
    if (rule.value_clip > 0) GatherRows(shard.values.span(), 1, pass, old_values_);
    const PpoBatch batch{n,
                         actions_.data(),
                         old_log_probs_.data(),
                         advantages_.data(),
                         returns_.data(),
                         old_values_.data(),
                         advantage_mean_[part],
                         advantage_scale_[part]};

    model_.AddGradient(
        obs_.data(), n, *tape_, d_outputs_, gradient,
        [&](const float* outputs, int stride, float* d_outputs) {
          if (model_.discrete()) {
            CategoricalPolicyLoss(batch, rule, outputs, model_.policy_size(), stride, d_outputs, stats);
          } else {
            GaussianPolicyLoss(batch, rule, outputs, model_.policy_size(), stride,
                               model_.LogStd(tape_->params()), d_outputs, model_.LogStd(gradient), stats);
          }
        },
        [&](const float* values, int stride, float* d_values) {
          ValueLoss(batch, rule, values, stride, d_values, stats);
        });
  }
}

void Ppo::Act(std::span<const float> obs, int n, std::span<float> actions) {
  const std::size_t obs_size = context_.env.spec.obs_size;
  std::copy_n(obs.data(), n * obs_size, obs_.data());
  if (config_.normalise_obs) {
    for (int i = 0; i < n; ++i) obs_normaliser_.Apply(obs_.data() + i * obs_size, obs_.data() + i * obs_size);
  }
  tape_->SetParams(context_.store.params());
  model_.Greedy(obs_.data(), n, *tape_, actions.data());
}

void Ppo::SaveShards(StateWriter& out) const {
  for (const Shard& shard : shards_) shard.rollout.Save(out);
}

void Ppo::SaveCommon(StateWriter& out) const {
  out.PutValue("ppo/iteration", iteration_);
  obs_normaliser_.Save(out, "ppo/obs_normaliser");
  return_normaliser_.Save(out, "ppo/return_normaliser");
  if (adaptive_rate_) adaptive_rate_->Save(out, "ppo/adaptive_rate");
}

void Ppo::LoadShards(const StateReader& in) {
  for (Shard& shard : shards_) shard.rollout.Load(in);
}

void Ppo::LoadCommon(const StateReader& in) {
  iteration_ = in.GetValue<std::uint64_t>("ppo/iteration");
  obs_normaliser_.Load(in, "ppo/obs_normaliser");
  return_normaliser_.Load(in, "ppo/return_normaliser");
  if (adaptive_rate_) adaptive_rate_->Load(in, "ppo/adaptive_rate");
}

class PpoSettings final : public AlgorithmSettings {
 public:
  void Fields(ConfigFields& field) override {
    field.Add(config_);
    field.Add(network_);
    field.Add(optimizer_);
  }
  void Validate(const EnvSpec&, int shards) const override {
    CheckEnvsFillShards(config_.envs, shards);
    const std::int64_t per_shard = std::int64_t{config_.envs} / shards * config_.horizon;
    if (per_shard < config_.minibatches) {
      Fail("minibatches = {} is more than the {} samples of a shard (envs / shards * horizon)",
           config_.minibatches, per_shard);
    }
  }
  std::string NeedsWorkersInStep() const override {
    return config_.normalise_obs ? "normalise_obs" : config_.normalise_rewards ? "normalise_rewards" : "";
  }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const override {
    // Per sample: observation, action, log-probability, reward, value, value of a cut-off end, advantage,
    // return, two flags, and its place in the order of each epoch.
    const std::uint64_t floats = env.obs_size + env.action.size() + 6 + config_.epochs;
    return std::uint64_t(config_.envs) * (config_.horizon + 1) * (floats * sizeof(float) + 2);
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const override { return MakeActorCriticNetwork(network_, env); }
  const OptimizerSettings& optimizer() const override { return optimizer_; }
  std::unique_ptr<Algorithm> Make(const WorkerContext& context) const override {
    return std::make_unique<Ppo>(config_, context);
  }

 private:
  PpoConfig config_;
  ActorCriticSettings network_;
  OptimizerSettings optimizer_{.eps = 1e-5};
};

}  // namespace

AlgorithmEntry PpoEntry() {
  return {
      .name = "ppo",
      .help = "proximal policy optimisation: clipped policy gradient, several passes over each batch",
      .discrete = true,
      .continuous = true,
      .metrics =
          "episode_return_mean episode_length_mean episodes explained_variance policy_loss value_loss "
          "entropy approx_kl clip_fraction learning_rate grad_norm updates",
      .make_settings = [] { return std::unique_ptr<AlgorithmSettings>(std::make_unique<PpoSettings>()); }};
}

}  // namespace trireme
