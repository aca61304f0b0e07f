// REINFORCE (Williams 1992), for discrete actions. With returns G_t = r_t + gamma G_{t+1} within an episode and b their mean
// over the batch, one step along
//
//   grad J = 1/N sum_t (G_t - b) grad log pi(a_t | s_t)
#include "reinforce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trireme/algo/blocks.h"
#include "trireme/algo/episode_stats.h"
#include "trireme/algo/settings.h"
#include "trireme/base/rng.h"
#include "trireme/comm/shard_sum.h"
#include "trireme/rollout/rollout.h"

using namespace trireme;

namespace {

struct ReinforceConfig {
  CollectConfig collect{.envs = 32, .horizon = 128};
  double gamma = 0.97;
  double learning_rate = 0.02;
  HiddenConfig network{.hidden = {16}};
  OptimizerSettings optimizer;

  void Fields(ConfigFields& field) {
    collect.Fields(field, "iteration");
    field("gamma", gamma, "discount per step", UnitInterval());
    field("learning_rate", learning_rate, "step size", Positive());
    field.Add(network);
    field.Add(optimizer);
  }
  void Validate(const EnvSpec&, int shards) const { CheckSplitsEvenly("envs", collect.envs, shards); }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const {
    return static_cast<std::uint64_t>(collect.steps()) * (env.obs.size() + 3) * sizeof(float);
  }
  NetworkSpec MakeNetwork(const EnvSpec& env) const {
    return {.towers = {network.Tower("policy", env.obs.size(), env.action.choices(), 0.01)}, .free_vectors = {}};
  }
};

// A shard is a fixed part of the work. How shards are spread over workers changes no result, because draws are keyed by
// environment and step, and sums over shards are made by SumOverShards and GradientSteps.
struct Shard {
  Shard(const EnvEntry& env, const ShardSpec& spec, int horizon)
      : rollout(env, spec, horizon), returns(rollout.samples()) {}
  void Save(StateWriter& out) const { rollout.Save(out); }
  void Load(const StateReader& in) { rollout.Load(in); }

  Rollout rollout;
  std::vector<float> returns;  // [T, B]
};

class Reinforce final : public Algorithm {
 public:
  using Config = ReinforceConfig;

  Reinforce(const Config& config, const WorkerContext& context)
      : config_(config),
        context_(context),
        choices_(context.env.spec.action.choices()),
        shards_(MakeShards<Shard>(context, config.collect.envs, config.collect.horizon)),
        tape_(MakeWorkerTape(context, config.collect.envs)),
        steps_(context, *tape_, 0) {}

  std::int64_t steps_per_iteration() const override { return config_.collect.steps(); }

  void Iterate(double /*progress*/, MetricRow& row) override {
    tape_->SetParams(context_.store.Pull());
    CollectAll(
        shards_, nullptr, [&](const ActionRequest& request) { ChooseActions(request); },
        [&](Shard& shard) { SumRewards(shard); });

    ShardSum<double> sum(1);
    const auto samples = static_cast<double>(config_.collect.steps());
    const double baseline = SumOverShards(shards_, context_.store, sum, [](Shard& shard, std::span<double> total) {
                              for (const float g : shard.returns) total[0] += g;
                            })[0] / samples;

    steps_.Begin();
    steps_.Step(shards_, {static_cast<float>(config_.learning_rate), /*max_grad_norm=*/1.0},
                [&](const Shard& shard, std::span<float> gradient, std::span<float>) {
                  AddGradient(shard, baseline, samples, gradient);
                });
    ShareEpisodes(shards_, context_.store, row);
    row.Set("baseline", baseline);
    row.Set("grad_norm", steps_.norm_mean());
  }

  void Act(std::span<const float> obs, const std::uint8_t* /*masks*/, int n, std::span<float> actions) override {
    tape_->SetParams(context_.store.params());
    const std::span<const float> logits = tape_->Forward(0, obs.data(), n);
    for (int b = 0; b < n; ++b) {
      const std::span<const float> row = Row(logits, b);
      actions[b] = static_cast<float>(std::ranges::max_element(row) - row.begin());
    }
  }

