// Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347), for discrete and continuous actions.
//
// One iteration:
//   collect     every environment takes `horizon` steps with the current policy
//   advantages  generalised advantage estimation, bootstrapping where an episode was cut off
//   update      `epochs` passes over the experience in `minibatches` shuffled parts; each part is one
//               gradient step on the clipped surrogate loss (ppo_loss.h)
//
// Each shard contributes its own environments to every mini-batch. Its gradient is computed on its own and
// added to the others' in a fixed order, so the result is the same, bit for bit, for any number of workers.

#include "trireme/algo/ppo.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/algo/actor_critic.h"
#include "trireme/algo/blocks.h"
#include "trireme/algo/episode_stats.h"
#include "trireme/algo/on_policy.h"
#include "trireme/algo/settings.h"
#include "trireme/algo/trajectory_loss.h"
#include "trireme/optim/schedule.h"
#include "trireme/rollout/normaliser.h"

namespace trireme {
namespace {

struct PpoConfig {
  CollectConfig collect{.envs = 64, .horizon = 128};
  int epochs = 4;
  int minibatches = 4;
  double gamma = 0.99;
  double gae_lambda = 0.95;
  double clip = 0.2;
  ScheduleKind clip_schedule = ScheduleKind::kConstant;
  double value_clip = 0.0;
  double value_coef = 0.5;
  double entropy_coef = 0.0;
  StepConfig step;
  double desired_kl = 0.0;
  double target_kl = 0.0;
  bool normalise_advantages = true;
  bool normalise_obs = false;
  bool normalise_rewards = false;
  ActorCriticSettings network;
  OptimizerSettings optimizer{.eps = 1e-5};

  void Fields(ConfigFields& field) {
    collect.Fields(field, "iteration");
    field("epochs", epochs, "passes over the experience of an iteration", Between(1, 1000))
        .Tune(Search::Log(1, 12));
    field("minibatches", minibatches, "gradient steps per pass", Between(1, 1'000'000))
        .Tune(Search::PowersOfTwo(1, 16));
    field("gamma", gamma, "discount per step", UnitInterval()).Tune(Search::NearOne(0.9, 0.999));
    field("gae_lambda", gae_lambda, "mix of short and long advantage estimates", UnitInterval())
        .Tune(Search::NearOne(0.7, 0.99));
    field("clip", clip, "how far the probability ratio may leave 1", Positive()).Tune(Search::Log(0.1, 0.5));
    field("clip_schedule", clip_schedule, "course of the clip range over the run", kScheduleNames);
    field("value_clip", value_clip, "how far a value may move in one iteration; 0: no limit", NonNegative());
    field("value_coef", value_coef, "weight of the value loss", NonNegative()).Tune(Search::Log(0.1, 1));
    field("entropy_coef", entropy_coef, "weight of the entropy bonus", NonNegative())
        .Tune(Search::Log(1e-5, 0.03));
    step.RateField(field);
    step.ScheduleFields(field);
    field("desired_kl", desired_kl,
          "adapt the step size so that updates see this mean KL divergence from the old policy; 0: off",
          Between(0, 100));
    field("target_kl", target_kl, "end an iteration's updates beyond 1.5 times this KL divergence; 0: off",
          NonNegative());
    step.NormField(field);
    field("normalise_advantages", normalise_advantages, "zero mean and unit variance in every mini-batch");
    field("normalise_obs", normalise_obs, "scale observations by their running mean and deviation");
    field("normalise_rewards", normalise_rewards, "scale rewards by the running deviation of returns");
    field.Add(network);
    field.Add(optimizer);
  }

  int updates() const { return epochs * minibatches; }

