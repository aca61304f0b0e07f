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
#include <memory>
#include <vector>

#include "trireme/algo/actor_critic.h"
#include "trireme/algo/blocks.h"
#include "trireme/algo/episode_stats.h"
#include "trireme/algo/on_policy.h"
#include "trireme/algo/settings.h"
#include "trireme/algo/trajectory_loss.h"
#include "trireme/optim/average.h"

namespace trireme {
namespace {

struct A2cConfig {
  CollectConfig collect{.envs = 16, .horizon = 8};
  int rounds = 32;
  double gamma = 0.99;
  double gae_lambda = 1.0;
  double value_coef = 0.5;
  double entropy_coef = 0.0;
  StepConfig step{.learning_rate = 7e-4};
  double value_learning_rate = 0.0;
  double target_tau = 0.0;
  bool normalise_advantages = false;
  ActorCriticSettings network;
  OptimizerSettings optimizer{.kind = OptimizerKind::kRmsprop, .eps = 1e-5};

  void Fields(ConfigFields& field) {
    collect.Fields(field, "round", Search::PowersOfTwo(4, 64));
    field("rounds", rounds, "rounds of collecting and learning in one iteration, which is one row of metrics",
          Between(1, 1'000'000));
    field("gamma", gamma, "discount per step", UnitInterval()).Tune(Search::NearOne(0.9, 0.999));
    field("gae_lambda", gae_lambda, "0: one-step targets, 1: n-step returns, between: a mix", UnitInterval())
        .Tune(Search::NearOne(0.7, 0.99));
    field("value_coef", value_coef, "weight of the value loss", NonNegative()).Tune(Search::Log(0.1, 1));
    field("entropy_coef", entropy_coef, "weight of the entropy bonus", NonNegative())
        .Tune(Search::Log(1e-5, 0.03));
    step.RateField(field);
    field("value_learning_rate", value_learning_rate,
          "initial step size of the value function; 0: the same as the policy's", Between(0, 1e30));
    step.ScheduleFields(field, "step sizes");
    field("target_tau", target_tau, "how fast the target value network follows, per round; 0: there is none",
          UnitInterval());
    step.NormField(field);
    field("normalise_advantages", normalise_advantages, "zero mean and unit variance in every round")
        .Tune(Search::TrueOrFalse());
    field.Add(network);
    field.Add(optimizer);
  }

