#include "trireme/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme {
namespace {

TEST(Schedule, Constant) {
  for (const double progress : {0.0, 0.3, 1.0})
    EXPECT_EQ(ScheduleFactor(ScheduleKind::kConstant, 0.1, progress), 1);
}

TEST(Schedule, LinearToAFinalFraction) {
  EXPECT_EQ(ScheduleFactor(ScheduleKind::kLinear, 0, 0), 1);
  EXPECT_EQ(ScheduleFactor(ScheduleKind::kLinear, 0, 0.25), 0.75);
  EXPECT_EQ(ScheduleFactor(ScheduleKind::kLinear, 0, 1), 0);
  EXPECT_DOUBLE_EQ(ScheduleFactor(ScheduleKind::kLinear, 0.1, 0.5), 0.55);
}

TEST(Schedule, CosineToAFinalFraction) {
  EXPECT_EQ(ScheduleFactor(ScheduleKind::kCosine, 0, 0), 1);
  EXPECT_DOUBLE_EQ(ScheduleFactor(ScheduleKind::kCosine, 0, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(ScheduleFactor(ScheduleKind::kCosine, 0, 0.25), 0.5 + std::sqrt(0.5) / 2);
  EXPECT_DOUBLE_EQ(ScheduleFactor(ScheduleKind::kCosine, 0.2, 1), 0.2);
}

TEST(Schedule, ProgressIsClamped) {
  for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
    EXPECT_DOUBLE_EQ(ScheduleFactor(kind, 0.1, 1.5), 0.1);
    EXPECT_DOUBLE_EQ(ScheduleFactor(kind, 0.1, -1), 1);
  }
}

TEST(KlAdaptiveRate, FollowsTheDivergence) {
  KlAdaptiveRate rate(1e-3, 0.01);
  rate.Update(0.01);
  EXPECT_EQ(rate.rate(), 1e-3);
  rate.Update(0.021);
  EXPECT_DOUBLE_EQ(rate.rate(), 1e-3 / 1.5);
  rate.Update(0.004);
  EXPECT_DOUBLE_EQ(rate.rate(), 1e-3);
  rate.Update(std::numeric_limits<double>::quiet_NaN());
  EXPECT_DOUBLE_EQ(rate.rate(), 1e-3);
}

TEST(KlAdaptiveRate, StaysWithinItsBounds) {
  KlAdaptiveRate rate(1, 0.01, 1e-4, 1e-2);
  EXPECT_EQ(rate.rate(), 1e-2);
  rate.Update(0);
  EXPECT_EQ(rate.rate(), 1e-2);
  for (int i = 0; i < 50; ++i) rate.Update(std::numeric_limits<double>::infinity());
  EXPECT_EQ(rate.rate(), 1e-4);
}

TEST(KlAdaptiveRate, SavesAndLoads) {
  KlAdaptiveRate rate(1e-3, 0.01), other(1e-4, 0.01), narrow(1e-4, 0.01, 1e-5, 1e-4);
  rate.Update(1);
  StateWriter writer;
  rate.Save(writer, "rate");
  const StateReader reader(writer.Encode());
  other.Load(reader, "rate");
  EXPECT_EQ(other.rate(), rate.rate());
  EXPECT_THROW(narrow.Load(reader, "rate"), Error);
  EXPECT_EQ(narrow.rate(), 1e-4);
  EXPECT_THROW(other.Load(reader, "missing"), Error);
}

}  // namespace
}  // namespace trireme
