#include "trireme/plan/simulation.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Log = std::vector<std::pair<double, int>>;  // when what happened

class SimulationTest : public ::testing::Test {
 protected:
  // Two processors on each of three hosts; 0.5 s and 100 bytes/s between them.
  Simulation simulation_{{.latency_s = 0.5, .bytes_per_s = 100}, 0.125, 3, 2};
  Mailbox inboxes_[3];
  Log log_;

  Process Note(int host) {
    for (;;) {
      const Letter letter = co_await inboxes_[host].Receive();
      log_.emplace_back(simulation_.now_s(), letter.from);
    }
  }
  Process Work(int name, double wait_s, double seconds) {
    co_await simulation_.Work(2, wait_s);  // nobody else works there
    co_await simulation_.Work(0, seconds);
    log_.emplace_back(simulation_.now_s(), name);
  }
  void Send(int name, int from, int to, double bytes) {
    simulation_.Send(from, to, bytes, inboxes_[to], {.from = name});
  }
  Log Run() {
    for (const int host : {0, 1, 2}) simulation_.Start(Note(host));
    simulation_.Run();
    return log_;
  }
};

TEST_F(SimulationTest, ALoneMessageTakesLatencyPlusBytesOverBandwidth) {
  Send(7, 0, 1, 200);
  EXPECT_EQ(Run(), (Log{{0.5 + 2, 7}}));
  EXPECT_EQ(simulation_.bytes_sent, 200);
  EXPECT_EQ(simulation_.messages_sent, 1);
}

TEST_F(SimulationTest, MessagesToOneHostWaitForEachOther) {
  Send(1, 0, 2, 200);
  Send(2, 1, 2, 100);
  EXPECT_EQ(Run(), (Log{{2.5, 1}, {3.5, 2}}));
}

TEST_F(SimulationTest, MessagesFromOneHostWaitForEachOtherAndShareTheLatency) {
  Send(1, 0, 1, 200);
  Send(2, 0, 2, 100);
  Send(3, 1, 0, 200);  // the other direction is free
  EXPECT_EQ(Run(), (Log{{2.5, 1}, {2.5, 3}, {3.5, 2}}));
}

TEST_F(SimulationTest, WithinAHostTheyTakeTheirLatency) {
  Send(1, 0, 0, 1e9);
  EXPECT_EQ(Run(), (Log{{0.125, 1}}));
}

TEST_F(SimulationTest, AsManyAsProcessorsDoNotNoticeEachOther) {
  simulation_.Start(Work(1, 1, 4));
  simulation_.Start(Work(2, 2, 1));
  EXPECT_EQ(Run(), (Log{{3, 2}, {5, 1}}));
}

// Four at half speed; when the short ones are done at 2, the others go on at full speed.
TEST_F(SimulationTest, MoreShareThem) {
  for (const int name : {1, 2}) simulation_.Start(Work(name, 0, 1));
  for (const int name : {3, 4}) simulation_.Start(Work(name, 0, 3));
  EXPECT_EQ(Run(), (Log{{2, 1}, {2, 2}, {4, 3}, {4, 4}}));
}

TEST_F(SimulationTest, StopLeavesTheRestUndone) {
  const auto stop = [](Simulation& simulation) -> Process {
    co_await simulation.Work(1, 1);
    simulation.Stop();
  };
  simulation_.Start(stop(simulation_));
  simulation_.Start(Work(1, 0, 2));
  EXPECT_EQ(Run(), Log{});
}

}  // namespace
}  // namespace trireme
