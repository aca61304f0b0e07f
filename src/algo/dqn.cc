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
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "trireme/algo/episode_stats.h"
#include "trireme/algo/q_loss.h"
#include "trireme/base/rng.h"
#include "trireme/comm/shard_sum.h"
#include "trireme/optim/average.h"
#include "trireme/optim/schedule.h"
#include "trireme/replay/n_step.h"
#include "trireme/replay/replay_buffer.h"
#include "trireme/replay/sampler.h"
#include "trireme/rollout/rollout.h"

namespace trireme {
namespace {

struct DqnConfig {
  int envs = 8;
  int horizon = 4;
  int updates = 1;
  int rounds = 64;
  int batch = 128;
  int replay = 50'000;
  int learning_starts = 1'000;
  double gamma = 0.99;
  int n_step = 1;
  bool double_q = true;
  bool dueling = false;
  double target_tau = 1.0;
  int target_every = 100;
  double epsilon_start = 1.0;
  double epsilon_end = 0.05;
  double exploration_fraction = 0.2;
  ScheduleKind epsilon_schedule = ScheduleKind::kLinear;
  bool prioritised = false;
  double priority_alpha = 0.6;
  double priority_beta = 0.4;
  double priority_eps = 1e-2;
  double huber = 0.0;
  double learning_rate = 5e-4;
  ScheduleKind learning_rate_schedule = ScheduleKind::kConstant;
  double final_fraction = 0.0;
  double max_grad_norm = 10.0;

