#include "trireme/algo/dqn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "trireme/algo/test_plain.h"
#include "trireme/algo/test_run.h"
#include "trireme/env/test_env.h"
#include "trireme/replay/sampler.h"

namespace trireme {
namespace {

// 128 steps in an iteration, the first updates after 64 of them.
Assignments Small(const Assignments& extra = {}) {
  Assignments all = {"envs=8",         "horizon=4",   "rounds=4",           "batch=64",
                     "target_every=3", "hidden=[16]", "learning_starts=64", "replay=4096"};
  all.insert(all.end(), extra.begin(), extra.end());
  return all;
}

const RunCase kRunCases[] = {
    {"CartPole", "dqn", "CartPole-v1", Small()},
    {"NotDouble", "dqn", "CartPole-v1", Small({"double=false", "activation=tanh", "optimizer=rmsprop"})},
    {"DuelingPrioritisedNStep", "dqn", "CartPole-v1",
     Small({"dueling=true", "prioritised=true", "n_step=3", "envs=24", "batch=40"})},
    {"SoftTargetHuber", "dqn", "CartPole-v1", Small({"target_tau=0.01", "target_every=1", "huber=0.5"})},
    {"SeveralUpdates", "dqn", "CartPole-v1", Small({"updates=3", "hidden=[16,8]"})},
    {"ReplayWrapsAround", "dqn", "CartPole-v1", Small({"replay=80", "prioritised=true"})},
    // More samples in a shard's part of a batch than fit into one pass.
    {"SeveralPasses", "dqn", "CartPole-v1", Small({"hidden=[512]", "batch=560", "rounds=2", "dueling=true"})},
    {"WarmUpOfSeveralIterations", "dqn", "CartPole-v1", Small({"learning_starts=300"})},
    // Episodes are cut off by the limit of 200 steps in the third iteration.
    {"MountainCarTruncating", "dqn", "MountainCar-v0",
     Small({"horizon=70", "rounds=1", "n_step=2", "updates=2"})},
};

class DqnCases : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, DqnCases, testing::ValuesIn(kRunCases), NameOfCase);

TEST_P(DqnCases, BitIdenticalForAnyNumberOfWorkers) { ExpectSameBitsForAnyNumberOfWorkers(GetParam()); }
TEST_P(DqnCases, ContinuesBitForBitWithAnotherNumberOfWorkers) {
  ExpectContinuationWithAnotherNumberOfWorkers(GetParam());
}

TEST(Dqn, RowsHoldWhatWasMeasured) {
  const AlgorithmRun run("dqn", "CartPole-v1", Small({"rounds=32", "updates=2"}));
  const MetricRow row = run.Iterate(2, 0, 1).rows[0];
  ExpectPromisedRow("dqn", row);
  EXPECT_EQ(row.Get("updates"), 2 * 31);  // the first round is all warm-up
  EXPECT_GT(row.Get("episodes"), 20);
  EXPECT_EQ(row.Get("episode_return_mean"), row.Get("episode_length_mean"));  // CartPole pays 1 per step
  EXPECT_NEAR(row.Get("episode_return_mean"), 22, 10);                        // of actions at random
  EXPECT_GT(row.Get("q_loss"), 0);
  EXPECT_GT(row.Get("td_error"), 0);
  EXPECT_GT(row.Get("grad_norm"), 0);
}

// Updates of each of the first three iterations.
std::vector<double> Updates(const Assignments& assignments) {
  const AlgorithmRun run("dqn", "CartPole-v1", assignments);
  std::vector<double> updates;
  for (const MetricRow& row : run.Iterate(2, 0, 3).rows) {
    ExpectPromisedRow("dqn", row);
    updates.push_back(row.Get("updates"));
  }
  return updates;
}

TEST(Dqn, LearnsNothingBeforeLearningStarts) {
  const auto updates = [](const char* starts) { return Updates(Small({"rounds=2", starts})); };
  EXPECT_EQ(updates("learning_starts=0"), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(updates("learning_starts=128"), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(updates("learning_starts=129"), (std::vector<double>{0, 0, 2}));

  const AlgorithmRun run("dqn", "CartPole-v1", Small({"rounds=2", "learning_starts=129"}));
  EXPECT_EQ(run.Iterate(2, 0, 2).params, run.initial());
  EXPECT_NE(run.Iterate(2, 0, 3).params, run.initial());
}

// The records of a shard's replay buffer, each obs | next_obs | action | ret | discount. What follows the end
// of an episode does not matter and is set to zero.
std::vector<Numbers> Remembered(const AlgorithmRun& run, const std::string& state, int shard) {
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

TEST(Dqn, ARunThatGoesOnWithoutExperienceLearnsNothingBeforeLearningStarts) {
  const AlgorithmRun run("dqn", "CartPole-v1", Small({"rounds=2", "learning_starts=128"}));
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

TEST(Dqn, AWorkerThatJoinsOthersFirstCollectsAsTheyDid) {
  const AlgorithmRun run(
      "dqn", "CartPole-v1",
      Small({"rounds=2", "learning_starts=128", "prioritised=true", "learning_rate=1e-6"}));
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
TEST(Dqn, ReplayIsKeptWhereNewEpisodesBegin) {
  static const bool added = [] {
    AddEnv(
        ForwardingEntry<ForwardingBatch>("DqnTest.Unsaved-v0", {.snapshots = false, .reproducible = true}));
    return true;
  }();
  ASSERT_TRUE(added);
  const AlgorithmRun run("dqn", "DqnTest.Unsaved-v0", Small({"rounds=1", "n_step=3", "learning_starts=48"}));
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

// Before every environment has taken n steps, a shard may have no transition at all.
TEST(Dqn, LearnsNothingBeforeThereAreTransitions) {
  EXPECT_EQ(Updates(Small({"rounds=1", "learning_starts=0", "n_step=8"})), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(Updates(Small({"rounds=1", "learning_starts=0", "n_step=9"})), (std::vector<double>{0, 0, 1}));
}

TEST(Dqn, EpsilonFollowsItsSchedule) {
  const auto epsilons = [](const char* schedule) {
    const AlgorithmRun run(
        "dqn", "CartPole-v1",
        Small({"rounds=1", "epsilon_start=0.9", "epsilon_end=0.1", "exploration_fraction=0.4", schedule}));
    std::vector<double> found;
    for (const MetricRow& row : run.Iterate(1, 0, 6).rows) found.push_back(row.Get("epsilon"));
    return found;
  };
  const std::vector<double> linear = epsilons("epsilon_schedule=linear");
  const std::vector<double> cosine = epsilons("epsilon_schedule=cosine");
  for (int i = 0; i < 6; ++i) {
    const double share = std::min(1.0, i / 4.0);
    EXPECT_NEAR(linear[i], 0.9 - 0.8 * share, 1e-12);
    EXPECT_NEAR(cosine[i], 0.5 + 0.4 * std::cos(std::numbers::pi * share), 1e-12);
  }
  EXPECT_EQ(epsilons("epsilon_schedule=constant"), std::vector<double>(6, 0.9));
}

// Parameters and target network after 0, 1, 2, ... updates.
struct Course {
  std::vector<std::vector<float>> params, target;
};
Course CourseOf(int updates, const Assignments& extra) {
  Assignments assignments = Small({"rounds=1", "learning_starts=0", "learning_rate=0.05"});
  assignments.insert(assignments.end(), extra.begin(), extra.end());
  const AlgorithmRun run("dqn", "CartPole-v1", assignments);
  Course course;
  for (int i = 0; i <= updates; ++i) {
    const AlgorithmRun::Outcome outcome = run.Iterate(1, 0, i);
    course.params.push_back(outcome.params);
    course.target.emplace_back(outcome.params.size());
    StateReader(outcome.state).Get<float>("dqn/target", course.target.back());
  }
  return course;
}

TEST(Dqn, TargetIsCopiedEverySoManyUpdates) {
  const Course course = CourseOf(8, {"target_every=3"});
  EXPECT_EQ(course.target[0], course.params[0]);
  for (int i = 1; i <= 8; ++i) {
    EXPECT_NE(course.params[i], course.params[i - 1]);
    EXPECT_EQ(course.target[i], course.params[(i - 1) / 3 * 3]) << i;  // moved before updates 0, 3, 6
  }
}

TEST(Dqn, TargetFollowsSlowly) {
  const Course course = CourseOf(5, {"target_every=2", "target_tau=0.25"});
  for (int i = 1; i <= 5; ++i) {
    const bool moves = (i - 1) % 2 == 0;
    for (std::size_t p = 0; p < course.target[i].size(); ++p) {
      const double before = course.target[i - 1][p], source = course.params[i - 1][p];
      const double expected = moves ? 0.25 * source + 0.75 * before : before;
      ASSERT_NEAR(course.target[i][p], expected, 1e-6 * std::abs(expected));
    }
  }
  EXPECT_NE(course.target[5], course.target[2]);
}

// ---- What is remembered ----

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

TEST(Dqn, ActsUniformlyWithEpsilonOne) {
  const Actions actions = ActionsOf(1);
  const double expected = actions.steps / 3.0, deviation = std::sqrt(actions.steps * 2.0 / 9);
  for (const int count : actions.taken) EXPECT_NEAR(count, expected, 4 * deviation);
  EXPECT_NEAR(actions.agreed, expected, 4 * deviation);
}

TEST(Dqn, ActsGreedilyWithEpsilonZero) {
  const Actions actions = ActionsOf(0);
  EXPECT_EQ(actions.agreed, actions.steps);
  EXPECT_LT(*std::ranges::max_element(actions.greedy), actions.steps);  // it is not always the same
}

TEST(Dqn, ActsGreedilyExceptWithProbabilityEpsilon) {
  const Actions actions = ActionsOf(0.3);
  const double share = 0.7 + 0.3 / 3;
  EXPECT_NEAR(actions.agreed, actions.steps * share, 4 * std::sqrt(actions.steps * share * (1 - share)));
}

TEST(Dqn, ActsWithoutExploring) {
  ExpectGreedyActions("dqn", "Acrobot-v1", Small());
  ExpectGreedyActions("dqn", "Acrobot-v1", Small({"dueling=true"}));
  ExpectGreedyActions("dqn", "Acrobot-v1", {"hidden=[512]"});
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

// ---- Updates by hand ----

struct UpdateCase {
  const char* name;
  bool double_q = false, dueling = false, prioritised = false;
  double huber = 0;
  int n_step = 1;
};
const UpdateCase kUpdateCases[] = {
    {.name = "Plain"},
    {.name = "Double", .double_q = true},
    {.name = "Dueling", .dueling = true},
    {.name = "Huber", .huber = 0.5},
    {.name = "Prioritised", .prioritised = true},
    {.name = "Everything", .double_q = true, .dueling = true, .prioritised = true, .huber = 0.5, .n_step = 3},
};
class DqnUpdates : public testing::TestWithParam<UpdateCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, DqnUpdates, testing::ValuesIn(kUpdateCases),
                         [](const auto& info) { return info.param.name; });

// The first updates of a worker with one shard, all of them after it has filled its replay buffer. The target
// network moves before the first and the fifth of them.
TEST_P(DqnUpdates, MoveTheParametersAsTheFormulasSay) {
  const UpdateCase& c = GetParam();
  constexpr int kBatch = 20, kUpdates = 7, kTargetEvery = 4, kReplay = 200, kBegin = 5;
  constexpr double kRate = 0.2, kTau = 0.6, kAlpha = 0.7, kEps = 0.05;
  const double beta = 0.4 + 0.6 * 0.1 * kBegin;
  const AlgorithmRun run("dqn", "CartPole-v1",
                         {"envs=2",
                          "horizon=40",
                          "rounds=1",
                          "learning_starts=0",
                          "gamma=0.9",
                          "hidden=[7,5]",
                          "optimizer=sgd",
                          "activation=tanh",
                          "max_grad_norm=0",
                          fmt::format("batch={}", kBatch),
                          fmt::format("updates={}", kUpdates),
                          fmt::format("target_every={}", kTargetEvery),
                          fmt::format("target_tau={}", kTau),
                          fmt::format("replay={}", kReplay),
                          fmt::format("learning_rate={}", kRate),
                          fmt::format("double={}", c.double_q),
                          fmt::format("dueling={}", c.dueling),
                          fmt::format("prioritised={}", c.prioritised),
                          fmt::format("priority_alpha={}", kAlpha),
                          "priority_beta=0.4",
                          fmt::format("priority_eps={}", kEps),
                          fmt::format("huber={}", c.huber),
                          fmt::format("n_step={}", c.n_step)});
  const AlgorithmRun::AsynchronousOutcome found = run.Iterate({.iterations = {1}, .first = kBegin});
  const std::vector<Numbers> replay = Remembered(run, found.workers[0].state, 0);

  const PlainTower tower = run.Tower(0);
  const int choices = run.env().spec.action.choices(), obs_size = run.env().spec.obs.size();
  const auto q = [&](const Numbers& params, const Numbers& obs) {
    Numbers out = tower.Forward(params, obs);
    if (!c.dueling) return out;
    const double value = out.back();
    out.pop_back();
    const double mean = std::accumulate(out.begin(), out.end(), 0.0) / choices;
    for (double& advantage : out) advantage += value - mean;
    return out;
  };
  PrioritisedSampler sampler(kReplay, kAlpha, kEps);
  for (std::size_t slot = 0; slot < replay.size(); ++slot) sampler.Added(slot);

  Numbers params = ToNumbers(run.initial()), target = params;
  double loss = 0, values = 0, error_sum = 0;
  for (int update = 0; update < kUpdates; ++update) {
    for (std::size_t i = 0; update % kTargetEvery == 0 && i < params.size(); ++i) {
      target[i] = kTau * params[i] + (1 - kTau) * target[i];
    }
    RandomStream random(AlgorithmRun::kSeed, Purpose::kReplay, 0, update);
    std::vector<std::uint32_t> slots(kBatch);
    std::vector<float> weights(kBatch, 1.0f), errors;
    if (c.prioritised) {
      sampler.Sample(random, beta, slots, weights);
    } else {
      for (std::uint32_t& slot : slots) slot = random.NextBelow(static_cast<std::uint32_t>(replay.size()));
    }
    Numbers gradient(params.size(), 0.0);
    for (int i = 0; i < kBatch; ++i) {
      const Numbers& record = replay[slots[i]];
      const Numbers obs(record.begin(), record.begin() + obs_size);
      const Numbers next_obs(record.begin() + obs_size, record.begin() + 2 * obs_size);
      const int action = static_cast<int>(record[2 * obs_size]);
      const int best = BestAction(q(c.double_q ? params : target, next_obs));
      const double y = record[2 * obs_size + 1] + record[2 * obs_size + 2] * q(target, next_obs)[best];
      const double error = q(params, obs)[action] - y, size = std::abs(error);
      const bool linear = c.huber > 0 && size > c.huber;
      loss += weights[i] * (linear ? c.huber * (size - c.huber / 2) : error * error / 2);
      values += q(params, obs)[action];
      error_sum += size;
      errors.push_back(static_cast<float>(size));
      const double d_q = weights[i] * (linear ? std::copysign(c.huber, error) : error) / kBatch;
      Numbers d_out(choices, c.dueling ? -d_q / choices : 0);
      d_out[action] += d_q;
      if (c.dueling) d_out.push_back(d_q);
      tower.AddGradient(params, obs, d_out, gradient);
    }
    for (std::size_t i = 0; i < params.size(); ++i) params[i] -= kRate * gradient[i];
    if (c.prioritised) sampler.Update(slots, errors);
  }
  ExpectSameMove(run, found.params, params);
  const MetricRow& row = found.workers[0].rows[0];
  EXPECT_NEAR(row.Get("q_loss"), loss / (kUpdates * kBatch), 1e-5);
  EXPECT_NEAR(row.Get("q_value"), values / (kUpdates * kBatch), 1e-5);
  EXPECT_NEAR(row.Get("td_error"), error_sum / (kUpdates * kBatch), 1e-5);
}

// ---- Settings ----

TEST(Dqn, DivergenceIsAnErrorThatSaysWhatToDo) {
  for (const char* option : {"dueling=false", "dueling=true", "prioritised=true", "huber=1"}) {
    SCOPED_TRACE(option);
    ExpectDivergenceIsAnError("dqn", Small({"learning_starts=0", option}));
  }
}

TEST(DqnSettings, DrivesDiscreteActionsOnly) {
  EXPECT_TRUE(DqnEntry().discrete);
  EXPECT_FALSE(DqnEntry().continuous);
}

TEST(DqnSettings, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(Refusal("dqn", {}), "");
  EXPECT_EQ(Refusal("dqn", {"envs=12"}, 4), "");
  EXPECT_TRUE(Mentions(Refusal("dqn", {"envs=12"}), "envs = 12"));
  EXPECT_TRUE(Mentions(Refusal("dqn", {"envs=12"}), "shards = 8"));
  EXPECT_EQ(Refusal("dqn", {"batch=40"}), "");
  EXPECT_TRUE(Mentions(Refusal("dqn", {"batch=44"}), "batch = 44"));
  EXPECT_TRUE(Mentions(Refusal("dqn", {"batch=4"}), "batch = 4"));  // fewer than shards
  EXPECT_TRUE(Mentions(Refusal("dqn", {"replay=50001"}), "replay = 50001"));
  EXPECT_TRUE(Mentions(Refusal("dqn", {"replay=4"}), "replay = 4"));
  EXPECT_EQ(Refusal("dqn", {"epsilon_start=0.1", "epsilon_end=0.1"}), "");
  EXPECT_TRUE(Mentions(Refusal("dqn", {"epsilon_start=0.1", "epsilon_end=0.2"}), "epsilon_end = 0.2"));
}

TEST(DqnSettings, RefusesValuesOutOfRange) {
  ExpectOutOfRange("dqn", {"envs=0",
                           "horizon=0",
                           "updates=0",
                           "rounds=0",
                           "batch=0",
                           "replay=0",
                           "learning_starts=-1",
                           "gamma=1.1",
                           "n_step=0",
                           "double=2",
                           "target_tau=0",
                           "target_tau=1.1",
                           "target_every=0",
                           "epsilon_start=1.1",
                           "epsilon_end=-0.1",
                           "exploration_fraction=0",
                           "epsilon_schedule=square",
                           "priority_alpha=1.1",
                           "priority_beta=-0.1",
                           "priority_eps=-1",
                           "huber=-1",
                           "learning_rate=0",
                           "learning_rate=nan",
                           "max_grad_norm=-1",
                           "hidden=[0]",
                           "activation=sine"});
  EXPECT_THROW(SettingsWith("dqn", {"hidden=[]"})->MakeNetwork(FindEnv("CartPole-v1").spec), Error);
}

}  // namespace
}  // namespace trireme
