#include "trireme/replay/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "trireme/base/simd.h"
#include "trireme/replay/test_util.h"

namespace trireme {
namespace {

constexpr double kAlpha = 0.6, kEpsilon = 1e-3;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

double Priority(double error) { return std::pow(std::fabs(error) + kEpsilon, kAlpha); }

struct Draw {
  explicit Draw(std::size_t n) : slots(n), weights(n) {}
  bool operator==(const Draw&) const = default;
  std::vector<std::uint32_t> slots;
  std::vector<float> weights;
};

Draw SampleFrom(PrioritisedSampler& sampler, std::size_t n, double beta, std::uint64_t step) {
  RandomStream random(3, Purpose::kTest, 0, step);
  Draw draw(n);
  sampler.Sample(random, beta, draw.slots, draw.weights);
  return draw;
}

// A sampler whose slots 0 ... n - 1 have been added and have the given errors.
PrioritisedSampler WithErrors(std::size_t capacity, const std::vector<float>& errors, double alpha = kAlpha) {
  PrioritisedSampler sampler(capacity, alpha, kEpsilon);
  std::vector<std::uint32_t> slots(errors.size());
  std::iota(slots.begin(), slots.end(), 0);
  for (const std::uint32_t slot : slots) sampler.Added(slot);
  sampler.Update(slots, errors);
  return sampler;
}

std::vector<float> RandomErrors(std::size_t n, std::uint32_t entity) {
  RandomStream random(4, Purpose::kTest, entity, 0);
  std::vector<float> errors(n);
  for (float& error : errors) error = static_cast<float>(random.NextNormal() * std::exp(random.NextNormal()));
  return errors;
}

// How often each slot is drawn, over all batches.
std::vector<double> Counts(PrioritisedSampler& sampler, std::size_t slots, std::size_t batch, int batches) {
  std::vector<double> counts(slots);
  for (int i = 0; i < batches; ++i) {
    for (const std::uint32_t slot : SampleFrom(sampler, batch, 0.4, i).slots) counts.at(slot) += 1;
  }
  return counts;
}

TEST(SampleUniform, DrawsAllSlotsEquallyOften) {
  constexpr std::size_t kSize = 50, kDraws = 100'000;
  RandomStream random(1, Purpose::kTest, 0, 0);
  std::vector<std::uint32_t> slots(kDraws);
  SampleUniform(random, kSize, slots);
  std::vector<double> counts(kSize);
  for (const std::uint32_t slot : slots) counts.at(slot) += 1;
  const double mean = static_cast<double>(kDraws) / kSize;
  for (const double count : counts) EXPECT_NEAR(count, mean, 4.5 * std::sqrt(mean));
}

TEST(SampleUniform, IsAFunctionOfTheStream) {
  std::vector<std::uint32_t> a(100), b(100), c(100);
  RandomStream one(1, Purpose::kTest, 0, 7), same(1, Purpose::kTest, 0, 7), other(1, Purpose::kTest, 0, 8);
  SampleUniform(one, 1000, a);
  SampleUniform(same, 1000, b);
  SampleUniform(other, 1000, c);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

// Stratified draws vary less than independent ones, for which this margin is 4.5 standard deviations.
TEST(PrioritisedSampler, DrawsInProportionToPriorities) {
  constexpr std::size_t kSlots = 200, kBatch = 32;
  constexpr int kBatches = 10'000;
  const std::vector<float> errors = RandomErrors(kSlots, 1);
  PrioritisedSampler sampler = WithErrors(1000, errors);
  double sum = 0;
  for (const float error : errors) sum += Priority(error);
  const std::vector<double> counts = Counts(sampler, kSlots, kBatch, kBatches);
  for (std::size_t i = 0; i < kSlots; ++i) {
    const double mean = kBatch * kBatches * Priority(errors[i]) / sum;
    EXPECT_NEAR(counts[i], mean, 4.5 * std::sqrt(mean)) << i;
  }
}

TEST(PrioritisedSampler, WithoutAlphaDrawsAllEquallyOften) {
  constexpr std::size_t kSlots = 40;
  PrioritisedSampler sampler = WithErrors(40, RandomErrors(kSlots, 2), 0);
  // Forty equal parts, forty equal slots: each exactly once.
  for (const double count : Counts(sampler, kSlots, kSlots, 50)) EXPECT_EQ(count, 50);
  for (const float weight : SampleFrom(sampler, kSlots, 1, 0).weights) EXPECT_EQ(weight, 1.0f);
}

// A slot with a share s of the sum is drawn floor(s n) - 1 times at least from n parts, ceil(s n) + 1 at
// most.
TEST(PrioritisedSampler, DrawsOncePerPart) {
  constexpr std::size_t kSlots = 20, kBatch = 100;
  const std::vector<float> errors = RandomErrors(kSlots, 3);
  PrioritisedSampler sampler = WithErrors(kSlots, errors);
  double sum = 0;
  for (const float error : errors) sum += Priority(error);
  for (std::uint64_t step = 0; step < 50; ++step) {
    const Draw draw = SampleFrom(sampler, kBatch, 1, step);
    EXPECT_TRUE(std::ranges::is_sorted(draw.slots));
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      const double share = kBatch * Priority(errors[slot]) / sum;
      const auto count = static_cast<double>(std::ranges::count(draw.slots, slot));
      EXPECT_GE(count, std::floor(share) - 1);
      EXPECT_LE(count, std::ceil(share) + 1);
    }
  }
}

// Batches beyond, at and below the internal block, and not a multiple of the vector.
TEST(PrioritisedSampler, WeightsFollowTheFormula) {
  constexpr std::size_t kSlots = 500;
  const std::vector<float> errors = RandomErrors(kSlots, 4);
  PrioritisedSampler sampler = WithErrors(kSlots, errors);
  double sum = 0;
  for (const float error : errors) sum += Priority(error);
  for (const double beta : {0.0, 0.4, 1.0}) {
    for (const std::size_t n : {1u, 5u, 256u, 600u}) {
      const Draw draw = SampleFrom(sampler, n, beta, n);
      std::vector<double> expected;
      for (const std::uint32_t slot : draw.slots) {
        expected.push_back(std::pow(kSlots * Priority(errors[slot]) / sum, -beta));
      }
      const double largest = *std::ranges::max_element(expected);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_NEAR(draw.weights[i], expected[i] / largest, 1e-5 * expected[i] / largest);
        EXPECT_LE(draw.weights[i], 1.0f);
      }
      EXPECT_EQ(*std::ranges::max_element(draw.weights), 1.0f);
    }
  }
}

TEST(PrioritisedSampler, NewTransitionsTakeTheHighestPriority) {
  // Equal to the slots of before at first: 1.
  PrioritisedSampler sampler(100, 1, 0);
  for (std::size_t slot = 0; slot < 10; ++slot) sampler.Added(slot);
  std::vector<float> weights = SampleFrom(sampler, 200, 1, 0).weights;
  EXPECT_EQ(*std::ranges::min_element(weights), 1.0f);

  // The highest ever given, also after its owner has lost it: slot 10 has 8, slots 0 and 1 have 2.
  const std::vector<std::uint32_t> slots = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  sampler.Update(slots, std::vector<float>{-8, 2, 1, 1, 1, 1, 1, 1, 1, 1});
  sampler.Update(std::vector<std::uint32_t>{0}, std::vector<float>{2});
  sampler.Added(10);
  const std::vector<double> counts = Counts(sampler, 11, 200, 100);
  const double unit = 200.0 * 100 / (2 + 2 + 8 + 8);
  EXPECT_NEAR(counts[10], 8 * unit, 0.02 * 8 * unit);
  EXPECT_NEAR(counts[0], 2 * unit, 0.05 * 2 * unit);
  EXPECT_NEAR(counts[5], unit, 0.1 * unit);
}

// Overwriting a slot is adding to it. More slots than are held back at once.
TEST(PrioritisedSampler, AddingManyReachesAll) {
  constexpr std::size_t kSlots = 1000;
  PrioritisedSampler sampler = WithErrors(kSlots, std::vector<float>(kSlots, 1e-3f));
  for (std::size_t slot = 0; slot < kSlots; ++slot) sampler.Added(slot);
  const Draw draw = SampleFrom(sampler, kSlots, 1, 0);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) EXPECT_NEAR(draw.slots[slot], slot, 1);
  for (const float weight : draw.weights) EXPECT_EQ(weight, 1.0f);
}

