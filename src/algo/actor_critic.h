// A policy and a value function in one network: what every policy-gradient algorithm here shares.
//
// Discrete actions: the policy's outputs are logits of a categorical distribution; of actions with several
// parts, of one distribution for each part, one after the other. Choices that a mask ([n, all choices]) does
// not allow have probability 0. Continuous: they are the means of a diagonal Gaussian whose log standard
// deviations are a free vector of the network. Two towers, or one shared tower whose last output is the value.
//
// Thread safety: immutable, like Network; tapes are per thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trireme/algo/settings.h"
#include "trireme/base/config.h"
#include "trireme/env/env.h"
#include "trireme/nn/executor.h"
#include "trireme/rollout/rollout.h"

namespace trireme {

struct ActorCriticSettings {
  HiddenConfig layers;
  bool shared_tower = false;
  double policy_gain = 0.01;
  double initial_log_std = 0.0;

  void Fields(ConfigFields& field);
};

NetworkSpec MakeActorCriticNetwork(const ActorCriticSettings& settings, const EnvSpec& env);

// One column block of a tower's outputs: sample b's start at data + b * stride.
struct OutputView {
  const float* data;
  int stride;
};

// What a loss sees of n samples, and where it writes its gradient with respect to the outputs, in the same places.
struct OutputsAndGradients {
  OutputView policy, value;
  float *d_policy, *d_value;
};

class ActorCritic {
 public:
  // What the policy's outputs are; a single choice without masks has the fastest code.
  enum class Head { kCategorical, kParts, kGaussian };

  // `executor` outlives it.
  ActorCritic(const Executor& executor, const EnvSpec& env)
      : executor_(executor),
        shared_(executor.network().spec().towers.size() == 1),
        parts_(env.action.parts),
        head_(env.action.box()                      ? Head::kGaussian
              : env.action.discrete() && !env.masks ? Head::kCategorical
                                                    : Head::kParts),
        policy_size_(env.action.box() ? env.action.size() : env.action.choices()) {}

  bool shared() const { return shared_; }
  Head head() const { return head_; }
  std::span<const int> parts() const { return parts_; }
  int policy_size() const { return policy_size_; }
  // Log standard deviations inside a buffer laid out like the parameters.
  template <class T>
  std::span<T> LogStd(std::span<T> params) const {
    return executor_.network().FreeVector(params, 0);
  }

  // Everything below runs with the parameters of the tape. obs: [n, obs], n <= its capacity.
  OutputView Policy(const float* obs, int n, Tape& tape) const;
  OutputView Value(const float* obs, int n, Tape& tape) const;

  // V of all observations of a trajectory, whose rows are of `layout`, in few large passes: cheaper than one small pass
  // per step while collecting. values: [T + 1, B]; final_values: [T, B], written where an episode was cut off;
  // log_probs: [T, B], of the actions that were taken, or empty where they are not wanted.
  void Values(const Trajectory& trajectory, const RowLayout& layout, Tape& tape, std::span<float> values,
              std::span<float> final_values, std::span<float> log_probs = {}) const;

  // Adds the gradient of a loss over `samples` samples, in passes that the executor chooses: inputs(first, n) gives
  // the observations of some of them, [n, obs], and loss(first, n, OutputsAndGradients) is the loss of these. See
  // LossSamples.
  template <class GetInputs, class ComputeLoss>
  void AddGradient(int samples, Tape& tape, std::span<float> gradient, GetInputs&& inputs,
                   ComputeLoss&& loss) const {
    struct Samples final : LossSamples {
      Samples(const ActorCritic& model, int count, GetInputs& inputs, ComputeLoss& loss)
          : model_(model), count_(count), inputs_(inputs), loss_(loss) {}
      int size() const override { return count_; }
      const float* Inputs(int first, int n) override { return inputs_(first, n); }
      void Loss(int first, int n, std::span<const float* const> outputs,
                std::span<float* const> d_outputs) override {
        const bool shared = model_.shared_;
        const int size = model_.policy_size_;
        loss_(
            first, n,
            OutputsAndGradients{{outputs[0], size + (shared ? 1 : 0)},
                                shared ? OutputView{outputs[0] + size, size + 1} : OutputView{outputs[1], 1},
                                d_outputs[0],
                                shared ? d_outputs[0] + size : d_outputs[1]});
      }

     private:
      const ActorCritic& model_;
      int count_;
      GetInputs& inputs_;
      ComputeLoss& loss_;
    };
    Samples all(*this, samples, inputs, loss);
    tape.AddGradient(all, gradient);
  }

  // Draws actions, and their log-probabilities as `extra`.
  void Sample(const ActionRequest& request, Tape& tape) const {
    Draw(request, Policy(request.obs, request.n, tape), tape.params());
  }
  // The same for several requests in one pass: together they have no more samples than the tape has room for.
  // `gathered` is memory.
  void SampleTogether(std::span<const ActionRequest> requests, Tape& tape,
                      std::vector<float>& gathered) const;
  // The policy of a rollout that does so. Both outlive it.
  auto Sampler(Tape& tape) const {
    return [this, &tape](const ActionRequest& request) { Sample(request, tape); };
  }
  // log pi(a|s) of n samples, whose policy outputs these are. masks: [n, choices], or null.
  void LogProbs(const OutputView& policy, const float* actions, const std::uint8_t* masks, int n,
                std::span<const float> params, float* log_probs) const;
  // The most probable action.
  void Greedy(const float* obs, const std::uint8_t* masks, int n, Tape& tape, float* actions) const;

 private:
  // From the outputs of the policy for a request.
  void Draw(const ActionRequest& request, const OutputView& policy, std::span<const float> params) const;

  const Executor& executor_;
  bool shared_;
  std::vector<int> parts_;
  Head head_;
  int policy_size_;
};

// The policy at work: it draws what it does, and tells how probable that was.
class ActorCriticActing final : public Acting {
 public:
  // With a tape of its own; `executor` outlives it.
  ActorCriticActing(const EnvSpec& env, const Executor& executor, int envs)
      : own_model_(std::in_place, executor, env),
        own_tape_(executor.MakeTape(std::max(executor.pass_size(), envs))),
        model_(*own_model_),
        tape_(*own_tape_) {}
  // With those of a learner. Both outlive it.
  ActorCriticActing(const ActorCritic& model, Tape& tape) : model_(model), tape_(tape) {}

  void SetParams(std::span<const float> params) override { tape_.SetParams(params); }
  void Choose(const ActionRequest& request) override { model_.Sample(request, tape_); }
  void ChooseTogether(std::span<const ActionRequest> requests) override {
    model_.SampleTogether(requests, tape_, gathered_);
  }

 private:
  std::optional<ActorCritic> own_model_;
  std::unique_ptr<Tape> own_tape_;
  const ActorCritic& model_;
  Tape& tape_;
  std::vector<float> gathered_;
};

}  // namespace trireme
