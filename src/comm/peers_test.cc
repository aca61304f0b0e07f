// What threads send to one another, groups that they are split into, and groups that share the way between processes.
#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/conformance.h"
#include "trireme/comm/funnel.h"
#include "trireme/comm/hybrid_communicator.h"
#include "trireme/comm/run_ranks.h"

namespace trireme {
namespace {

TEST(PeersTest, MessagesArriveInOrder) {
  for (const int ranks : {1, 2, 4}) {
    RunRanks(ranks, [&](PeerCommunicator& comm) { CheckMessages(comm); });
  }
}

TEST(PeersTest, GroupsAreThoseOfOneColour) {
  for (const int ranks : {1, 2, 5, 6}) {
    RunRanks(ranks, [&](PeerCommunicator& comm) { CheckSplit(comm); });
  }
}

TEST(PeersTest, AMessageCountsOnce) {
  RunRanks(2, [](PeerCommunicator& comm) {
    std::vector<float> values(1000);
    if (comm.rank() == 0) comm.Send(1, values);
    if (comm.rank() == 1) comm.Receive(0, values);
    EXPECT_EQ(comm.traffic().messages, comm.rank() == 0 ? 1u : 0u);
    EXPECT_EQ(comm.traffic().bytes, comm.rank() == 0 ? 4000u : 0u);
  });
}

TEST(PeersTest, AbortReachesThoseWhoWaitInAPart) {
  ThreadGroup group(3);
  std::latch all_are_in_parts(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator comm(group, rank);
      const auto part = comm.Split(rank == 2);
      all_are_in_parts.arrive_and_wait();
      float value = 0;
      if (rank == 2) {
        comm.Abort();
      } else if (rank == 1) {
        EXPECT_THROW(part->Receive(0, std::span(&value, 1)), Error);
      } else {
        EXPECT_THROW(part->Barrier(), Error);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Two processes of four threads; threads 0 and 2, and 1 and 3, are a group with those of the other process.
TEST(PeersTest, GroupsShareTheWayBetweenProcesses) {
  RunRanks(2, [](PeerCommunicator& processes) {
    Funnel funnel(processes, 2);
    ThreadGroup group(4);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        ThreadCommunicator comm(group, thread);
        const int column = thread % 2;
        const auto inside = comm.Split(column);
        FunnelCommunicator between(funnel, column);
        HybridCommunicator all(*inside, inside->rank() == 0 ? &between : nullptr, processes.rank(), 2);
        EXPECT_EQ(all.size(), 4);
        CheckSums<float>(all);
        CheckSums<double>(all);
        CheckBroadcasts(all);
        CheckGather(all);
        double sum = column + 1;  // the groups do not mix
        all.AllReduceSum(std::span(&sum, 1));
        EXPECT_EQ(sum, 4 * (column + 1));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace
}  // namespace trireme
