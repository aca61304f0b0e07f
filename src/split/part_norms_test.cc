#include "trireme/split/part_norms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "trireme/split/test_util.h"

namespace trireme {
namespace {

Network Example() {
  return Network({.towers = {{.name = "policy", .inputs = 5, .hidden = {96, 70, 40}, .outputs = 3},
                             {.name = "value", .inputs = 5, .hidden = {64, 60, 36}, .outputs = 1}},
                  .free_vectors = {{"log_std", 3, 0.5f}}});
}

std::vector<float> Gradient(const Network& network) {
  std::vector<float> gradient(network.param_count());
  for (const TensorInfo& tensor : network.layout().tensors()) {
    std::ranges::copy(RandomNumbers(tensor.size, static_cast<std::uint32_t>(tensor.offset)),
                      gradient.begin() + static_cast<std::ptrdiff_t>(tensor.offset));
  }
  return gradient;
}

// A group for the value tower, one for the free vector, or both together; with norms or rates alone.
ParameterGroups GroupsOf(const Network& network, int which) {
  const auto [begin, end] = network.TowerRange(1);
  switch (which) {
    case 1:
      return {{.begin = begin, .end = end, .learning_rate = 0.5f, .max_norm = 2}};
    case 2:
      return {{.begin = begin, .end = end, .learning_rate = 0.5f, .max_norm = 2},
              {.begin = network.FreeOffset(0), .end = network.param_count(), .max_norm = 0.25}};
    case 3:
      return {{.begin = begin, .end = network.param_count(), .learning_rate = 0.5f, .max_norm = 3}};
    case 4:
      return {{.begin = begin, .end = end, .learning_rate = 0.5f}};
    default:
      return {};
  }
}

class PartNormsTest : public testing::TestWithParam<ModelSplit> {};
INSTANTIATE_TEST_SUITE_P(Splits, PartNormsTest,
                         testing::Values(Tensor(1), Tensor(2), Tensor(4), Pipeline(2), Pipeline(3)),
                         [](const auto& info) {
                           return fmt::format(
                               "{}{}", info.param.kind == ModelSplit::Kind::kTensor ? "Tensor" : "Pipeline",
                               info.param.members);
                         });

TEST_P(PartNormsTest, AreThoseOfTheWholeGradient) {
  const Network whole = Example();
  for (int which = 0; which < 5; ++which) {
    for (const double max_norm : {0.0, 5.0, 1e6}) {
      SCOPED_TRACE(fmt::format("groups {}, at most {}", which, max_norm));
      const std::vector<float> gradient = Gradient(whole);
      std::vector<float> expected = gradient;
      const double norm = ClipGradient(expected, max_norm, GroupsOf(whole, which));
      RunMembers(GetParam().members, [&](PeerCommunicator& group) {
        const Member member(whole, GetParam(), group);
        PartNorms norms(member.share);
        for (int again = 0; again < 2; ++again) {
          std::vector<float> part = member.Part(gradient);
          const ParameterGroups groups = GroupsOf(member.share.network(), which);
          const double found = ClipGradient(part, max_norm, groups, norms.Measure(part, groups));
          const std::vector<float> clipped = member.Whole(part);
          if (GetParam().kind == ModelSplit::Kind::kPipeline) {
            EXPECT_EQ(found, norm);
            EXPECT_TRUE(clipped == expected);
          } else {
            EXPECT_NEAR(found, norm, 1e-12 * norm);
            for (std::size_t i = 0; i < expected.size(); ++i) {
              ASSERT_NEAR(clipped[i], expected[i], 1e-6 * std::fabs(expected[i])) << i;
            }
          }
        }
      });
    }
  }
}

// All members learn that one of them has it.
TEST_P(PartNormsTest, WhatIsNotFiniteIsNoticedByAll) {
  const Network whole = Example();
  std::vector<float> gradient = Gradient(whole);
  for (const TensorInfo& tensor : whole.layout().tensors()) {
    std::vector<float> bad = gradient;
    bad[tensor.offset + tensor.size - 1] = std::numeric_limits<float>::quiet_NaN();
    RunMembers(GetParam().members, [&](PeerCommunicator& group) {
      const Member member(whole, GetParam(), group);
      EXPECT_FALSE(std::isfinite(PartNorms(member.share).Measure(member.Part(bad), {}).norm()))
          << tensor.name;
    });
  }
}

}  // namespace
}  // namespace trireme
