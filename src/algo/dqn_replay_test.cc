// What DQN does, as its replay buffers show it: which actions it takes, and what of its experience goes on.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/algo/test_dqn.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

// How often each action was taken in 8 shards of one environment, and how often it was the greedy one of the
// initial network.
struct Actions {
  std::array<int, 3> taken = {}, greedy = {};
  int steps = 0, agreed = 0;
};
Actions ActionsOf(double epsilon) {
  const AlgorithmRun run("dqn", "Acrobot-v1",
                         {"envs=8", "horizon=500", "rounds=1", "learning_starts=1000000000", "hidden=[16]",
                          fmt::format("epsilon_start={}", epsilon), fmt::format("epsilon_end={}", epsilon)});
  const std::size_t obs_size = run.env().spec.obs.size();
  const PlainTower q = run.Tower(0);
  const std::string state = run.Iterate(2, 0, 1).state;
  Actions actions;
  for (int shard = 0; shard < AlgorithmRun::kShards; ++shard) {
    for (const Numbers& record : Remembered(run, state, shard)) {
      const Numbers obs(record.begin(), record.begin() + obs_size);
      const Numbers values = q.Forward(ToNumbers(run.initial()), obs);
      const int greedy = BestAction(values);
      const int taken = static_cast<int>(record[2 * obs_size]);
      ++actions.taken[taken];
      ++actions.greedy[greedy];
      actions.agreed += greedy == taken;
      ++actions.steps;
    }
  }
  EXPECT_EQ(actions.steps, 8 * 500);
  return actions;
}

TEST(DqnExperience, ActsUniformlyWithEpsilonOne) {
  const Actions actions = ActionsOf(1);
  const double expected = actions.steps / 3.0, deviation = std::sqrt(actions.steps * 2.0 / 9);
  for (const int count : actions.taken) EXPECT_NEAR(count, expected, 4 * deviation);
  EXPECT_NEAR(actions.agreed, expected, 4 * deviation);
}

TEST(DqnExperience, ActsGreedilyWithEpsilonZero) {
  const Actions actions = ActionsOf(0);
  EXPECT_EQ(actions.agreed, actions.steps);
  EXPECT_LT(*std::ranges::max_element(actions.greedy), actions.steps);  // it is not always the same
}

TEST(DqnExperience, ActsGreedilyExceptWithProbabilityEpsilon) {
  const Actions actions = ActionsOf(0.3);
  const double share = 0.7 + 0.3 / 3;
  EXPECT_NEAR(actions.agreed, actions.steps * share, 4 * std::sqrt(actions.steps * share * (1 - share)));
}

struct ReplayCase {
  const char* name;
  const char* env;
  int horizon;
  int replay;  // of all shards
  int n_step = 1;
};
class DqnReplay : public testing::TestWithParam<ReplayCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, DqnReplay,
                         testing::Values(ReplayCase{"Terminating", "CartPole-v1", 60, 8 * 1000},
                                         ReplayCase{"WrappingAround", "CartPole-v1", 60, 8 * 50},
                                         ReplayCase{"Truncating", "MountainCar-v0", 130, 8 * 1000},
                                         ReplayCase{"TerminatingNStep", "CartPole-v1", 60, 8 * 50, 3},
                                         ReplayCase{"TruncatingNStep", "MountainCar-v0", 130, 8 * 1000, 4}),
                         [](const auto& info) { return info.param.name; });

TEST_P(DqnReplay, HoldsWhatWasCollected) {
  const ReplayCase& c = GetParam();
  constexpr int kEnvsPerShard = 2;
  constexpr double kGamma = 0.97;
  const AlgorithmRun run(
      "dqn", c.env,
      {fmt::format("envs={}", 8 * kEnvsPerShard), fmt::format("horizon={}", c.horizon), "rounds=1",
       "epsilon_start=1", "epsilon_end=1", fmt::format("replay={}", c.replay), "hidden=[8]",
       "learning_starts=1000000000", fmt::format("gamma={}", kGamma), fmt::format("n_step={}", c.n_step)});
  const std::string state = run.Iterate(4, 0, 2).state;
  const std::size_t capacity = c.replay / 8, choices = run.env().spec.action.choices();
  int ends = 0;
  for (int shard = 0; shard < 8; ++shard) {
    PlainEnvs envs(run.env(), kEnvsPerShard, shard * kEnvsPerShard);
    std::vector<std::vector<PlainStep>> pending(kEnvsPerShard);
    std::vector<Numbers> expected;
    std::size_t added = 0;
    // Makes the pending steps one transition, which starts at the oldest.
    const auto remember = [&](std::vector<PlainStep>& steps) {
      Numbers record = steps.front().obs;
      double ret = 0, discount = 1;
      for (const PlainStep& step : steps) {
        ret += discount * step.reward;
        discount *= kGamma;
      }
      if (steps.back().terminated) discount = 0;
      for (const double value : steps.back().next_obs) record.push_back(discount == 0 ? 0 : value);
      record.insert(record.end(), {static_cast<double>(steps.front().action), ret, discount});
      if (added < capacity) expected.emplace_back();
      expected[added++ % capacity] = record;
      steps.erase(steps.begin());
    };
    for (int t = 0; t < 2 * c.horizon; ++t) {
      const auto steps = envs.Step([&](const Numbers&, const PhiloxBlock& draws) {
        return static_cast<int>((std::uint64_t{draws[1]} * choices) >> 32);
      });
      for (int b = 0; b < kEnvsPerShard; ++b) {
        pending[b].push_back(steps[b]);
        if (steps[b].terminated || steps[b].truncated) {
          while (!pending[b].empty()) remember(pending[b]);
          ++ends;
        } else if (static_cast<int>(pending[b].size()) == c.n_step) {
          remember(pending[b]);
        }
      }
    }
    const std::vector<Numbers> found = Remembered(run, state, shard);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t slot = 0; slot < found.size(); ++slot) {
      for (std::size_t i = 0; i < found[slot].size(); ++i) {
        ASSERT_NEAR(found[slot][i], expected[slot][i], 1e-6 * std::abs(expected[slot][i]))
            << "number " << i << " of slot " << slot << " of shard " << shard;
      }
    }
  }
  EXPECT_GE(ends, 16);
}

