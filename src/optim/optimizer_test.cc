#include "trireme/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "trireme/base/rng.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

std::vector<float> Normal(std::size_t size, std::uint64_t step) {
  RandomStream stream(1, Purpose::kTest, 0, step);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(stream.NextNormal());
  return values;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

StateReader Saved(const Optimizer& optimizer) {
  StateWriter writer;
  optimizer.Save(writer, "opt");
  return StateReader(writer.Encode());
}

class OptimizerTest : public testing::TestWithParam<std::string> {
 protected:
  OptimizerTest() {
    for (const auto& [name, kind] : kOptimizerNames) {
      if (name == GetParam()) settings.kind = kind;
    }
    settings.weight_decay = 0.01;
  }
  ~OptimizerTest() override { OverrideIsa(best); }

  OptimizerSettings settings;
  const Isa best = CurrentIsa();
};

// The formulas of optimizer.h in double precision, one element at a time.
double Reference(const OptimizerSettings& s, std::span<const float> gradients, double p, double lr) {
  double first = 0, second = 0;
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    double g = gradients[t - 1];
    if (s.kind == OptimizerKind::kAdamw) {
      p *= 1 - lr * s.weight_decay;
    } else {
      g += s.weight_decay * p;
    }
    switch (s.kind) {
      case OptimizerKind::kSgd:
        p -= lr * g;
        break;
      case OptimizerKind::kMomentum:
        first = s.momentum * first + g;
        p -= lr * first;
        break;
      case OptimizerKind::kAdagrad:
        second += g * g;
        p -= lr * g / (std::sqrt(second) + s.eps);
        break;
      case OptimizerKind::kRmsprop:
        second = s.rms_alpha * second + (1 - s.rms_alpha) * g * g;
        p -= lr * g / (std::sqrt(second) + s.eps);
        break;
      case OptimizerKind::kAdam:
      case OptimizerKind::kAdamw: {
        first = s.beta1 * first + (1 - s.beta1) * g;
        second = s.beta2 * second + (1 - s.beta2) * g * g;
        const double mean = first / (1 - std::pow(s.beta1, t)), square = second / (1 - std::pow(s.beta2, t));
        p -= lr * mean / (std::sqrt(square) + s.eps);
        break;
      }
    }
  }
  return p;
}

TEST_P(OptimizerTest, FollowsItsFormula) {
  settings.eps = 0.01;  // large enough to matter
  constexpr std::size_t kSize = 37, kSteps = 50;
  std::vector<float> params = Normal(kSize, 1000);
  const std::vector<float> start = params;
  std::vector<std::vector<float>> history(kSize);
  const auto optimizer = std::make_unique<Optimizer>(settings, kSize);
  for (std::size_t t = 0; t < kSteps; ++t) {
    const std::vector<float> gradient = Normal(kSize, t);
    for (std::size_t i = 0; i < kSize; ++i) history[i].push_back(gradient[i]);
    optimizer->Step(params, gradient, 0.01f);
  }
  for (std::size_t i = 0; i < kSize; ++i) {
    EXPECT_NEAR(params[i], Reference(settings, history[i], start[i], 0.01f), 5e-6);
  }
}

TEST_P(OptimizerTest, MinimisesAQuadratic) {
  // f(p) = 1/2 sum c_i (p_i - 3)^2 with curvatures from 0.5 to 2.
  settings.weight_decay = 0;
  constexpr std::size_t kSize = 19;
  std::vector<float> params(kSize), gradient(kSize);
  const auto optimizer = std::make_unique<Optimizer>(settings, kSize);
  const auto start_rate = settings.kind == OptimizerKind::kAdagrad ? 1.0 : 0.05;
  for (int step = 0; step < 2000; ++step) {
    for (std::size_t i = 0; i < kSize; ++i) {
      const float curvature = 0.5f + 1.5f * static_cast<float>(i) / (kSize - 1);
      gradient[i] = curvature * (params[i] - 3);
    }
    optimizer->Step(params, gradient, static_cast<float>(start_rate * (1 - step / 2000.0)));
  }
  for (const float p : params) EXPECT_NEAR(p, 3, 1e-3);
}

