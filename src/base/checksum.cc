#include "trireme/base/checksum.h"

#include <cstring>

namespace trireme {
namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kBlock = kLanes * sizeof(std::uint64_t);
// Bits without a pattern, the lowest one set.
constexpr std::uint64_t kSpread = 0x9c5b1ff3e6a4d287;
constexpr std::uint64_t kOdd = 0xd1342543de82ef95;

// A product carries a difference upwards only: the first makes it many bits wide before it meets the lane,
// the rotation brings the upper bits down, the second makes them wide again. So few flipped bits never cancel
// each other, as they could with one product per word.
inline std::uint64_t Mix(std::uint64_t lane, std::uint64_t word) {
  const std::uint64_t sum = lane + word * kSpread;
  return (sum << 29 | sum >> 35) * kOdd;
}

// Not a kernel for SimdCall: the lanes keep the multiplier busy already, and few processors have such
// products for vectors.
void MixBlocks(const std::byte* data, std::size_t blocks, std::uint64_t (&lanes)[kLanes]) {
  for (; blocks > 0; --blocks, data += kBlock) {
    std::uint64_t words[kLanes];
    std::memcpy(words, data, kBlock);
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = Mix(lanes[i], words[i]);
  }
}

}  // namespace

std::uint64_t Checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = Mix(seed, i + 1);
  const std::size_t blocks = bytes.size() / kBlock;
  MixBlocks(bytes.data(), blocks, lanes);

  std::byte last[kBlock] = {};
  const std::size_t rest = bytes.size() - blocks * kBlock;
  if (rest > 0) {
    std::memcpy(last, bytes.data() + blocks * kBlock, rest);
    MixBlocks(last, 1, lanes);
  }
  std::uint64_t sum = Mix(seed, bytes.size());
  for (const std::uint64_t lane : lanes) sum = Mix(sum, lane);
  return Mix(sum, sum >> 32);
}

}  // namespace trireme
