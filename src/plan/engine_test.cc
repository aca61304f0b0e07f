#include "trireme/plan/engine.h"

#include <gtest/gtest.h>

#include <utility>

namespace trireme {
namespace {

constexpr Link kNetwork{.latency_s = 0.5, .bytes_per_s = 100};
constexpr Link kLoopback{.latency_s = 0.125, .bytes_per_s = 1000};

// Notes what happened when: (time, tag).
struct Log : Engine::Actor {
  explicit Log(Engine& engine) : engine(engine) {}
  void OnTimer(int, int tag) override { events.emplace_back(engine.now_s(), tag); }
  void OnMessage(const Message& message) override { events.emplace_back(engine.now_s(), message.tag); }

  Engine& engine;
  std::vector<std::pair<double, int>> events;
};
using Events = std::vector<std::pair<double, int>>;

TEST(EngineTest, TimersRunOutInOrderOfTimeThenOfMaking) {
  Engine engine(kNetwork, kLoopback, {0});
  Log log(engine);
  engine.After(2, 0, 1);
  engine.After(1, 0, 2);
  engine.After(1, 0, 3);
  engine.Run(log);
  EXPECT_EQ(log.events, (Events{{1, 2}, {1, 3}, {2, 1}}));
}

TEST(EngineTest, ALoneMessageTakesLatencyPlusBytesOverBandwidth) {
  Engine engine(kNetwork, kLoopback, {0, 1});
  Log log(engine);
  engine.Send({.from = 0, .to = 1, .bytes = 200, .tag = 7});
  engine.Run(log);
  EXPECT_EQ(log.events, (Events{{0.5 + 2, 7}}));
  EXPECT_EQ(engine.bytes_sent(), 200);
  EXPECT_EQ(engine.messages_sent(), 1u);
}

TEST(EngineTest, MessagesToOneHostWaitForEachOther) {
  Engine engine(kNetwork, kLoopback, {0, 1, 2});
  Log log(engine);
  engine.Send({.from = 0, .to = 2, .bytes = 200, .tag = 1});
  engine.Send({.from = 1, .to = 2, .bytes = 100, .tag = 2});
  engine.Run(log);
  EXPECT_EQ(log.events, (Events{{2.5, 1}, {3.5, 2}}));
}

TEST(EngineTest, MessagesFromOneHostWaitForEachOtherAndShareTheLatency) {
  Engine engine(kNetwork, kLoopback, {0, 1, 2});
  Log log(engine);
  engine.Send({.from = 0, .to = 1, .bytes = 200, .tag = 1});
  engine.Send({.from = 0, .to = 2, .bytes = 100, .tag = 2});
  engine.Run(log);
  EXPECT_EQ(log.events, (Events{{2.5, 1}, {3.5, 2}}));
}

TEST(EngineTest, BothDirectionsOfALinkAreFree) {
  Engine engine(kNetwork, kLoopback, {0, 1});
  Log log(engine);
  engine.Send({.from = 0, .to = 1, .bytes = 200, .tag = 1});
  engine.Send({.from = 1, .to = 0, .bytes = 200, .tag = 2});
  engine.Run(log);
  EXPECT_EQ(log.events, (Events{{2.5, 1}, {2.5, 2}}));
}

TEST(EngineTest, NodesOfOneHostUseTheLoopback) {
  Engine engine(kNetwork, kLoopback, {0, 0});
  Log log(engine);
  engine.Send({.from = 0, .to = 1, .bytes = 500, .tag = 1});
  engine.Run(log);
  EXPECT_EQ(log.events, (Events{{0.625, 1}}));
}

TEST(EngineTest, AResourceServesOneAfterTheOther) {
  Resource resource;
  EXPECT_EQ(resource.Take(1, 2), 3);
  EXPECT_EQ(resource.Take(2, 2), 5);
  EXPECT_EQ(resource.Take(10, 1), 11);
  EXPECT_EQ(resource.busy_s(), 5);
}

TEST(EngineTest, StopLeavesTheRestUndone) {
  struct Stopper : Engine::Actor {
    explicit Stopper(Engine& engine) : engine(engine) {}
    void OnTimer(int, int) override {
      ++calls;
      engine.Stop();
    }
    void OnMessage(const Message&) override {}
    Engine& engine;
    int calls = 0;
  };
  Engine engine(kNetwork, kLoopback, {0});
  Stopper stopper(engine);
  engine.After(1, 0, 0);
  engine.After(2, 0, 0);
  engine.Run(stopper);
  EXPECT_EQ(stopper.calls, 1);
}

}  // namespace
}  // namespace trireme
