#include "optim/optimizer.h"

#include <cmath>
#include <string_view>

#include "base/simd.h"

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

// The bias corrections of both moments are folded into `rate` and `eps`, which leaves one square root and one
// division per element. `shrink` is AdamW's factor, `decay` Adam's L2 term; the other one is neutral.
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

class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerSettings& settings, std::size_t size)
      : Optimizer(settings.kind, size, 0), decay_(static_cast<float>(settings.weight_decay)) {}

  void Step(std::span<float> params, std::span<const float> gradient, float learning_rate) override {
    BeginStep(params.size(), gradient.size());
    SimdCall<SgdKernel>(params.data(), gradient.data(), size_, learning_rate, decay_);
  }

 private:
  const float decay_;
};

class Momentum final : public Optimizer {
 public:
  Momentum(const OptimizerSettings& settings, std::size_t size)
      : Optimizer(settings.kind, size, 1),
        momentum_(static_cast<float>(settings.momentum)),
        decay_(static_cast<float>(settings.weight_decay)) {}

  void Step(std::span<float> params, std::span<const float> gradient, float learning_rate) override {
    BeginStep(params.size(), gradient.size());
    SimdCall<MomentumKernel>(params.data(), gradient.data(), moments_[0].data(), size_, learning_rate,
                             momentum_, decay_);
  }

 private:
  const float momentum_, decay_;
};

class Scaled final : public Optimizer {
 public:
  Scaled(const OptimizerSettings& settings, std::size_t size, double keep, double add)
      : Optimizer(settings.kind, size, 1),
        keep_(static_cast<float>(keep)),
        add_(static_cast<float>(add)),
        eps_(static_cast<float>(settings.eps)),
        decay_(static_cast<float>(settings.weight_decay)) {}

  void Step(std::span<float> params, std::span<const float> gradient, float learning_rate) override {
    BeginStep(params.size(), gradient.size());
    SimdCall<ScaledKernel>(params.data(), gradient.data(), moments_[0].data(), size_, learning_rate, keep_,
                           add_, eps_, decay_);
  }

 private:
  const float keep_, add_, eps_, decay_;
};

class Adam final : public Optimizer {
 public:
  Adam(const OptimizerSettings& settings, std::size_t size)
      : Optimizer(settings.kind, size, 2), settings_(settings) {}

  void Step(std::span<float> params, std::span<const float> gradient, float learning_rate) override {
    BeginStep(params.size(), gradient.size());
    const auto t = static_cast<double>(steps_);
    const double correction1 = 1 - std::pow(settings_.beta1, t);
    const double root2 = std::sqrt(1 - std::pow(settings_.beta2, t));
    const bool decoupled = kind_ == OptimizerKind::kAdamw;
    SimdCall<AdamKernel>(params.data(), gradient.data(), moments_[0].data(), moments_[1].data(), size_,
                         static_cast<float>(learning_rate * root2 / correction1),
                         static_cast<float>(settings_.beta1), static_cast<float>(settings_.beta2),
                         static_cast<float>(1 - settings_.beta1), static_cast<float>(1 - settings_.beta2),
                         static_cast<float>(settings_.eps * root2),
                         decoupled ? 0.0f : static_cast<float>(settings_.weight_decay),
                         decoupled ? static_cast<float>(1 - learning_rate * settings_.weight_decay) : 1.0f);
  }

 private:
  const OptimizerSettings settings_;
};

std::string_view NameOf(OptimizerKind kind) {
  for (const auto& row : kOptimizerNames) {
    if (row.value == kind) return row.name;
  }
  CHECK(false);
}

std::string MomentName(const std::string& scope, std::size_t i) {
  return fmt::format("{}/moment{}", scope, i);
}

}  // namespace

Optimizer::Optimizer(OptimizerKind kind, std::size_t size, std::size_t moments) : kind_(kind), size_(size) {
  for (std::size_t i = 0; i < moments; ++i) moments_.emplace_back(size);
}

void Optimizer::BeginStep(std::size_t params, std::size_t gradient) {
  CHECK(params == size_ && gradient == size_);
  ++steps_;
  if (steps_ % kFlushInterval != 0) return;
  for (auto& moment : moments_) SimdCall<FlushKernel>(moment.data(), size_);
}

void Optimizer::Save(StateWriter& writer, const std::string& scope) const {
  writer.PutText(scope + "/kind", NameOf(kind_));
  writer.PutValue<std::int64_t>(scope + "/steps", steps_);
  for (std::size_t i = 0; i < moments_.size(); ++i)
    writer.Put<float>(MomentName(scope, i), moments_[i].span());
}

void Optimizer::Load(const StateReader& reader, const std::string& scope) {
  const std::string& saved = reader.GetText(scope + "/kind");
  if (saved != NameOf(kind_)) {
    Fail("the saved state was made by the optimizer '{}', but this run uses '{}'", saved, NameOf(kind_));
  }
  const auto steps = reader.GetValue<std::int64_t>(scope + "/steps");
  if (steps < 0) Fail("the saved optimizer state is damaged: it counts {} steps", steps);
  steps_ = steps;
  for (std::size_t i = 0; i < moments_.size(); ++i)
    reader.Get<float>(MomentName(scope, i), moments_[i].span());
}

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSettings& settings, std::size_t size) {
  switch (settings.kind) {
    case OptimizerKind::kSgd:
      return std::make_unique<Sgd>(settings, size);
    case OptimizerKind::kMomentum:
      return std::make_unique<Momentum>(settings, size);
    case OptimizerKind::kAdagrad:
      return std::make_unique<Scaled>(settings, size, 1.0, 1.0);
    case OptimizerKind::kRmsprop:
      return std::make_unique<Scaled>(settings, size, settings.rms_alpha, 1 - settings.rms_alpha);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamw:
      return std::make_unique<Adam>(settings, size);
  }
  CHECK(false);
}

}  // namespace trireme
