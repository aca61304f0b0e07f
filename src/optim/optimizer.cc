#include "trireme/optim/optimizer.h"

#include <cmath>
#include <string_view>

#include "trireme/base/simd.h"

namespace trireme {
namespace {

struct SgdKernel {
  [[gnu::always_inline]] static inline void Run(float* __restrict p, const float* __restrict g, std::size_t n,
                                                float rate, float decay) {
    for (std::size_t i = 0; i < n; ++i) p[i] -= rate * (g[i] + decay * p[i]);
  }
};

struct MomentumKernel {
  [[gnu::always_inline]] static inline void Run(float* __restrict p, const float* __restrict g,
                                                float* __restrict b, std::size_t n, float rate,
                                                float momentum, float decay) {
    for (std::size_t i = 0; i < n; ++i) {
      b[i] = momentum * b[i] + (g[i] + decay * p[i]);
      p[i] -= rate * b[i];
    }
  }
};

// AdaGrad with keep = add = 1; RMSprop with keep = alpha and add = 1 - alpha.
struct ScaledKernel {
  [[gnu::always_inline]] static inline void Run(float* __restrict p, const float* __restrict g,
                                                float* __restrict s, std::size_t n, float rate, float keep,
                                                float add, float eps, float decay) {
    for (std::size_t i = 0; i < n; ++i) {
      const float gradient = g[i] + decay * p[i];
      s[i] = keep * s[i] + add * gradient * gradient;
      p[i] -= rate * gradient / (__builtin_sqrtf(s[i]) + eps);
    }
  }
};

// The bias corrections of both moments are folded into `rate` and `eps`. `shrink` is AdamW's factor, `decay`
// Adam's L2 term; the other one is neutral.
struct AdamKernel {
  [[gnu::always_inline]] static inline void Run(float* __restrict p, const float* __restrict g,
                                                float* __restrict m, float* __restrict v, std::size_t n,
                                                float rate, float beta1, float beta2, float add1, float add2,
                                                float eps, float decay, float shrink) {
    for (std::size_t i = 0; i < n; ++i) {
      const float gradient = g[i] + decay * p[i];
      m[i] = beta1 * m[i] + add1 * gradient;
      v[i] = beta2 * v[i] + add2 * gradient * gradient;
      p[i] = shrink * p[i] - rate * m[i] / (__builtin_sqrtf(v[i]) + eps);
    }
  }
};

// A moment that decays without new gradients, as for a unit that never fires, ends in subnormal numbers: many
// processors handle them slowly, and they round so that they never reach zero. With kFlushInterval and the
// usual decay of 0.9 a moment is cleared before it becomes subnormal. NaN stays NaN.
constexpr std::int64_t kFlushInterval = 64;
struct FlushKernel {
  [[gnu::always_inline]] static inline void Run(float* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) x[i] = __builtin_fabsf(x[i]) < 1e-35f ? 0.0f : x[i];
  }
};

std::string MomentName(const std::string& scope, std::size_t i) {
  return fmt::format("{}/moment{}", scope, i);
}

}  // namespace

std::string_view OptimizerName(OptimizerKind kind) {
  for (const auto& row : kOptimizerNames) {
    if (row.value == kind) return row.name;
  }
  TRIREME_CHECK(false);
}

void CheckOptimizerKind(OptimizerKind kind, std::string_view saved) {
  if (saved == OptimizerName(kind)) return;
  Fail("the saved state was made by the optimizer '{}', but this run uses '{}'", saved, OptimizerName(kind));
}

std::size_t OptimizerRule::moments() const {
  switch (settings_.kind) {
    case OptimizerKind::kSgd:
      return 0;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kAdagrad:
    case OptimizerKind::kRmsprop:
      return 1;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamw:
      return 2;
  }
  TRIREME_CHECK(false);
}