  void Fields(ConfigFields& field) {
    field("envs", envs, "environments stepped in parallel, over all shards", Between(1, 1'000'000));
    field("horizon", horizon, "steps per environment in one round", Between(1, 1'000'000));
    field("updates", updates, "gradient steps in one round", Between(1, 1'000'000));
    field("rounds", rounds, "rounds of collecting and learning in one iteration, which is one row of metrics",
          Between(1, 1'000'000));
    field("batch", batch, "transitions of one gradient step, over all shards", Between(1, 1'000'000));
    field("replay", replay, "transitions that are remembered, over all shards", Between(1, 2e9));
    field("learning_starts", learning_starts, "environment steps before the first gradient step",
          Between(0, 2e9));
    field("gamma", gamma, "discount per step", UnitInterval());
    field("n_step", n_step, "rewards summed up before the value of a later state takes over",
          Between(1, 1000));
    field("double", double_q, "choose the next action by the network and value it by the target network");
    field("dueling", dueling, "learn the value of a state and the advantages of its actions apart");
    field("target_tau", target_tau,
          "how far the target network moves towards the network at a time; 1: a copy", Between(1e-9, 1));
    field("target_every", target_every, "gradient steps between two moves of the target network",
          Between(1, 1'000'000'000));
    field("epsilon_start", epsilon_start, "share of random actions at the start", UnitInterval());
    field("epsilon_end", epsilon_end, "share of random actions after the exploration", UnitInterval());
    field("exploration_fraction", exploration_fraction, "part of the run over which epsilon falls",
          Between(1e-9, 1));
    field("epsilon_schedule", epsilon_schedule, "course of epsilon", kScheduleNames);
    field("prioritised", prioritised, "draw transitions with large errors more often");
    field("priority_alpha", priority_alpha, "prioritised: how much errors count; 0: not at all",
          UnitInterval());
    field("priority_beta", priority_beta,
          "prioritised: how far the bias is taken out at the start; 1 at the end", UnitInterval());
    field("priority_eps", priority_eps, "prioritised: added to every error", UnitInterval());
    field("huber", huber, "errors beyond this count linearly instead of squared; 0: no limit", NonNegative());
    field("learning_rate", learning_rate, "initial step size", Between(1e-12, 1e30));
    field("learning_rate_schedule", learning_rate_schedule, "course of the step size over the run",
          kScheduleNames);
    field("final_fraction", final_fraction, "where linear and cosine schedules end, relative to their start",
          UnitInterval());
    field("max_grad_norm", max_grad_norm, "longest gradient, longer ones are scaled down; 0: no limit",
          NonNegative());
  }

  double Epsilon(double progress) const {
    const double share = std::min(1.0, progress / exploration_fraction);
    const double left = ScheduleFactor(epsilon_schedule, 0.0, share);  // 1 at the start, 0 at the end
    return epsilon_end + (epsilon_start - epsilon_end) * left;
  }
};

struct QNetworkSettings {
  std::vector<int> hidden = {64, 64};
  Activation activation = Activation::kRelu;
  Init init = Init::kKaiming;

  void Fields(ConfigFields& field) {
    field("hidden", hidden, "units of each hidden layer", Between(1, 4096));
    field("activation", activation, "nonlinearity after each hidden layer", kActivationNames);
    field("init", init, "initial weights", kInitNames);
  }
};

// Everything one shard owns.
struct Shard {
  Shard(const EnvEntry& env, const ShardSpec& spec, const DqnConfig& config, std::size_t capacity)
      : rollout(env, spec, config.horizon),
        n_step(spec.envs, config.n_step, config.gamma, env.spec.obs_size, env.spec.action.size()),
        replay(capacity, env.spec.obs_size, env.spec.action.size()) {
    if (config.prioritised) priorities.emplace(capacity, config.priority_alpha, config.priority_eps);
  }

  std::string Scope() const { return fmt::format("shard/{}", rollout.shard().index); }

  Rollout rollout;
  NStep n_step;
  ReplayBuffer replay;
  std::optional<PrioritisedSampler> priorities;
};

class Dqn final : public Algorithm {
 public:
  Dqn(const DqnConfig& config, const WorkerContext& context);

  void Iterate(double progress, MetricRow& row) override;
  std::int64_t steps_per_iteration() const override { return StepsPerRound() * config_.rounds; }
  void Act(std::span<const float> obs, int n, std::span<float> actions) override;
  void SaveShards(StateWriter& out) const override;
  void SaveCommon(StateWriter& out) const override;
  void LoadShards(const StateReader& in) override;
  void LoadCommon(const StateReader& in) override;

 private:
  std::int64_t StepsPerRound() const { return std::int64_t{config_.envs} * config_.horizon; }
  bool Learning() const;
  void Collect(Shard& shard, float epsilon);
  void ChooseActions(const Shard& shard, std::uint64_t step, const float* obs, float epsilon, float* actions);
  void Remember(Shard& shard);
  void Learn(const UpdateRule& update, double beta);
  void Sample(Shard& shard, double beta);
  void ShardGradient(std::span<float> gradient);
  void Report(MetricRow& row);

  DqnConfig config_;
  WorkerContext context_;
  QHead head_;
  std::vector<Shard> shards_;
  AlignedBuffer<float> target_;  // the parameters w-
  std::uint64_t collected_ = 0;  // environment steps, over all shards that move in step
  std::uint64_t updates_ = 0;
  std::unique_ptr<Tape> tape_, target_tape_;
  ShardSum<float> gradient_;  // parameters, then kQStats statistics

  // One shard's part of a batch.
  std::vector<std::uint32_t> slots_;
  TransitionBatch batch_;
  std::vector<float> weights_, targets_, d_outputs_, errors_;

  // Sums over the updates of an iteration.
  std::array<double, kQStats> loss_sums_ = {};
  double norm_sum_ = 0;
  int updates_made_ = 0;
};

Dqn::Dqn(const DqnConfig& config, const WorkerContext& context)
    : config_(config),
      context_(context),
      head_{context.env.spec.action.choices, config.dueling},
      target_(context.executor.network().param_count()),
      tape_(context.executor.MakeTape(
          std::max({context.executor.pass_size(), kMostActed, config.envs / context.shards}))),
      target_tape_(context.executor.MakeTape(context.executor.pass_size())),
      gradient_(context.executor.network().param_count() + kQStats),
      slots_(config.batch / context.shards),
      batch_(slots_.size(), context.env.spec.obs_size, 1),
      weights_(slots_.size()),
      targets_(slots_.size()),
      d_outputs_(slots_.size() * head_.outputs()),
      errors_(slots_.size()) {
  for (int s = 0; s < context.own_shards; ++s) {
    const ShardSpec spec{context.first_shard + s, config.envs / context.shards, context.seed};
    shards_.emplace_back(context.env, spec, config, config.replay / context.shards);
  }
  std::ranges::copy(context.store.params(), target_.begin());
}

void Dqn::Iterate(double progress, MetricRow& row) {
  const double factor = ScheduleFactor(config_.learning_rate_schedule, config_.final_fraction, progress);
  const UpdateRule update{static_cast<float>(config_.learning_rate * factor), config_.max_grad_norm};
  const double epsilon = config_.Epsilon(progress);
  const double beta = config_.priority_beta + (1 - config_.priority_beta) * std::min(1.0, progress);
  loss_sums_ = {};
  norm_sum_ = 0;
  updates_made_ = 0;
  for (int round = 0; round < config_.rounds; ++round) {
    tape_->SetParams(context_.store.params());
    for (Shard& shard : shards_) Collect(shard, static_cast<float>(epsilon));
    collected_ += StepsPerRound();
    for (int i = 0; Learning() && i < config_.updates; ++i) Learn(update, beta);
  }
  CheckFinite(context_.store.params());
  Report(row);
  row.Set("epsilon", epsilon);
  row.Set("learning_rate", update.learning_rate);
}

// The same answer on every shard: all that began with the run have at least one transition by then, whichever
// episodes ended.
bool Dqn::Learning() const {
  return collected_ >= static_cast<std::uint64_t>(config_.learning_starts) &&
         collected_ >= static_cast<std::uint64_t>(config_.envs) * config_.n_step;
}

void Dqn::Collect(Shard& shard, float epsilon) {
  shard.rollout.Collect(nullptr, {}, [&](std::uint64_t step, const float* obs, float* actions, float*) {
    ChooseActions(shard, step, obs, epsilon, actions);
  });
  Remember(shard);
}

// Environment b draws from block 0 of stream (kAction, its number, step): whether to explore, and which
// action. The network is asked only if somebody follows it.
void Dqn::ChooseActions(const Shard& shard, std::uint64_t step, const float* obs, float epsilon,
                        float* actions) {
  const int n = shard.rollout.envs();
  const auto draw = [&](int b) {
    const std::uint32_t env = shard.rollout.shard().first_env() + static_cast<std::uint32_t>(b);
    return Philox(shard.rollout.shard().seed, StreamCounter(Purpose::kAction, env, step, 0));
  };
  const auto explores = [&](int b) { return ToUniform(draw(b)[0]) < epsilon; };
  int explorers = 0;
  for (int b = 0; b < n; ++b) explorers += explores(b);
  if (explorers < n) {
    QGreedy(head_, tape_->Forward(0, obs, n).data(), n, actions);
  }
  for (int b = 0; explorers > 0 && b < n; ++b) {
    if (!explores(b)) continue;
    actions[b] = static_cast<float>((std::uint64_t{draw(b)[1]} * head_.choices) >> 32);
  }
}

// Moves what was collected into the replay buffer. A truncated episode has its own last observation.
void Dqn::Remember(Shard& shard) {
  Rollout& r = shard.rollout;
  const std::size_t obs_size = context_.env.spec.obs_size;
  const auto store = [&](const Transition& transition) {
    const std::size_t slot = shard.replay.Add(transition);
    if (shard.priorities) shard.priorities->Added(slot);
  };
  std::size_t cut_off = 0;  // into the list of truncated episodes
  for (int i = 0; i < r.samples(); ++i) {
    const bool truncated = r.truncated()[i] != 0;
    TRIREME_CHECK(!truncated || r.truncated_samples()[cut_off] == i);
    const float* next_obs = truncated ? r.truncated_obs().data() + cut_off++ * obs_size
                                      : r.obs().data() + (i + r.envs()) * obs_size;
    shard.n_step.Append(i % r.envs(), r.obs().data() + i * obs_size, r.actions().data() + i, r.rewards()[i],
                        next_obs, r.terminated()[i] != 0, truncated, store);
  }
}

// One gradient step.
void Dqn::Learn(const UpdateRule& update, double beta) {
  const std::span<const float> params = context_.store.Pull();
  if (updates_ % config_.target_every == 0) {
    MoveTowards(target_.span(), params, static_cast<float>(config_.target_tau));
  }
  tape_->SetParams(params);
  target_tape_->SetParams(target_.span());
  for (Shard& shard : shards_) {
    const std::span<float> gradient = gradient_.Next();
    if (shard.replay.size() > 0) {  // empty where a worker has just joined others that learn
      Sample(shard, beta);
      ShardGradient(gradient);
      if (shard.priorities) shard.priorities->Update(slots_, errors_);
    }
    gradient_.Add();
  }
  const std::span<float> total = gradient_.Total();
  const double norm = context_.store.Push(total, update);
  CheckFinite(norm, "the gradient");
  ++updates_;
  ++updates_made_;
  norm_sum_ += norm;
  for (int i = 0; i < kQStats; ++i) loss_sums_[i] += total[context_.executor.network().param_count() + i];
}

// Fills slots_, weights_ and batch_.
void Dqn::Sample(Shard& shard, double beta) {
  RandomStream random(shard.rollout.shard().seed, Purpose::kReplay,
                      static_cast<std::uint32_t>(shard.rollout.shard().index), updates_);
  if (shard.priorities) {
    shard.priorities->Sample(random, beta, slots_, weights_);
  } else {
    SampleUniform(random, shard.replay.size(), slots_);
  }
  shard.replay.Gather(slots_, batch_);
}

// Of the transitions in batch_, in passes that fit the caches. Leaves |Q - y| in errors_.
void Dqn::ShardGradient(std::span<float> gradient) {
  const std::size_t obs_size = context_.env.spec.obs_size;
  const std::span<float> stats = gradient.subspan(context_.executor.network().param_count());
  const QLossRule rule{.huber = static_cast<float>(config_.huber),
                       .per_sample = 1.0f / static_cast<float>(config_.batch)};
  const std::size_t pass_size = context_.executor.pass_size();
  for (std::size_t first = 0; first < slots_.size(); first += pass_size) {
    const int n = static_cast<int>(std::min(pass_size, slots_.size() - first));
    const float* obs = batch_.obs.data() + first * obs_size;
    const float* next_obs = batch_.next_obs.data() + first * obs_size;

    const float* target_outputs = target_tape_->Forward(0, next_obs, n).data();
    const float* online_outputs = config_.double_q ? tape_->Forward(0, next_obs, n).data() : nullptr;
    QTargets(head_, target_outputs, online_outputs, batch_.returns.data() + first,
             batch_.discounts.data() + first, n, targets_.data() + first);

    const float* outputs = tape_->Forward(0, obs, n).data();
    const QBatch batch{.n = n,
                       .actions = batch_.actions.data() + first,
                       .targets = targets_.data() + first,
                       .weights = config_.prioritised ? weights_.data() + first : nullptr};
    float* d_outputs = d_outputs_.data() + first * head_.outputs();
    QLoss(batch, rule, head_, outputs, d_outputs, errors_.data() + first, stats);
    tape_->Backward(0, d_outputs, gradient);
  }
}

void Dqn::Report(MetricRow& row) {
  ShareEpisodes(shards_, context_.store, row);
  const double samples = static_cast<double>(updates_made_) * config_.batch;  // 0: all means are NaN
  row.Set("q_loss", loss_sums_[kQLoss] / samples);
  row.Set("q_value", loss_sums_[kQValue] / samples);
  row.Set("td_error", loss_sums_[kQError] / samples);
  row.Set("grad_norm", norm_sum_ / updates_made_);
  row.Set("updates", updates_made_);
}

void Dqn::Act(std::span<const float> obs, int n, std::span<float> actions) {
  tape_->SetParams(context_.store.params());
  QGreedy(head_, tape_->Forward(0, obs.data(), n).data(), n, actions.data());
}

void Dqn::SaveShards(StateWriter& out) const {
  for (const Shard& shard : shards_) {
    shard.rollout.Save(out);
    shard.n_step.Save(out, shard.Scope() + "/n_step");
    shard.replay.Save(out, shard.Scope() + "/replay");
    if (shard.priorities) shard.priorities->Save(out, shard.Scope() + "/priorities");
  }
}

void Dqn::SaveCommon(StateWriter& out) const {
  out.PutValue("dqn/collected", collected_);
  out.PutValue("dqn/updates", updates_);
  out.Put<float>("dqn/target", target_.span());
}

void Dqn::LoadCommon(const StateReader& in) {
  collected_ = in.GetValue<std::uint64_t>("dqn/collected");
  updates_ = in.GetValue<std::uint64_t>("dqn/updates");
  in.Get<float>("dqn/target", target_.span());
}

void Dqn::LoadShards(const StateReader& in) {
  for (Shard& shard : shards_) {
    shard.rollout.Load(in);
    shard.n_step.Load(in, shard.Scope() + "/n_step");
    shard.replay.Load(in, shard.Scope() + "/replay");
    if (shard.priorities) shard.priorities->Load(in, shard.Scope() + "/priorities");
  }
}

class DqnSettings final : public AlgorithmSettings {
 public:
  void Fields(ConfigFields& field) override {
    field.Add(config_);
    field.Add(network_);
    field.Add(optimizer_);
  }
  void Validate(const EnvSpec&, int shards) const override {
    CheckEnvsFillShards(config_.envs, shards);
    if (config_.batch % shards != 0) {
      Fail("batch = {} cannot be split evenly over shards = {}: choose a multiple, or fewer shards",
           config_.batch, shards);
    }
    if (config_.replay % shards != 0) {
      Fail("replay = {} cannot be split evenly over shards = {}: choose a multiple, or fewer shards",
           config_.replay, shards);
    }
    if (config_.epsilon_end > config_.epsilon_start) {
      Fail("epsilon_end = {} is above epsilon_start = {}: exploration falls", config_.epsilon_end,
           config_.epsilon_start);
    }
  }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const override {
    // Beside the replay: one round of steps, and steps that wait for their n-step transition.
    const std::uint64_t step = env.obs_size + env.action.size() + 3;
    const std::uint64_t steps =
        std::uint64_t(config_.horizon) + 1 + (config_.n_step > 1 ? config_.n_step : 0);
    return ReplayBuffer::Bytes(config_.replay, env.obs_size, env.action.size()) +
           (config_.prioritised ? PrioritisedSampler::Bytes(config_.replay) : 0) +
           config_.envs * steps * step * sizeof(float);
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const override {
    if (network_.hidden.empty() || network_.hidden.size() > 16) {
      Fail("hidden: expected 1 to 16 layers, not {}", network_.hidden.size());
    }
    NetworkSpec spec;
    spec.towers = {{.name = config_.dueling ? "dueling_q" : "q",
                    .inputs = env.obs_size,
                    .hidden = network_.hidden,
                    .outputs = QHead{env.action.choices, config_.dueling}.outputs(),
                    .activation = network_.activation,
                    .init = network_.init,
                    .head_gain = 1.0}};
    return spec;
  }
  const OptimizerSettings& optimizer() const override { return optimizer_; }
  std::unique_ptr<Algorithm> Make(const WorkerContext& context) const override {
    return std::make_unique<Dqn>(config_, context);
  }

 private:
  DqnConfig config_;
  QNetworkSettings network_;
  OptimizerSettings optimizer_;
};

}  // namespace

AlgorithmEntry DqnEntry() {
  return {
      .name = "dqn",
      .help =
          "deep Q-learning with replay; double, dueling, prioritised and n-step; asynchronous with --store "
          "shared",
      .discrete = true,
      .continuous = false,
      .metrics =
          "episode_return_mean episode_length_mean episodes q_loss q_value td_error grad_norm updates "
          "epsilon "
          "learning_rate",
      .make_settings = [] { return std::unique_ptr<AlgorithmSettings>(std::make_unique<DqnSettings>()); }};
}

}  // namespace trireme
