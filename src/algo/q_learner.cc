#include "trireme/algo/q_learner.h"

#include <algorithm>

#include "trireme/optim/average.h"

namespace trireme {

void QConfig::TargetFields(ConfigFields& field) {
  field("double", double_q, "choose the next action by the network and value it by the target network")
      .Tune(Search::TrueOrFalse());
  field("dueling", dueling, "learn the value of a state and the advantages of its actions apart")
      .Tune(Search::TrueOrFalse().Shapes());
  field("target_tau", target_tau, "how far the target network moves towards the network at a time; 1: a copy",
        Between(1e-9, 1))
      .Tune(Search::Log(0.01, 1));
  field("target_every", target_every, "gradient steps between two moves of the target network",
        Between(1, 1'000'000'000))
      .Tune(Search::PowersOfTwo(1, 512));
}

void QConfig::HuberField(ConfigFields& field) {
  field("huber", huber, "errors beyond this count linearly instead of squared; 0: no limit", NonNegative());
}

QLearner::QLearner(const QConfig& config, int batch, const WorkerContext& context, Tape& tape)
    : config_(config),
      batch_(batch),
      head_(config.Head(context.env.spec)),
      env_(context.env.spec),
      pass_size_(context.executor.pass_size()),
      tape_(tape),
      target_tape_(context.executor.MakeTape(pass_size_)),
      target_(context.executor.network().param_count()),
      targets_(batch / context.shards),
      errors_(targets_.size()) {
  std::ranges::copy(context.store.params(), target_.begin());
  target_tape_->SetParams(target_.span());
}

void QLearner::Begin(std::span<const float> params) {
  if (updates_ % config_.target_every == 0) {
    MoveTowards(target_.span(), params, static_cast<float>(config_.target_tau));
    target_tape_->SetParams(target_.span());
  }
  tape_.SetParams(params);
}

// y, in passes.
void QLearner::EstimateTargets(const TransitionBatch& part) {
  const std::size_t obs_size = env_.obs.size();
  const auto pass_size = static_cast<std::size_t>(pass_size_);
  for (std::size_t first = 0; first < targets_.size(); first += pass_size) {
    const int n = static_cast<int>(std::min(pass_size, targets_.size() - first));
    const float* next_obs = part.next_obs.data() + first * obs_size;
    const float* target_outputs = target_tape_->Forward(0, next_obs, n).data();
    const float* online_outputs = config_.double_q ? tape_.Forward(0, next_obs, n).data() : nullptr;
    QTargets(head_, target_outputs, online_outputs, part.returns.data() + first,
             part.discounts.data() + first, n, targets_.data() + first,
             env_.masks ? part.next_masks.data() + first * head_.choices : nullptr);
  }
}

void QLearner::AddGradient(const TransitionBatch& part, std::span<const float> weights,
                           std::span<float> gradient, std::span<float> stats) {
  struct Samples final : LossSamples {
    Samples(QLearner& learner, const TransitionBatch& part, std::span<const float> weights,
            std::span<float> stats)
        : learner_(learner), part_(part), weights_(weights), stats_(stats) {}
    int size() const override { return static_cast<int>(learner_.targets_.size()); }
    const float* Inputs(int first, int) override {
      return part_.obs.data() + first * learner_.env_.obs.size();
    }
    void Loss(int first, int n, std::span<const float* const> outputs,
              std::span<float* const> d_outputs) override {
      const QLossRule rule{.huber = static_cast<float>(learner_.config_.huber),
                           .per_sample = 1.0f / static_cast<float>(learner_.batch_)};
      const QBatch batch{.n = n,
                         .actions = part_.actions.data() + first,
                         .targets = learner_.targets_.data() + first,
                         .weights = weights_.empty() ? nullptr : weights_.data() + first};
      QLoss(batch, rule, learner_.head_, outputs[0], d_outputs[0], learner_.errors_.data() + first, stats_);
    }

   private:
    QLearner& learner_;
    const TransitionBatch& part_;
    std::span<const float> weights_;
    std::span<float> stats_;
  };
  EstimateTargets(part);
  Samples samples(*this, part, weights, stats);
  tape_.AddGradient(samples, gradient);
}

void QLearner::Save(StateWriter& out, const std::string& scope) const {
  out.PutValue(scope + "/updates", updates_);
  out.PutLikeParams(scope + "/target", target_.span());
}

void QLearner::Load(const StateReader& in, const std::string& scope) {
  updates_ = in.GetValue<std::uint64_t>(scope + "/updates");
  in.GetLikeParams(scope + "/target", target_.span());
  target_tape_->SetParams(target_.span());
}

}  // namespace trireme
