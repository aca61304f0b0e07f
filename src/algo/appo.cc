// Asynchronous PPO: the clipped surrogate of PPO (ppo_loss.h) on the targets of V-trace (Espeholt et al. 2018,
// arXiv:1802.01561), so that it learns from actors whose policy mu is a little older than the learner's pi.
//
// One iteration of a learner, with policy pi(a|s; theta) and value V(s; w):
//   experience  `shards` trajectories of `horizon` steps, each by some mu; actors that begin one begin with theta
//   V-trace     v_t and A_t of every step, for pi as it is now (rollout/vtrace.h)
//   gradients   of the loss in ppo_loss.h, with r = pi(a|s) / mu(a|s), advantage A_t and return v_t: `epochs` passes in
//               `minibatches` parts each. The ratio stands where IMPALA has rho_t.
//
// A worker without actors collects for itself, with mu = pi.

#include "trireme/algo/appo.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/algo/episode_stats.h"
#include "trireme/algo/on_policy.h"
#include "trireme/algo/settings.h"
#include "trireme/algo/trajectory_loss.h"
#include "trireme/algo/vtrace_learner.h"

namespace trireme {
namespace {

struct AppoConfig {
  CollectConfig collect{.envs = 64, .horizon = 32};
  int epochs = 2;
  int minibatches = 4;
  VtraceConfig vtrace;
  double clip = 0.2;
  double value_coef = 0.5;
  double entropy_coef = 0.0;
  StepConfig step{.learning_rate = 1e-3};
  bool normalise_advantages = true;
  ActorCriticSettings network;
  OptimizerSettings optimizer{.eps = 1e-5};

  void Fields(ConfigFields& field) {
    collect.Fields(field, "iteration");
    field("epochs", epochs, "passes over the experience of an iteration", Between(1, 1000))
        .Tune(Search::Log(1, 8));
    field("minibatches", minibatches, "gradient steps per pass", Between(1, 1'000'000))
        .Tune(Search::PowersOfTwo(1, 16));
    vtrace.Fields(field);
    field("clip", clip, "how far the probability ratio may leave 1", Positive()).Tune(Search::Log(0.1, 0.5));
    field("value_coef", value_coef, "weight of the value loss", NonNegative()).Tune(Search::Log(0.1, 1));
    field("entropy_coef", entropy_coef, "weight of the entropy bonus", NonNegative())
        .Tune(Search::Log(1e-5, 0.03));
    step.RateField(field);
    step.ScheduleFields(field);
    step.NormField(field);
    field("normalise_advantages", normalise_advantages, "zero mean and unit variance in every iteration");
    field.Add(network);
    field.Add(optimizer);
  }

  int updates() const { return epochs * minibatches; }