TEST_P(OptimizerTest, SameBitsHoweverTheSpanIsCut) {
  constexpr std::size_t kSize = 67;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    OverrideIsa(isa);
    std::vector<float> whole = Normal(kSize, 1000);
    const auto optimizer = std::make_unique<Optimizer>(settings, kSize);
    for (std::size_t t = 0; t < 5; ++t) optimizer->Step(whole, Normal(kSize, t), 0.01f);
    for (std::size_t cut = 0; cut <= kSize; ++cut) {
      std::vector<float> params = Normal(kSize, 1000);
      const auto left = std::make_unique<Optimizer>(settings, cut),
                 right = std::make_unique<Optimizer>(settings, kSize - cut);
      for (std::size_t t = 0; t < 5; ++t) {
        const std::vector<float> gradient = Normal(kSize, t);
        left->Step(std::span(params).first(cut), std::span(gradient).first(cut), 0.01f);
        right->Step(std::span(params).subspan(cut), std::span(gradient).subspan(cut), 0.01f);
      }
      ASSERT_TRUE(SameBits(params, whole)) << IsaName(isa) << ", cut at " << cut;
    }
  }
}

TEST_P(OptimizerTest, SameBitsOnEveryInstructionSet) {
  constexpr std::size_t kSize = 1003;
  std::vector<std::vector<float>> results;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    OverrideIsa(isa);
    std::vector<float> params = Normal(kSize, 1000);
    const auto optimizer = std::make_unique<Optimizer>(settings, kSize);
    for (std::size_t t = 0; t < 10; ++t) optimizer->Step(params, Normal(kSize, t), 0.01f);
    results.push_back(params);
  }
  EXPECT_TRUE(SameBits(results[0], results[1]));
  EXPECT_TRUE(SameBits(results[0], results[2]));
  EXPECT_FALSE(SameBits(results[0], Normal(kSize, 1000)));
}

TEST_P(OptimizerTest, SavedAndLoadedContinuesBitForBit) {
  constexpr std::size_t kSize = 101;
  std::vector<float> params = Normal(kSize, 1000);
  const auto optimizer = std::make_unique<Optimizer>(settings, kSize);
  // The cut is just before the step that clears vanished moments, so the step counter has to survive too.
  for (std::size_t t = 0; t < 63; ++t) optimizer->Step(params, Normal(kSize, t), 0.01f);

  std::vector<float> resumed_params = params;
  const auto resumed = std::make_unique<Optimizer>(settings, kSize);
  resumed->Load(Saved(*optimizer), "opt");
  for (std::size_t t = 63; t < 80; ++t) {
    optimizer->Step(params, Normal(kSize, t), 0.01f);
    resumed->Step(resumed_params, Normal(kSize, t), 0.01f);
  }
  EXPECT_TRUE(SameBits(params, resumed_params));
}

TEST_P(OptimizerTest, NanGradientsAreNotHidden) {
  std::vector<float> params(20, 1.0f), gradient(20, 0.1f);
  gradient[3] = gradient[19] = std::numeric_limits<float>::quiet_NaN();
  const auto optimizer = std::make_unique<Optimizer>(settings, 20);
  for (int step = 0; step < 130; ++step) optimizer->Step(params, gradient, 0.01f);
  for (std::size_t i = 0; i < params.size(); ++i) EXPECT_EQ(std::isnan(params[i]), i == 3 || i == 19) << i;
}

TEST_P(OptimizerTest, LoadRefusesAnotherOptimizerOrSize) {
  const auto optimizer = std::make_unique<Optimizer>(settings, 10);
  const StateReader reader = Saved(*optimizer);
  OptimizerSettings other = settings;
  other.kind = settings.kind == OptimizerKind::kSgd ? OptimizerKind::kAdam : OptimizerKind::kSgd;
  EXPECT_THROW(std::make_unique<Optimizer>(other, 10)->Load(reader, "opt"), Error);
  EXPECT_THROW(std::make_unique<Optimizer>(settings, 10)->Load(reader, "elsewhere"), Error);
  if (settings.kind != OptimizerKind::kSgd) {
    EXPECT_THROW(std::make_unique<Optimizer>(settings, 11)->Load(reader, "opt"), Error);
  }
}