  void Explore(const ActionRequest& request) override {
    tape_->SetParams(context_.store.params());
    ChooseActions(request);
  }

  void SaveShards(StateWriter& out) const override { SaveAll(shards_, out); }
  void LoadShards(const StateReader& in) override { LoadAll(shards_, in); }
  // Beyond the parameters, which the store saves: how gradients of 16 bits are scaled.
  void SaveCommon(StateWriter& out) const override { steps_.Save(out, "reinforce/loss_scale"); }
  void LoadCommon(const StateReader& in) override { steps_.Load(in, "reinforce/loss_scale"); }

 private:
  std::span<const float> Row(std::span<const float> logits, int b) const {
    return logits.subspan(static_cast<std::size_t>(b) * choices_, choices_);
  }

  // probs_ <- softmax(logits)
  void Softmax(std::span<const float> logits) {
    const float most = *std::ranges::max_element(logits);
    double sum = 0;
    probs_.clear();
    for (const float logit : logits) sum += probs_.emplace_back(std::exp(double{logit} - most));
    for (double& p : probs_) p /= sum;
  }

  void ChooseActions(const ActionRequest& request) {
    const std::span<const float> logits = tape_->Forward(0, request.obs, request.n);
    for (int b = 0; b < request.n; ++b) {
      Softmax(Row(logits, b));
      RandomStream random(request.seed, Purpose::kAction, request.first_env + b, request.step);
      double left = random.NextUniform();
      int choice = 0;
      while (choice < choices_ - 1 && (left -= probs_[choice]) >= 0) ++choice;
      request.actions[b] = static_cast<float>(choice);
    }
  }

  // What an episode that is not over would still have brought counts as nothing.
  void SumRewards(Shard& shard) {
    Rollout& r = shard.rollout;
    for (int i = r.samples() - 1; i >= 0; --i) {
      const bool goes_on = i + r.envs() < r.samples() && !r.terminated()[i] && !r.truncated()[i];
      const float later = goes_on ? shard.returns[i + r.envs()] : 0.0f;
      shard.returns[i] = r.rewards()[i] + static_cast<float>(config_.gamma) * later;
    }
  }

  // d(-J)/d logit_k = -(G - b) (1[k = a] - pi_k) / N
  void AddGradient(const Shard& shard, double baseline, double samples, std::span<float> gradient) {
    const Rollout& r = shard.rollout;
    const RowLayout& layout = r.layout();  // of an observation: floats, or bytes that are unpacked
    const int pass = context_.executor.pass_size();
    for (int first = 0; first < r.samples(); first += pass) {
      const int n = std::min(pass, r.samples() - first);
      const float* obs = layout.ReadObs(r.obs().data() + first * layout.width(), n, unpacked_);
      const std::span<const float> logits = tape_->Forward(0, obs, n);
      d_logits_.clear();
      for (int b = 0; b < n; ++b) {
        Softmax(Row(logits, b));
        const double weight = (shard.returns[first + b] - baseline) / samples;
        for (int k = 0; k < choices_; ++k) {
          const double taken = r.actions()[first + b] == static_cast<float>(k) ? 1 : 0;
          d_logits_.push_back(static_cast<float>(-weight * (taken - probs_[k])));
        }
      }
      tape_->Backward(0, d_logits_.data(), gradient);
    }
  }

  Config config_;
  WorkerContext context_;
  int choices_;
  std::vector<Shard> shards_;
  std::unique_ptr<Tape> tape_;
  GradientSteps steps_;
  std::vector<double> probs_;
  std::vector<float> d_logits_, unpacked_;
};

}  // namespace

AlgorithmEntry ReinforceEntry() {
  return {.name = "reinforce",
          .help = "REINFORCE with the mean return as baseline",
          .discrete = true,
          .metrics = "episode_return_mean episode_length_mean episodes baseline grad_norm",
          .make_settings = MakeSettings<Reinforce>};
}
