#include "trireme/nn/bf16_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/simd.h"
#include "trireme/nn/gemm.h"

namespace trireme {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float Upper(std::uint32_t word) { return Bf16::From(static_cast<std::uint16_t>(word >> 16)); }
float Lower(std::uint32_t word) { return Bf16::From(static_cast<std::uint16_t>(word)); }
bool IsMinusZero(float value) { return value == 0 && std::signbit(value); }

// Numbers of bf16, with exponents of 2 from `low` on, some of them zero.
std::vector<float> Draw(std::size_t count, std::uint32_t stream, int low = -3, int exponents = 6) {
  RandomStream random(31, Purpose::kTest, stream, 0);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto exponent = low + static_cast<int>(random.NextBelow(static_cast<std::uint32_t>(exponents)));
    const float size = std::ldexp(1 + static_cast<float>(random.NextBelow(128)) / 128, exponent);
    value = random.NextBelow(16) == 0 ? 0 : random.NextBelow(2) == 0 ? size : -size;
  }
  return values;
}

// [depth, rows] with rows contiguous, in blocks as a layer's weights are.
std::vector<float> ToBlocks(const std::vector<float>& plain, int rows, int depth) {
  std::vector<float> blocked;
  for (int first = 0; first < rows; first += Gemm::BlockRows(rows)) {
    const int last = std::min(rows, first + Gemm::BlockRows(rows));
    for (int k = 0; k < depth; ++k)
      blocked.insert(blocked.end(), plain.begin() + k * rows + first, plain.begin() + k * rows + last);
  }
  return blocked;
}

// Panels of a matrix [depth, rows] as the header describes them; what is not there is minus zero.
void ExpectPanels(const std::vector<std::uint32_t>& panels, const std::vector<float>& plain, int rows,
                  int depth) {
  ASSERT_EQ(panels.size(), PanelWords(rows, depth));
  const auto number = [&](int row, int k) {
    return row < rows && k < depth ? Bf16::From(Bf16::To(plain[k * rows + row])) : -0.0f;
  };
  std::size_t at = 0;
  for (int panel = 0; panel < rows; panel += kPanelRows) {
    for (int k = 0; k < depth; k += 2) {
      for (int row = panel; row < panel + kPanelRows; ++row, ++at) {
        ASSERT_EQ(Upper(panels[at]), number(row, k)) << row << " " << k;
        ASSERT_EQ(Lower(panels[at]), number(row, k + 1)) << row << " " << k;
        ASSERT_TRUE((k + 1 < depth && row < rows) || IsMinusZero(Lower(panels[at]))) << row << " " << k;
      }
    }
  }
}

TEST(Bf16Packing, WeightsAndTheirTransposeAreRoundedPairs) {
  const Isa best = CurrentIsa();
  for (const Isa isa : {Isa::kPortable, best}) {
    OverrideIsa(isa);
    for (const int inputs : {1, 2, 31, 32, 33, 64, 70}) {
      for (const int outputs : {1, 3, 16, 32, 40, 63, 64, 65, 96, 131}) {
        std::vector<float> plain(static_cast<std::size_t>(inputs) * outputs), other = plain;
        RandomStream random(32, Purpose::kTest, 0, 0);
        for (float& value : plain) value = static_cast<float>(random.NextNormal());
        for (int i = 0; i < inputs; ++i) {
          for (int o = 0; o < outputs; ++o) other[o * inputs + i] = plain[i * outputs + o];
        }
        std::vector<std::uint32_t> panels(PanelWords(outputs, inputs));
        std::vector<std::uint32_t> transposed(PanelWords(inputs, outputs));
        PackWeights(ToBlocks(plain, outputs, inputs).data(), inputs, outputs, panels.data());
        TransposePanels(panels.data(), outputs, inputs, transposed.data());
        ASSERT_NO_FATAL_FAILURE(ExpectPanels(panels, plain, outputs, inputs)) << inputs << " " << outputs;
        ASSERT_NO_FATAL_FAILURE(ExpectPanels(transposed, other, inputs, outputs)) << inputs << " " << outputs;
      }
    }
  }
  OverrideIsa(best);
}

TEST(Bf16Packing, KeepsWhatIsNotFinite) {
  const std::vector<float> weights = {kInfinity, -kInfinity, kNaN, 3.4e38f};
  std::vector<std::uint32_t> panels(PanelWords(1, 4));
  PackWeights(weights.data(), 4, 1, panels.data());
  EXPECT_EQ(Upper(panels[0]), kInfinity);
  EXPECT_EQ(Lower(panels[0]), -kInfinity);
  EXPECT_TRUE(std::isnan(Upper(panels[kPanelRows])));
  EXPECT_EQ(Lower(panels[kPanelRows]), kInfinity) << "too large for bf16";
}

class PairProductTest : public testing::Test {
 protected:
  void SetUp() override {
    if (CurrentProducts() == Products::kFp32) GTEST_SKIP() << "this processor has no products of bf16";
  }
};

