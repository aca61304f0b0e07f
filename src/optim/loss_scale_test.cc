#include "trireme/optim/loss_scale.h"

#include <gtest/gtest.h>

#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

void UpdateTimes(LossScale& scale, std::uint32_t times) {
  for (std::uint32_t i = 0; i < times; ++i) ASSERT_TRUE(scale.Update(true));
}

TEST(LossScaleTest, HalvesAtOnceAndDoublesWithPatience) {
  LossScale scale;
  EXPECT_TRUE(scale.Update(false));
  EXPECT_EQ(scale.scale(), LossScale::kFirst / 2);
  UpdateTimes(scale, LossScale::kPatience - 1);
  EXPECT_EQ(scale.scale(), LossScale::kFirst / 2);
  UpdateTimes(scale, 1);
  EXPECT_EQ(scale.scale(), LossScale::kFirst);
}

TEST(LossScaleTest, AnInfiniteGradientBeginsTheCountAnew) {
  LossScale scale;
  UpdateTimes(scale, LossScale::kPatience - 1);
  EXPECT_TRUE(scale.Update(false));
  UpdateTimes(scale, LossScale::kPatience - 1);
  EXPECT_EQ(scale.scale(), LossScale::kFirst / 2);
}

TEST(LossScaleTest, StaysWithinItsBounds) {
  LossScale scale;
  for (int doublings = 0; doublings < 20; ++doublings) UpdateTimes(scale, LossScale::kPatience);
  EXPECT_EQ(scale.scale(), LossScale::kMost);
  while (scale.scale() > LossScale::kLeast) ASSERT_TRUE(scale.Update(false));
  EXPECT_FALSE(scale.Update(false)) << "a smaller scale would not help";
  EXPECT_EQ(scale.scale(), LossScale::kLeast);
}

TEST(LossScaleTest, GoesOnWhereItWas) {
  LossScale scale, loaded;
  scale.Update(false);
  UpdateTimes(scale, LossScale::kPatience - 1);
  StateWriter writer;
  scale.Save(writer, "s");
  loaded.Load(StateReader(writer.Encode()), "s");
  EXPECT_EQ(loaded.scale(), LossScale::kFirst / 2);
  UpdateTimes(loaded, 1);
  EXPECT_EQ(loaded.scale(), LossScale::kFirst);
}

TEST(LossScaleTest, RefusesWhatItCannotHave) {
  for (const float value : {0.0f, -2.0f, 3.0f, 0.5f, 0x1p25f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    StateWriter writer;
    writer.PutValue<float>("s/scale", value);
    writer.PutValue<std::uint32_t>("s/finite", 0);
    LossScale scale;
    EXPECT_THROW(scale.Load(StateReader(writer.Encode()), "s"), Error) << value;
    EXPECT_EQ(scale.scale(), LossScale::kFirst);
  }
}

}  // namespace
}  // namespace trireme
