#include "trireme/base/checksum.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "trireme/base/rng.h"

namespace trireme {
namespace {

std::vector<std::byte> Noise(std::size_t size) {
  RandomStream stream(1, Purpose::kTest, 0, size);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(stream.NextBits());
  return bytes;
}

TEST(Checksum, EveryBitCounts) {
  for (const std::size_t size : {1, 8, 63, 64, 65, 200}) {
    std::vector<std::byte> bytes = Noise(size);
    std::set<std::uint64_t> sums = {Checksum(bytes)};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      const auto flip = static_cast<std::byte>(1 << bit % 8);
      bytes[bit / 8] ^= flip;
      EXPECT_TRUE(sums.insert(Checksum(bytes)).second) << "bit " << bit << " of " << size << " bytes";
      bytes[bit / 8] ^= flip;
    }
  }
}

// All pairs of flipped bits: where a step lets one bit through as one bit, some pair cancels out.
TEST(Checksum, TwoBitsDoNotCancel) {
  std::vector<std::byte> bytes = Noise(192);
  const auto flip = [&](std::size_t bit) { bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8); };
  const std::uint64_t whole = Checksum(bytes);
  for (std::size_t i = 0; i < 8 * bytes.size(); ++i) {
    flip(i);
    for (std::size_t j = i + 1; j < 8 * bytes.size(); ++j) {
      flip(j);
      ASSERT_NE(Checksum(bytes), whole) << "bits " << i << " and " << j;
      flip(j);
    }
    flip(i);
  }
}

TEST(Checksum, ZerosCountAndSoDoOrderAndSeed) {
  const std::vector<std::byte> zeros(300);
  std::set<std::uint64_t> sums;
  for (std::size_t size = 0; size <= zeros.size(); ++size) {
    EXPECT_TRUE(sums.insert(Checksum(std::span(zeros).first(size))).second) << size;
    EXPECT_TRUE(sums.insert(Checksum(std::span(zeros).first(size), 1)).second) << size;
  }
  const std::vector<std::byte> noise = Noise(128);
  std::vector<std::byte> swapped(noise.begin() + 64, noise.end());
  swapped.insert(swapped.end(), noise.begin(), noise.begin() + 64);
  EXPECT_NE(Checksum(noise), Checksum(swapped));
}

// Files outlive programs.
TEST(Checksum, StaysWhatItIs) {
  std::vector<std::byte> bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(Checksum(bytes, 7), 6010721940063245719u);
}

}  // namespace
}  // namespace trireme
