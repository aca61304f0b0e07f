#include "trireme/nn/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace trireme {
namespace {

std::vector<float> Weights(Init init, double gain, int inputs, int outputs, int rows,
                           std::uint64_t seed = 1) {
  std::vector<float> weights(static_cast<std::size_t>(inputs) * outputs);
  RandomStream random(seed, Purpose::kTest, 0, 0);
  InitialiseWeights(init, gain, inputs, outputs, rows, weights, random);
  return weights;
}

TEST(InitTest, OrthogonalMatricesAreOrthogonal) {
  constexpr double kGain = 1.7;
  for (const auto& [rows, columns] :
       {std::pair{4, 64}, {64, 4}, {64, 64}, {1, 8}, {8, 1}, {1, 1}, {33, 100}, {100, 33}}) {
    const std::vector<float> w = Weights(Init::kOrthogonal, kGain, rows, columns, rows);
    const bool wide = rows <= columns;
    const int count = std::min(rows, columns), length = std::max(rows, columns);
    const auto at = [&](int vector, int i) {
      return static_cast<double>(wide ? w[vector * columns + i] : w[i * columns + vector]);
    };
    for (int a = 0; a < count; ++a) {
      for (int b = 0; b <= a; ++b) {
        double dot = 0;
        for (int i = 0; i < length; ++i) dot += at(a, i) * at(b, i);
        ASSERT_NEAR(dot, a == b ? kGain * kGain : 0.0, 2e-6)
            << rows << "x" << columns << " " << a << " " << b;
      }
    }
  }
}

// A uniform distribution is known by its limit, its mean and its variance.
void ExpectUniform(const std::vector<float>& weights, double limit) {
  double sum = 0, squares = 0, largest = 0;
  for (const double w : weights) {
    sum += w;
    squares += w * w;
    largest = std::max(largest, std::fabs(w));
  }
  const double n = static_cast<double>(weights.size());
  EXPECT_LE(largest, limit * (1 + 1e-6));
  EXPECT_GE(largest, limit * 0.995);
  EXPECT_NEAR(sum / n, 0.0, 4 * limit / std::sqrt(3 * n));
  EXPECT_NEAR(squares / n, limit * limit / 3, 0.05 * limit * limit / 3);
}

TEST(InitTest, KaimingAndXavierAreUniformUpToTheirLimits) {
  // Whether a row of storage belongs to an input or to an output.
  for (const int rows : {100, 50}) {
    ExpectUniform(Weights(Init::kKaiming, 1.5, 100, 50, rows), 1.5 * std::sqrt(3.0 / 100));
    ExpectUniform(Weights(Init::kXavier, 1.5, 100, 50, rows), 1.5 * std::sqrt(6.0 / 150));
  }
}

TEST(InitTest, SameSeedSameBitsOtherSeedOtherBits) {
  for (const Init init : {Init::kOrthogonal, Init::kKaiming, Init::kXavier}) {
    EXPECT_EQ(Weights(init, 1.0, 7, 9, 7, 5), Weights(init, 1.0, 7, 9, 7, 5));
    EXPECT_NE(Weights(init, 1.0, 7, 9, 7, 5), Weights(init, 1.0, 7, 9, 7, 6));
  }
}

TEST(InitTest, HiddenGains) {
  for (const Activation activation :
       {Activation::kTanh, Activation::kRelu, Activation::kElu, Activation::kSilu}) {
    EXPECT_DOUBLE_EQ(HiddenGain(Init::kOrthogonal, activation), std::sqrt(2.0));
  }
  for (const Init init : {Init::kKaiming, Init::kXavier}) {
    EXPECT_DOUBLE_EQ(HiddenGain(init, Activation::kTanh), 5.0 / 3.0);
    EXPECT_DOUBLE_EQ(HiddenGain(init, Activation::kRelu), std::sqrt(2.0));
  }
}

}  // namespace
}  // namespace trireme
