#include "trireme/nn/layout.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(ParamLayoutTest, TensorsStartOnCacheLinesAndDoNotOverlap) {
  ParamLayout layout;
  EXPECT_EQ(layout.size(), 0u);
  EXPECT_EQ(layout.Add("a", {3, 5}), 0u);
  EXPECT_EQ(layout.Add("b", {16}), 16u);
  EXPECT_EQ(layout.Add("c", {17}), 32u);
  EXPECT_EQ(layout.Add("d", {1}), 64u);
  EXPECT_EQ(layout.size(), 80u);
  std::size_t end = 0;
  for (const TensorInfo& tensor : layout.tensors()) {
    EXPECT_EQ(tensor.offset * sizeof(float) % 64, 0u) << tensor.name;
    EXPECT_GE(tensor.offset, end) << tensor.name;
    end = tensor.offset + tensor.size;
  }
  EXPECT_LE(end, layout.size());
}

TEST(ParamLayoutTest, RemembersNamesAndShapes) {
  ParamLayout layout;
  layout.Add("policy/0/weight", {4, 64});
  layout.Add("policy/0/bias", {64});
  ASSERT_EQ(layout.tensors().size(), 2u);
  EXPECT_EQ(layout.tensors()[0].name, "policy/0/weight");
  EXPECT_EQ(layout.tensors()[0].shape, (std::vector<int>{4, 64}));
  EXPECT_EQ(layout.tensors()[0].size, 256u);
  EXPECT_EQ(layout.tensors()[1].name, "policy/0/bias");
  EXPECT_EQ(layout.tensors()[1].size, 64u);
}

TEST(ElementIndexTest, BlocksOfColumnsFollowOneAnother) {
  ParamLayout layout;
  layout.Add("plain", {2, 5});
  layout.Add("blocked", {2, 5}, 2);
  const TensorInfo& plain = layout.tensors()[0];
  EXPECT_EQ(ElementIndex(plain, 1, 3), 8u);
  const TensorInfo& blocked = layout.tensors()[1];
  // Columns {0, 1}, {2, 3} and {4}, each block row by row.
  EXPECT_EQ(ElementIndex(blocked, 0, 1), 1u);
  EXPECT_EQ(ElementIndex(blocked, 1, 0), 2u);
  EXPECT_EQ(ElementIndex(blocked, 0, 2), 4u);
  EXPECT_EQ(ElementIndex(blocked, 1, 3), 7u);
  EXPECT_EQ(ElementIndex(blocked, 0, 4), 8u);
  EXPECT_EQ(ElementIndex(blocked, 1, 4), 9u);
}

}  // namespace
}  // namespace trireme
