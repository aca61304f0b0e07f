// Deep Q-learning (Mnih et al. 2015) with its usual improvements as options: double (van Hasselt et al. 2016,
// arXiv:1509.06461), dueling (Wang et al. 2016, arXiv:1511.06581), prioritised replay (Schaul et al. 2016,
// arXiv:1511.05952) and n-step returns. In an asynchronous store, where every worker has its own
// environments, replay and target network, it is asynchronous double Q-learning.
//
// One round:
//   collect  every environment takes `horizon` steps, at random with probability epsilon, else greedily by
//            Q(s, .; w); the transitions go into the replay buffer of the shard
//   learn    `updates` times:
//     pull     w
//     target   every `target_every` updates:  w- <- tau w + (1 - tau) w-
//     sample   `batch` transitions (s, a, ret, discount, s')
//     gradient of 1/(2 batch) sum (Q(s, a; w) - y)^2  with  y = ret + discount Q(s', argmax_a Q(s', a; w); w-)
//     push
//
// An iteration is `rounds` of these, and one exchange of statistics. Each shard has its own replay buffer and
// draws its part of every batch from it, so the result does not depend on how shards are spread over workers.

#include "trireme/algo/dqn.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "trireme/algo/blocks.h"
#include "trireme/algo/episode_stats.h"
#include "trireme/algo/off_policy.h"
#include "trireme/algo/q_learner.h"
#include "trireme/algo/settings.h"
#include "trireme/optim/schedule.h"

namespace trireme {
namespace {

struct DqnConfig {
  CollectConfig collect{.envs = 8, .horizon = 4};
  int updates = 1;
  int rounds = 64;
  int batch = 128;
  ReplayConfig memory;
  int learning_starts = 1'000;
  double gamma = 0.99;
  QConfig q;
  double epsilon_start = 1.0;
  double epsilon_end = 0.05;
  double exploration_fraction = 0.2;
  ScheduleKind epsilon_schedule = ScheduleKind::kLinear;
  StepConfig step{
      .learning_rate = 5e-4, .learning_rate_schedule = ScheduleKind::kConstant, .max_grad_norm = 10.0};
  HiddenConfig layers{.activation = Activation::kRelu, .init = Init::kKaiming};
  OptimizerSettings optimizer;

