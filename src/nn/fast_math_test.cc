#include "trireme/nn/fast_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/simd.h"

namespace trireme {
namespace {

struct Tanh {
  template <class T>
  [[gnu::always_inline]] static inline T Of(T x) {
    return FastTanh(x);
  }
};
struct Exp {
  template <class T>
  [[gnu::always_inline]] static inline T Of(T x) {
    return FastExp(x);
  }
};
struct Log {
  template <class T>
  [[gnu::always_inline]] static inline T Of(T x) {
    return FastLog(x);
  }
};

template <class Function, class T>
struct Map {
  [[gnu::always_inline]] static inline void Run(const float* in, float* out, std::size_t n) {
    constexpr std::size_t kLanes = sizeof(T) / sizeof(float);
    for (std::size_t i = 0; i < n; i += kLanes) Store(out + i, Function::Of(LoadAs<T>(in + i)));
  }
};

// Function over `in`, eight at a time or one at a time.
template <class Function>
std::vector<float> Apply(std::vector<float> in, bool vectors) {
  const std::size_t size = in.size();
  in.resize((size + 7) / 8 * 8, 1.0f);
  std::vector<float> out(in.size());
  if (vectors) {
    SimdCall<Map<Function, Vec8>>(in.data(), out.data(), in.size());
  } else {
    SimdCall<Map<Function, float>>(in.data(), out.data(), in.size());
  }
  out.resize(size);
  return out;
}

// Every `stride`-th float between two positive ones: as dense near zero as far from it.
std::vector<float> Floats(float from, float to, std::uint32_t stride) {
  std::vector<float> values;
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(from); bits <= std::bit_cast<std::uint32_t>(to);
       bits += stride) {
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

std::vector<float> WithNegatives(std::vector<float> values) {
  const std::size_t size = values.size();
  for (std::size_t i = 0; i < size; ++i) values.push_back(-values[i]);
  return values;
}

class FastMathTest : public testing::TestWithParam<std::tuple<Isa, bool>> {
 protected:
  FastMathTest() { OverrideIsa(std::get<0>(GetParam())); }
  ~FastMathTest() override { OverrideIsa(best_); }

  template <class Function>
  std::vector<float> Run(const std::vector<float>& in) const {
    return Apply<Function>(in, std::get<1>(GetParam()));
  }
  template <class Function>
  float RunOne(float x) const {
    return Run<Function>({x})[0];
  }

 private:
  const Isa best_ = CurrentIsa();
};

constexpr float kSmallest = std::numeric_limits<float>::min();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST_P(FastMathTest, TanhIsWithinItsStatedError) {
  std::vector<float> in = WithNegatives(Floats(kSmallest, kLargest, 5003));
  const std::vector<float> dense = WithNegatives(Floats(0.01f, 10.0f, 331));
  in.insert(in.end(), dense.begin(), dense.end());
  const std::vector<float> out = Run<Tanh>(in);
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double exact = std::tanh(static_cast<double>(in[i]));
    worst = std::max(worst, std::fabs(out[i] - exact) / std::fabs(exact));
    ASSERT_FALSE(std::isnan(out[i])) << in[i];
  }
  EXPECT_LT(worst, 6e-7);
}

TEST_P(FastMathTest, TanhAtItsEnds) {
  EXPECT_EQ(RunOne<Tanh>(0.0f), 0.0f);
  EXPECT_NEAR(RunOne<Tanh>(kInfinity), 1.0f, 6e-7);
  EXPECT_NEAR(RunOne<Tanh>(-kInfinity), -1.0f, 6e-7);
  EXPECT_EQ(RunOne<Tanh>(100.0f), RunOne<Tanh>(7.9f));
  EXPECT_TRUE(std::isnan(RunOne<Tanh>(kNan)));
}

TEST_P(FastMathTest, ExpIsWithinItsStatedError) {
  std::vector<float> in = Floats(kSmallest, 88.0f, 2003);
  for (const float x : Floats(kSmallest, 87.0f, 2003)) in.push_back(-x);
  const std::vector<float> out = Run<Exp>(in);
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double exact = std::exp(static_cast<double>(in[i]));
    worst = std::max(worst, std::fabs(out[i] - exact) / exact);
    ASSERT_FALSE(std::isnan(out[i])) << in[i];
  }
  EXPECT_LT(worst, 3e-7);
}

TEST_P(FastMathTest, ExpSaturates) {
  EXPECT_EQ(RunOne<Exp>(0.0f), 1.0f);
  for (const float x : {88.1f, 1000.0f, kLargest, kInfinity}) EXPECT_EQ(RunOne<Exp>(x), RunOne<Exp>(88.0f));
  for (const float x : {-87.1f, -1000.0f, -kInfinity}) EXPECT_EQ(RunOne<Exp>(x), RunOne<Exp>(-87.0f));
  EXPECT_TRUE(std::isfinite(RunOne<Exp>(kInfinity)));
  EXPECT_GT(RunOne<Exp>(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(RunOne<Exp>(kNan)));
}

TEST_P(FastMathTest, LogIsWithinItsStatedError) {
  std::vector<float> in = Floats(kSmallest, kLargest, 2003);
  const std::vector<float> near_one = Floats(0.5f, 2.0f, 31);
  in.insert(in.end(), near_one.begin(), near_one.end());
  const std::vector<float> out = Run<Log>(in);
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double exact = std::log(static_cast<double>(in[i]));
    worst = std::max(worst, std::fabs(out[i] - exact) / std::max(1.0, std::fabs(exact)));
    ASSERT_FALSE(std::isnan(out[i])) << in[i];
  }
  EXPECT_LT(worst, 1e-6);
  EXPECT_EQ(RunOne<Log>(1.0f), 0.0f);
}

std::string CaseName(const testing::TestParamInfo<std::tuple<Isa, bool>>& info) {
  return std::string(IsaName(std::get<0>(info.param))) + (std::get<1>(info.param) ? "_vectors" : "_scalars");
}

INSTANTIATE_TEST_SUITE_P(All, FastMathTest,
                         testing::Combine(testing::Values(Isa::kPortable, Isa::kAvx2, Isa::kAvx512),
                                          testing::Bool()),
                         CaseName);

TEST(FastMathVectorTest, VectorsAgreeWithScalars) {
  const std::vector<float> in = Floats(1e-6f, 80.0f, 1009);
  const std::vector<float> both = WithNegatives(in);
  const auto expect_close = [](const std::vector<float>& a, const std::vector<float>& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], 1e-6 * std::max(1.0f, std::fabs(b[i])));
  };
  expect_close(Apply<Tanh>(both, true), Apply<Tanh>(both, false));
  expect_close(Apply<Exp>(both, true), Apply<Exp>(both, false));
  expect_close(Apply<Log>(in, true), Apply<Log>(in, false));
}

TEST(FastMathVectorTest, SumLanes) {
  const Vec8 a = {1, 2, 3, 4, 5, 6, 7, 8}, b = a * 10.0f, c = a * 100.0f, d = a * 1000.0f;
  const Vec4 sums = SumLanes(a, b, c, d);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sums[i], 36.0f * std::pow(10.0f, static_cast<float>(i)));
}

}  // namespace
}  // namespace trireme
