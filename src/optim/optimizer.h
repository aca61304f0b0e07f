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
// An Optimizer belongs to one thread at a time. Step neither allocates nor throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/config.h"
#include "base/state.h"

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

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // One update of `params` in place. Both spans must have the size the optimizer was made for and must not
  // overlap. The learning rate is given each time, so that schedules live elsewhere.
  virtual void Step(std::span<float> params, std::span<const float> gradient, float learning_rate) = 0;

  // Everything a later Step depends on, in sections below `scope`. A loaded optimizer continues bit for bit.
  void Save(StateWriter& writer, const std::string& scope) const;
  // Throws Error when the saved state is of another optimizer or size.
  void Load(const StateReader& reader, const std::string& scope);

  OptimizerKind kind() const { return kind_; }
  std::size_t size() const { return size_; }

 protected:
  Optimizer(OptimizerKind kind, std::size_t size, std::size_t moments);

  // Checks the sizes given to Step, counts it, and now and then clears moments that have all but vanished.
  void BeginStep(std::size_t params, std::size_t gradient);

  const OptimizerKind kind_;
  const std::size_t size_;
  std::int64_t steps_ = 0;                     // updates made so far
  std::vector<AlignedBuffer<float>> moments_;  // per-parameter memory, zero at first
};

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSettings& settings, std::size_t size);

}  // namespace trireme
