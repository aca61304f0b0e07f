#include "trireme/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/base/rng.h"

namespace trireme {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The nearest number with so many significant bits and exponents from `least` on; ties to even.
float Nearest(float value, int bits, int least) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent, least) - bits);
  return static_cast<float>(std::nearbyint(value / unit) * unit);
}
float NearestOf(Fp16, float value) {
  const float near = Nearest(value, 11, -13);
  return std::abs(near) > 65504 ? std::copysign(kInfinity, value) : near;
}
float NearestOf(Bf16, float value) { return Nearest(value, 8, -125); }

template <class Format>
class HalfTest : public testing::Test {};
using Formats = testing::Types<Fp16, Bf16>;
TYPED_TEST_SUITE(HalfTest, Formats);

TYPED_TEST(HalfTest, EveryNumberIsItself) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = TypeParam::From(half);
    if ((half & TypeParam::kNotFinite) != TypeParam::kNotFinite) {
      ASSERT_TRUE(std::isfinite(value));
      ASSERT_EQ(TypeParam::To(value), half);
      ASSERT_EQ(TypeParam::ToFinite(value), half);
      ASSERT_EQ(TypeParam::FromFinite(half), value);
    } else if ((half & 0x7FFF) == TypeParam::kNotFinite) {
      ASSERT_TRUE(std::isinf(value));
      ASSERT_EQ(TypeParam::To(value), half);
    } else {
      ASSERT_TRUE(std::isnan(value));
    }
  }
}

TYPED_TEST(HalfTest, RoundsToTheNearest) {
  RandomStream random(1, Purpose::kTest, 0, 0);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(random.NextBelow(0x10000) << 16 | random.NextBelow(0x10000));
    const float rounded = TypeParam::From(TypeParam::To(value));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(rounded));
    } else {
      ASSERT_EQ(rounded, NearestOf(TypeParam(), value)) << value;
      ASSERT_EQ(std::signbit(rounded), std::signbit(value)) << value;
    }
  }
}

TYPED_TEST(HalfTest, TiesGoToEven) {
  for (const int bits : {11, 8}) {
    const float unit = std::ldexp(1.0f, 1 - bits);
    for (const float value : {1 + unit / 2, 1 + 3 * unit / 2, -1 - unit / 2, -1 - 3 * unit / 2}) {
      EXPECT_EQ(TypeParam::From(TypeParam::To(value)), NearestOf(TypeParam(), value)) << value;
    }
  }
}

TYPED_TEST(HalfTest, KeepsWhatIsNotFiniteUnlessItIsToBeFinite) {
  EXPECT_EQ(TypeParam::From(TypeParam::To(kInfinity)), kInfinity);
  EXPECT_EQ(TypeParam::From(TypeParam::To(-kInfinity)), -kInfinity);
  EXPECT_TRUE(std::isnan(TypeParam::From(TypeParam::To(kNaN))));
  const float most = BitsFloat(TypeParam::kLargest);
  EXPECT_EQ(TypeParam::FromFinite(TypeParam::ToFinite(3.4e38f)), most);
  EXPECT_EQ(TypeParam::FromFinite(TypeParam::ToFinite(-3.4e38f)), -most);
}

TEST(Fp16Test, TurnsInfiniteWhereItsNumbersEnd) {
  EXPECT_EQ(Fp16::From(Fp16::To(65504.0f)), 65504.0f);
  EXPECT_EQ(Fp16::From(Fp16::To(std::nextafter(65520.0f, 0.0f))), 65504.0f);
  EXPECT_EQ(Fp16::From(Fp16::To(65520.0f)), kInfinity);
  EXPECT_EQ(Fp16::From(Fp16::To(0x1p-25f)), 0.0f);
  EXPECT_EQ(Fp16::From(Fp16::To(std::nextafter(0x1p-25f, 1.0f))), 0x1p-24f);
}

}  // namespace
}  // namespace trireme