  void Validate(const EnvSpec&, int shards) const {
    CheckSplitsEvenly("envs", collect.envs, shards);
    if (const std::int64_t per_shard = collect.steps() / shards; per_shard < minibatches) {
      Fail("minibatches = {} is more than the {} samples of a shard (envs / shards * horizon)", minibatches,
           per_shard);
    }
  }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const {
    const std::uint64_t samples = std::uint64_t(collect.envs) * (collect.horizon + 1);
    return samples * (VtraceShard::BytesPerSample(env) + epochs * sizeof(int));
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const { return MakeActorCriticNetwork(network, env); }
  std::unique_ptr<Acting> MakeActing(const EnvSpec& env, const Executor& executor, int envs) const {
    return std::make_unique<ActorCriticActing>(env, executor, envs);
  }
};

struct Shard : VtraceShard {
  Shard(const EnvEntry& env, const ShardSpec& spec, const AppoConfig& config)
      : VtraceShard(env.spec, config.collect.horizon, spec.envs),
        index(static_cast<std::uint32_t>(spec.index)),
        minibatches(samples(), config.epochs, config.minibatches) {}
  std::uint32_t index;
  MinibatchOrder minibatches;
};

class Appo final : public Algorithm {
 public:
  using Config = AppoConfig;
  Appo(const AppoConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override;
  std::int64_t steps_per_iteration() const override { return config_.collect.steps(); }
  std::int64_t updates_per_iteration() const override { return config_.updates(); }
  void Act(std::span<const float> obs, const std::uint8_t* masks, int n, std::span<float> actions) override {
    tape_->SetParams(context_.store.params());
    model_.Greedy(obs.data(), masks, n, *tape_, actions.data());
  }
  void Explore(const ActionRequest& request) override {
    tape_->SetParams(context_.store.params());
    model_.Sample(request, *tape_);
  }
  void SaveShards(StateWriter& out) const override {
    if (own_) own_->Save(out);
  }
  void SaveCommon(StateWriter& out) const override;
  void LoadShards(const StateReader& in) override {
    if (own_) own_->Load(in);
  }
  void LoadCommon(const StateReader& in) override;

 private:
  void TakeExperience(MetricRow& row);
  void Update(double progress, MetricRow& row);

  AppoConfig config_;
  WorkerContext context_;
  ActorCritic model_;
  std::unique_ptr<Tape> tape_;
  ActorCriticActing acting_;
  std::optional<OwnRollouts> own_;  // without actors
  std::vector<Shard> shards_;
  std::uint64_t seed_;  // of the order of samples
  std::uint64_t iteration_ = 0;
  GradientSteps steps_;
  ShardSum<double> statistics_;
  Standardisation advantage_scale_;  // of the iteration
  OnPolicyBatch batch_;              // of one pass
};

Appo::Appo(const AppoConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      model_(context.executor, context.env.spec),
      tape_(MakeWorkerTape(context, config.collect.envs)),
      acting_(model_, *tape_),
      shards_(MakeShards<Shard>(context, config.collect.envs, config)),
      seed_(context.seed),
      steps_(context, *tape_, kPpoStats),
      statistics_(kEpisodeStats + 3),
      batch_(context.env.spec, std::max(context.executor.pass_size(), kMostActed)) {
  if (context.experience == nullptr && context.own_shards > 0) {
    own_.emplace(context, config.collect.envs, config.collect.horizon, acting_);
    context_.experience = &*own_;
  }
}

void Appo::Iterate(double progress, MetricRow& row) {
  TakeExperience(row);
  Update(progress, row);
  ++iteration_;
}

// One exchange for all that must be known over the whole batch: how episodes went, mean and deviation of the advantages,
// and how much of the experience counts.
void Appo::TakeExperience(MetricRow& row) {
  enum { kAdvantages = kEpisodeStats, kWeights = kAdvantages + 2 };
  const std::span<const float> params = context_.store.Pull();
  CheckFinite(params);  // actors could not choose by others, and what they send would be refused
  const std::span<const Trajectory* const> experience = context_.experience->Next(params);
  tape_->SetParams(params);
  std::size_t next = 0;
  const auto add = [&](Shard& shard, std::span<double> sums) {
    shard.Take(*experience[next++], config_.vtrace, model_, *tape_);
    shard.minibatches.Shuffle(seed_, shard.index, iteration_);
    AddEpisodes(shard.TakeEpisodes(), sums);
    for (const float advantage : shard.advantages) AddMoments(advantage, sums.subspan(kAdvantages));
    for (const float weight : shard.weights) sums[kWeights] += weight;
  };
  const std::span<const double> totals = SumOverShards(shards_, context_.store, statistics_, add);
  const auto samples = static_cast<double>(steps_per_iteration());
  if (config_.normalise_advantages)
    advantage_scale_ = Standardisation::Of(totals.subspan(kAdvantages), samples);
  ReportEpisodes(totals, row);
  row.Set("importance_weight", totals[kWeights] / samples);
}

void Appo::Update(double progress, MetricRow& row) {
  const UpdateRule update = config_.step.Rule(config_.step.Rate(progress));
  PpoLossRule rule{.clip = static_cast<float>(config_.clip),
                   .value_coef = static_cast<float>(config_.value_coef),
                   .entropy_coef = static_cast<float>(config_.entropy_coef)};
  steps_.Begin();
  for (int part = 0; part < config_.updates(); ++part) {
    rule.per_sample = 1.0f / (static_cast<float>(shards_[0].minibatches[part].size()) *
                              static_cast<float>(context_.shards));
    if (part > 0) tape_->SetParams(context_.store.Pull());
    steps_.Step(shards_, update, [&](const Shard& shard, std::span<float> gradient, std::span<float> stats) {
      AddPpoGradient(model_, *tape_, shard, shard.minibatches[part], rule, advantage_scale_, batch_, gradient,
                     stats);
    });
  }
  CheckFinite(context_.store.params());

  const double samples = static_cast<double>(steps_per_iteration()) * config_.epochs;
  row.Set("policy_loss", steps_.total(kPolicyLoss) / samples);
  row.Set("value_loss", steps_.total(kValueLoss) / samples);
  row.Set("entropy", steps_.total(kEntropy) / samples);
  row.Set("approx_kl", steps_.total(kApproxKl) / samples);
  row.Set("clip_fraction", steps_.total(kClipped) / samples);
  row.Set("learning_rate", update.learning_rate);
  steps_.Report(row);
}

void Appo::SaveCommon(StateWriter& out) const {
  out.PutValue("appo/seed", seed_);
  out.PutValue("appo/iteration", iteration_);
  steps_.Save(out, "appo/loss_scale");
}

void Appo::LoadCommon(const StateReader& in) {
  seed_ = in.GetValue<std::uint64_t>("appo/seed");
  iteration_ = in.GetValue<std::uint64_t>("appo/iteration");
  steps_.Load(in, "appo/loss_scale");
}

}  // namespace

AlgorithmEntry AppoEntry() {
  return {
      .name = "appo",
      .help =
          "asynchronous PPO: its clipped loss on targets of V-trace, for experience of actors; see --actors",
      .discrete = true,
      .continuous = true,
      .multi_discrete = true,
      .masks = true,
      .actors = true,
      .metrics =
          "episode_return_mean episode_length_mean episodes importance_weight policy_loss value_loss "
          "entropy approx_kl clip_fraction learning_rate grad_norm updates",
      .make_settings = MakeSettings<Appo>};
}

}  // namespace trireme
