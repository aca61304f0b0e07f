#include "trireme/replay/n_step.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/replay/test_util.h"

namespace trireme {
namespace {

constexpr int kObs = 3, kAction = 2;

struct Step {
  std::vector<float> obs, action, next_obs;
  float reward = 0;
  bool terminated = false, truncated = false;
  bool ended() const { return terminated || truncated; }
};

// Episodes of random lengths, many shorter than the windows, ended in both ways; the last one is unfinished.
std::vector<Step> RandomSteps(int count, std::uint32_t env) {
  RandomStream random(7, Purpose::kTest, env, 0);
  std::vector<Step> steps;
  std::vector<float> obs = RandomFloats(kObs, random);
  for (int i = 0; i < count; ++i) {
    const std::uint32_t fate = random.NextBelow(8);
    steps.push_back({obs, RandomFloats(kAction, random), RandomFloats(kObs, random),
                     static_cast<float>(random.NextNormal()), fate == 0, fate == 1});
    obs = steps.back().ended() ? RandomFloats(kObs, random) : steps.back().next_obs;
  }
  return steps;
}

// What the definition says about the step at `start`, looking forward through the whole stream. Nothing, if
// the stream stops before the transition is complete.
std::vector<StoredTransition> Expected(const std::vector<Step>& steps, std::size_t start, int n,
                                       double gamma) {
  std::size_t last = start;
  while (!steps[last].ended() && last - start + 1 < static_cast<std::size_t>(n)) {
    if (++last == steps.size()) return {};
  }
  double ret = 0, discount = 1;
  for (std::size_t i = last + 1; i-- > start;) ret = steps[i].reward + gamma * ret;
  for (std::size_t i = start; i <= last; ++i) discount *= gamma;
  if (steps[last].terminated) discount = 0;
  return {{steps[start].obs, steps[last].next_obs, steps[start].action, static_cast<float>(ret),
           static_cast<float>(discount)}};
}

class Windows : public testing::TestWithParam<std::tuple<int, double>> {
 protected:
  int n() const { return std::get<0>(GetParam()); }
  double gamma() const { return std::get<1>(GetParam()); }

