#include "trireme/env/sincos.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "trireme/base/rng.h"

namespace trireme {
namespace {

// The error of `value` against the extended-precision truth, in units of the last place of the truth.
double UlpError(double value, long double truth) {
  const double nearest = std::abs(static_cast<double>(truth));
  const double ulp = std::nextafter(nearest, std::numeric_limits<double>::infinity()) - nearest;
  return static_cast<double>(std::abs(static_cast<long double>(value) - truth) / ulp);
}

struct Errors {
  double worst = 0;
  int misrounded = 0;
};

template <class Function>
Errors Measure(Function function, double range, int count) {
  RandomStream random(1, Purpose::kTest, 0, 0);
  Errors errors;
  for (int i = 0; i < count; ++i) {
    Vec x;
    for (int lane = 0; lane < kLanes; ++lane) x[lane] = range * (2 * random.NextUniform() - 1);
    const SinCosPair pair = function(x);
    for (int lane = 0; lane < kLanes; ++lane) {
      const long double exact = x[lane];
      for (const double error :
           {UlpError(pair.sin[lane], sinl(exact)), UlpError(pair.cos[lane], cosl(exact))}) {
        errors.worst = std::max(errors.worst, error);
        errors.misrounded += error > 0.5;
      }
    }
  }
  return errors;
}

TEST(SinCos, IsWithinOneUlpInTheRangeEnvironmentsUse) {
  for (const double range : {0.8, 4.0, 100.0, 1e4}) {
    EXPECT_LT(Measure([](Vec x) { return SinCos(x); }, range, 100000).worst, 1.0) << range;
  }
}

TEST(SinCos, NearZeroIsAlmostAlwaysCorrectlyRounded) {
  const Errors errors = Measure([](Vec x) { return SinCosNearZero(x); }, 0.21, 100000);
  EXPECT_LT(errors.worst, 0.53);
  EXPECT_LT(errors.misrounded, 800000 / 100);
}

TEST(SinCos, BothFormsAgreeNearZero) {
  for (double x = -0.75; x < 0.75; x += 1e-3) {
    const SinCosPair full = SinCos(Broadcast(x)), near = SinCosNearZero(Broadcast(x));
    EXPECT_EQ(full.sin[0], near.sin[0]);
    EXPECT_EQ(full.cos[0], near.cos[0]);
  }
}

TEST(SinCos, HandlesMultiplesOfARightAngle) {
  for (int n = -400; n <= 400; ++n) {
    const double x = n * (std::numbers::pi / 2);
    const SinCosPair pair = SinCos(Broadcast(x));
    EXPECT_NEAR(pair.sin[0], std::sin(x), 1e-16) << n;
    EXPECT_NEAR(pair.cos[0], std::cos(x), 1e-16) << n;
  }
}

TEST(WrapAngle, GivesTheSameAngleWithinHalfATurn) {
  for (double x = -100; x < 100; x += 0.37) {
    const double wrapped = WrapAngle(Broadcast(x))[0];
    EXPECT_LE(std::abs(wrapped), std::numbers::pi + 1e-12);
    EXPECT_NEAR(std::cos(wrapped), std::cos(x), 1e-13);
    EXPECT_NEAR(std::sin(wrapped), std::sin(x), 1e-13);
  }
}

TEST(Clamp, LimitsAndTurnsNanIntoTheLowerBound) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Vec clamped = Clamp(Vec{-3.0, 0.5, 1e300, nan}, -1.0, 2.0);
  EXPECT_EQ(clamped[0], -1.0);
  EXPECT_EQ(clamped[1], 0.5);
  EXPECT_EQ(clamped[2], 2.0);
  EXPECT_EQ(clamped[3], -1.0);
}

}  // namespace
}  // namespace trireme