// One layer's three products, of bf16 numbers and of 32 bits.
struct Layer {
  Layer(int inputs, int outputs, int samples)
      : inputs(inputs),
        outputs(outputs),
        samples(samples),
        weights(Draw(static_cast<std::size_t>(inputs) * outputs, 1)),
        in(Draw(static_cast<std::size_t>(samples) * inputs, 2)),
        dz(Draw(static_cast<std::size_t>(samples) * outputs, 3)),
        dw(Draw(static_cast<std::size_t>(inputs) * outputs, 4)) {
    for (float& value : dw) value *= 1 + 0x1p-20f;  // gradients have 32 bits
  }

  struct Results {
    std::vector<float> y, dx, dw;
  };

  Results ByPairs() const {
    Results r{.y = Unset(outputs), .dx = Unset(inputs), .dw = ToBlocks(dw, outputs, inputs)};
    const std::vector<float> blocked = ToBlocks(weights, outputs, inputs);
    std::vector<std::uint32_t> w(PanelWords(outputs, inputs)), wt(PanelWords(inputs, outputs));
    PackWeights(blocked.data(), inputs, outputs, w.data());
    TransposePanels(w.data(), outputs, inputs, wt.data());
    std::vector<std::uint32_t> rows(static_cast<std::size_t>(samples) *
                                    (PairsOf(std::max(inputs, outputs)) + 3));
    const int words_in = PairsOf(inputs) + 3, words_out = PairsOf(outputs) + 1;
    PackRows({samples, inputs, inputs}, in.data(), rows.data(), words_in);
    PairProduct{
        .m = outputs, .n = samples, .k = inputs, .b_words = words_in, .ldc = outputs, .overwrite = true}(
        w.data(), rows.data(), r.y.data());
    PackRows({samples, outputs, outputs}, dz.data(), rows.data(), words_out);
    PairProduct{
        .m = inputs, .n = samples, .k = outputs, .b_words = words_out, .ldc = inputs, .overwrite = true}(
        wt.data(), rows.data(), r.dx.data());
    std::vector<std::uint32_t> a(PanelWords(outputs, samples)), b(PanelWords(inputs, samples));
    PackSamples(PanelsOf::kA, {samples, outputs, outputs}, dz.data(), a.data());
    PackSamples(PanelsOf::kB, {samples, inputs, inputs}, in.data(), b.data());
    PairProduct{.m = outputs, .n = inputs, .k = samples, .blocked_c = true}(a.data(), b.data(), r.dw.data());
    return r;
  }

  Results ByGemm() const {
    Results r{.y = Unset(outputs), .dx = Unset(inputs), .dw = ToBlocks(dw, outputs, inputs)};
    const std::vector<float> blocked = ToBlocks(weights, outputs, inputs);
    std::vector<float> transposed(blocked.size());
    TransposeBlocked(blocked.data(), inputs, outputs, transposed.data());
    const DenormalsAreZero denormals_are_zero;
    Gemm({.m = outputs,
          .n = samples,
          .k = inputs,
          .ldb = inputs,
          .ldc = outputs,
          .blocked_a = true,
          .overwrite = true})(blocked.data(), in.data(), r.y.data());
    Gemm({.m = inputs,
          .n = samples,
          .k = outputs,
          .ldb = outputs,
          .ldc = inputs,
          .blocked_a = true,
          .overwrite = true})(transposed.data(), dz.data(), r.dx.data());
    Gemm({.m = outputs,
          .n = inputs,
          .k = samples,
          .lda = outputs,
          .ldb = inputs,
          .blocked_c = true,
          .transpose_b = true})(dz.data(), in.data(), r.dw.data());
    return r;
  }

  std::vector<float> Unset(int width) const {
    return std::vector<float>(static_cast<std::size_t>(samples) * width, 12345.0f);
  }

  int inputs, outputs, samples;
  std::vector<float> weights, in, dz, dw;
};

// Bits but for those of NaNs, which have many.
void ExpectSameBits(const std::vector<float>& found, const std::vector<float>& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(FloatBits(found[i]), FloatBits(expected[i]))
        << what << " " << i << ": " << found[i] << " for " << expected[i];
  }
}
void ExpectSameBits(const Layer& layer) {
  SCOPED_TRACE(testing::Message() << layer.inputs << " inputs, " << layer.outputs << " outputs, "
                                  << layer.samples << " samples");
  const Layer::Results found = layer.ByPairs(), expected = layer.ByGemm();
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(found.y, expected.y, "y"));
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(found.dx, expected.dx, "dx"));
  ASSERT_NO_FATAL_FAILURE(ExpectSameBits(found.dw, expected.dw, "dw"));
}

TEST_F(PairProductTest, GivesTheBitsOfProductsOf32Bits) {
  for (const int inputs : {1, 2, 31, 32, 64, 65, 100, 300}) {
    for (const int outputs : {1, 15, 16, 17, 32, 48, 64, 65, 130}) {
      for (const int samples : {1, 2, 7, 8, 12, 63, 64}) {
        ASSERT_NO_FATAL_FAILURE(ExpectSameBits(Layer(inputs, outputs, samples)));
      }
    }
  }
}

