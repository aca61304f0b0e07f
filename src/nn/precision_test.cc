#include "trireme/nn/precision.h"

#include <gtest/gtest.h>

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
