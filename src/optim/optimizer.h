// First-order optimizers over flat parameter vectors.
//
// The rules are those of libtorch (g is the gradient, L2 weight decay w adds w*p to it; AdamW shrinks p
// instead):
//
//   sgd       p -= lr * g
//   momentum  b = momentum * b + g;            p -= lr * b
//   adagrad   s += g^2;                        p -= lr * g / (sqrt(s) + eps)
//   rmsprop   s = a * s + (1 - a) * g^2;       p -= lr * g / (sqrt(s) + eps)          a = rms_alpha
//   adam      m = b1 * m + (1 - b1) * g;  v = b2 * v + (1 - b2) * g^2
//             p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)               t = 1, 2, ...
//   adamw     p *= 1 - lr * w, then adam without the L2 term
//
// Each element is computed on its own with correctly rounded operations, so the result is the same bit for
// bit on every instruction set and however the parameters are cut into slices with an optimizer each.
//
// An Optimizer belongs to one thread at a time. Steps neither allocate nor throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/aligned.h"
#include "trireme/base/config.h"
#include "trireme/base/state.h"
#include "trireme/optim/groups.h"

namespace trireme {

enum class OptimizerKind { kSgd, kMomentum, kAdagrad, kRmsprop, kAdam, kAdamw };
inline constexpr EnumName<OptimizerKind> kOptimizerNames[] = {
    {"sgd", OptimizerKind::kSgd},         {"momentum", OptimizerKind::kMomentum},
    {"adagrad", OptimizerKind::kAdagrad}, {"rmsprop", OptimizerKind::kRmsprop},
    {"adam", OptimizerKind::kAdam},       {"adamw", OptimizerKind::kAdamw},
};

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdam;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double rms_alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;

  void Fields(ConfigFields& field) {
    field("optimizer", kind, "how gradients change parameters", kOptimizerNames);
    field("momentum", momentum, "share of the previous step kept by the momentum optimizer", BelowOne());
    field("beta1", beta1, "decay of Adam's mean of gradients", BelowOne());
    field("beta2", beta2, "decay of Adam's mean of squared gradients", BelowOne());
    field("rms_alpha", rms_alpha, "decay of RMSprop's mean of squared gradients", BelowOne());
    field("optimizer_eps", eps, "added to the denominator of adagrad, rmsprop, adam and adamw",
          Between(1e-30, 1));
    field("weight_decay", weight_decay, "pull towards zero: L2 penalty, decoupled for adamw", NonNegative());
  }
};

// The rule alone, without memory: the caller holds parameters, moments and the count of steps, and may apply
// it slice by slice. Immutable.
class OptimizerRule {
 public:
  explicit OptimizerRule(const OptimizerSettings& settings) : settings_(settings) {}

  OptimizerKind kind() const { return settings_.kind; }
  // Floats of memory per parameter.
  std::size_t moments() const;
  static constexpr std::size_t kMostMoments = 2;

  // What depends on the number of the step alone.
  struct Step {
    std::int64_t t = 1;
    double correction1 = 1, root2 = 1;  // Adam's bias corrections, see optimizer.cc
  };
  // Requires t >= 1.
  Step At(std::int64_t t) const;

  // Updates n parameters in place, and their moments: moments() arrays of n.
  void Apply(const Step& step, float learning_rate, float* params, const float* gradient,
             float* const* moments, std::size_t n) const;

 private:
  OptimizerSettings settings_;
};

// A rule with its memory.
class Optimizer {
 public:
  Optimizer(const OptimizerSettings& settings, std::size_t size);

  // One update of `params` in place. Both spans must have the size the optimizer was made for and must not
  // overlap. The learning rate is given each time, so that schedules live elsewhere; groups have theirs, and
  // those of rate 0 keep parameters and moments (groups.h).
  void Step(std::span<float> params, std::span<const float> gradient, float learning_rate,
            const ParameterGroups& groups = {});

  // Everything a later Step depends on, in sections below `scope`. A loaded optimizer continues bit for bit.
  void Save(StateWriter& writer, const std::string& scope) const;
  // Throws Error when the saved state is of another optimizer or size.
  void Load(const StateReader& reader, const std::string& scope);

  std::size_t size() const { return size_; }
  // For whoever averages optimizers that have made as many steps.
  std::vector<AlignedBuffer<float>>& moments() { return moments_; }

 private:
  OptimizerRule rule_;
  std::size_t size_;
  std::int64_t steps_ = 0;                     // updates made so far
  std::vector<AlignedBuffer<float>> moments_;  // per-parameter memory, zero at first
};

// Throws Error unless `saved` is the name of `kind`: state of one optimizer means nothing to another.
void CheckOptimizerKind(OptimizerKind kind, std::string_view saved);
std::string_view OptimizerName(OptimizerKind kind);

}  // namespace trireme
