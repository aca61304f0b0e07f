// Ape-X (Horgan et al. 2018, arXiv:1803.00933): many actors collect, each with an exploration of its own, into a
// prioritised memory that learners draw from; double, dueling and n-step as options, see dqn.cc.
//
// Actors. Environment e, of all that there are, acts at random with probability
//
//   epsilon_e = epsilon^(1 + epsilon_alpha u_e),   u = 0, 1/2, 1/4, 3/4, 1/8, ...
//
// the numbers of the environments mirrored at the binary point: however many there are, and whoever comes and goes,
// exponents are spread evenly between 1 and 1 + epsilon_alpha, so some environments explore and some hardly do. A
// trajectory goes out with the error of every step s_t, a_t as its first priority:
//
//   extra_t = |ret + discount max_a Q(s_(t+k), a; w) - Q(s_t, a_t; w)|,   k <= n_step
//
// with the k that replay will use (replay/replay_part.h) and the parameters that the actor has.
//
// One round of a learner:
//   begin   with w, which actors take when they begin a trajectory; what they have sent is remembered
//   learn   `updates` times, as in dqn.cc, from `batch` transitions drawn by priority; the new errors go back
//
// An iteration is `rounds` of these, and one exchange of statistics. A worker without actors collects for itself, one
// trajectory of each shard in each round.

#include "trireme/algo/apex.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/algo/blocks.h"
#include "trireme/algo/collecting.h"
#include "trireme/algo/episode_stats.h"
#include "trireme/algo/off_policy.h"
#include "trireme/algo/q_learner.h"
#include "trireme/algo/settings.h"
#include "trireme/experience/remembered_experience.h"

namespace trireme {
namespace {

struct ApexConfig {
  CollectConfig collect{.envs = 16, .horizon = 16};
  int updates = 4;
  int rounds = 16;
  int batch = 128;
  ReplayConfig memory{.n_step = 3};
  int learning_starts = 1'000;
  double gamma = 0.99;
  QConfig q;
  double epsilon = 0.4;
  double epsilon_alpha = 7;
  StepConfig step{
      .learning_rate = 5e-4, .learning_rate_schedule = ScheduleKind::kConstant, .max_grad_norm = 40.0};
  HiddenConfig layers{.activation = Activation::kRelu, .init = Init::kKaiming};
  OptimizerSettings optimizer;

  void Fields(ConfigFields& field) {
    collect.Fields(field, "round", Search::PowersOfTwo(4, 32));
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
    field("epsilon", epsilon, "share of random actions where most is explored", Between(1e-9, 1))
        .Tune(Search::Log(0.1, 1));
    field("epsilon_alpha", epsilon_alpha,
          "where least is explored, the share is epsilon to the power of 1 + this", NonNegative())
        .Tune(Search::Linear(1, 10));
    memory.RuleFields(field);
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
  }
  // Beside the replay a trajectory that is collected and one that was.
  std::uint64_t ExperienceBytes(const EnvSpec& env) const {
    return ReplayPart::Bytes(Rules(1), env) +
           2 * Trajectory::Bytes(RowLayout(env), env.action.size(), collect.horizon, collect.envs);
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const { return q.MakeNetwork(layers, env); }
  std::unique_ptr<Acting> MakeActing(const EnvSpec& env, const Executor& executor, int envs) const;

  std::optional<AlgorithmSettings::Replaying> RemembersElsewhere(int shards, int servers) const {
    const double round = static_cast<double>(updates) * batch;
    return AlgorithmSettings::Replaying{.rules = Rules(servers),
                                        .least = static_cast<double>(learning_starts),
                                        .draws_per_insert = round / static_cast<double>(collect.steps()),
                                        .part = static_cast<std::uint64_t>(batch / shards),
                                        .round = round};
  }
  // Of one of so many memories.
  ReplayRules Rules(int memories) const {
    return {.capacity = static_cast<std::size_t>(memory.replay / memories),
            .n_step = memory.n_step,
            .gamma = gamma,
            .alpha = memory.priority_alpha,
            .epsilon = memory.priority_eps};
  }
  double Epsilon(std::uint32_t env) const {
    double u = 0;
    for (double bit = 0.5; env != 0; env >>= 1, bit /= 2) u += (env & 1) != 0 ? bit : 0;
    return std::pow(epsilon, 1 + epsilon_alpha * u);
  }
};

// ---- Acting ----

class ApexActing final : public Acting {
 public:
  ApexActing(const ApexConfig& config, const EnvSpec& env, const Executor& executor, int envs)
      : config_(config),
        head_(config.q.Head(env)),
        layout_(env),
        pass_size_(executor.pass_size()),
        tape_(executor.MakeTape(std::max(pass_size_, envs))) {}

