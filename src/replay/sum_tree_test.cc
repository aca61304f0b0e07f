#include "trireme/replay/sum_tree.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/replay/test_util.h"

namespace trireme {
namespace {

// The tree with its weights in a plain array beside it.
struct Modelled {
  explicit Modelled(std::size_t capacity) : tree(capacity), weights(capacity) {}

  void Set(const std::vector<std::uint32_t>& slots, const std::vector<float>& values) {
    tree.Set(slots, values);
    for (std::size_t i = 0; i < slots.size(); ++i) weights[slots[i]] = values[i];
  }
  std::uint32_t Find(double position) const {
    std::uint32_t slot = 0;
    tree.Find({&position, 1}, {&slot, 1});
    return slot;
  }
  double Sum() const { return std::accumulate(weights.begin(), weights.end(), 0.0); }

  SumTree tree;
  std::vector<float> weights;
};

// A batch of changes; a third of them to zero, some slots repeated. Whole numbers make all sums exact.
void ChangeAtRandom(Modelled& m, std::size_t batch, bool whole, RandomStream& random) {
  std::vector<std::uint32_t> slots(batch);
  std::vector<float> values(batch);
  for (std::size_t i = 0; i < batch; ++i) {
    slots[i] = random.NextBelow(static_cast<std::uint32_t>(m.weights.size()));
    if (i > 0 && random.NextBelow(5) == 0) slots[i] = slots[i - 1];
    values[i] = random.NextBelow(3) == 0 ? 0.0f
                : whole                  ? static_cast<float>(random.NextBelow(100))
                                         : static_cast<float>(std::exp(3 * random.NextNormal()));
  }
  m.Set(slots, values);
}

class Capacities : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(All, Capacities, testing::Values(1, 2, 15, 16, 17, 255, 256, 257, 300, 5000),
                         [](const auto& info) { return fmt::format("Slots{}", info.param); });

// Both ends of every interval, and a position inside it: exact, as all sums are.
TEST_P(Capacities, FindsTheIntervalOfEveryPosition) {
  Modelled m(GetParam());
  RandomStream random(1, Purpose::kTest, 0, GetParam());
  for (int round = 0; round < 20; ++round) {
    ChangeAtRandom(m, 1 + random.NextBelow(600), true, random);
    ASSERT_EQ(m.tree.total(), m.Sum());
    std::vector<double> positions;
    std::vector<std::uint32_t> expected;
    double start = 0;
    for (std::uint32_t slot = 0; slot < m.weights.size(); ++slot) {
      ASSERT_EQ(m.tree.Get(slot), m.weights[slot]);
      if (m.weights[slot] == 0) continue;
      const double end = start + m.weights[slot];
      for (const double position :
           {start, std::nextafter(end, 0.0), start + random.NextUniform() * m.weights[slot] * 0.999}) {
        positions.push_back(position);
        expected.push_back(slot);
      }
      start = end;
    }
    std::vector<std::uint32_t> found(positions.size());
    m.tree.Find(positions, found);
    EXPECT_EQ(found, expected);
  }
}

// Weights over many orders of magnitude: positions are found up to the rounding of the sums, and what is
// found has weight, at the boundaries of all intervals as well.
TEST_P(Capacities, FindsWeightWhateverTheRounding) {
  Modelled m(GetParam());
  RandomStream random(2, Purpose::kTest, 0, GetParam());
  for (int round = 0; round < 20; ++round) {
    ChangeAtRandom(m, 1 + random.NextBelow(600), false, random);
    const double total = m.tree.total();
    EXPECT_NEAR(total, m.Sum(), 1e-6 * m.Sum());
    if (total == 0) continue;
    std::vector<double> ends(m.weights.size());  // of the intervals
    std::inclusive_scan(m.weights.begin(), m.weights.end(), ends.begin(), std::plus<>(), 0.0);
    std::vector<double> positions = {0,
                                     std::nextafter(total, 0.0),
                                     total,
                                     2 * total,
                                     -1,
                                     total / 3,
                                     std::numeric_limits<double>::infinity(),
                                     std::numeric_limits<double>::quiet_NaN()};
    for (const double end : ends) positions.insert(positions.end(), {end, std::nextafter(end, 0.0)});
    std::vector<std::uint32_t> found(positions.size());
    m.tree.Find(positions, found);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::uint32_t slot = found[i];
      ASSERT_LT(slot, m.weights.size());
      EXPECT_GT(m.weights[slot], 0) << positions[i] << " of " << total;
      if (!(positions[i] >= 0 && positions[i] < total)) continue;
      EXPECT_LE(ends[slot] - m.weights[slot], positions[i] + 1e-6 * total);
      EXPECT_GE(ends[slot], positions[i] - 1e-6 * total);
    }
  }
}

// The tree is a function of the weights, however they came about.
TEST_P(Capacities, NothingDrifts) {
  Modelled m(GetParam());
  RandomStream random(3, Purpose::kTest, 0, GetParam());
  for (int round = 0; round < 200; ++round) ChangeAtRandom(m, 1 + random.NextBelow(40), false, random);
  SumTree fresh(GetParam()), assigned(GetParam());
  for (std::uint32_t slot = 0; slot < m.weights.size(); ++slot) {
    fresh.Set({&slot, 1}, {&m.weights[slot], 1});
  }
  const std::vector<float> nonsense(GetParam(), 3.0f);
  assigned.Assign(nonsense);
  assigned.Assign(m.weights);
  EXPECT_EQ(fresh.total(), m.tree.total());
  EXPECT_EQ(assigned.total(), m.tree.total());
  std::vector<double> positions(1000);
  for (double& position : positions) position = random.NextUniform() * m.tree.total();
  std::vector<std::uint32_t> found(1000), found_fresh(1000), found_assigned(1000);
  m.tree.Find(positions, found);
  fresh.Find(positions, found_fresh);
  assigned.Find(positions, found_assigned);
  EXPECT_EQ(found, found_fresh);
  EXPECT_EQ(found, found_assigned);
}

TEST_P(Capacities, FindsTheOnlyWeightFromAnywhere) {
  for (const std::uint32_t only : {std::uint32_t{0}, static_cast<std::uint32_t>(GetParam() / 2),
                                   static_cast<std::uint32_t>(GetParam() - 1)}) {
    for (const float weight : {1e-30f, 1.0f, 1e18f}) {
      Modelled m(GetParam());
      m.Set({only}, {weight});
      EXPECT_EQ(m.tree.total(), weight);
      for (const double share : {0.0, 0.3, 0.9999999999, 1.0, 1.5}) EXPECT_EQ(m.Find(share * weight), only);
    }
  }
}

TEST_P(Capacities, WithoutAnyWeightFindsSlotZero) {
  const Modelled m(GetParam());
  EXPECT_EQ(m.tree.total(), 0);
  EXPECT_EQ(m.Find(0), 0u);
  EXPECT_EQ(m.Find(1), 0u);
}

TEST_P(Capacities, TakesTheMemoryItSays) {
  const std::uint64_t before = AllocatedBytes();
  const SumTree tree(GetParam());
  const std::uint64_t allocated = AllocatedBytes() - before;
  EXPECT_GE(allocated, SumTree::Bytes(GetParam()));
  EXPECT_LE(allocated, SumTree::Bytes(GetParam()) + AlignedBuffer<float>::kAlignment);
}

TEST(SumTree, TheLastOfEqualSlotsCounts) {
  Modelled m(300);
  m.Set({7, 8, 7, 299, 7}, {1, 2, 3, 4, 5});
  EXPECT_EQ(m.tree.Get(7), 5.0f);
  EXPECT_EQ(m.tree.total(), 11);
}

TEST(SumTree, AssigningFewerClearsTheRest) {
  SumTree tree(300);
  tree.Assign(std::vector<float>(300, 1.0f));
  EXPECT_EQ(tree.total(), 300);
  tree.Assign(std::vector<float>(20, 2.0f));
  EXPECT_EQ(tree.total(), 40);
  EXPECT_EQ(tree.Get(20), 0.0f);
}

// A million slots cost little more than their weights.
TEST(SumTree, InnerNodesTakeASixteenth) {
  EXPECT_LT(static_cast<double>(SumTree::Bytes(1'000'000)), 4e6 * (1 + 1 / 14.0));
}

TEST(SumTreeDeathTest, RefusesWeightsThatAreNone) {
  SumTree tree(10);
  const std::uint32_t slot = 3, outside = 10;
  for (const float value : {-1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_DEATH(tree.Set({&slot, 1}, {&value, 1}), "values");
  }
  const float one = 1;
  EXPECT_DEATH(tree.Set({&outside, 1}, {&one, 1}), "capacity");
}

}  // namespace
}  // namespace trireme