  void Validate(const EnvSpec&, int shards) const {
    CheckSplitsEvenly("envs", collect.envs, shards);
    if (value_learning_rate > 0 && network.shared_tower) {
      Fail("value_learning_rate needs parameters that only the value function has: use shared_tower=false");
    }
  }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const {
    return std::uint64_t(collect.envs) * (collect.horizon + 1) * OnPolicyShard::BytesPerSample(env);
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const { return MakeActorCriticNetwork(network, env); }
};

class A2c final : public Algorithm {
 public:
  using Config = A2cConfig;
  A2c(const A2cConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override;
  std::int64_t steps_per_iteration() const override { return config_.collect.steps() * config_.rounds; }
  std::int64_t updates_per_iteration() const override { return config_.rounds; }
  void Act(std::span<const float> obs, const std::uint8_t* masks, int n, std::span<float> actions) override;
  void Explore(const ActionRequest& request) override;
  void SaveShards(StateWriter& out) const override { SaveAll(shards_, out); }
  void SaveCommon(StateWriter& out) const override;
  void LoadShards(const StateReader& in) override { LoadAll(shards_, in); }
  void LoadCommon(const StateReader& in) override;

 private:
  void Round(const UpdateRule& update);
  void MoveTarget(std::span<const float> params);
  void EstimateReturns(OnPolicyShard& shard, std::span<const float> params);
  void NormaliseAdvantages();

  A2cConfig config_;
  WorkerContext context_;
  ActorCritic model_;
  std::unique_ptr<Tape> tape_;
  std::vector<OnPolicyShard> shards_;
  bool has_target_;
  AlignedBuffer<float> target_;  // with target_tau: laid out as the parameters; only the value's part is used
  GradientSteps steps_;
  ShardSum<double> advantage_sums_;
  Standardisation advantage_scale_;  // of the round
  RowScratch scratch_;
};

A2c::A2c(const A2cConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      model_(context.executor, context.env.spec),
      tape_(MakeWorkerTape(context, config.collect.envs)),
      shards_(MakeShards<OnPolicyShard>(context, config.collect.envs, config.collect.horizon)),
      has_target_(config.target_tau > 0),
      target_(has_target_ ? context.executor.network().param_count() : 0),
      steps_(context, *tape_, kA2cStats),
      advantage_sums_(2) {
  if (has_target_) std::ranges::copy(context.store.params(), target_.begin());
}

void A2c::Iterate(double progress, MetricRow& row) {
  const UpdateRule update =
      config_.step.RuleWithValueRate(progress, config_.value_learning_rate, context_.executor.network());
  steps_.Begin();
  for (int round = 0; round < config_.rounds; ++round) Round(update);
  CheckFinite(context_.store.params());

  ShareEpisodes(shards_, context_.store, row);
  const auto samples = static_cast<double>(steps_per_iteration());
  row.Set("policy_loss", steps_.total(kA2cPolicyLoss) / samples);
  row.Set("value_loss", steps_.total(kA2cValueLoss) / samples);
  row.Set("entropy", steps_.total(kA2cEntropy) / samples);
  row.Set("learning_rate", update.learning_rate);
  steps_.Report(row);
}

void A2c::Round(const UpdateRule& update) {
  const std::span<const float> params = context_.store.Pull();
  if (has_target_) MoveTarget(params);
  tape_->SetParams(params);
  CollectAll(shards_, nullptr, model_.Sampler(*tape_),
             [&](OnPolicyShard& shard) { EstimateReturns(shard, params); });
  if (config_.normalise_advantages) NormaliseAdvantages();
  const A2cLossRule rule{.value_coef = static_cast<float>(config_.value_coef),
                         .entropy_coef = static_cast<float>(config_.entropy_coef),
                         .per_sample = 1.0f / (static_cast<float>(config_.collect.envs) *
                                               static_cast<float>(config_.collect.horizon))};
  steps_.Step(shards_, update,
              [&](const OnPolicyShard& shard, std::span<float> gradient, std::span<float> stats) {
                AddA2cGradient(model_, *tape_, shard, rule, advantage_scale_, scratch_, gradient, stats);
              });
}

// w- <- tau w + (1 - tau) w-
void A2c::MoveTarget(std::span<const float> params) {
  const Network& network = context_.executor.network();
  const auto [begin, end] = network.TowerRange(network.spec().towers.size() - 1);
  MoveTowards(target_.span().subspan(begin, end - begin), params.subspan(begin, end - begin),
              static_cast<float>(config_.target_tau));
}

// G_t and A_t = G_t - v(s_t; w). GAE with the values of the target network gives G_t = advantage + value.
void A2c::EstimateReturns(OnPolicyShard& shard, std::span<const float> params) {
  if (has_target_) tape_->SetParams(target_.span());
  shard.EstimateValues(model_, *tape_);
  shard.EstimateAdvantages(config_.gamma, config_.gae_lambda);
  if (!has_target_) return;
  tape_->SetParams(params);
  shard.EstimateValues(model_, *tape_);
  for (int i = 0; i < shard.rollout.samples(); ++i) {
    shard.advantages[i] = shard.returns[i] - shard.values[i];
  }
}

void A2c::NormaliseAdvantages() {
  const auto add = [](const OnPolicyShard& shard, std::span<double> sums) {
    for (const float advantage : shard.advantages) AddMoments(advantage, sums);
  };
  const std::span<const double> totals = SumOverShards(shards_, context_.store, advantage_sums_, add);
  advantage_scale_ = Standardisation::Of(totals, static_cast<double>(config_.collect.steps()));
}

void A2c::Act(std::span<const float> obs, const std::uint8_t* masks, int n, std::span<float> actions) {
  tape_->SetParams(context_.store.params());
  model_.Greedy(obs.data(), masks, n, *tape_, actions.data());
}

void A2c::Explore(const ActionRequest& request) {
  tape_->SetParams(context_.store.params());
  model_.Sample(request, *tape_);
}

void A2c::SaveCommon(StateWriter& out) const {
  if (has_target_) out.PutLikeParams("a2c/target", target_.span());
  steps_.Save(out, "a2c/loss_scale");
}

void A2c::LoadCommon(const StateReader& in) {
  if (has_target_) in.GetLikeParams("a2c/target", target_.span());
  steps_.Load(in, "a2c/loss_scale");
}

}  // namespace

AlgorithmEntry A2cEntry() {
  return {
      .name = "a2c",
      .help = "advantage actor-critic: a gradient step after every few steps; with --store shared it is A3C",
      .discrete = true,
      .continuous = true,
      .multi_discrete = true,
      .masks = true,
      .metrics =
          "episode_return_mean episode_length_mean episodes policy_loss value_loss entropy learning_rate "
          "grad_norm updates",
      .make_settings = MakeSettings<A2c>};
}

}  // namespace trireme
