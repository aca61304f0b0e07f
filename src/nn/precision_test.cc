#include "trireme/nn/precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "trireme/base/half.h"
#include "trireme/base/simd.h"
#include "trireme/nn/executor_conformance.h"
#include "trireme/nn/fused_executor.h"

namespace trireme {
namespace {

class PrecisionTest : public testing::TestWithParam<Precision> {
 protected:
  static ExecutorMaker Make() {
    return [](const Network& network) { return std::make_unique<FusedExecutor>(network, GetParam()); };
  }
  // Of a number near 1.
  static double Unit() { return GetParam() == Precision::kFp16 ? 0x1p-11 : 0x1p-8; }
};
INSTANTIATE_TEST_SUITE_P(SixteenBits, PrecisionTest, testing::Values(Precision::kBf16, Precision::kFp16),
                         [](const auto& info) {
                           return std::string(info.param == Precision::kFp16 ? "fp16" : "bf16");
                         });

// But for relu, whose slope jumps where rounding changes a sign.
TEST_P(PrecisionTest, OutputsAndGradientsAreNearThoseOfTheFormulas) {
  CheckFiniteDifferences(Make(), 16 * Unit(), {Activation::kTanh, Activation::kElu, Activation::kSilu});
}
TEST_P(PrecisionTest, ABatchIsTheSumOfItsSamples) { CheckBatchSizes(Make()); }
TEST_P(PrecisionTest, ATapeServesAnyPass) { CheckTapeReuse(Make()); }
TEST_P(PrecisionTest, ParametersChangeInPlace) { CheckChangedParams(Make()); }
TEST_P(PrecisionTest, TowersDoNotDisturbEachOther) { CheckTowersApart(Make()); }
TEST_P(PrecisionTest, SamplesWithALossAreTheirPasses) { CheckLossSamples(Make()); }
TEST_P(PrecisionTest, BackwardAddsToItsTowerOnly) { CheckGradientIsAdded(Make()); }

// Layers that are wide enough for products of bf16 numbers, where the processor has them, with and without.
class WideBf16 : public testing::TestWithParam<Products> {
 protected:
  WideBf16() { OverrideProducts(GetParam()); }
  ~WideBf16() override { OverrideProducts(Products::kAvx512Bf16); }
  static ExecutorMaker Make() {
    ExecutorMaker make = [](const Network& network) {
      return std::make_unique<FusedExecutor>(network, Precision::kBf16);
    };
    make.hidden_a = {70, 64, 33};
    make.hidden_b = {40, 96};
    return make;
  }
};
INSTANTIATE_TEST_SUITE_P(Products, WideBf16, testing::Values(Products::kFp32, Products::kAvx512Bf16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(WideBf16, ABatchIsTheSumOfItsSamples) { CheckBatchSizes(Make()); }
TEST_P(WideBf16, ATapeServesAnyPass) { CheckTapeReuse(Make()); }
TEST_P(WideBf16, ParametersChangeInPlace) { CheckChangedParams(Make()); }
TEST_P(WideBf16, TowersDoNotDisturbEachOther) { CheckTowersApart(Make()); }
TEST_P(WideBf16, SamplesWithALossAreTheirPasses) { CheckLossSamples(Make()); }
TEST_P(WideBf16, BackwardAddsToItsTowerOnly) { CheckGradientIsAdded(Make()); }

// Numbers that are not finite, wherever they come from, are there in the end.
TEST_P(WideBf16, WhatIsNotFiniteIsNotHidden) {
  constexpr int kSamples = 9;
  const auto results = [](const auto& inject) {
    ExecutorProblem problem(Make(), Activation::kElu);
    std::vector<float> x = problem.Inputs(0, kSamples), d = problem.OutputGradients(0, kSamples);
    inject(problem, x, d);
    const std::unique_ptr<Tape> tape = problem.executor->MakeTape(kSamples);
    tape->SetParams(problem.params);
    const std::span<const float> outputs = tape->Forward(0, x.data(), kSamples);
    PassResults r{.outputs = {outputs.begin(), outputs.end()},
                  .gradient = std::vector<float>(problem.network.param_count()),
                  .dx = {}};
    tape->Backward(0, d.data(), r.gradient);
    return r;
  };
  const auto finite = [](const std::vector<float>& values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
  };
  const PassResults plain = results([](auto&, auto&, auto&) {});
  EXPECT_TRUE(finite(plain.outputs) && finite(plain.gradient));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const PassResults input = results([&](auto&, std::vector<float>& x, auto&) { x[4 * 3 + 1] = bad; });
    EXPECT_FALSE(finite(input.outputs) && finite(input.gradient));
    for (int i = 0; i < 4 * 4; ++i) EXPECT_EQ(input.outputs[i], plain.outputs[i]) << "samples before it";
    const PassResults loss = results([&](auto&, auto&, std::vector<float>& d) { d[0] = bad; });
    EXPECT_TRUE(loss.outputs == plain.outputs);
    EXPECT_FALSE(finite(loss.gradient));
    const PassResults weight = results([&](ExecutorProblem& problem, auto&, auto&) {
      for (const TensorInfo& tensor : problem.network.layout().tensors()) {
        if (tensor.name == "a/1/weight") problem.params[tensor.offset + 70] = bad;
      }
    });
    EXPECT_FALSE(finite(weight.outputs) && finite(weight.gradient));
  }
  // Too large for 32 bits in the middle of the network.
  const PassResults large = results([&](ExecutorProblem& problem, auto&, auto&) {
    for (float& value : problem.params) value *= 0x1p60f;
  });
  EXPECT_FALSE(finite(large.outputs));
}

// Which products there are changes no bit: results are those of the 32-bit ones, for gradients of any size.
TEST(Bf16Products, GiveTheBitsOfProductsOf32Bits) {
  if (CurrentProducts() == Products::kFp32) GTEST_SKIP() << "this processor has no products of bf16";
  for (const Activation activation :
       {Activation::kTanh, Activation::kRelu, Activation::kElu, Activation::kSilu}) {
    for (const float scale : {1.0f, 0x1p-40f, 0x1p-120f, 0x1p-140f}) {
      const auto results = [&](Products products) {
        OverrideProducts(products);
        const Network network({.towers = {{.name = "t",
                                           .inputs = 5,
                                           .hidden = {200, 130, 64, 33},
                                           .outputs = 3,
                                           .activation = activation}},
                               .free_vectors = {}});
        std::vector<float> params(network.param_count());
        network.Initialise(3, params);
        const FusedExecutor executor(network, Precision::kBf16);
        const std::unique_ptr<Tape> tape = executor.MakeTape(130);
        tape->SetParams(params);
        const std::vector<float> x = RandomNumbers(130 * 5, 8), d = RandomNumbers(130 * 3, 9, scale);
        const std::span<const float> outputs = tape->Forward(0, x.data(), 130);
        PassResults r{.outputs = {outputs.begin(), outputs.end()},
                      .gradient = std::vector<float>(params.size()),
                      .dx = std::vector<float>(x.size())};
        tape->Backward(0, d.data(), r.gradient, r.dx.data());
        return r;
      };
      const PassResults by_32 = results(Products::kFp32), by_pairs = results(Products::kAvx512Bf16);
      EXPECT_TRUE(by_32 == by_pairs) << static_cast<int>(activation) << " scale " << scale;
    }
  }
}

float Rounded(Precision precision, float value) {
  return precision == Precision::kFp16 ? Fp16::From(Fp16::To(value)) : Bf16::From(Bf16::To(value));
}

// One layer of one relu and a head of one weight: every number can be followed by hand.
struct Small {
  explicit Small(Precision precision) : executor(network, precision), tape(executor.MakeTape(1)) {
    Set("t/0/weight", 1.01f);
    Set("t/head/weight", 0.77f);
    tape->SetParams(params);
  }
  void Set(const std::string& tensor, float value) { params[At(tensor)] = value; }
  std::size_t At(const std::string& name) const {
    for (const TensorInfo& tensor : network.layout().tensors()) {
      if (tensor.name == name) return tensor.offset;
    }
    ADD_FAILURE() << name;
    return 0;
  }

  const Network network{
      {.towers = {{.name = "t", .inputs = 1, .hidden = {1}, .outputs = 1, .activation = Activation::kRelu}},
       .free_vectors = {}}};
  const FusedExecutor executor;
  const std::unique_ptr<Tape> tape;
  std::vector<float> params = std::vector<float>(network.param_count());
};

TEST_P(PrecisionTest, WeightsActivationsAndGradientsBetweenLayersAreRounded) {
  Small small(GetParam());
  const auto round = [](float value) { return Rounded(GetParam(), value); };
  const float x = 1.37f, d = 0.53f;
  const float y = round(round(1.01f) * x);
  ASSERT_EQ(small.tape->Forward(0, &x, 1)[0], round(0.77f) * y);
  ASSERT_NE(round(0.77f) * y, 0.77f * (1.01f * x)) << "rounding must be seen";
  std::vector<float> gradient(small.params.size());
  float dx = 0;
  small.tape->Backward(0, &d, gradient, &dx);
  const float dz = round(d * round(0.77f));
  EXPECT_EQ(gradient[small.At("t/head/weight")], d * y);
  EXPECT_EQ(gradient[small.At("t/0/weight")], dz * x);
  EXPECT_EQ(dx, round(1.01f) * dz);
  EXPECT_EQ(small.tape->params().data(), small.params.data()) << "what is learned has 32 bits";
}

TEST_P(PrecisionTest, InstructionSetsRoundAlike) {
  const Isa best = CurrentIsa();
  const std::vector<float> values = RandomNumbers(1001, 1, 100.0);
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    OverrideIsa(isa);
    std::vector<float> rounded(values.size()), gradient = values;
    RoundTo(GetParam(), values.data(), rounded.data(), values.size());
    RoundGradient(GetParam(), {7, 143, 143}, 256, gradient.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded[i], Rounded(GetParam(), values[i])) << IsaName(isa);
      ASSERT_EQ(gradient[i], Rounded(GetParam(), values[i] * 256) / 256) << IsaName(isa);
    }
  }
  OverrideIsa(best);
}

// Gradients that fp16 cannot hold: without a scale they are gone, with one they are there.
TEST(Fp16Precision, AScaleKeepsSmallGradients) {
  Small small(Precision::kFp16);
  ASSERT_TRUE(small.executor.loss_scaled());
  const float x = 1, d = 0x1p-30f;
  const auto gradient = [&](float scale) {
    std::vector<float> all(small.params.size());
    small.tape->SetLossScale(scale);
    small.tape->Forward(0, &x, 1);
    small.tape->Backward(0, &d, all);
    return all[small.At("t/0/weight")];
  };
  EXPECT_EQ(gradient(1), 0.0f);
  EXPECT_NEAR(gradient(0x1p15f) / d, 0.77, 0x1p-10) << "2^-15 has ten bits in fp16";
  EXPECT_NEAR(gradient(0x1p20f) / d, 0.77, 0x1p-12);
}

TEST(Fp16Precision, AScaleThatIsTooLargeIsSeenInTheGradient) {
  Small small(Precision::kFp16);
  const float x = 1, d = 16;
  std::vector<float> gradient(small.params.size());
  small.tape->SetLossScale(0x1p15f);
  small.tape->Forward(0, &x, 1);
  small.tape->Backward(0, &d, gradient);
  EXPECT_FALSE(std::isfinite(gradient[small.At("t/0/weight")]));
}

TEST(Fp16Precision, ActivationsThatAreTooLargeAreNotHidden) {
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    Small small(precision);
    const float x = 1e6f;
    EXPECT_EQ(std::isfinite(small.tape->Forward(0, &x, 1)[0]), precision == Precision::kBf16);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    small.Set("t/head/bias", nan);
    small.tape->SetParams(small.params);
    EXPECT_TRUE(std::isnan(small.tape->Forward(0, &x, 1)[0]));
  }
  EXPECT_FALSE(FusedExecutor(Small(Precision::kFp16).network, Precision::kBf16).loss_scaled());
}

}  // namespace
}  // namespace trireme
