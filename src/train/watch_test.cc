#include "trireme/train/watch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

// Counts its steps, and shows how many there were.
struct Counter {
  static constexpr int kStateSize = 1, kObsSize = 1, kActionSize = 1;
  using State = std::array<Vec, kStateSize>;
  static EnvSpec Spec() {
    return {.name = "TestCounter-v0",
            .help = "counts",
            .obs = {{kObsSize}},
            .action = ActionSpace::Discrete(2),
            .max_episode_steps = 10};
  }
  static void Reset(std::array<double, kStateSize>& s, RandomStream&) { s = {0}; }
  [[gnu::always_inline]] static StepResult Step(State& s, const Vec* action) {
    s[0] += 1.0;
    return {.reward = action[0] + 0.25, .terminated = Mask{}};
  }
  [[gnu::always_inline]] static void Observe(const State& s, Vec* obs) { obs[0] = s[0]; }

  static inline int drawn = 0;
  static constexpr double kPicturesPerSecond = 12;
  static void Draw(const std::array<double, kStateSize>& s, Picture& out) {
    ++drawn;
    const int count = static_cast<int>(s[0]);
    out.Fill(1, 1, {static_cast<std::uint8_t>(count / 256), static_cast<std::uint8_t>(count % 256), 7});
  }
};

int CountOn(const Picture& picture) { return picture.At(0, 0).red * 256 + picture.At(0, 0).green; }

// Takes the second choice always.
class Second final : public Algorithm {
 public:
  void Iterate(double, MetricRow&) override { FAIL(); }
  std::int64_t steps_per_iteration() const override { return 1; }
  void Act(std::span<const float> obs, const std::uint8_t*, int n, std::span<float> actions) override {
    EXPECT_EQ(n, 1);
    seen.push_back(obs[0]);
    std::ranges::fill(actions, 1.0f);
  }
  void Explore(const ActionRequest&) override { FAIL(); }
  void SaveShards(StateWriter&) const override {}
  void SaveCommon(StateWriter&) const override {}
  void LoadShards(const StateReader&) override {}
  void LoadCommon(const StateReader&) override {}

  std::vector<float> seen;
};

bool Never() { return false; }

TEST(Watch, ShowsTheFirstStateAndTheOneAfterEveryStep) {
  const EnvEntry env = SoaEntry<Counter>(10);
  EpisodeWatcher watcher(env, {.seed = 3});
  EXPECT_EQ(watcher.per_second(), 12);
  Second algorithm;
  for (int episode = 0; episode < 2; ++episode) {
    int next = 0;
    const auto watched = watcher.Watch(algorithm, episode, Never, [&](int step, bool last, const auto& draw) {
      EXPECT_EQ(step, next++);
      EXPECT_EQ(last, step == 10);
      EXPECT_EQ(CountOn(draw()), step);
    });
    ASSERT_TRUE(watched);
    EXPECT_EQ(next, 11);
    EXPECT_EQ(watched->steps, 10);
    EXPECT_EQ(watched->episode_return, 12.5);
  }
  EXPECT_EQ(algorithm.seen.size(), 20u);
}

TEST(Watch, IsTheEpisodeOfTheEvaluation) {
  const EnvEntry env = FindEnv("CartPole-v1");
  for (int episode = 0; episode < 3; ++episode) {
    const auto batch = env.make(1);
    batch->Reset(5, Purpose::kEvalReset, static_cast<std::uint32_t>(episode));
    std::vector<float> expected;
    do {
      expected.push_back(FloatObs(batch->obs())[0]);
      batch->Step(std::vector<float>{1.0f});
    } while (batch->finished().empty());
    Second algorithm;
    EpisodeWatcher watcher(env, {.seed = 5});
    const auto watched = watcher.Watch(algorithm, episode, Never, [](int, bool, const auto&) {});
    EXPECT_EQ(algorithm.seen, expected);
    EXPECT_EQ(watched->episode_return, batch->finished()[0].episode_return);
  }
}

TEST(Watch, EndsWhenItIsToldTo) {
  const EnvEntry env = SoaEntry<Counter>(10);
  EpisodeWatcher watcher(env, {});
  Second algorithm;
  int seen = 0;
  const auto count = [&](int, bool, const auto&) { ++seen; };
  EXPECT_FALSE(watcher.Watch(
      algorithm, 0, [&] { return seen == 4; }, count));
  EXPECT_EQ(seen, 4);
  EXPECT_TRUE(WatchStrip(watcher, algorithm, 0, 6, [] { return true; }).empty());
}

TEST(Watch, EpisodesWithoutAnEndAreCutOff) {
  const EnvEntry env = SoaEntry<Counter>(0);
  EpisodeWatcher watcher(env, {.max_steps = 37});
  Second algorithm;
  int last_step = -1;
  const auto watched = watcher.Watch(algorithm, 0, Never, [&](int step, bool last, const auto&) {
    if (last) last_step = step;
  });
  EXPECT_EQ(last_step, 37);
  EXPECT_EQ(watched->episode_return, 37 * 1.25);
}

TEST(Watch, NeedsPictures) {
  const EnvEntry env = SoaEntry<Dials>();
  EXPECT_THROW(EpisodeWatcher(env, {}), Error);
}

TEST(Watch, PicturesOfAStripAreEvenlySpaced) {
  for (const int count : {2, 6, 8}) {
    for (const int length :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 23, 24, 25, 47, 100, 191, 200, 500, 999}) {
      SCOPED_TRACE(fmt::format("{} of {}", count, length));
      const EnvEntry env = SoaEntry<Counter>(length);
      EpisodeWatcher watcher(env, {});
      Second algorithm;
      Counter::drawn = 0;
      const std::vector<Glimpse> strip = WatchStrip(watcher, algorithm, 0, count, Never);
      ASSERT_EQ(strip.size(), static_cast<std::size_t>(std::min(count, length + 1)));
      EXPECT_EQ(strip.front().step, 0);
      EXPECT_EQ(strip.back().step, length);
      const double even = static_cast<double>(length) / static_cast<double>(strip.size() - 1);
      for (std::size_t i = 0; i < strip.size(); ++i) {
        EXPECT_EQ(CountOn(strip[i].picture), strip[i].step);
        if (i > 0) {
          EXPECT_GT(strip[i].step, strip[i - 1].step);
        }
        EXPECT_LE(std::abs(strip[i].step - even * static_cast<double>(i)), std::max(1.0, 0.5 * even));
      }
      EXPECT_LE(Counter::drawn, 3 * count + 1.5 * count * std::log2(1 + length)) << "cheap";
    }
  }
}

}  // namespace
}  // namespace trireme