  void SetParams(std::span<const float> params) override { tape_->SetParams(params); }
  void Choose(const ActionRequest& request) override {
    epsilons_.resize(request.n);
    for (int b = 0; b < request.n; ++b)
      epsilons_[b] = static_cast<float>(config_.Epsilon(request.first_env + static_cast<std::uint32_t>(b)));
    ChooseEpsilonGreedily(head_, *tape_, request,
                          [&](std::uint32_t env) { return epsilons_[env - request.first_env]; });
  }
  bool notes() const override { return true; }
  void Note(Trajectory& trajectory) override;

 private:
  // values[i] <- max_a Q of the i-th of `n` rows; taken[i] <- Q of the action, where these are given.
  void Values(const float* rows, int n, const float* actions, float* values, float* taken);

  ApexConfig config_;
  QHead head_;
  RowLayout layout_;
  int pass_size_;
  std::unique_ptr<Tape> tape_;
  std::vector<float> epsilons_;                  // [B]
  std::vector<float> values_, taken_, cut_off_;  // [T + 1, B], [T, B], of what was cut off
  std::vector<float> final_values_;              // [T, B], where an episode was cut off
  std::vector<float> obs_, zeros_, ones_;        // scratch
  std::vector<std::uint8_t> masks_;              // scratch
};

void ApexActing::Values(const float* rows, int n, const float* actions, float* values, float* taken) {
  zeros_.assign(pass_size_, 0.0f);
  ones_.assign(pass_size_, 1.0f);
  for (int first = 0; first < n; first += pass_size_) {
    const int count = std::min(pass_size_, n - first);
    const float* const at = rows + first * layout_.width();
    const float* const outputs = tape_->Forward(0, layout_.ReadObs(at, count, obs_), count).data();
    QTargets(head_, outputs, nullptr, zeros_.data(), ones_.data(), count, values + first,
             layout_.ReadMasks(at, count, masks_));
    if (actions != nullptr) QOfActions(head_, outputs, actions + first, count, taken + first);
  }
}

void ApexActing::Note(Trajectory& t) {
  const int samples = t.samples(), envs = t.envs, cut_off = static_cast<int>(t.truncated_samples.size());
  values_.resize(samples + envs);
  taken_.resize(samples);
  cut_off_.resize(cut_off);
  final_values_.resize(samples);
  Values(t.obs.data(), samples, t.actions.data(), values_.data(), taken_.data());
  Values(t.obs.data() + samples * layout_.width(), envs, nullptr, values_.data() + samples, nullptr);
  Values(t.truncated_obs.data(), cut_off, nullptr, cut_off_.data(), nullptr);
  for (int i = 0; i < cut_off; ++i) final_values_[t.truncated_samples[i]] = cut_off_[i];

  for (int begin = 0; begin < samples; ++begin) {
    double ret = 0, discount = 1, value = 0;
    for (int i = begin, k = 1;; i += envs, ++k) {
      ret += discount * t.rewards[i];
      discount *= config_.gamma;
      if (t.terminated[i] != 0) break;
      value = t.truncated[i] != 0 ? final_values_[i] : values_[i + envs];
      if (t.truncated[i] != 0 || k == config_.memory.n_step || i + envs >= samples) break;
      value = 0;
    }
    t.extra[begin] = static_cast<float>(std::abs(ret + discount * value - taken_[begin]));
  }
}

std::unique_ptr<Acting> ApexConfig::MakeActing(const EnvSpec& env, const Executor& executor, int envs) const {
  return std::make_unique<ApexActing>(*this, env, executor, envs);
}

// ---- Learning ----

class Apex final : public Algorithm {
 public:
  using Config = ApexConfig;
  Apex(const ApexConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override;
  std::int64_t steps_per_iteration() const override { return config_.collect.steps() * config_.rounds; }
  std::int64_t updates_per_iteration() const override {
    return std::int64_t{config_.rounds} * config_.updates;
  }
  void Act(std::span<const float> obs, const std::uint8_t* masks, int n, std::span<float> actions) override {
    tape_->SetParams(context_.store.params());
    QGreedy(head_, tape_->Forward(0, obs.data(), n).data(), n, actions.data(), masks);
  }
  void Explore(const ActionRequest& request) override {
    acting_.SetParams(context_.store.params());
    acting_.Choose(request);
  }
  void SaveShards(StateWriter& out) const override {
    if (own_) own_->Save(out);
    replay_->Save(out);
  }
  void LoadShards(const StateReader& in) override {
    if (own_) own_->Load(in);
    replay_->Load(in);
  }
  void SaveCommon(StateWriter& out) const override;
  void LoadCommon(const StateReader& in) override;
  void BeginWithoutExperience() override { collected_ = 0; }

 private:
  struct Shard {
    ReplaySource* replay;
    int index;  // among the worker's
    EpisodeTotals TakeEpisodes() { return replay->TakeEpisodes(index); }
  };

  bool EnoughToLearn() const { return collected_ >= static_cast<std::uint64_t>(config_.learning_starts); }
  void Learn(const UpdateRule& update, double beta);

  ApexConfig config_;
  WorkerContext context_;
  QHead head_;
  std::unique_ptr<Tape> tape_;
  ApexActing acting_;
  std::optional<OwnRollouts> own_;              // without actors
  std::optional<RememberedExperience> memory_;  // without replay servers
  ReplaySource* replay_ = nullptr;
  std::vector<Shard> shards_;
  std::uint64_t collected_ = 0;  // environment steps, over all shards that move in step
  QLearner learner_;
  GradientSteps steps_;
};

Apex::Apex(const ApexConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      head_(config.q.Head(context.env.spec)),
      tape_(MakeWorkerTape(context, config.collect.envs)),
      acting_(config, context.env.spec, context.executor,
              std::max(config.collect.envs / context.shards, kMostActed)),
      replay_(context.replay),
      learner_(config.q, config.batch, context, *tape_),
      steps_(context, *tape_, kQStats) {
  if (context.own_shards == 0) return;
  if (replay_ == nullptr) {
    if (context.experience == nullptr) {
      own_.emplace(context, config.collect.envs, config.collect.horizon, acting_);
      context_.experience = &*own_;
    }
    memory_.emplace(*context_.experience,
                    RememberedExperience::Shards{.first = context.first_shard,
                                                 .own = context.own_shards,
                                                 .all = context.shards,
                                                 .seed = context.seed},
                    config.Rules(context.shards), context.env.spec, config.collect.envs / context.shards,
                    config.batch / context.shards);
    replay_ = &*memory_;
  }
  for (int i = 0; i < context.own_shards; ++i) shards_.push_back({replay_, i});
}

void Apex::Iterate(double progress, MetricRow& row) {
  const UpdateRule update = config_.step.Rule(config_.step.Rate(progress));
  const double beta = config_.memory.Beta(progress);
  steps_.Begin();
  for (int round = 0; round < config_.rounds; ++round) {
    const std::span<const float> params = context_.store.Pull();
    CheckFinite(params);  // actors could not choose by others, and what they send would be refused
    replay_->Begin(params);
    collected_ += config_.collect.steps();
    for (int i = 0; EnoughToLearn() && i < config_.updates; ++i) Learn(update, beta);
  }
  CheckFinite(context_.store.params());

  ShareEpisodes(shards_, context_.store, row);
  const double samples = static_cast<double>(steps_.count()) * config_.batch;  // 0: all means are NaN
  row.Set("q_loss", steps_.total(kQLoss) / samples);
  row.Set("q_value", steps_.total(kQValue) / samples);
  row.Set("td_error", steps_.total(kQError) / samples);
  steps_.Report(row);
  row.Set("learning_rate", update.learning_rate);
}

// One gradient step. A worker that has joined others, who learn, first remembers as much as they did.
void Apex::Learn(const UpdateRule& update, double beta) {
  learner_.Begin(context_.store.Pull());
  steps_.Step(shards_, update, [&](Shard& shard, std::span<float> gradient, std::span<float> stats) {
    if (!replay_->Holds(shard.index, static_cast<std::uint64_t>(config_.learning_starts))) return;
    const ReplayDraw& draw = replay_->Draw(shard.index, learner_.updates(), beta);
    learner_.AddGradient(draw.transitions, draw.weights, gradient, stats);
    replay_->Correct(shard.index, learner_.errors());
  });
  learner_.End();
}

void Apex::SaveCommon(StateWriter& out) const {
  out.PutValue("apex/collected", collected_);
  learner_.Save(out, "apex");
  steps_.Save(out, "apex/loss_scale");
}

void Apex::LoadCommon(const StateReader& in) {
  collected_ = in.GetValue<std::uint64_t>("apex/collected");
  learner_.Load(in, "apex");
  steps_.Load(in, "apex/loss_scale");
}

}  // namespace

AlgorithmEntry ApexEntry() {
  return {.name = "apex",
          .help =
              "Ape-X: deep Q-learning from a prioritised memory that many actors fill, each exploring in its "
              "own way; see --actors",
          .discrete = true,
          .continuous = false,
          .masks = true,
          .actors = true,
          .replays = true,
          .metrics =
              "episode_return_mean episode_length_mean episodes q_loss q_value td_error grad_norm updates "
              "learning_rate",
          .make_settings = MakeSettings<Apex>};
}

}  // namespace trireme