  static void Feed(NStep& window, int env, const Step& step, std::vector<StoredTransition>& to) {
    window.Append(env, step.obs.data(), step.action.data(), step.reward, step.next_obs.data(),
                  step.terminated, step.truncated,
                  [&](const Transition& t) { to.push_back(Stored(t, kObs, kAction)); });
  }
};
INSTANTIATE_TEST_SUITE_P(All, Windows,
                         testing::Combine(testing::Values(1, 2, 3, 5, 16), testing::Values(0.99, 1.0, 0.5)),
                         [](const auto& info) {
                           return fmt::format("{}Steps{}", std::get<0>(info.param),
                                              static_cast<int>(100 * std::get<1>(info.param)));
                         });

// Every step of every environment, exactly once, in order, with the bits of the definition.
TEST_P(Windows, MatchTheDefinition) {
  constexpr int kEnvs = 4, kSteps = 400;
  NStep window(kEnvs, n(), gamma(), kObs, kAction);
  std::vector<std::vector<Step>> streams;
  for (std::uint32_t env = 0; env < kEnvs; ++env) streams.push_back(RandomSteps(kSteps, env));
  std::vector<std::vector<StoredTransition>> emitted(kEnvs);
  for (int i = 0; i < kSteps; ++i) {
    for (int env = 0; env < kEnvs; ++env) Feed(window, env, streams[env][i], emitted[env]);
  }
  for (int env = 0; env < kEnvs; ++env) {
    std::vector<StoredTransition> expected;
    int terminated = 0, truncated = 0;
    for (std::size_t i = 0; i < streams[env].size(); ++i) {
      terminated += streams[env][i].terminated;
      truncated += streams[env][i].truncated;
      for (const StoredTransition& t : Expected(streams[env], i, n(), gamma())) expected.push_back(t);
    }
    EXPECT_EQ(emitted[env], expected) << "env " << env;
    EXPECT_EQ(emitted[env].size() + window.pending(env), streams[env].size());
    EXPECT_GT(terminated, 10);
    EXPECT_GT(truncated, 10);
  }
}

// A transition comes as early as it can: with its n-th step, or with the end of the episode.
TEST_P(Windows, EmitInTime) {
  NStep window(1, n(), gamma(), kObs, kAction);
  std::vector<StoredTransition> emitted;
  std::size_t total = 0;
  int pending = 0;
  for (const Step& step : RandomSteps(300, 9)) {
    Feed(window, 0, step, emitted);
    ++pending;
    const int due = step.ended() ? pending : pending == n() ? 1 : 0;
    pending -= due;
    total += due;
    EXPECT_EQ(emitted.size(), total);
    EXPECT_EQ(window.pending(0), pending);
  }
}

TEST_P(Windows, SaveAndLoadContinuesBitForBit) {
  constexpr int kEnvs = 3, kSteps = 120;
  std::vector<std::vector<Step>> streams;
  for (std::uint32_t env = 0; env < kEnvs; ++env) streams.push_back(RandomSteps(kSteps, 20 + env));
  const auto feed = [&](NStep& window, int begin, int end) {
    std::vector<StoredTransition> emitted;
    for (int i = begin; i < end; ++i) {
      for (int env = 0; env < kEnvs; ++env) Feed(window, env, streams[env][i], emitted);
    }
    return emitted;
  };
  for (int cut = 0; cut < 60; cut += 7) {
    NStep original(kEnvs, n(), gamma(), kObs, kAction), loaded(kEnvs, n(), gamma(), kObs, kAction);
    feed(original, 0, cut);
    feed(loaded, 60, 67);  // which must leave no trace
    StateWriter out;
    original.Save(out, "n");
    loaded.Load(StateReader(out.Encode()), "n");
    EXPECT_EQ(feed(loaded, cut, kSteps), feed(original, cut, kSteps)) << "saved before step " << cut;
  }
}

// An end that is both counts as a termination: nothing follows it.
TEST(NStep, TerminationWinsOverTruncation) {
  for (const int n : {1, 3}) {
    NStep window(1, n, 0.9, 1, 1);
    const float zero = 0;
    int count = 0;
    window.Append(0, &zero, &zero, 1, &zero, true, true, [&](const Transition& t) {
      ++count;
      EXPECT_EQ(t.discount, 0.0f);
    });
    EXPECT_EQ(count, 1);
  }
}

// A worked example: gamma = 1/2, n = 3, rewards 1, 2, 4, 8, cut off by a time limit.
TEST(NStep, WorkedExample) {
  NStep window(1, 3, 0.5, 1, 1);
  std::vector<StoredTransition> emitted;
  for (int i = 0; i < 4; ++i) {
    const auto obs = static_cast<float>(10 * i), next = static_cast<float>(10 * i + 10);
    const auto action = static_cast<float>(i), reward = static_cast<float>(1 << i);
    window.Append(0, &obs, &action, reward, &next, false, i == 3,
                  [&](const Transition& t) { emitted.push_back(Stored(t, 1, 1)); });
  }
  const std::vector<StoredTransition> expected = {{{0}, {30}, {0}, 1 + 1 + 1, 0.125f},
                                                  {{10}, {40}, {1}, 2 + 2 + 2, 0.125f},
                                                  {{20}, {40}, {2}, 4 + 4, 0.25f},
                                                  {{30}, {40}, {3}, 8, 0.5f}};
  EXPECT_EQ(emitted, expected);
}

TEST(NStep, RefusesWhatDoesNotFitOrIsDamaged) {
  NStep window(2, 3, 0.9, kObs, kAction);
  StateWriter out;
  window.Save(out, "n");
  const StateReader in(out.Encode());
  EXPECT_NO_THROW(window.Load(in, "n"));
  EXPECT_THROW(window.Load(in, "m"), Error);
  EXPECT_THROW(NStep(3, 3, 0.9, kObs, kAction).Load(in, "n"), Error);
  EXPECT_THROW(NStep(2, 4, 0.9, kObs, kAction).Load(in, "n"), Error);
  EXPECT_THROW(NStep(2, 3, 0.9, kObs + 1, kAction).Load(in, "n"), Error);
  EXPECT_THROW(NStep(2, 3, 0.9, kObs, kAction + 1).Load(in, "n"), Error);

  const auto damaged = [](std::vector<std::int32_t> windows) {
    StateWriter state;
    state.Put<std::uint64_t>("n/shape", std::vector<std::uint64_t>{2, 3, kObs, kAction});
    state.Put<std::int32_t>("n/windows", windows);
    state.Put<float>("n/obs", std::vector<float>(2 * 3 * kObs));
    state.Put<float>("n/actions", std::vector<float>(2 * 3 * kAction));
    state.Put<float>("n/rewards", std::vector<float>(2 * 3));
    return StateReader(state.Encode());
  };
  EXPECT_NO_THROW(window.Load(damaged({2, 2, 0, 1}), "n"));
  for (const std::vector<std::int32_t>& windows :
       {std::vector<std::int32_t>{3, 0, 0, 0}, {0, 0, -1, 0}, {0, 3, 0, 0}, {0, 0, 0, -1}, {0, 0}}) {
    EXPECT_THROW(window.Load(damaged(windows), "n"), Error);
  }
}

}  // namespace
}  // namespace trireme