TEST(DqnExperience, ARunThatGoesOnWithoutExperienceLearnsNothingBeforeLearningStarts) {
  const AlgorithmRun run("dqn", "CartPole-v1", SmallDqn({"rounds=2", "learning_starts=128"}));
  const std::string state = run.Iterate(2, 0, 3).state;
  const auto updates = [&](int newcomers) {
    std::vector<double> found;
    for (const MetricRow& row : run.Iterate(2, 3, 6, state, newcomers).rows)
      found.push_back(row.Get("updates"));
    return found;
  };
  EXPECT_EQ(updates(0), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(updates(1), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(updates(2), (std::vector<double>{0, 1, 2}));
}

// Whether a shard has learned from its replay buffer: errors have replaced the priorities of new transitions.
bool HasLearned(const std::string& state, int shard) {
  const std::string name = fmt::format("shard/{}/priorities/priorities", shard);
  const StateReader in(state);
  std::vector<float> priorities(in.GetText(name).size() / sizeof(float));
  in.Get<float>(name, priorities);
  return std::ranges::adjacent_find(priorities, std::not_equal_to<>()) != priorities.end();
}

TEST(DqnExperience, AWorkerThatJoinsOthersFirstCollectsAsTheyDid) {
  const AlgorithmRun run(
      "dqn", "CartPole-v1",
      SmallDqn({"rounds=2", "learning_starts=128", "prioritised=true", "learning_rate=1e-6"}));
  const std::string state = run.Iterate(2, 0, 3).state;
  const std::string after_one = run.Iterate(2, 3, 4, state, 1).state;
  const std::string after_two = run.Iterate(2, 3, 5, state, 1).state;
  for (int shard = 0; shard < AlgorithmRun::kShards; ++shard) {
    SCOPED_TRACE(shard);
    EXPECT_EQ(HasLearned(after_one, shard), shard < AlgorithmRun::kShards / 2);
    EXPECT_TRUE(HasLearned(after_two, shard));
  }
}

// The replay buffer goes on where the environments cannot, and no transition spans the gap: of four steps before and
// four after it, two each have two more after them.
TEST(DqnExperience, ReplayIsKeptWhereNewEpisodesBegin) {
  static const bool added = [] {
    AddEnv(ForwardingEntry<ForwardingBatch>("DqnReplayTest.Unsaved-v0",
                                            {.snapshots = false, .reproducible = true}));
    return true;
  }();
  ASSERT_TRUE(added);
  const AlgorithmRun run("dqn", "DqnReplayTest.Unsaved-v0",
                         SmallDqn({"rounds=1", "n_step=3", "learning_starts=48"}));
  const AlgorithmRun::Outcome first = run.Iterate(2, 0, 1);
  const AlgorithmRun::Outcome second = run.Iterate(2, 1, 2, first.state);
  EXPECT_EQ(first.rows[0].Get("updates"), 0);
  EXPECT_EQ(second.rows[0].Get("updates"), 1);
  for (int shard = 0; shard < AlgorithmRun::kShards; ++shard) {
    const std::vector<Numbers> before = Remembered(run, first.state, shard),
                               after = Remembered(run, second.state, shard);
    ASSERT_EQ(before.size(), 2u);
    ASSERT_EQ(after.size(), 4u);
    EXPECT_TRUE(std::ranges::equal(before, std::span(after).first(2)));
  }
}

}  // namespace
}  // namespace trireme
