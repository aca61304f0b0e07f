// What tests of DQN share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/algo/test_plain.h"
#include "trireme/algo/test_run.h"

namespace trireme {

// 128 steps in an iteration, the first updates after 64 of them.
inline Assignments SmallDqn(const Assignments& extra = {}) {
  Assignments all = {"envs=8",         "horizon=4",   "rounds=4",           "batch=64",
                     "target_every=3", "hidden=[16]", "learning_starts=64", "replay=4096"};
  all.insert(all.end(), extra.begin(), extra.end());
  return all;
}

// The records of a shard's replay buffer, each obs | next_obs | action | ret | discount. What follows the end
// of an episode does not matter and is set to zero.
inline std::vector<Numbers> Remembered(const AlgorithmRun& run, const std::string& state, int shard) {
  const std::string name = fmt::format("shard/{}/replay/records", shard);
  const StateReader in(state);
  const std::size_t obs_size = run.env().spec.obs.size(), width = 2 * obs_size + 3;
  std::vector<float> floats(in.GetText(name).size() / sizeof(float));
  in.Get<float>(name, floats);
  EXPECT_EQ(floats.size() % width, 0);
  std::vector<Numbers> records;
  for (std::size_t at = 0; at + width <= floats.size(); at += width) {
    records.emplace_back(floats.begin() + at, floats.begin() + at + width);
    if (records.back().back() == 0) std::fill_n(records.back().begin() + obs_size, obs_size, 0.0);
  }
  return records;
}

}  // namespace trireme
