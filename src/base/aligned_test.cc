#include "trireme/base/aligned.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace trireme {
namespace {

bool IsAligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64 == 0; }

TEST(AlignedBuffer, StartsOnACacheLineAndHoldsZeros) {
  for (const std::size_t size : {0u, 1u, 15u, 16u, 17u, 1000u}) {
    AlignedBuffer<float> buffer(size);
    EXPECT_TRUE(IsAligned(buffer.data()));
    EXPECT_EQ(buffer.size(), size);
    EXPECT_EQ(buffer.span().size(), size);
    EXPECT_EQ(static_cast<std::size_t>(buffer.end() - buffer.begin()), size);
    for (const float value : buffer) EXPECT_EQ(value, 0.0f);
  }
}

TEST(AlignedBuffer, DefaultIsEmpty) {
  const AlignedBuffer<double> buffer;
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_TRUE(buffer.span().empty());
}

TEST(AlignedBuffer, MovingKeepsTheMemory) {
  AlignedBuffer<int> a(3);
  a[2] = 7;
  const int* data = a.data();
  AlignedBuffer<int> b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size(), 3u);
  EXPECT_EQ(std::as_const(b)[2], 7);
}

}  // namespace
}  // namespace trireme
