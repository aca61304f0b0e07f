#include "trireme/nn/dense_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/base/simd.h"
#include "trireme/nn/plain_tower.h"

namespace trireme {
namespace {

constexpr Activation kActivations[] = {Activation::kTanh, Activation::kRelu, Activation::kElu,
                                       Activation::kSilu};
constexpr int kWidths[] = {1, 5, 8, 24, 64, 100};
constexpr int kSamples[] = {1, 3, 4, 7, 64};
constexpr float kPadding = 12345.0f;  // between the rows; must survive

std::vector<float> Normal(std::size_t size, std::uint64_t step, double scale = 1.0) {
  RandomStream random(1, Purpose::kTest, 0, step);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(scale * random.NextNormal());
  return values;
}

// Random rows with kPadding between them; nothing lies behind the last.
std::vector<float> NormalRows(Rows rows, std::uint64_t step, double scale = 1.0) {
  std::vector<float> values =
      Normal(static_cast<std::size_t>(rows.n - 1) * rows.ld + rows.width, step, scale);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int>(i % rows.ld) >= rows.width) values[i] = kPadding;
  }
  return values;
}

void ExpectPaddingKept(Rows rows, const std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int>(i % rows.ld) >= rows.width) {
      ASSERT_EQ(values[i], kPadding);
    }
  }
}

class DenseKernelsTest : public testing::TestWithParam<Isa> {
 protected:
  DenseKernelsTest() { OverrideIsa(GetParam()); }
  ~DenseKernelsTest() override { OverrideIsa(best_); }

 private:
  const Isa best_ = CurrentIsa();
};

TEST_P(DenseKernelsTest, BiasActivateAndItsBackward) {
  for (const Activation activation : kActivations) {
    for (const int width : kWidths) {
      for (const int n : kSamples) {
        SCOPED_TRACE(testing::Message()
                     << "activation " << static_cast<int>(activation) << " width " << width << " n " << n);
        const Rows rows{n, width, width + 3};
        const std::vector<float> z = NormalRows(rows, 1, 2.0), bias = Normal(width, 2);
        std::vector<float> y = z, slope = NormalRows(rows, 3);
        BiasActivate(activation, rows, bias.data(), y.data(),
                     NeedsSlope(activation) ? slope.data() : nullptr);
        const std::vector<float> da = NormalRows(rows, 4), dbias_before = Normal(width, 5);
        std::vector<float> dz = da, dbias = dbias_before;
        ActivationBackward(activation, rows, y.data(), NeedsSlope(activation) ? slope.data() : nullptr,
                           dz.data(), dbias.data());
        for (int i = 0; i < width; ++i) {
          double sum = dbias_before[i];
          for (int b = 0; b < n; ++b) {
            const int at = b * rows.ld + i;
            const double biased = static_cast<double>(z[at] + bias[i]);
            const double d = da[at] * PlainSlope(activation, biased);
            ASSERT_NEAR(y[at], PlainActivation(activation, biased), 1e-6 * std::max(1.0, std::fabs(biased)));
            ASSERT_NEAR(dz[at], d, 4e-6 * std::max(1.0, std::fabs(biased)));
            sum += d;
          }
          ASSERT_NEAR(dbias[i], sum, 2e-5);
        }
        ExpectPaddingKept(rows, y);
        ExpectPaddingKept(rows, slope);
        ExpectPaddingKept(rows, dz);
      }
    }
  }
}

TEST_P(DenseKernelsTest, ExtremeInputsStayFiniteAndNanPasses) {
  const Rows rows{1, 11, 11};
  const float nan = std::nanf("");
  for (const Activation activation : kActivations) {
    for (const float x : {1e4f, -1e4f, 1e30f, -1e30f, 90.0f, -90.0f}) {
      const std::vector<float> bias(rows.width, 0.0f);
      std::vector<float> y(rows.width, x), slope(rows.width);
      BiasActivate(activation, rows, bias.data(), y.data(), slope.data());
      std::vector<float> dz(rows.width, 1.0f), dbias(rows.width);
      ActivationBackward(activation, rows, y.data(), slope.data(), dz.data(), dbias.data());
      for (int i = 0; i < rows.width; ++i) {
        EXPECT_NEAR(y[i], PlainActivation(activation, x), 1e-6 * std::max(1.0f, x))
            << static_cast<int>(activation);
        EXPECT_NEAR(dz[i], PlainSlope(activation, x), 2e-6) << static_cast<int>(activation) << " at " << x;
      }
    }
    const std::vector<float> bias(rows.width, nan);
    std::vector<float> y(rows.width, 0.5f), slope(rows.width);
    BiasActivate(activation, rows, bias.data(), y.data(), slope.data());
    for (const float value : y) EXPECT_TRUE(std::isnan(value)) << static_cast<int>(activation);
  }
}