TEST(PrioritisedSampler, UpdateComesAfterWhatWasAddedBefore) {
  PrioritisedSampler sampler(2, 1, 0);
  sampler.Added(0);
  sampler.Added(1);
  sampler.Update(std::vector<std::uint32_t>{1, 1}, std::vector<float>{5, 0.25f});
  const std::vector<double> counts = Counts(sampler, 2, 100, 10);
  EXPECT_NEAR(counts[1], 200, 10);
}

TEST(PrioritisedSampler, NeverDrawsWhatWasNotAdded) {
  PrioritisedSampler sampler(5000, kAlpha, kEpsilon);
  for (std::size_t slot = 17; slot < 40; ++slot) sampler.Added(slot);
  for (std::uint64_t step = 0; step < 100; ++step) {
    for (const std::uint32_t slot : SampleFrom(sampler, 256, 0.4, step).slots) {
      EXPECT_GE(slot, 17u);
      EXPECT_LT(slot, 40u);
    }
  }
}

// Whatever the errors, sums stay finite, every slot keeps a chance and no later transition is starved.
TEST(PrioritisedSampler, ErrorsThatAreNotFiniteDoNoHarm) {
  const float nan = std::nanf("");
  PrioritisedSampler sampler = WithErrors(16, {1, 1, 1, 1, nan, -nan, kInfinity, -kInfinity}, 1);
  sampler.Added(8);
  // Slots 4-8 have the highest priority seen, 1 + epsilon: as the others.
  const std::vector<double> counts = Counts(sampler, 9, 90, 100);
  for (const double count : counts) EXPECT_NEAR(count, 1000, 110);

  PrioritisedSampler extreme = WithErrors(16, {3e38f, 1e18f, 0, -3e38f}, 1);
  const Draw draw = SampleFrom(extreme, 100, 1, 0);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_LT(draw.slots[i], 4u);
    EXPECT_TRUE(draw.weights[i] > 0 && draw.weights[i] <= 1) << draw.weights[i];
  }
  // Errors of zero without an epsilon leave something to draw from.
  PrioritisedSampler none(4, 1, 0);
  none.Added(2);
  none.Update(std::vector<std::uint32_t>{2}, std::vector<float>{0});
  EXPECT_EQ(SampleFrom(none, 3, 1, 0).slots, (std::vector<std::uint32_t>{2, 2, 2}));
}

