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
#include "trireme/algo/q_loss.h"
#include "trireme/algo/settings.h"
#include "trireme/base/rng.h"
#include "trireme/optim/average.h"
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
  bool double_q = true;
  bool dueling = false;
  double target_tau = 1.0;
  int target_every = 100;
  double epsilon_start = 1.0;
  double epsilon_end = 0.05;
  double exploration_fraction = 0.2;
  ScheduleKind epsilon_schedule = ScheduleKind::kLinear;
  double huber = 0.0;
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
    field("double", double_q, "choose the next action by the network and value it by the target network")
        .Tune(Search::TrueOrFalse());
    field("dueling", dueling, "learn the value of a state and the advantages of its actions apart")
        .Tune(Search::TrueOrFalse().Shapes());
    field("target_tau", target_tau,
          "how far the target network moves towards the network at a time; 1: a copy", Between(1e-9, 1))
        .Tune(Search::Log(0.01, 1));
    field("target_every", target_every, "gradient steps between two moves of the target network",
          Between(1, 1'000'000'000))
        .Tune(Search::PowersOfTwo(1, 512));
    field("epsilon_start", epsilon_start, "share of random actions at the start", UnitInterval());
    field("epsilon_end", epsilon_end, "share of random actions after the exploration", UnitInterval())
        .Tune(Search::Log(0.01, 0.2));
    field("exploration_fraction", exploration_fraction, "part of the run over which epsilon falls",
          Between(1e-9, 1))
        .Tune(Search::Log(0.02, 0.5));
    field("epsilon_schedule", epsilon_schedule, "course of epsilon", kScheduleNames);
    memory.PriorityFields(field);
    field("huber", huber, "errors beyond this count linearly instead of squared; 0: no limit", NonNegative());
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
  QHead Head(const EnvSpec& env) const { return {env.action.choices(), dueling}; }
  NetworkSpec MakeNetwork(const EnvSpec& env) const {
    return {.towers = {layers.Tower(dueling ? "dueling_q" : "q", env.obs.size(), Head(env).outputs(), 1.0)},
            .free_vectors = {}};
  }

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
  void ChooseActions(float epsilon, const ActionRequest& request);
  bool EnoughToLearn(std::uint64_t steps) const;
  void Learn(const UpdateRule& update, double beta);
  void EstimateTargets();
  void AddGradient(std::span<float> gradient, std::span<float> stats);

  DqnConfig config_;
  WorkerContext context_;
  QHead head_;
  std::unique_ptr<Tape> tape_, target_tape_;
  std::vector<OffPolicyShard> shards_;
  std::uint64_t collected_ = 0;  // environment steps, over all shards that move in step

  AlignedBuffer<float> target_;  // the parameters w-
  std::uint64_t updates_ = 0;
  GradientSteps steps_;
  ReplayBatch batch_;                    // of one shard
  std::vector<float> targets_, errors_;  // of the same
};

Dqn::Dqn(const DqnConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      head_(config.Head(context.env.spec)),
      tape_(MakeWorkerTape(context, config.collect.envs)),
      target_tape_(context.executor.MakeTape(context.executor.pass_size())),
      shards_(MakeShards<OffPolicyShard>(context, config.collect.envs, config.collect.horizon, config.memory,
                                         config.gamma, context.shards)),
      target_(context.executor.network().param_count()),
      steps_(context, *tape_, kQStats),
      batch_(config.batch / context.shards, context.env.spec),
      targets_(batch_.size()),
      errors_(batch_.size()) {
  std::ranges::copy(context.store.params(), target_.begin());
  target_tape_->SetParams(target_.span());
}

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
      shards_, nullptr, [&](const ActionRequest& request) { ChooseActions(epsilon, request); },
      [](OffPolicyShard& shard) { shard.Remember(); });
  collected_ += config_.collect.steps();
}

