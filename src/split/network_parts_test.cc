#include "trireme/split/network_parts.h"

#include <gtest/gtest.h>

#include "trireme/split/test_util.h"

namespace trireme {
namespace {

const ModelSplit kSplits[] = {Tensor(1), Tensor(2), Tensor(4), Pipeline(2), Pipeline(3)};

Network Example() {
  return Network({.towers = {{.name = "policy", .inputs = 5, .hidden = {96, 70, 40}, .outputs = 3},
                             {.name = "value", .inputs = 5, .hidden = {12, 33, 100, 9}, .outputs = 1}},
                  .free_vectors = {{"log_std", 3, 0.5f}}});
}

std::vector<float> Numbered(const Network& network) {
  std::vector<float> values(network.param_count());
  for (const TensorInfo& tensor : network.layout().tensors()) {
    for (std::size_t i = 0; i < tensor.size; ++i)
      values[tensor.offset + i] = static_cast<float>(tensor.offset + i + 1);
  }
  return values;
}

TEST(NetworkPartsTest, PartsMakeTheWholeAndEveryParameterCountsOnce) {
  const Network whole = Example();
  const std::vector<float> values = Numbered(whole);
  for (const ModelSplit& split : kSplits) {
    SCOPED_TRACE(split.text());
    const NetworkParts parts(whole, split);
    std::vector<float> again(whole.param_count());
    std::vector<int> counted(whole.param_count());
    std::size_t held = 0;
    for (int member = 0; member < split.members; ++member) {
      const Network& own = parts.held(member);
      std::vector<float> part(own.param_count());
      parts.Take(member, values, part);
      parts.Put(member, part, again);
      const auto& tensors = own.layout().tensors();
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        held += tensors[i].size;
        if (!parts.tensors(member)[i].counts) continue;
        for (std::size_t j = 0; j < tensors[i].size; ++j) {
          ++counted[static_cast<std::size_t>(part[tensors[i].offset + j]) - 1];
        }
      }
      EXPECT_EQ(own.FreeVector(std::span<const float>(part), 0)[0], values[whole.FreeOffset(0)]);
    }
    EXPECT_TRUE(again == values);
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(counted[i], values[i] > 0 ? 1 : 0) << i;
    EXPECT_LT(held, whole.param_count() + 400 * split.members);  // little is held twice
  }
}

// Element by element, against where the names say it belongs.
TEST(NetworkPartsTest, AMemberHoldsColumnsOfOddLayersAndRowsOfEvenOnes) {
  const Network whole = Example();
  const std::vector<float> values = Numbered(whole);
  const NetworkParts parts(whole, Tensor(2));
  std::vector<float> part(parts.held(1).param_count());
  parts.Take(1, values, part);
  const auto tensor = [](const Network& network, const std::string& name) {
    return *std::ranges::find(network.layout().tensors(), name, &TensorInfo::name);
  };
  const auto at = [](std::span<const float> buffer, const TensorInfo& info, int row, int column) {
    return buffer[info.offset + ElementIndex(info, row, column)];
  };
  const TensorInfo w0 = tensor(parts.held(1), "policy/0/weight"), all0 = tensor(whole, "policy/0/weight");
  EXPECT_EQ(w0.shape, (std::vector<int>{5, 48}));
  EXPECT_EQ(at(part, w0, 3, 47), at(values, all0, 3, 95));
  const TensorInfo w1 = tensor(parts.held(1), "policy/1/weight"), all1 = tensor(whole, "policy/1/weight");
  EXPECT_EQ(w1.shape, (std::vector<int>{48, 70}));
  EXPECT_EQ(at(part, w1, 2, 69), at(values, all1, 50, 69));
  const TensorInfo head = tensor(parts.held(1), "policy/head/weight"),
                   heads = tensor(whole, "policy/head/weight");
  EXPECT_EQ(head.shape, (std::vector<int>{3, 20}));  // behind the third layer, which is split by columns
  EXPECT_EQ(at(part, head, 2, 5), at(values, heads, 2, 25));
  EXPECT_EQ(tensor(parts.held(1), "value/head/weight").shape, (std::vector<int>{1, 9}));  // all of it
}

TEST(NetworkPartsTest, StagesHaveEquallyMuchToDo) {
  const auto cuts = [](std::vector<int> hidden, int stages, int inputs = 4) {
    std::vector<std::size_t> ends;
    for (const LayerRange& range :
         StagesOf({.name = "t", .inputs = inputs, .hidden = std::move(hidden), .outputs = 2}, stages)) {
      ends.push_back(range.end);
    }
    return ends;
  };
  EXPECT_EQ(cuts({64, 64}, 2), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(cuts({64, 64, 64, 64}, 2, 64), (std::vector<std::size_t>{2, 4}));
  EXPECT_EQ(cuts({64, 64, 64, 64}, 1), (std::vector<std::size_t>{4}));
  EXPECT_EQ(cuts({64, 64, 64, 64, 64}, 2), (std::vector<std::size_t>{3, 5}));  // the first one has little
  EXPECT_EQ(cuts({8, 8, 8, 512, 512}, 2), (std::vector<std::size_t>{4, 5}));
  EXPECT_EQ(cuts({8, 8, 8}, 3), (std::vector<std::size_t>{1, 2, 3}));
}

std::string Refusal(const ModelSplit& split) {
  const Network whole = Example();
  try {
    const NetworkParts parts(whole, split);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(NetworkPartsTest, WhatCannotBeSplitIsRefused) {
  EXPECT_NE(
      Refusal(Tensor(3)).find("tensor=3 does not divide hidden layer 2 of tower policy, which has 40 units"),
      std::string::npos)
      << Refusal(Tensor(3));
  EXPECT_NE(Refusal(Pipeline(4)).find("pipeline=4 has more stages than tower policy has hidden layers, 3"),
            std::string::npos)
      << Refusal(Pipeline(4));
}

TEST(ModelSplitTest, IsReadAndWritten) {
  for (const char* text : {"none", "tensor=2", "pipeline=4,micro_batches=16"}) {
    EXPECT_EQ(ModelSplit::Parse(text).text(), text);
  }
  EXPECT_EQ(ModelSplit::Parse("pipeline=2").text(), "pipeline=2,micro_batches=8");
  EXPECT_EQ(ModelSplit::Parse(" pipeline = 2 , micro_batches = 3 ").text(), "pipeline=2,micro_batches=3");
  EXPECT_EQ(ModelSplit::Parse("tensor=1").text(), "none");
  for (const char* text :
       {"", "tensor", "tensor=", "tensor=0", "tensor=-2", "tensor=2x", "tensor=65", "rows=2",
        "tensor=2,micro_batches=4", "pipeline=2,", "pipeline=2,micro_batches=0", "pipeline=2,tensor=2",
        "pipeline=2,micro_batches=3,micro_batches=4", "micro_batches=2", "tensor=99999999999"}) {
    EXPECT_THROW(ModelSplit::Parse(text), Error) << text;
  }
}

// What is saved in parts is whole in the file, and is read in other parts.
TEST(NetworkShareTest, StatesAreWhole) {
  const Network whole = Example();
  const std::vector<float> values = Numbered(whole);
  RunMembers(2, [&](PeerCommunicator& group) {
    const Member member(whole, Tensor(2), group);
    StateWriter state;
    state.PutLikeParams("b", member.Part(values));
    state.PutValue<int>("other", 5);
    state.PutLikeParams("a", member.Part(values));
    member.share.MakeWhole(state);
    if (group.rank() != 0) return;
    const StateReader reader(state.Encode());
    std::vector<float> found(values.size());
    reader.Get<float>("a", std::span(found));
    EXPECT_TRUE(found == values);
    EXPECT_EQ(reader.GetValue<int>("other"), 5);
    const NetworkParts others(whole, Pipeline(2));
    ThreadGroup alone(1);
    ThreadCommunicator first(alone, 0);
    const NetworkShare share(others, first);
    std::vector<float> part(share.network().param_count()), expected = part;
    reader.HeldAs(share).GetLikeParams("b", part);
    others.Take(0, values, expected);
    EXPECT_TRUE(part == expected);
  });
}

}  // namespace
}  // namespace trireme
