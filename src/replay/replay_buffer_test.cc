#include "trireme/replay/replay_buffer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/replay/test_util.h"

namespace trireme {
namespace {

struct Shape {
  std::size_t capacity;
  int obs, action;
};

void AddRandom(ReplayBuffer& buffer, const Shape& shape, std::deque<StoredTransition>& model,
               RandomStream& random) {
  const StoredTransition t = RandomTransition(shape.obs, shape.action, random);
  const std::size_t expected_slot = buffer.added() % shape.capacity;
  EXPECT_EQ(buffer.Add(t.View()), expected_slot);
  model.push_back(t);
  if (model.size() > shape.capacity) model.pop_front();
}

// The slots from the oldest transition to the newest.
std::vector<std::uint32_t> SlotsByAge(const ReplayBuffer& buffer) {
  std::vector<std::uint32_t> slots;
  for (std::uint64_t i = buffer.added() - buffer.size(); i < buffer.added(); ++i) {
    slots.push_back(static_cast<std::uint32_t>(i % buffer.capacity()));
  }
  return slots;
}

void ExpectHolds(const ReplayBuffer& buffer, const Shape& shape, const std::deque<StoredTransition>& model) {
  ASSERT_EQ(buffer.size(), model.size());
  TransitionBatch batch(model.size(), RowLayout(shape.obs), shape.action);
  buffer.Gather(SlotsByAge(buffer), batch);
  ASSERT_EQ(batch.size, model.size());
  for (std::size_t i = 0; i < model.size(); ++i) {
    EXPECT_EQ(RowOf(batch, i, shape.obs, shape.action), model[i]) << "row " << i;
  }
}

class Shapes : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(All, Shapes,
                         testing::Values(Shape{1, 1, 1}, Shape{2, 3, 2}, Shape{7, 4, 1}, Shape{50, 5, 3},
                                         Shape{33, 8, 1}, Shape{20, 301, 17}),
                         [](const auto& info) {
                           return fmt::format("{}x{}x{}", info.param.capacity, info.param.obs,
                                              info.param.action);
                         });

TEST_P(Shapes, KeepsTheMostRecentInOrder) {
  const Shape shape = GetParam();
  ReplayBuffer buffer(shape.capacity, RowLayout(shape.obs), shape.action);
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_EQ(buffer.capacity(), shape.capacity);
  std::deque<StoredTransition> model;
  RandomStream random(1, Purpose::kTest, 0, 0);
  for (std::size_t i = 0; i < 3 * shape.capacity + 1; ++i) {
    AddRandom(buffer, shape, model, random);
    ExpectHolds(buffer, shape, model);
  }
}

// Slots in any order, repeated, more of them than are fetched ahead, into a batch with room to spare.
TEST_P(Shapes, GathersAnySlots) {
  const Shape shape = GetParam();
  ReplayBuffer buffer(shape.capacity, RowLayout(shape.obs), shape.action);
  std::deque<StoredTransition> model;
  RandomStream random(2, Purpose::kTest, 0, 0);
  for (std::size_t i = 0; i < shape.capacity; ++i) AddRandom(buffer, shape, model, random);
  TransitionBatch batch(100, RowLayout(shape.obs), shape.action);
  for (const std::size_t n : {100u, 0u, 1u, 37u}) {
    std::vector<std::uint32_t> slots(n);
    for (auto& slot : slots) slot = random.NextBelow(static_cast<std::uint32_t>(shape.capacity));
    buffer.Gather(slots, batch);
    ASSERT_EQ(batch.size, n);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_EQ(RowOf(batch, i, shape.obs, shape.action), model[slots[i]]);
    }
  }
}

TEST_P(Shapes, SaveAndLoadContinues) {
  const Shape shape = GetParam();
  for (const std::size_t before :
       {std::size_t{0}, shape.capacity / 2, shape.capacity, 2 * shape.capacity + 1}) {
    ReplayBuffer original(shape.capacity, RowLayout(shape.obs), shape.action);
    std::deque<StoredTransition> model;
    RandomStream random(3, Purpose::kTest, 0, before);
    for (std::size_t i = 0; i < before; ++i) AddRandom(original, shape, model, random);
    StateWriter out;
    original.Save(out, "replay");
    ReplayBuffer loaded(shape.capacity, RowLayout(shape.obs), shape.action);
    loaded.Load(StateReader(out.Encode()), "replay");
    EXPECT_EQ(loaded.added(), before);
    ExpectHolds(loaded, shape, model);
    for (std::size_t i = 0; i < shape.capacity + 2; ++i) AddRandom(loaded, shape, model, random);
    ExpectHolds(loaded, shape, model);
  }
}

TEST(ReplayBuffer, SavesFilledRecordsAlone) {
  ReplayBuffer buffer(1000, RowLayout(4), 1);
  std::deque<StoredTransition> model;
  RandomStream random(4, Purpose::kTest, 0, 0);
  for (int i = 0; i < 10; ++i) AddRandom(buffer, {1000, 4, 1}, model, random);
  StateWriter out;
  buffer.Save(out, "replay");
  EXPECT_LT(out.Encode().size(), 10 * 11 * sizeof(float) + 200);
}

TEST(ReplayBuffer, RefusesWhatDoesNotFit) {
  std::deque<StoredTransition> model;
  RandomStream random(5, Purpose::kTest, 0, 0);
  ReplayBuffer buffer(10, RowLayout(4), 1);
  for (int i = 0; i < 6; ++i) AddRandom(buffer, {10, 4, 1}, model, random);
  StateWriter out;
  buffer.Save(out, "replay");
  const StateReader in(out.Encode());
  EXPECT_THROW(buffer.Load(in, "other"), Error);
  // The third has records of the same width.
  for (const Shape& shape : {Shape{11, 4, 1}, Shape{10, 5, 1}, Shape{10, 3, 3}}) {
    ReplayBuffer other(shape.capacity, RowLayout(shape.obs), shape.action);
    EXPECT_THROW(other.Load(in, "replay"), Error);
    EXPECT_EQ(other.size(), 0u);
  }
}

TEST(ReplayBuffer, RefusesDamagedState) {
  std::deque<StoredTransition> model;
  RandomStream random(6, Purpose::kTest, 0, 0);
  const Shape shape{10, 4, 1};
  ReplayBuffer buffer(10, RowLayout(4), 1);
  for (int i = 0; i < 6; ++i) AddRandom(buffer, shape, model, random);
  const std::vector<std::uint64_t> sizes = {10, 4, 1};
  for (const std::uint64_t added :
       {std::uint64_t{5}, std::uint64_t{7}, std::uint64_t{12}, ~std::uint64_t{0}}) {
    StateWriter out;
    out.Put<std::uint64_t>("replay/shape", sizes);
    out.PutValue<std::uint64_t>("replay/added", added);
    out.Put<float>("replay/records", std::vector<float>(6 * 11));
    EXPECT_THROW(buffer.Load(StateReader(out.Encode()), "replay"), Error) << added;
  }
  StateWriter out;
  out.Put<std::uint64_t>("replay/shape", sizes);
  out.PutValue<std::uint64_t>("replay/added", 6);
  EXPECT_THROW(buffer.Load(StateReader(out.Encode()), "replay"), Error);
  ExpectHolds(buffer, shape, model);  // as it was
}

TEST(ReplayBuffer, TakesTheMemoryItSays) {
  EXPECT_EQ(ReplayBuffer::Bytes(1'000'000, RowLayout(4), 1), 44'000'000u);
  const std::uint64_t before = AllocatedBytes();
  const ReplayBuffer buffer(1234, RowLayout(7), 3);
  const std::uint64_t allocated = AllocatedBytes() - before;
  EXPECT_GE(allocated, ReplayBuffer::Bytes(1234, RowLayout(7), 3));
  EXPECT_LE(allocated, ReplayBuffer::Bytes(1234, RowLayout(7), 3) + AlignedBuffer<float>::kAlignment);
}

// Bytes and masks are kept as they come, and come back as a network reads them.
TEST(ReplayBuffer, BytesAndMasksComeBack) {
  EnvSpec spec;
  spec.obs = {{3}, ObsType::kUint8};
  spec.action = ActionSpace::Discrete(2);
  spec.masks = true;
  const RowLayout layout(spec);
  EXPECT_EQ(ReplayBuffer::Bytes(10, layout, 1), 10u * 4 * (2 * 2 + 1 + 2))
      << "two rows of five bytes in two floats";
  ReplayBuffer buffer(10, layout, 1);
  for (int i = 0; i < 7; ++i) {
    const auto byte = [&](int k) { return static_cast<std::byte>(10 * i + k); };
    const std::byte obs[] = {byte(0), byte(1), byte(2)}, next[] = {byte(3), byte(4), byte(5)};
    const std::uint8_t mask[] = {1, 1}, next_mask[] = {static_cast<std::uint8_t>(i % 2), 1};
    std::vector<float> row(layout.width()), next_row(layout.width());
    layout.Pack(obs, mask, 1, row.data());
    layout.Pack(next, next_mask, 1, next_row.data());
    const float action = static_cast<float>(i % 2);
    buffer.Add({.obs = row.data(),
                .next_obs = next_row.data(),
                .actions = &action,
                .ret = 1.0f * i,
                .discount = 0.5f});
  }
  StateWriter out;
  buffer.Save(out, "replay");
  ReplayBuffer loaded(10, layout, 1);
  loaded.Load(StateReader(out.Encode()), "replay");
  TransitionBatch batch(4, layout, 1);
  const std::vector<std::uint32_t> slots = {6, 0, 3};
  loaded.Gather(slots, batch);
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const int i = static_cast<int>(slots[row]);
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(batch.obs[row * 3 + k], kByteScale * static_cast<float>(10 * i + k));
      EXPECT_EQ(batch.next_obs[row * 3 + k], kByteScale * static_cast<float>(10 * i + 3 + k));
    }
    EXPECT_EQ(batch.next_masks[row * 2], i % 2);
    EXPECT_EQ(batch.next_masks[row * 2 + 1], 1);
    EXPECT_EQ(batch.returns[row], static_cast<float>(i));
  }
}

}  // namespace
}  // namespace trireme