// root2 / correction1 scales the step, root2 the eps: one square root and one division per element are left.
OptimizerRule::Step OptimizerRule::At(std::int64_t t) const {
  if (moments() < 2) return {.t = t};
  return {.t = t,
          .correction1 = 1 - std::pow(settings_.beta1, static_cast<double>(t)),
          .root2 = std::sqrt(1 - std::pow(settings_.beta2, static_cast<double>(t)))};
}

void OptimizerRule::Apply(const Step& step, float learning_rate, float* params, const float* gradient,
                          float* const* moments, std::size_t n) const {
  if (step.t % kFlushInterval == 0) {
    for (std::size_t i = 0; i < this->moments(); ++i) SimdCall<FlushKernel>(moments[i], n);
  }
  const auto decay = static_cast<float>(settings_.weight_decay);
  const auto eps = static_cast<float>(settings_.eps);
  switch (settings_.kind) {
    case OptimizerKind::kSgd:
      return SimdCall<SgdKernel>(params, gradient, n, learning_rate, decay);
    case OptimizerKind::kMomentum:
      return SimdCall<MomentumKernel>(params, gradient, moments[0], n, learning_rate,
                                      static_cast<float>(settings_.momentum), decay);
    case OptimizerKind::kAdagrad:
      return SimdCall<ScaledKernel>(params, gradient, moments[0], n, learning_rate, 1.0f, 1.0f, eps, decay);
    case OptimizerKind::kRmsprop:
      return SimdCall<ScaledKernel>(params, gradient, moments[0], n, learning_rate,
                                    static_cast<float>(settings_.rms_alpha),
                                    static_cast<float>(1 - settings_.rms_alpha), eps, decay);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamw:
      break;
  }
  const bool decoupled = settings_.kind == OptimizerKind::kAdamw;
  SimdCall<AdamKernel>(params, gradient, moments[0], moments[1], n,
                       static_cast<float>(learning_rate * step.root2 / step.correction1),
                       static_cast<float>(settings_.beta1), static_cast<float>(settings_.beta2),
                       static_cast<float>(1 - settings_.beta1), static_cast<float>(1 - settings_.beta2),
                       static_cast<float>(settings_.eps * step.root2), decoupled ? 0.0f : decay,
                       decoupled ? static_cast<float>(1 - learning_rate * settings_.weight_decay) : 1.0f);
}

Optimizer::Optimizer(const OptimizerSettings& settings, std::size_t size) : rule_(settings), size_(size) {
  for (std::size_t i = 0; i < rule_.moments(); ++i) moments_.emplace_back(size);
}

void Optimizer::Step(std::span<float> params, std::span<const float> gradient, float learning_rate,
                     const ParameterGroups& groups) {
  TRIREME_CHECK(params.size() == size_ && gradient.size() == size_);
  const OptimizerRule::Step step = rule_.At(++steps_);
  ForEachRate(0, size_, learning_rate, groups.all(), [&](std::size_t begin, std::size_t end, float rate) {
    float* moments[OptimizerRule::kMostMoments] = {};
    for (std::size_t i = 0; i < moments_.size(); ++i) moments[i] = moments_[i].data() + begin;
    rule_.Apply(step, rate, params.data() + begin, gradient.data() + begin, moments, end - begin);
  });
}

void Optimizer::Save(StateWriter& writer, const std::string& scope) const {
  writer.PutText(scope + "/kind", OptimizerName(rule_.kind()));
  writer.PutValue<std::int64_t>(scope + "/steps", steps_);
  for (std::size_t i = 0; i < moments_.size(); ++i)
    writer.PutLikeParams(MomentName(scope, i), moments_[i].span());
}

void Optimizer::Load(const StateReader& reader, const std::string& scope) {
  CheckOptimizerKind(rule_.kind(), reader.GetText(scope + "/kind"));
  const auto steps = reader.GetValue<std::int64_t>(scope + "/steps");
  if (steps < 0) Fail("the saved optimizer state is damaged: it counts {} steps", steps);
  steps_ = steps;
  for (std::size_t i = 0; i < moments_.size(); ++i)
    reader.GetLikeParams(MomentName(scope, i), moments_[i].span());
}

}  // namespace trireme