  void Fields(ConfigFields& field) {
    collect.Fields(field, "round", Search::PowersOfTwo(1, 16));
    field("updates", updates, "gradient steps in one round", Between(1, 1'000'000))
        .Tune(Search::PowersOfTwo(1, 32));
    field("rounds", rounds, "rounds of collecting and learning in one iteration, which is one row of metrics",
          Between(1, 1'000'000));
    field("batch", batch, "transitions of one gradient step, over all shards", Between(1, 1'000'000))
        .Tune(Search::PowersOfTwo(32, 512));
    memory.SizeField(field);
    field("learning_starts", learning_starts, "environment steps before the first gradient step",
          Between(0, 2e9))
        .Tune(Search::Log(500, 10'000));
    field("gamma", gamma, "discount per step", UnitInterval()).Tune(Search::NearOne(0.9, 0.999));
    memory.NStepField(field);
    q.TargetFields(field);
    field("epsilon_start", epsilon_start, "share of random actions at the start", UnitInterval());
    field("epsilon_end", epsilon_end, "share of random actions after the exploration", UnitInterval())
        .Tune(Search::Log(0.01, 0.2));
    field("exploration_fraction", exploration_fraction, "part of the run over which epsilon falls",
          Between(1e-9, 1))
        .Tune(Search::Log(0.02, 0.5));
    field("epsilon_schedule", epsilon_schedule, "course of epsilon", kScheduleNames);
    memory.PriorityFields(field);
    q.HuberField(field);
    step.RateField(field);
    step.ScheduleFields(field);
    step.NormField(field);
    field.Add(layers);
    field.Add(optimizer);
  }

  void Validate(const EnvSpec&, int shards) const {
    CheckSplitsEvenly("envs", collect.envs, shards);
    CheckSplitsEvenly("batch", batch, shards);
    CheckSplitsEvenly("replay", memory.replay, shards);
    if (epsilon_end > epsilon_start) {
      Fail("epsilon_end = {} is above epsilon_start = {}: exploration falls", epsilon_end, epsilon_start);
    }
  }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const {
    return memory.Bytes(env, collect.envs, collect.horizon);
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const { return q.MakeNetwork(layers, env); }

  double Epsilon(double progress) const {
    const double share = std::min(1.0, progress / exploration_fraction);
    const double left = ScheduleFactor(epsilon_schedule, 0.0, share);  // 1 at the start, 0 at the end
    return epsilon_end + (epsilon_start - epsilon_end) * left;
  }
};

class Dqn final : public Algorithm {
 public:
  using Config = DqnConfig;
  Dqn(const DqnConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override;
  std::int64_t steps_per_iteration() const override { return config_.collect.steps() * config_.rounds; }
  std::int64_t updates_per_iteration() const override {
    return std::int64_t{config_.rounds} * config_.updates;
  }
  void Act(std::span<const float> obs, const std::uint8_t* masks, int n, std::span<float> actions) override;
  void Explore(const ActionRequest& request) override;
  void SaveShards(StateWriter& out) const override { SaveAll(shards_, out); }
  void SaveCommon(StateWriter& out) const override;
  void LoadShards(const StateReader& in) override { LoadAll(shards_, in); }
  void LoadCommon(const StateReader& in) override;
  void BeginWithoutExperience() override { collected_ = 0; }

 private:
  void Collect(float epsilon);
  void Choose(float epsilon, const ActionRequest& request) {
    ChooseEpsilonGreedily(head_, *tape_, request, [epsilon](std::uint32_t) { return epsilon; });
  }
  bool EnoughToLearn(std::uint64_t steps) const;
  void Learn(const UpdateRule& update, double beta);

  DqnConfig config_;
  WorkerContext context_;
  QHead head_;
  std::unique_ptr<Tape> tape_;
  std::vector<OffPolicyShard> shards_;
  std::uint64_t collected_ = 0;  // environment steps, over all shards that move in step

  QLearner learner_;
  GradientSteps steps_;
  ReplayBatch batch_;  // of one shard
};

Dqn::Dqn(const DqnConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      head_(config.q.Head(context.env.spec)),
      tape_(MakeWorkerTape(context, config.collect.envs)),
      shards_(MakeShards<OffPolicyShard>(context, config.collect.envs, config.collect.horizon, config.memory,
                                         config.gamma, context.shards)),
      learner_(config.q, config.batch, context, *tape_),
      steps_(context, *tape_, kQStats),
      batch_(config.batch / context.shards, context.env.spec) {}

void Dqn::Iterate(double progress, MetricRow& row) {
  const UpdateRule update = config_.step.Rule(config_.step.Rate(progress));
  const double epsilon = config_.Epsilon(progress);
  const double beta = config_.memory.Beta(progress);
  steps_.Begin();
  for (int round = 0; round < config_.rounds; ++round) {
    Collect(static_cast<float>(epsilon));
    for (int i = 0; EnoughToLearn(collected_) && i < config_.updates; ++i) Learn(update, beta);
  }
  CheckFinite(context_.store.params());

  ShareEpisodes(shards_, context_.store, row);
  const double samples = static_cast<double>(steps_.count()) * config_.batch;  // 0: all means are NaN
  row.Set("q_loss", steps_.total(kQLoss) / samples);
  row.Set("q_value", steps_.total(kQValue) / samples);
  row.Set("td_error", steps_.total(kQError) / samples);
  steps_.Report(row);
  row.Set("epsilon", epsilon);
  row.Set("learning_rate", update.learning_rate);
}

// ---- Collecting ----

void Dqn::Collect(float epsilon) {
  tape_->SetParams(context_.store.params());
  CollectAll(
      shards_, nullptr, [&](const ActionRequest& request) { Choose(epsilon, request); },
      [](OffPolicyShard& shard) { shard.Remember(); });
  collected_ += config_.collect.steps();
}

// ---- Learning ----

// By environment steps over all shards. The same answer on every shard: all that began with the run have at least one
// transition by then, whichever episodes ended.
bool Dqn::EnoughToLearn(std::uint64_t steps) const {
  return steps >= static_cast<std::uint64_t>(config_.learning_starts) &&
         steps >= static_cast<std::uint64_t>(config_.collect.envs) * config_.memory.n_step;
}

// One gradient step.
void Dqn::Learn(const UpdateRule& update, double beta) {
  learner_.Begin(context_.store.Pull());
  steps_.Step(shards_, update, [&](OffPolicyShard& shard, std::span<float> gradient, std::span<float> stats) {
    // A worker that has joined others, who learn, first collects as they did.
    if (!EnoughToLearn(shard.rollout.step_number() * config_.collect.envs)) return;
    if (shard.replay.size() == 0) return;  // its first transitions were cut off by new episodes
    shard.Sample(learner_.updates(), beta, batch_);
    const std::span<const float> weights =
        shard.priorities ? std::span<const float>(batch_.weights) : std::span<const float>();
    learner_.AddGradient(batch_.transitions, weights, gradient, stats);
    if (shard.priorities) shard.priorities->Update(batch_.slots, learner_.errors());
  });
  learner_.End();
}

void Dqn::Act(std::span<const float> obs, const std::uint8_t* masks, int n, std::span<float> actions) {
  tape_->SetParams(context_.store.params());
  QGreedy(head_, tape_->Forward(0, obs.data(), n).data(), n, actions.data(), masks);
}

void Dqn::Explore(const ActionRequest& request) {
  tape_->SetParams(context_.store.params());
  Choose(static_cast<float>(config_.epsilon_end), request);
}

void Dqn::SaveCommon(StateWriter& out) const {
  out.PutValue("dqn/collected", collected_);
  learner_.Save(out, "dqn");
  steps_.Save(out, "dqn/loss_scale");
}

void Dqn::LoadCommon(const StateReader& in) {
  collected_ = in.GetValue<std::uint64_t>("dqn/collected");
  learner_.Load(in, "dqn");
  steps_.Load(in, "dqn/loss_scale");
}

}  // namespace

AlgorithmEntry DqnEntry() {
  return {
      .name = "dqn",
      .help =
          "deep Q-learning with replay; double, dueling, prioritised and n-step; asynchronous with --store "
          "shared",
      .discrete = true,
      .continuous = false,
      .masks = true,
      .metrics =
          "episode_return_mean episode_length_mean episodes q_loss q_value td_error grad_norm updates "
          "epsilon learning_rate",
      .make_settings = MakeSettings<Dqn>};
}

}  // namespace trireme