// Environment b draws from block 0 of stream (kAction, its number, step): whether to explore, and which
// action. The network is asked only if somebody follows it.
void Dqn::ChooseActions(float epsilon, const ActionRequest& request) {
  const int n = request.n;
  const std::uint8_t* masks = request.masks;
  const auto draw = [&](int b) {
    const std::uint32_t env = request.first_env + static_cast<std::uint32_t>(b);
    return Philox(request.seed, StreamCounter(Purpose::kAction, env, request.step, 0));
  };
  const auto explores = [&](int b) { return ToUniform(draw(b)[0]) < epsilon; };
  int explorers = 0;
  for (int b = 0; b < n; ++b) explorers += explores(b);
  if (explorers < n) QGreedy(head_, tape_->Forward(0, request.obs, n).data(), n, request.actions, masks);
  for (int b = 0; explorers > 0 && b < n; ++b) {
    if (!explores(b)) continue;
    const std::uint8_t* mask =
        masks == nullptr ? nullptr : masks + static_cast<std::ptrdiff_t>(b) * head_.choices;
    request.actions[b] = static_cast<float>(RandomChoice(draw(b)[1], head_.choices, mask));
  }
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
  const std::span<const float> params = context_.store.Pull();
  if (updates_ % config_.target_every == 0) {
    MoveTowards(target_.span(), params, static_cast<float>(config_.target_tau));
    target_tape_->SetParams(target_.span());
  }
  tape_->SetParams(params);
  steps_.Step(shards_, update, [&](OffPolicyShard& shard, std::span<float> gradient, std::span<float> stats) {
    // A worker that has joined others, who learn, first collects as they did.
    if (!EnoughToLearn(shard.rollout.step_number() * config_.collect.envs)) return;
    if (shard.replay.size() == 0) return;  // its first transitions were cut off by new episodes
    shard.Sample(updates_, beta, batch_);
    EstimateTargets();
    AddGradient(gradient, stats);
    if (shard.priorities) shard.priorities->Update(batch_.slots, errors_);
  });
  ++updates_;
}

// y of the transitions in batch_, in passes.
void Dqn::EstimateTargets() {
  const std::size_t obs_size = context_.env.spec.obs.size();
  const TransitionBatch& t = batch_.transitions;
  const std::size_t pass_size = context_.executor.pass_size();
  for (std::size_t first = 0; first < batch_.size(); first += pass_size) {
    const int n = static_cast<int>(std::min(pass_size, batch_.size() - first));
    const float* next_obs = t.next_obs.data() + first * obs_size;
    const float* target_outputs = target_tape_->Forward(0, next_obs, n).data();
    const float* online_outputs = config_.double_q ? tape_->Forward(0, next_obs, n).data() : nullptr;
    QTargets(head_, target_outputs, online_outputs, t.returns.data() + first, t.discounts.data() + first, n,
             targets_.data() + first,
             context_.env.spec.masks ? t.next_masks.data() + first * head_.choices : nullptr);
  }
}

// Of the transitions in batch_. Leaves |Q - y| in errors_.
void Dqn::AddGradient(std::span<float> gradient, std::span<float> stats) {
  struct Samples final : LossSamples {
    Samples(Dqn& dqn, std::span<float> stats) : dqn_(dqn), stats_(stats) {}
    int size() const override { return static_cast<int>(dqn_.batch_.size()); }
    const float* Inputs(int first, int) override {
      return dqn_.batch_.transitions.obs.data() + first * dqn_.context_.env.spec.obs.size();
    }
    void Loss(int first, int n, std::span<const float* const> outputs,
              std::span<float* const> d_outputs) override {
      const DqnConfig& config = dqn_.config_;
      const QLossRule rule{.huber = static_cast<float>(config.huber),
                           .per_sample = 1.0f / static_cast<float>(config.batch)};
      const QBatch batch{.n = n,
                         .actions = dqn_.batch_.transitions.actions.data() + first,
                         .targets = dqn_.targets_.data() + first,
                         .weights = config.memory.prioritised ? dqn_.batch_.weights.data() + first : nullptr};
      QLoss(batch, rule, dqn_.head_, outputs[0], d_outputs[0], dqn_.errors_.data() + first, stats_);
    }

   private:
    Dqn& dqn_;
    std::span<float> stats_;
  };
  Samples samples(*this, stats);
  tape_->AddGradient(samples, gradient);
}

void Dqn::Act(std::span<const float> obs, const std::uint8_t* masks, int n, std::span<float> actions) {
  tape_->SetParams(context_.store.params());
  QGreedy(head_, tape_->Forward(0, obs.data(), n).data(), n, actions.data(), masks);
}

void Dqn::Explore(const ActionRequest& request) {
  tape_->SetParams(context_.store.params());
  ChooseActions(static_cast<float>(config_.epsilon_end), request);
}

void Dqn::SaveCommon(StateWriter& out) const {
  out.PutValue("dqn/collected", collected_);
  out.PutValue("dqn/updates", updates_);
  out.PutLikeParams("dqn/target", target_.span());
  steps_.Save(out, "dqn/loss_scale");
}

void Dqn::LoadCommon(const StateReader& in) {
  collected_ = in.GetValue<std::uint64_t>("dqn/collected");
  updates_ = in.GetValue<std::uint64_t>("dqn/updates");
  in.GetLikeParams("dqn/target", target_.span());
  target_tape_->SetParams(target_.span());
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