TEST_P(DenseKernelsTest, HeadForward) {
  for (int outputs = 1; outputs <= 20; ++outputs) {
    for (const int width : kWidths) {
      for (const int n : kSamples) {
        const Rows rows{n, width, width + 2};
        const std::vector<float> y = NormalRows(rows, 1), w = Normal(outputs * width, 2),
                                 bias = Normal(outputs, 3);
        std::vector<float> out(static_cast<std::size_t>(n) * outputs);
        HeadForward(rows, y.data(), outputs, w.data(), bias.data(), out.data());
        for (int b = 0; b < n; ++b) {
          for (int o = 0; o < outputs; ++o) {
            double sum = bias[o];
            for (int i = 0; i < width; ++i) sum += static_cast<double>(w[o * width + i]) * y[b * rows.ld + i];
            ASSERT_NEAR(out[b * outputs + o], sum, 2e-5) << outputs << " " << width << " " << n;
          }
        }
      }
    }
  }
}

void CheckHeadBackward(Activation activation, int outputs, Rows rows) {
  SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(activation) << " outputs " << outputs
                                  << " width " << rows.width << " n " << rows.n);
  const int n = rows.n, width = rows.width;
  const std::vector<float> z = NormalRows(rows, 1), zero(width, 0.0f), w = Normal(outputs * width, 2),
                           dout = Normal(n * outputs, 3);
  const std::vector<float> dw_before = Normal(outputs * width, 4), dbias_before = Normal(outputs, 5),
                           below_before = Normal(width, 6);
  std::vector<float> y = z, slope = z, dz = NormalRows(rows, 7);
  BiasActivate(activation, rows, zero.data(), y.data(), slope.data());
  std::vector<float> dw = dw_before, dbias = dbias_before, below = below_before;
  HeadBackward(activation, rows, y.data(), NeedsSlope(activation) ? slope.data() : nullptr, outputs, w.data(),
               dout.data(), dw.data(), dbias.data(), dz.data(), below.data());

  for (int i = 0; i < width; ++i) {
    double sum = below_before[i];
    for (int b = 0; b < n; ++b) {
      double d = 0;
      for (int o = 0; o < outputs; ++o) d += static_cast<double>(dout[b * outputs + o]) * w[o * width + i];
      d *= PlainSlope(activation, z[b * rows.ld + i]);
      ASSERT_NEAR(dz[b * rows.ld + i], d, 2e-5);
      sum += d;
    }
    ASSERT_NEAR(below[i], sum, 1e-4);
  }
  for (int o = 0; o < outputs; ++o) {
    double bias_sum = dbias_before[o];
    for (int b = 0; b < n; ++b) bias_sum += dout[b * outputs + o];
    ASSERT_NEAR(dbias[o], bias_sum, 2e-5);
    for (int i = 0; i < width; ++i) {
      double sum = dw_before[o * width + i];
      for (int b = 0; b < n; ++b) sum += static_cast<double>(dout[b * outputs + o]) * y[b * rows.ld + i];
      ASSERT_NEAR(dw[o * width + i], sum, 5e-5);
    }
  }
  ExpectPaddingKept(rows, dz);
}

TEST_P(DenseKernelsTest, HeadBackward) {
  for (const Activation activation : kActivations) {
    for (int outputs = 1; outputs <= 20; ++outputs) {
      for (const int width : kWidths) {
        for (const int n : {1, 7, 64}) CheckHeadBackward(activation, outputs, {n, width, width + 5});
      }
    }
  }
}

TEST_P(DenseKernelsTest, Transpose) {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {1, 9}, {9, 1}, {8, 8}, {17, 24}, {24, 17}, {64, 64}, {7, 100}, {4, 64}}) {
    const std::vector<float> from = Normal(rows * columns, 1);
    std::vector<float> to(from.size());
    Transpose(from.data(), rows, columns, to.data());
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        ASSERT_EQ(to[c * rows + r], from[r * columns + c]) << rows << "x" << columns;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DenseKernelsTest, testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace trireme