TEST_F(PairProductTest, ADepthThatIsCutGivesTheSameBits) {
  for (const int depth : {255, 256, 257, 600, 1025})
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(Layer(depth, 40, 9)));
}

// Sums of very different sizes, up to infinity and down to nothing.
TEST_F(PairProductTest, GivesTheSameBitsForNumbersOfAllSizes) {
  Layer layer(64, 48, 33);
  layer.weights = Draw(layer.weights.size(), 11, -126, 253);
  layer.in = Draw(layer.in.size(), 12, -126, 253);
  layer.dz = Draw(layer.dz.size(), 13, -126, 253);
  layer.dw = Draw(layer.dw.size(), 14, -148, 273);
  ExpectSameBits(layer);
  const Layer::Results found = layer.ByPairs();
  EXPECT_TRUE(std::ranges::any_of(found.y, [](float y) { return !std::isfinite(y); })) << "must be seen";
}

// Numbers of bf16 below 2^-126 are zero, on both ways; so are sums. Of plain arithmetic they would not be.
TEST_F(PairProductTest, DenormalNumbersAreZero) {
  Layer layer(32, 32, 8);
  std::ranges::fill(layer.weights, 0x1p-127f);
  std::ranges::fill(layer.in, 0x1p100f);
  std::ranges::fill(layer.dz, 0x1p-100f);
  std::ranges::fill(layer.dw, 0x1p-130f);
  ExpectSameBits(layer);
  const Layer::Results found = layer.ByPairs();
  for (const float y : found.y) ASSERT_EQ(FloatBits(y), 0u);
  for (const float dx : found.dx) ASSERT_EQ(dx, 0.0f);
  for (const float dw : found.dw) ASSERT_EQ(dw, 8.0f);
  std::ranges::fill(layer.in, 0x1p-40f);
  ExpectSameBits(layer);
  for (const float dw : layer.ByPairs().dw) ASSERT_EQ(dw, 0.0f) << "2^-130 + 8 x 2^-140";
}

TEST_F(PairProductTest, WhatIsNotFiniteStaysInItsPlace) {
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    Layer layer(40, 33, 9);
    for (float& w : layer.weights) w = w == 0 ? 0.5f : w;
    for (float& d : layer.dz) d = d == 0 ? 0.5f : d;
    layer.in[4 * 40 + 7] = bad;  // feature 7 of sample 4
    ExpectSameBits(layer);
    const Layer::Results found = layer.ByPairs();
    for (int b = 0; b < 9; ++b) {
      for (int o = 0; o < 33; ++o) ASSERT_EQ(std::isfinite(found.y[b * 33 + o]), b != 4) << b << " " << o;
    }
    for (int i = 0; i < 40; ++i) {
      for (int o = 0; o < 33; ++o) ASSERT_EQ(std::isfinite(found.dw[i * 33 + o]), i != 7) << i << " " << o;
    }
    for (const float dx : found.dx) ASSERT_TRUE(std::isfinite(dx));
  }
}

TEST_F(PairProductTest, WhatIsTooLargeIsInfinite) {
  Layer layer(32, 32, 8);
  std::ranges::fill(layer.weights, 0x1p100f);
  std::ranges::fill(layer.in, 0x1p100f);
  for (const float y : layer.ByPairs().y) ASSERT_EQ(y, kInfinity);
  ExpectSameBits(layer);
}

TEST(ProductsTest, AreOfBf16AlignedWithThePrecisionAndTheNetwork) {
  const auto of = [](std::vector<int> hidden, Precision precision) {
    return ProductsOf({.towers = {{.name = "t", .inputs = 1000, .hidden = std::move(hidden), .outputs = 2}},
                       .free_vectors = {}},
                      precision);
  };
  EXPECT_EQ(of({512, 512}, Precision::kBf16), CurrentProducts());
  EXPECT_EQ(of({512, 512}, Precision::kFp16), Products::kFp32);
  EXPECT_EQ(of({512, 512}, Precision::kFp32), Products::kFp32);
  EXPECT_EQ(of({512}, Precision::kBf16), Products::kFp32) << "the first layer is given numbers of 32 bits";
  EXPECT_EQ(of({512, 1, 512}, Precision::kBf16), Products::kFp32);
  OverrideProducts(Products::kFp32);
  EXPECT_EQ(of({512, 512}, Precision::kBf16), Products::kFp32);
  OverrideProducts(Products::kAvx512Bf16);
  EXPECT_STREQ(NameOf(Products::kFp32), "fp32");
  EXPECT_STREQ(NameOf(Products::kAvx512Bf16), "avx512_bf16");
}

TEST(DenormalsAreZeroTest, EndsWithItsScope) {
  volatile float small = 0x1p-130f, one = 1;
  {
    const DenormalsAreZero on;
    EXPECT_EQ(FloatBits(small * one), 0u);
  }
  EXPECT_EQ(small * one, 0x1p-130f);
  const DenormalsAreZero off(false);
  EXPECT_EQ(small * one, 0x1p-130f);
}

}  // namespace
}  // namespace trireme
