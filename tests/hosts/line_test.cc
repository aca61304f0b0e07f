#include "line.h"

#include <gtest/gtest.h>

namespace trireme::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Cable kCable{.latency = milliseconds(2), .bytes_per_s = 1e6, .queue_bytes = 3000};

TEST(Line, AFrameTakesItsLengthAndTheLatency) {
  Line line(kCable);
  const Time start{milliseconds(100)};
  EXPECT_EQ(line.Send(start, 1000), start + milliseconds(1) + milliseconds(2));
}

TEST(Line, FramesLeaveOneAfterTheOtherButTravelTogether) {
  Line line(kCable);
  const Time start{milliseconds(100)};
  for (int i = 1; i <= 3; ++i)
    EXPECT_EQ(line.Send(start, 1000), start + i * milliseconds(1) + milliseconds(2));
  // The line is free again: nothing is left of what came before.
  const Time later = start + milliseconds(10);
  EXPECT_EQ(line.Send(later, 500), later + microseconds(500) + milliseconds(2));
}

TEST(Line, WhatDoesNotFitIntoTheQueueIsDroppedAndTakesNoTime) {
  Line line(kCable);
  const Time start{milliseconds(100)};
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(line.Send(start, 1000)) << i;
  EXPECT_FALSE(line.Send(start, 1000));
  EXPECT_EQ(line.Send(start + milliseconds(1), 1000), start + milliseconds(5) + milliseconds(2));
}

}  // namespace
}  // namespace trireme::testing
