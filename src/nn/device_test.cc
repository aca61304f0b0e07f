#include "trireme/nn/device.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

TEST(DeviceTest, TheSameDevicesHaveTheSameText) {
  EXPECT_EQ(TextOf(ParseDevices("fused")), "fused");
  EXPECT_EQ(TextOf(ParseDevices("cpu")), "cpu");
  EXPECT_EQ(TextOf(ParseDevices("cuda")), "cuda:0");
  EXPECT_EQ(TextOf(ParseDevices("cuda:0")), "cuda:0");
  EXPECT_EQ(TextOf(ParseDevices(" cuda:3 , cuda:01")), "cuda:3,cuda:1");
}

TEST(DeviceTest, OnlyTheDefaultIsNotComputedByLibtorch) {
  EXPECT_FALSE(ParseDevices("fused")[0].by_torch());
  EXPECT_EQ(ParseDevices("fused")[0], Device());
  EXPECT_TRUE(ParseDevices("cpu")[0].by_torch());
  EXPECT_TRUE(ParseDevices("cuda:1")[0].by_torch());
}

TEST(DeviceTest, WhatIsNoDeviceIsRefused) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1.5", "cuda:123456", "cpu:0",
                           "CUDA", "cuda:0,", ",cuda:0", "cuda:0;cuda:1"}) {
    EXPECT_THROW(ParseDevices(text), Error) << text;
  }
}

TEST(DeviceTest, ADeviceIsNamedOnceAndOnlyCudaDevicesAreSeveral) {
  for (const char* text : {"cuda,cuda:0", "cuda:1,cuda:01", "cpu,cpu", "fused,cpu", "cuda:0,cpu"}) {
    EXPECT_THROW(ParseDevices(text), Error) << text;
  }
}

}  // namespace
}  // namespace trireme
