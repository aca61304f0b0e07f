// Q-learning on the outputs of a network: greedy actions, targets, and the loss with its gradient.
//
// A row of outputs is `choices` Q values, or for a dueling head (Wang et al., 2016) `choices` advantages
// followed by one state value:
//
//   Q_a = V + A_a - mean_a A
//
// Target of a transition (s, a, ret, s'), where ret is the return of one or more steps and the discount that
// of as many, 0 where the episode terminated:
//
//   DQN          y = ret + discount * max_a Q'(s', a)                        Q' is the target network
//   double DQN   y = ret + discount * Q'(s', argmax_a Q(s', a))              (van Hasselt et al., 2016)
//
// Loss, with error e = Q(s, a) - y, weight w of the sample, Huber limit h, divided by the size of the batch:
//
//   L = w 1/2 e^2 where |e| <= h, else w h (|e| - h / 2)
//
//   dL/dQ_a = w clip(e, -h, h) for the action taken, 0 for the others
//   dL/dA_a = dL/dQ_a - mean_a dL/dQ_a;   dL/dV = sum_a dL/dQ_a
//
// With masks the maximum, its argument and the greedy action are over allowed choices only; the mean of a
// dueling head is over all.
//
// Pure functions: safe to call from several threads on different outputs. They do not allocate.
#pragma once

#include <cstdint>
#include <span>

namespace trireme {

// The shape of a row of outputs. Requires 1 <= choices.
struct QHead {
  int choices = 0;
  bool dueling = false;
  int outputs() const { return choices + (dueling ? 1 : 0); }
};

// actions[b] <- the action of the highest Q value of row b, the first of several. outputs: [n, outputs];
// masks: [n, choices], or null where everything is allowed.
void QGreedy(const QHead& head, const float* outputs, int n, float* actions,
             const std::uint8_t* masks = nullptr);

// values[b] <- Q of the action that was taken at row b.
void QOfActions(const QHead& head, const float* outputs, const float* actions, int n, float* values);

// One of the choices that are allowed (null: all), each with the same probability; `bits` are drawn at random.
int RandomChoice(std::uint32_t bits, int choices, const std::uint8_t* mask);

// Targets y from the outputs of both networks for the next observations, [n, outputs] each. Without
// online_outputs (null) it is DQN, with them double DQN. Where the discount is 0 the outputs do not matter,
// whatever they are. returns, discounts, targets: [n]; next_masks: [n, choices], or null.
void QTargets(const QHead& head, const float* target_outputs, const float* online_outputs,
              const float* returns, const float* discounts, int n, float* targets,
              const std::uint8_t* next_masks = nullptr);

// One shard's part of a batch.
struct QBatch {
  int n = 0;
  const float* actions = nullptr;  // [n]
  const float* targets = nullptr;  // [n]
  const float* weights = nullptr;  // [n], or null: all 1
};

struct QLossRule {
  float huber = 0;       // errors beyond this count linearly; 0: squares everywhere
  float per_sample = 1;  // 1 / size of the batch over all shards
};

// Sums over samples: of the loss before division, of Q(s, a), and of |e|.
enum QStat { kQLoss, kQValue, kQError, kQStats };

// outputs, d_outputs: [n, outputs]. errors: [n], receives |e|. Adds to `stats`.
void QLoss(const QBatch& batch, const QLossRule& rule, const QHead& head, const float* outputs,
           float* d_outputs, float* errors, std::span<float> stats);

}  // namespace trireme