  void Validate(const EnvSpec& env, int shards) const {
    CheckSplitsEvenly("envs", collect.envs, shards);
    if (normalise_obs) CheckCanNormalise(env);
    if (const std::int64_t per_shard = collect.steps() / shards; per_shard < minibatches) {
      Fail("minibatches = {} is more than the {} samples of a shard (envs / shards * horizon)", minibatches,
           per_shard);
    }
  }
  std::string NeedsWorkersInStep() const {
    return normalise_obs ? "normalise_obs" : normalise_rewards ? "normalise_rewards" : "";
  }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const {
    const std::uint64_t samples = std::uint64_t(collect.envs) * (collect.horizon + 1);
    return samples * (OnPolicyShard::BytesPerSample(env) + epochs * sizeof(int));
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const { return MakeActorCriticNetwork(network, env); }
};

struct Shard : OnPolicyShard {
  Shard(const EnvEntry& env, const ShardSpec& spec, const PpoConfig& config)
      : OnPolicyShard(env, spec, config.collect.horizon),
        minibatches(rollout.samples(), config.epochs, config.minibatches) {}
  MinibatchOrder minibatches;
};

class Ppo final : public Algorithm {
 public:
  using Config = PpoConfig;
  Ppo(const PpoConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override {
    Collect();
    Learn(progress, row);
    ++iteration_;
  }
  std::int64_t steps_per_iteration() const override { return config_.collect.steps(); }
  std::int64_t updates_per_iteration() const override { return config_.updates(); }
  void Act(std::span<const float> obs, const std::uint8_t* masks, int n, std::span<float> actions) override {
    model_.Greedy(PrepareToAct(obs.data(), n), masks, n, *tape_, actions.data());
  }
  void Explore(const ActionRequest& request) override {
    ActionRequest prepared = request;
    prepared.obs = PrepareToAct(request.obs, request.n);
    model_.Sample(prepared, *tape_);
  }
  void SaveShards(StateWriter& out) const override { SaveAll(shards_, out); }
  void SaveCommon(StateWriter& out) const override;
  void LoadShards(const StateReader& in) override { LoadAll(shards_, in); }
  void LoadCommon(const StateReader& in) override;

 private:
  void Collect();
  void Learn(double progress, MetricRow& row);
  void NormaliseRewards();
  void ShareStatistics(MetricRow& row);
  void Update(double progress, MetricRow& row);
  // Over all shards.
  int MinibatchSize(int part) const {
    return static_cast<int>(shards_[0].minibatches[part].size()) * context_.shards;
  }
  const float* PrepareToAct(const float* obs, int n);

  PpoConfig config_;
  WorkerContext context_;
  ActorCritic model_;
  std::unique_ptr<Tape> tape_;
  std::vector<Shard> shards_;
  std::uint64_t iteration_ = 0;
  Normaliser obs_normaliser_, return_normaliser_;
  std::optional<KlAdaptiveRate> adaptive_rate_;  // with desired_kl
  GradientSteps steps_;
  ShardSum<double> obs_sums_, return_sums_, statistics_;
  std::vector<Standardisation> advantage_scales_;  // [epochs, minibatches]
  OnPolicyBatch batch_;                            // of one pass
};

Ppo::Ppo(const PpoConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      model_(context.executor, context.env.spec),
      tape_(MakeWorkerTape(context, config.collect.envs)),
      shards_(MakeShards<Shard>(context, config.collect.envs, config)),
      obs_normaliser_(context.env.spec.obs.size(), true, 10.0f),
      return_normaliser_(1, false, 10.0f),
      steps_(context, *tape_, kPpoStats),
      obs_sums_(obs_normaliser_.sums_size()),
      return_sums_(return_normaliser_.sums_size()),
      statistics_(kOnPolicyStats + 2 * static_cast<std::size_t>(config.updates())),
      advantage_scales_(config.updates()),
      batch_(context.env.spec, std::max(context.executor.pass_size(), kMostActed)) {
  if (config.desired_kl > 0) {
    const double rate = config.step.learning_rate;
    adaptive_rate_.emplace(rate, config.desired_kl, rate * 1e-2, rate * 1e2);
  }
}

// ---- Collecting ----
// Observations are scaled by what was known before this iteration.
void Ppo::Collect() {
  tape_->SetParams(context_.store.params());
  CollectAll(shards_, config_.normalise_obs ? &obs_normaliser_ : nullptr, model_.Sampler(*tape_));
  if (!config_.normalise_obs) return;
  obs_normaliser_.Merge(
      SumOverShards(shards_, context_.store, obs_sums_, [](const Shard& shard, std::span<double> sums) {
        std::ranges::copy(shard.rollout.raw_sums(), sums.begin());
      }));
}

// ---- Learning ----

void Ppo::Learn(double progress, MetricRow& row) {
  tape_->SetParams(context_.store.params());
  for (Shard& shard : shards_) shard.EstimateValues(model_, *tape_);
  if (config_.normalise_rewards) NormaliseRewards();
  for (Shard& shard : shards_) {
    shard.EstimateAdvantages(config_.gamma, config_.gae_lambda);
    shard.minibatches.Shuffle(shard.rollout.shard().seed, shard.rollout.shard().index, iteration_);
  }
  ShareStatistics(row);
  Update(progress, row);
}

// Rewards are divided by the running standard deviation of the discounted returns.
void Ppo::NormaliseRewards() {
  return_normaliser_.Merge(
      SumOverShards(shards_, context_.store, return_sums_, [&](Shard& shard, std::span<double> sums) {
        shard.rollout.AddReturnsTo(sums, static_cast<float>(config_.gamma), return_normaliser_);
      }));
  for (Shard& shard : shards_) {
    for (float& reward : shard.rollout.rewards()) return_normaliser_.Apply(&reward, &reward);
  }
}

// One exchange for all that must be known over the whole batch before the updates: how episodes went, how
// well values predict returns, and mean and deviation of the advantages of every mini-batch.
void Ppo::ShareStatistics(MetricRow& row) {
  const int parts = config_.normalise_advantages ? config_.updates() : 0;
  const auto moments_of = [](int part) { return kOnPolicyStats + 2 * part; };
  const auto add = [&](Shard& shard, std::span<double> sums) {
    AddEpisodes(shard.rollout.TakeEpisodes(), sums);
    AddValueErrors(shard, sums);
    for (int part = 0; part < parts; ++part) {
      const std::span<double> moments = sums.subspan(moments_of(part));
      for (const int i : shard.minibatches[part]) AddMoments(shard.advantages[i], moments);
    }
  };
  const std::span<const double> totals = SumOverShards(shards_, context_.store, statistics_, add);
  for (int part = 0; part < parts; ++part) {
    advantage_scales_[part] = Standardisation::Of(totals.subspan(moments_of(part)), MinibatchSize(part));
  }
  ReportEpisodes(totals, row);
  row.Set("explained_variance", ExplainedVariance(totals, static_cast<double>(steps_per_iteration())));
}

void Ppo::Update(double progress, MetricRow& row) {
  const double learning_rate = adaptive_rate_ ? adaptive_rate_->rate() : config_.step.Rate(progress);
  const UpdateRule update = config_.step.Rule(learning_rate);
  const double clip = config_.step.Scheduled(config_.clip, config_.clip_schedule, progress);
  PpoLossRule rule{.clip = static_cast<float>(clip),
                   .value_clip = static_cast<float>(config_.value_clip),
                   .value_coef = static_cast<float>(config_.value_coef),
                   .entropy_coef = static_cast<float>(config_.entropy_coef)};
  steps_.Begin();
  double samples = 0;
  for (int part = 0; part < config_.updates(); ++part) {
    const int size = MinibatchSize(part);
    rule.per_sample = 1.0f / static_cast<float>(size);
    tape_->SetParams(context_.store.Pull());
    const std::span<const float> stats = steps_.Step(
        shards_, update, [&](const Shard& shard, std::span<float> gradient, std::span<float> sums) {
          AddPpoGradient(model_, *tape_, shard, shard.minibatches[part], rule, advantage_scales_[part],
                         batch_, gradient, sums);
        });
    samples += size;
    if (config_.target_kl > 0 && stats[kApproxKl] / size > 1.5 * config_.target_kl) break;
  }
  if (adaptive_rate_) adaptive_rate_->Update(steps_.total(kApproxKl) / samples);
  CheckFinite(context_.store.params());

  row.Set("policy_loss", steps_.total(kPolicyLoss) / samples);
  row.Set("value_loss", steps_.total(kValueLoss) / samples);
  row.Set("entropy", steps_.total(kEntropy) / samples);
  row.Set("approx_kl", steps_.total(kApproxKl) / samples);
  row.Set("clip_fraction", steps_.total(kClipped) / samples);
  row.Set("learning_rate", learning_rate);
  steps_.Report(row);
}

// The observations as the network is given them.
const float* Ppo::PrepareToAct(const float* obs, int n) {
  tape_->SetParams(context_.store.params());
  std::copy_n(obs, n * context_.env.spec.obs.size(), batch_.obs.data());
  if (config_.normalise_obs) obs_normaliser_.ApplyToRows(batch_.obs.data(), n);
  return batch_.obs.data();
}

void Ppo::SaveCommon(StateWriter& out) const {
  out.PutValue("ppo/iteration", iteration_);
  obs_normaliser_.Save(out, "ppo/obs_normaliser");
  return_normaliser_.Save(out, "ppo/return_normaliser");
  if (adaptive_rate_) adaptive_rate_->Save(out, "ppo/adaptive_rate");
  steps_.Save(out, "ppo/loss_scale");
}

void Ppo::LoadCommon(const StateReader& in) {
  iteration_ = in.GetValue<std::uint64_t>("ppo/iteration");
  obs_normaliser_.Load(in, "ppo/obs_normaliser");
  return_normaliser_.Load(in, "ppo/return_normaliser");
  if (adaptive_rate_) adaptive_rate_->Load(in, "ppo/adaptive_rate");
  steps_.Load(in, "ppo/loss_scale");
}

}  // namespace

AlgorithmEntry PpoEntry() {
  return {.name = "ppo",
          .help = "proximal policy optimisation: clipped policy gradient, several passes over each batch",
          .discrete = true,
          .continuous = true,
          .multi_discrete = true,
          .masks = true,
          .metrics =
              "episode_return_mean episode_length_mean episodes explained_variance policy_loss value_loss "
              "entropy approx_kl clip_fraction learning_rate grad_norm updates",
          .make_settings = MakeSettings<Ppo>};
}

}  // namespace trireme
