#include "trireme/nn/fused_executor.h"

#include <gtest/gtest.h>

#include "trireme/nn/copying_executor.h"
#include "trireme/nn/executor_conformance.h"

namespace trireme {
namespace {

std::unique_ptr<Executor> MakeFused(const Network& network) {
  return std::make_unique<FusedExecutor>(network);
}

TEST(FusedExecutorTest, OutputsAndGradientsAreThoseOfTheFormulas) { CheckFiniteDifferences(MakeFused); }
TEST(FusedExecutorTest, ABatchIsTheSumOfItsSamples) { CheckBatchSizes(MakeFused); }
TEST(FusedExecutorTest, ATapeServesAnyPass) { CheckTapeReuse(MakeFused); }
TEST(FusedExecutorTest, ParametersChangeInPlace) { CheckChangedParams(MakeFused); }
TEST(FusedExecutorTest, TowersDoNotDisturbEachOther) { CheckTowersApart(MakeFused); }
TEST(FusedExecutorTest, BackwardAddsToItsTowerOnly) { CheckGradientIsAdded(MakeFused); }

TEST(FusedExecutorTest, SamplesWithALossAreTheirPasses) { CheckLossSamples(MakeFused); }

TEST(FusedExecutorTest, PassesAreWholeChunksThatGetShorterAsNetworksGetWider) {
  const auto pass_size = [](int width) {
    const Network network(
        {.towers = {{.name = "t", .inputs = 4, .hidden = {width, width}, .outputs = 2}}, .free_vectors = {}});
    return FusedExecutor(network).pass_size();
  };
  EXPECT_EQ(pass_size(8), 16 * Tower::kChunk);
  EXPECT_EQ(pass_size(64), 4 * Tower::kChunk);
  EXPECT_EQ(pass_size(4096), Tower::kChunk);
}

// The stand-in for a device that algorithms are tested with is an executor itself.
TEST(CopyingExecutorTest, Conforms) {
  struct Copying final : Executor {
    explicit Copying(const Network& network) : fused(network), copying(fused) {}
    const Network& network() const override { return copying.network(); }
    int pass_size() const override { return copying.pass_size(); }
    std::unique_ptr<Tape> MakeTape(int capacity) const override { return copying.MakeTape(capacity); }
    FusedExecutor fused;
    CopyingExecutor copying;
  };
  CheckExecutor([](const Network& network) { return std::make_unique<Copying>(network); });
}

}  // namespace
}  // namespace trireme
