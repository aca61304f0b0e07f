#include "trireme/store/atomic_floats.h"

#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

namespace trireme {
namespace {

std::vector<float> Count(std::size_t size, float first) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<float> Loaded(const AtomicFloats& floats, std::size_t begin, std::size_t size) {
  std::vector<float> values(size, -1.0f);
  floats.Load(begin, values);
  return values;
}

TEST(AtomicFloats, StartAsZeroAndGiveBackWhatWasStored) {
  for (const std::size_t size : {0, 1, 2, 3, 37, 1023, 1024, 1025}) {
    AtomicFloats floats(size);
    EXPECT_EQ(floats.size(), size);
    EXPECT_EQ(Loaded(floats, 0, size), std::vector<float>(size, 0.0f)) << size;
    floats.Store(0, Count(size, 1));
    EXPECT_EQ(Loaded(floats, 0, size), Count(size, 1)) << size;
  }
}

TEST(AtomicFloats, KeepEveryBit) {
  const std::vector<std::uint32_t> bits = {0x80000000u, 0x00000001u, 0xff800000u, 0x7fc01234u, 0xdeadbeefu};
  std::vector<float> values;
  for (const std::uint32_t b : bits) values.push_back(std::bit_cast<float>(b));
  AtomicFloats floats(values.size());
  floats.Store(0, values);
  const std::vector<float> loaded = Loaded(floats, 0, values.size());
  for (std::size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(std::bit_cast<std::uint32_t>(loaded[i]), bits[i]);
}

TEST(AtomicFloats, APartTouchesNothingElse) {
  AtomicFloats floats(11);
  floats.Store(0, Count(11, 0));
  floats.Store(4, Count(4, 100));
  EXPECT_EQ(Loaded(floats, 0, 11), (std::vector<float>{0, 1, 2, 3, 100, 101, 102, 103, 8, 9, 10}));
  floats.Store(8, Count(3, 200));  // an odd count, up to the end
  EXPECT_EQ(Loaded(floats, 6, 5), (std::vector<float>{102, 103, 200, 201, 202}));
  EXPECT_EQ(Loaded(floats, 2, 3), (std::vector<float>{2, 3, 100}));  // an odd count in the middle
  EXPECT_EQ(Loaded(floats, 10, 1), (std::vector<float>{202}));
  floats.Store(1, Count(2, 300));  // halves of pairs
  floats.Store(6, Count(1, 400));
  EXPECT_EQ(Loaded(floats, 0, 8), (std::vector<float>{0, 300, 301, 3, 100, 101, 400, 103}));
  floats.Store(6, Count(1, 102));
  floats.Store(7, {});
  floats.Store(6, {});
  EXPECT_EQ(Loaded(floats, 6, 5), (std::vector<float>{102, 103, 200, 201, 202}));
}

TEST(AtomicFloats, PairsInterlockTwoArrays) {
  AtomicFloats floats(10);
  floats.StorePairs(0, Count(5, 0), Count(5, 100));
  EXPECT_EQ(Loaded(floats, 0, 10), (std::vector<float>{0, 100, 1, 101, 2, 102, 3, 103, 4, 104}));
  floats.StorePairs(1, Count(3, 20), Count(3, 200));
  std::vector<float> first(4), second(4);
  floats.LoadPairs(1, first, second);
  EXPECT_EQ(first, (std::vector<float>{20, 21, 22, 4}));
  EXPECT_EQ(second, (std::vector<float>{200, 201, 202, 104}));
  EXPECT_EQ(Loaded(floats, 0, 2), (std::vector<float>{0, 100}));
}

TEST(AtomicFloatsDeathTest, RefuseWhatWouldCutAPairOrLeaveTheArray) {
  AtomicFloats floats(8);
  std::vector<float> two(2), three(3), ten(10);
  EXPECT_DEATH(floats.Load(1, two), "CHECK");
  EXPECT_DEATH(floats.Load(0, ten), "CHECK");
  EXPECT_DEATH(floats.Store(8, two), "CHECK");
  EXPECT_DEATH(floats.LoadPairs(0, two, three), "CHECK");
  EXPECT_DEATH(floats.LoadPairs(3, two, two), "CHECK");
  EXPECT_DEATH(floats.StorePairs(3, two, two), "CHECK");
}

// Writers store pairs whose four halves belong together; whatever a reader sees must belong together too.
// With an odd count the last float stands alone.
TEST(AtomicFloats, ReadersSeeWholePairsOfOneWriter) {
  constexpr std::size_t kSize = 257;
  constexpr int kWriters = 2, kReaders = 2, kRounds = 3000;
  const auto first = [](std::uint32_t half) { return half << 16 | half; };
  const auto second = [&](std::uint32_t half) { return first(half) ^ 0x01010101u; };
  const auto fill = [&](std::uint32_t half, std::vector<float>& values) {
    for (std::size_t i = 0; i < kSize; ++i) {
      values[i] = std::bit_cast<float>(i % 2 == 0 ? first(half) : second(half));
    }
  };
  AtomicFloats floats(kSize);
  std::vector<float> values(kSize);
  fill(1, values);
  floats.Store(0, values);
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      std::vector<float> mine(kSize);
      for (int round = 0; round < kRounds; ++round) {
        fill(static_cast<std::uint32_t>(2 + 2 * round + w), mine);  // never all ones: no NaN
        floats.Store(0, mine);
      }
    });
  }
  std::vector<int> torn(kReaders, 0);
  for (int r = 0; r < kReaders; ++r) {
    threads.emplace_back([&, r] {
      std::vector<float> seen(kSize);
      for (int round = 0; round < kRounds; ++round) {
        floats.Load(0, seen);
        for (std::size_t i = 0; i < kSize; i += 2) {
          const auto bits = std::bit_cast<std::uint32_t>(seen[i]);
          const std::uint32_t half = bits & 0xffff;
          torn[r] += half == 0 || bits != first(half);
          if (i + 1 < kSize) torn[r] += std::bit_cast<std::uint32_t>(seen[i + 1]) != second(half);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, std::vector<int>(kReaders, 0));
}

}  // namespace
}  // namespace trireme
