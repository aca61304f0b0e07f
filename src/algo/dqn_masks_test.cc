// Q-learning where not every choice is allowed.
#include <gtest/gtest.h>

#include <vector>

#include "trireme/algo/test_run.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

// A choice that is allowed nowhere, whose value would spoil everything: it is worth 1e4, and the corridor pays at most 1.
TEST(DqnMasks, WhatIsForbiddenIsNeitherChosenNorBelieved) {
  for (const char* double_q : {"double=false", "double=true"}) {
    const AlgorithmRun run(
        "dqn", SoaEntry<Corridor>(),
        {"envs=8", "rounds=40", "hidden=[16]", "learning_starts=64", "n_step=2", double_q});
    std::vector<float> params = run.initial();
    const TensorInfo& bias = run.network().layout().tensors().back();
    ASSERT_EQ(bias.shape, std::vector<int>{Corridor::kChoices});
    params[bias.offset + 3] = 1e4f;
    const MetricRow row = run.IterateFrom(params);
    EXPECT_GT(row.Get("updates"), 0);
    EXPECT_LT(row.Get("td_error"), 10);
    EXPECT_LT(row.Get("q_value"), 10);
    EXPECT_EQ(row.Get("episode_length_mean"), 20) << "a forbidden choice ends an episode";
  }
}

}  // namespace
}  // namespace trireme
