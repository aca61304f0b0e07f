// What learners of Q have in common: choosing with some share of random actions, the target network, and the gradient
// of a batch that was drawn from a replay buffer. The formulas are in q_loss.h.
//
// Thread safety: belongs to one worker.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/algo/q_loss.h"
#include "trireme/algo/settings.h"
#include "trireme/base/aligned.h"
#include "trireme/base/config.h"
#include "trireme/base/rng.h"
#include "trireme/base/state.h"
#include "trireme/nn/executor.h"
#include "trireme/replay/transition.h"

namespace trireme {

struct QConfig {
  bool double_q = true;
  bool dueling = false;
  double target_tau = 1.0;
  int target_every = 100;
  double huber = 0.0;

  void TargetFields(ConfigFields& field);
  void HuberField(ConfigFields& field);
  QHead Head(const EnvSpec& env) const { return {env.action.choices(), dueling}; }
  NetworkSpec MakeNetwork(const HiddenConfig& layers, const EnvSpec& env) const {
    return {.towers = {layers.Tower(dueling ? "dueling_q" : "q", env.obs.size(), Head(env).outputs(), 1.0)},
            .free_vectors = {}};
  }
};

// Chooses at random with probability epsilon(number of the environment), else greedily by the first tower of `tape`.
// Environment b draws from block 0 of stream (kAction, its number, step): whether to explore, and which action. The
// network is asked only if somebody follows it.
template <class Epsilon>
void ChooseEpsilonGreedily(const QHead& head, Tape& tape, const ActionRequest& request, Epsilon&& epsilon) {
  const int n = request.n;
  const std::uint8_t* masks = request.masks;
  const auto env = [&](int b) { return request.first_env + static_cast<std::uint32_t>(b); };
  const auto draw = [&](int b) {
    return Philox(request.seed, StreamCounter(Purpose::kAction, env(b), request.step, 0));
  };
  const auto explores = [&](int b) { return ToUniform(draw(b)[0]) < epsilon(env(b)); };
  int explorers = 0;
  for (int b = 0; b < n; ++b) explorers += explores(b);
  if (explorers < n) QGreedy(head, tape.Forward(0, request.obs, n).data(), n, request.actions, masks);
  for (int b = 0; explorers > 0 && b < n; ++b) {
    if (!explores(b)) continue;
    const std::uint8_t* mask =
        masks == nullptr ? nullptr : masks + static_cast<std::ptrdiff_t>(b) * head.choices;
    request.actions[b] = static_cast<float>(RandomChoice(draw(b)[1], head.choices, mask));
  }
}

class QLearner {
 public:
  // `batch` transitions make one gradient step, over all shards. `tape` is what the gradient is computed with, and
  // outlives it, as what `context` refers to does. The target network begins as a copy of the network.
  QLearner(const QConfig& config, int batch, const WorkerContext& context, Tape& tape);

  // Before a gradient step with these parameters: moves the target network if it is its turn.
  void Begin(std::span<const float> params);
  // Adds what a shard's part of the batch contributes to the gradient of that step and to `stats` (QStat). weights: of the
  // transitions, or empty. Leaves |Q - y| in errors().
  void AddGradient(const TransitionBatch& part, std::span<const float> weights, std::span<float> gradient,
                   std::span<float> stats);
  std::span<const float> errors() const { return errors_; }
  void End() { ++updates_; }
  // Gradient steps so far.
  std::uint64_t updates() const { return updates_; }

  void Save(StateWriter& out, const std::string& scope) const;
  void Load(const StateReader& in, const std::string& scope);

 private:
  void EstimateTargets(const TransitionBatch& part);

  QConfig config_;
  int batch_;
  QHead head_;
  const EnvSpec& env_;
  int pass_size_;
  Tape& tape_;
  std::unique_ptr<Tape> target_tape_;
  AlignedBuffer<float> target_;  // the parameters w-
  std::uint64_t updates_ = 0;
  std::vector<float> targets_, errors_;  // of a shard's part
};

}  // namespace trireme