TEST_P(OptimizerTest, EmptySpan) {
  const auto optimizer = std::make_unique<Optimizer>(settings, 0);
  optimizer->Step({}, {}, 0.01f);
  EXPECT_EQ(optimizer->size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTest,
                         testing::Values("sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw"),
                         [](const auto& info) { return info.param; });

TEST(OptimizerMoments, ZeroGradientsEndInExactlyZeroMoments) {
  for (const OptimizerKind kind :
       {OptimizerKind::kMomentum, OptimizerKind::kRmsprop, OptimizerKind::kAdam, OptimizerKind::kAdamw}) {
    const OptimizerSettings settings{.kind = kind, .beta2 = 0.9, .rms_alpha = 0.9};
    std::vector<float> params(9), gradient(9, 0.5f);
    const auto optimizer = std::make_unique<Optimizer>(settings, 9);
    optimizer->Step(params, gradient, 0.01f);
    gradient.assign(9, 0.0f);
    for (int step = 0; step < 2000; ++step) optimizer->Step(params, gradient, 0.01f);
    std::vector<float> moment(9, 1.0f);
    Saved(*optimizer).Get<float>("opt/moment0", moment);
    for (const float value : moment) EXPECT_EQ(value, 0.0f);
  }
}

TEST(OptimizerDeathTest, SizesMustMatch) {
  std::vector<float> three(3), four(4);
  const auto optimizer = std::make_unique<Optimizer>(OptimizerSettings(), 3);
  EXPECT_DEATH(optimizer->Step(three, four, 0.1f), "gradient.size\\(\\) == size_");
}

TEST(OptimizerSettings, AreAConfigStruct) {
  OptimizerSettings settings;
  ConfigFields fields;
  fields.Add(settings);
  fields.ApplyToml("optimizer = \"adamw\"\nweight_decay = 0.1\n", "x.toml");
  EXPECT_EQ(settings.kind, OptimizerKind::kAdamw);
  EXPECT_EQ(settings.weight_decay, 0.1);
  EXPECT_THROW(fields.ApplyAssignment("beta2=1", "--set"), Error);
}

// A range with a rate of its own moves as it would in an optimizer of its own with that rate.
TEST_P(OptimizerTest, ARangeHasItsOwnRate) {
  constexpr std::size_t kBegin = 13, kEnd = 40, kCount = 61;
  Optimizer whole(settings, kCount), outside(settings, kCount), inside(settings, kCount);
  std::vector<float> a(kCount, 1.0f), b = a, c = a;
  for (int step = 0; step < 70; ++step) {
    std::vector<float> gradient(kCount);
    for (std::size_t i = 0; i < kCount; ++i) gradient[i] = std::sin(0.1f * static_cast<float>(i * step + i));
    whole.Step(a, gradient, 0.01f, {{kBegin, kEnd, 0.03f}});
    outside.Step(b, gradient, 0.01f);
    inside.Step(c, gradient, 0.03f);
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(a[i], i >= kBegin && i < kEnd ? c[i] : b[i]) << i;
    EXPECT_NE(b[i], c[i]) << i;
  }
}

// Parameters and moments stay, also where moments are flushed; what is around goes on as if nothing were
// there.
TEST_P(OptimizerTest, AGroupOfRateZeroIsUntouched) {
  constexpr std::size_t kBegin = 13, kEnd = 40, kCount = 61;
  const auto moments = [&](const Optimizer& optimizer) {
    StateWriter out;
    optimizer.Save(out, "o");
    const StateReader in(std::move(out).Encode());
    std::vector<std::vector<float>> all;
    for (int m = 0; in.Has(fmt::format("o/moment{}", m)); ++m) {
      all.emplace_back(kCount);
      in.Get<float>(fmt::format("o/moment{}", m), std::span(all.back()));
    }
    return all;
  };
  Optimizer frozen(settings, kCount), free(settings, kCount);
  std::vector<float> a(kCount, 1.0f), b = a;
  const std::vector<float> gradient(kCount, 1e-36f), large(kCount, 0.5f);
  frozen.Step(a, gradient, 0.01f);
  free.Step(b, gradient, 0.01f);
  const std::vector<float> before = a;
  const auto moments_before = moments(frozen);
  for (int step = 0; step < 130; ++step) {
    frozen.Step(a, large, 0.01f, {{kBegin, kEnd, 0}});
    free.Step(b, large, 0.01f);
  }
  const auto frozen_moments = moments(frozen), free_moments = moments(free);
  for (std::size_t i = 0; i < kCount; ++i) {
    const bool inside = i >= kBegin && i < kEnd;
    EXPECT_EQ(a[i], inside ? before[i] : b[i]) << i;
    EXPECT_NE(b[i], before[i]) << i;
    for (std::size_t m = 0; m < moments_before.size(); ++m) {
      EXPECT_EQ(frozen_moments[m][i], inside ? moments_before[m][i] : free_moments[m][i]) << i;
      EXPECT_NE(free_moments[m][i], moments_before[m][i]) << i;
    }
  }
}

// There is one count of updates: see groups.h.
TEST(AdamGroups, WhatMovesLateTakesLargerStepsAtFirst) {
  const OptimizerSettings settings;
  constexpr float kRate = 0.01f;
  Optimizer optimizer(settings, 2);
  std::vector<float> params = {0, 0};
  const std::vector<float> gradient = {0.5f, 0.5f};
  std::int64_t t = 0;
  for (; t < 10'000; ++t) optimizer.Step(params, gradient, kRate, {{1, 2, 0}});
  EXPECT_EQ(params[1], 0);
  double most = 0, m = 0, v = 0;
  for (; t < 10'100; ++t) {
    const float before = params[1];
    optimizer.Step(params, gradient, kRate);
    m = settings.beta1 * m + (1 - settings.beta1) * 0.5;
    v = settings.beta2 * v + (1 - settings.beta2) * 0.25;
    const double mean = m / (1 - std::pow(settings.beta1, t + 1)),
                 square = v / (1 - std::pow(settings.beta2, t + 1));
    const double step = double{before} - params[1];
    EXPECT_NEAR(step, kRate * mean / (std::sqrt(square) + settings.eps), 1e-6);
    most = std::max(most, step / kRate);
  }
  EXPECT_NEAR(most, 6.6, 0.05);
}

// Frozen by a rate that changes nothing, as PyTorch does with a rate of 0: moments and count go along.
TEST_P(OptimizerTest, AGroupOfATinyRateGoesOnAsIfItHadTakenPart) {
  constexpr std::size_t kBegin = 13, kEnd = 40, kCount = 61;
  Optimizer frozen(settings, kCount), expected(settings, kCount);
  std::vector<float> a(kCount, 1.0f), b = a;
  for (std::uint64_t step = 0; step < 140; ++step) {
    const std::vector<float> gradient = Normal(kCount, step);
    const bool moves = step >= 130;
    frozen.Step(a, gradient, 0.01f, {{kBegin, kEnd, moves ? 0.01f : 1e-30f}});
    expected.Step(b, gradient, moves ? 0.01f : 0.0f);
    if (!moves) {
      EXPECT_TRUE(std::all_of(a.begin() + kBegin, a.begin() + kEnd, [](float p) { return p == 1.0f; }));
    }
  }
  EXPECT_TRUE(
      SameBits(std::span(a).subspan(kBegin, kEnd - kBegin), std::span(b).subspan(kBegin, kEnd - kBegin)));
  EXPECT_NE(a[kBegin], 1.0f);
}

}  // namespace
}  // namespace trireme
