// IMPALA (Espeholt et al. 2018, arXiv:1802.01561): actors collect with a policy mu that is a little older than the
// learner's pi, and V-trace takes out what is wrong with that.
//
// One round of a learner, with policy pi(a|s; theta) and value V(s; w):
//   pull        theta, w; actors that begin a trajectory begin with them
//   experience  `shards` trajectories of `horizon` steps, each by some mu
//   V-trace     v_t, A_t and rho_t of every step (rollout/vtrace.h)
//   gradient    of the loss in a2c_loss.h, with advantage rho_t A_t and return v_t
//   push
//
// An iteration is `rounds` of these, and one exchange of statistics. A worker without actors collects for itself, with
// mu = pi.

#include "trireme/algo/impala.h"

#include <memory>
#include <optional>
#include <vector>

#include "trireme/algo/episode_stats.h"
#include "trireme/algo/settings.h"
#include "trireme/algo/trajectory_loss.h"
#include "trireme/algo/vtrace_learner.h"

namespace trireme {
namespace {

struct ImpalaConfig {
  CollectConfig collect{.envs = 64, .horizon = 20};
  int rounds = 8;
  VtraceConfig vtrace;
  double value_coef = 0.5;
  double entropy_coef = 0.01;
  StepConfig step{.learning_rate = 6e-4};
  double value_learning_rate = 0.0;
  ActorCriticSettings network;
  OptimizerSettings optimizer{.kind = OptimizerKind::kRmsprop, .eps = 1e-5};

  void Fields(ConfigFields& field) {
    collect.Fields(field, "round", Search::PowersOfTwo(4, 64));
    field("rounds", rounds, "rounds of learning in one iteration, which is one row of metrics",
          Between(1, 1'000'000));
    vtrace.Fields(field);
    field("value_coef", value_coef, "weight of the value loss", NonNegative()).Tune(Search::Log(0.1, 1));
    field("entropy_coef", entropy_coef, "weight of the entropy bonus", NonNegative())
        .Tune(Search::Log(1e-5, 0.03));
    step.RateField(field);
    field("value_learning_rate", value_learning_rate,
          "initial step size of the value function; 0: the same as the policy's", Between(0, 1e30));
    step.ScheduleFields(field, "step sizes");
    step.NormField(field);
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
    return std::uint64_t(collect.envs) * (collect.horizon + 1) * VtraceShard::BytesPerSample(env);
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const { return MakeActorCriticNetwork(network, env); }
  std::unique_ptr<Acting> MakeActing(const EnvSpec& env, const Executor& executor, int envs) const {
    return std::make_unique<ActorCriticActing>(env, executor, envs);
  }
};

enum ImpalaStat { kWeights = kA2cStats, kImpalaStats };

class Impala final : public Algorithm {
 public:
  using Config = ImpalaConfig;
  Impala(const ImpalaConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override;
  std::int64_t steps_per_iteration() const override { return config_.collect.steps() * config_.rounds; }
  std::int64_t updates_per_iteration() const override { return config_.rounds; }
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
  void SaveCommon(StateWriter& out) const override { steps_.Save(out, "impala/loss_scale"); }
  void LoadShards(const StateReader& in) override {
    if (own_) own_->Load(in);
  }
  void LoadCommon(const StateReader& in) override { steps_.Load(in, "impala/loss_scale"); }

 private:
  void Round(const UpdateRule& update);

  ImpalaConfig config_;
  WorkerContext context_;
  ActorCritic model_;
  std::unique_ptr<Tape> tape_;
  ActorCriticActing acting_;
  std::optional<OwnRollouts> own_;  // without actors
  std::vector<VtraceShard> shards_;
  GradientSteps steps_;
  RowScratch scratch_;
};

Impala::Impala(const ImpalaConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      model_(context.executor, context.env.spec),
      tape_(MakeWorkerTape(context, config.collect.envs)),
      acting_(model_, *tape_),
      shards_(MakeShards<VtraceShard>(context, config.collect.envs, config.collect.horizon)),
      steps_(context, *tape_, kImpalaStats) {
  if (context.experience == nullptr && context.own_shards > 0) {
    own_.emplace(context, config.collect.envs, config.collect.horizon, acting_);
    context_.experience = &*own_;
  }
}

void Impala::Iterate(double progress, MetricRow& row) {
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
  row.Set("importance_weight", steps_.total(kWeights) / samples);
  row.Set("learning_rate", update.learning_rate);
  steps_.Report(row);
}

void Impala::Round(const UpdateRule& update) {
  const std::span<const float> params = context_.store.Pull();
  CheckFinite(params);  // actors could not choose by others, and what they send would be refused
  const std::span<const Trajectory* const> experience = context_.experience->Next(params);
  tape_->SetParams(params);
  const A2cLossRule rule{.value_coef = static_cast<float>(config_.value_coef),
                         .entropy_coef = static_cast<float>(config_.entropy_coef),
                         .per_sample = 1.0f / static_cast<float>(config_.collect.steps())};
  std::size_t next = 0;
  steps_.Step(shards_, update, [&](VtraceShard& shard, std::span<float> gradient, std::span<float> stats) {
    shard.Take(*experience[next++], config_.vtrace, model_, *tape_);
    for (int i = 0; i < shard.samples(); ++i) {
      shard.advantages[i] *= shard.weights[i];
      stats[kWeights] += shard.weights[i];
    }
    AddA2cGradient(model_, *tape_, shard, rule, {}, scratch_, gradient, stats);
  });
}

}  // namespace

AlgorithmEntry ImpalaEntry() {
  return {
      .name = "impala",
      .help =
          "actors and learners: experience of slightly older policies, corrected by V-trace; see --actors",
      .discrete = true,
      .continuous = true,
      .multi_discrete = true,
      .masks = true,
      .actors = true,
      .metrics =
          "episode_return_mean episode_length_mean episodes policy_loss value_loss entropy "
          "importance_weight learning_rate grad_norm updates",
      .make_settings = MakeSettings<Impala>};
}

}  // namespace trireme
