#include "trireme/rollout/minibatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace trireme {
namespace {

TEST(FillShuffled, IsAPermutationThatFollowsFromTheStream) {
  for (const int n : {0, 1, 2, 100}) {
    std::vector<int> order(n), again(n), sorted(n);
    RandomStream random(1, Purpose::kTest, 0, 0), same(1, Purpose::kTest, 0, 0);
    FillShuffled(order, random);
    FillShuffled(again, same);
    EXPECT_EQ(order, again);
    std::iota(sorted.begin(), sorted.end(), 0);
    EXPECT_TRUE(std::is_permutation(order.begin(), order.end(), sorted.begin()));
    if (n == 100) {
      EXPECT_NE(order, sorted);
    }
  }
}

// Every element lands in every place equally often: 6000 shuffles of 3 give each of the 6 orders about 1000
// times.
TEST(FillShuffled, IsUniform) {
  std::vector<int> counts(27);
  for (int i = 0; i < 6000; ++i) {
    std::vector<int> order(3);
    RandomStream random(1, Purpose::kTest, 0, i);
    FillShuffled(order, random);
    ++counts[order[0] * 9 + order[1] * 3 + order[2]];
  }
  EXPECT_EQ(std::count_if(counts.begin(), counts.end(), [](int c) { return c > 0; }), 6);
  for (const int count : counts) EXPECT_TRUE(count == 0 || (count > 850 && count < 1150)) << count;
}

TEST(MinibatchOrder, EveryEpochVisitsEverySampleOnceInAnOrderOfItsOwn) {
  constexpr int kSamples = 50, kEpochs = 3, kParts = 4;
  MinibatchOrder order(kSamples, kEpochs, kParts);
  const auto visited = [&](int epoch) {
    std::vector<int> all;
    for (int part = 0; part < kParts; ++part) {
      const std::span<const int> samples = order[epoch * kParts + part];
      EXPECT_TRUE(samples.size() == kSamples / kParts || samples.size() == kSamples / kParts + 1);
      all.insert(all.end(), samples.begin(), samples.end());
    }
    return all;
  };
  std::vector<int> sorted(kSamples);
  std::iota(sorted.begin(), sorted.end(), 0);
  std::vector<std::vector<int>> orders;
  const auto shuffle = [&](std::uint64_t seed, int shard, std::uint64_t iteration) {
    order.Shuffle(seed, shard, iteration);
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      orders.push_back(visited(epoch));
      EXPECT_TRUE(std::ranges::is_permutation(orders.back(), sorted));
    }
  };
  shuffle(1, 0, 0);
  shuffle(1, 0, 1);
  shuffle(1, 1, 0);
  shuffle(2, 0, 0);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(orders[i], orders[k]) << i << " and " << k;
  }
  const std::vector<int> first = orders[0];
  order.Shuffle(1, 0, 0);
  EXPECT_EQ(visited(0), first);
}

TEST(GatherRows, TakesRowsInTheGivenOrder) {
  const std::vector<float> from = {0, 1, 10, 11, 20, 21};
  std::vector<float> to(6);
  GatherRows(from, 2, std::vector<int>{2, 0, 2}, to);
  EXPECT_EQ(to, (std::vector<float>{20, 21, 0, 1, 20, 21}));
}

}  // namespace
}  // namespace trireme
