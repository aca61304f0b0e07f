#include "trireme/server/service/in_step.h"

#include <gtest/gtest.h>

#include "trireme/comm/conformance.h"

namespace trireme {
namespace {

// For as many workers as a run may have, more than a communicator of threads takes.
TEST(InStep, SumsAreThoseOfACommunicator) {
  constexpr std::size_t kParams = 1100, kStatistics = 3;
  for (const int workers : {1, 2, 3, 4, 7, 8, 64, 65, 100}) {
    const auto gradients = Operands<float>(workers, kParams + kStatistics);
    GradientRound round({.begin = 0, .size = kParams}, workers);
    Ranks ranks;
    std::map<int, CollectInput> inputs;
    const auto doubles = Operands<double>(workers, 70);
    for (int rank = 0; rank < workers; ++rank) {
      AlignedBuffer<float> gradient(gradients[rank].size());
      std::copy(gradients[rank].begin(), gradients[rank].end(), gradient.begin());
      round.Add(rank, {}, {}, std::move(gradient), {});
      ranks.push_back(static_cast<std::uint32_t>(rank));
      inputs[rank].doubles = doubles[rank];
    }
    const std::span<const float> sum = round.SumOf(ranks).values.span();
    EXPECT_EQ(std::vector<float>(sum.begin(), sum.end()), TreeSums(gradients)) << workers;
    EXPECT_EQ(Combine(inputs, Collective::kSum, 0).doubles, TreeSums(doubles)) << workers;
  }
}

}  // namespace
}  // namespace trireme