// Some steps of what a learner does.
std::vector<Draw> Learn(PrioritisedSampler& sampler, int first_step, int steps) {
  std::vector<Draw> draws;
  for (int step = first_step; step < first_step + steps; ++step) {
    for (int i = 0; i < 7; ++i) sampler.Added((7 * step + i) % sampler.capacity());
    draws.push_back(SampleFrom(sampler, 50, 0.5, step));
    sampler.Update(draws.back().slots, RandomErrors(50, 100 + step));
  }
  return draws;
}

TEST(PrioritisedSampler, SaveAndLoadContinuesBitForBit) {
  for (const int steps : {0, 3, 100}) {  // the ring of 300 is full after 43
    PrioritisedSampler original(300, kAlpha, kEpsilon), loaded(300, kAlpha, kEpsilon);
    Learn(original, 0, steps);
    for (std::size_t slot = 0; slot < 3; ++slot) original.Added(slot);  // saved in time, too
    StateWriter out;
    original.Save(out, "s");
    Learn(loaded, 50, 5);  // which must leave no trace
    loaded.Added(299);
    loaded.Load(StateReader(out.Encode()), "s");
    EXPECT_EQ(Learn(original, steps, 20), Learn(loaded, steps, 20)) << steps;
  }
}

TEST(PrioritisedSampler, SameBitsOnEveryInstructionSet) {
  std::vector<std::vector<Draw>> draws;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    OverrideIsa(isa);
    PrioritisedSampler sampler(300, kAlpha, kEpsilon);
    draws.push_back(Learn(sampler, 0, 60));
  }
  OverrideIsa(Isa::kAvx512);  // clamped to what there is
  EXPECT_EQ(draws[0], draws[1]);
  EXPECT_EQ(draws[0], draws[2]);
}

TEST(PrioritisedSampler, RefusesWhatDoesNotFitOrIsDamaged) {
  PrioritisedSampler sampler = WithErrors(20, RandomErrors(20, 5));
  const Draw before = SampleFrom(sampler, 50, 0.5, 0);
  StateWriter out;
  sampler.Save(out, "s");
  const StateReader in(out.Encode());
  EXPECT_THROW(sampler.Load(in, "t"), Error);
  EXPECT_THROW(PrioritisedSampler(19, kAlpha, kEpsilon).Load(in, "s"), Error);

  const auto refused = [&](float highest, std::uint64_t count, const std::vector<float>& priorities) {
    StateWriter state;
    state.PutValue("s/highest", highest);
    state.PutValue("s/count", count);
    state.Put<float>("s/priorities", priorities);
    try {
      sampler.Load(StateReader(state.Encode()), "s");
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused(1, 3, {1, 1}));
  EXPECT_TRUE(refused(1, 1, {1, 1}));
  EXPECT_TRUE(refused(1, ~std::uint64_t{0}, {1, 1}));
  for (const float bad : {-1.0f, 1.5f, kInfinity, std::nanf("")}) {
    EXPECT_TRUE(refused(1, 2, {1, bad})) << bad;
  }
  for (const float bad : {0.0f, -1.0f, kInfinity, std::nanf(""), 1e30f}) {
    EXPECT_TRUE(refused(bad, 2, {0, 0})) << bad;
  }
  EXPECT_EQ(SampleFrom(sampler, 50, 0.5, 0), before);  // as it was
  EXPECT_FALSE(refused(1, 2, {1, 1}));
}

TEST(PrioritisedSampler, TakesTheMemoryItSays) {
  const std::uint64_t before = AllocatedBytes();
  const PrioritisedSampler sampler(12345, kAlpha, kEpsilon);
  const std::uint64_t allocated = AllocatedBytes() - before;
  EXPECT_GE(allocated, PrioritisedSampler::Bytes(12345));
  EXPECT_LE(allocated, PrioritisedSampler::Bytes(12345) + 2 * AlignedBuffer<float>::kAlignment);
}

}  // namespace
}  // namespace trireme
