// The same stores over the real transport.
#include <gtest/gtest.h>

#include "trireme/comm/run_ranks.h"
#include "trireme/server/test_cluster.h"

namespace trireme {
namespace {

class OverGrpc : public testing::Test {
 protected:
  void SetUp() override {
    if (!HaveGrpc()) GTEST_SKIP() << "this build has no gRPC";
  }
  void Start(int servers) {
    for (int i = 0; i < servers; ++i) {
      servers_.push_back(std::make_unique<RunningServer>(
          Grpc(), "127.0.0.1:0", ParameterServerOptions{.folder = folder_.path() + "/" + std::to_string(i)}));
    }
  }
  std::vector<ServerPlace> Places() {
    std::vector<ServerPlace> places;
    for (const auto& server : servers_) places.push_back({&Grpc(), server->address(), {}, 30});
    return places;
  }

  TempFolder folder_;
  std::vector<std::unique_ptr<RunningServer>> servers_;
};

// With a server that stops in the middle and comes back on the same port.
TEST_F(OverGrpc, InStepEqualsAllReduceBitForBit) {
  const RunTerms terms = TestTerms(Pace::kSync, 2, 2);
  constexpr UpdateRule kRule{.learning_rate = 0.01f, .max_grad_norm = 0.5};
  std::vector<float> expected;
  RunRanks(2, [&](Communicator& comm) {
    const auto store = MakeAllReduceStore(comm, terms.optimizer, Initial(terms));
    for (int step = 0; step < 10; ++step) {
      std::vector<float> gradient = Draw(comm.rank(), step, terms.params);
      store->Push(gradient, kRule);
    }
    if (comm.rank() == 0) expected = Copy(store->params());
  });
  Start(2);
  OnThreads(2, [&](int i) {
    const Heartbeat heartbeat(Places(), {i + 1u}, terms.lease_s);
    ServerSession session(Places(), terms, i + 1);
    session.Offer(Initial(terms));
    ServerCommunicator comm(session);
    const auto store = MakeSyncServerStore(session, comm);
    session.Join();
    for (int step = 0; step < 10; ++step) {
      if (step == 5 && i == 0) servers_[1]->Restart();
      std::vector<float> gradient = Draw(session.rank(), step, terms.params);
      store->Push(gradient, kRule);
    }
    EXPECT_EQ(Copy(store->params()), expected);
    comm.Barrier();
    session.Leave();
  });
}

TEST_F(OverGrpc, AsynchronousWorkersAreAllCounted) {
  const RunTerms terms = TestTerms(Pace::kAsync, 1, 2);
  Start(2);
  OnThreads(3, [&](int i) {
    const Heartbeat heartbeat(Places(), {i + 1u}, terms.lease_s);
    ServerSession session(Places(), terms, i + 1);
    session.Offer(Initial(terms));
    const auto store = MakeAsyncServerStore(session, true);
    for (int step = 0; step < 20; ++step) {
      store->Pull();
      std::vector<float> gradient = Draw(i, step, terms.params);
      store->Push(gradient, {.learning_rate = 0.01f});
    }
    store->Refresh();
    EXPECT_EQ(store->staleness().count(), 20u);
  });
  ServerSession session(Places(), terms, 9);
  session.Join();
  EXPECT_EQ(session.version(0), 60u);
  EXPECT_EQ(session.version(1), 60u);
}

}  // namespace
}  // namespace trireme
