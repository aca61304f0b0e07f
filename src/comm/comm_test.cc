#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/comm/conformance.h"
#include "trireme/comm/hybrid_communicator.h"
#include "trireme/comm/processes.h"
#include "trireme/comm/run_ranks.h"
#include "trireme/comm/shared_memory_communicator.h"

namespace trireme {
namespace {

using Body = std::function<void(Communicator&)>;
using Seat = SharedMemoryCommunicator::Seat;

void RunThreads(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

// Threads stand for the processes that share memory.
struct Host {
  explicit Host(int size) : seats(new Seat[size]()), names(size) {
    for (int r = 0; r < size; ++r) names[r] = "process " + std::to_string(r);
  }
  SharedMemoryCommunicator Join(int rank, double timeout_s = 60) const {
    return {seats.get(), rank, names, UsableProcessors(), timeout_s};
  }
  std::unique_ptr<Seat[]> seats;
  std::vector<std::string> names;
};

void RunHost(int size, const Body& body) {
  const Host host(size);
  RunThreads(size, [&](int rank) {
    SharedMemoryCommunicator comm = host.Join(rank);
    body(comm);
  });
}

// `groups` groups of `inside` threads each, whose leaders share memory.
void RunHybrid(int groups, int inside, const Body& body) {
  const Host host(groups);
  std::vector<std::unique_ptr<ThreadGroup>> threads;
  for (int g = 0; g < groups; ++g) threads.push_back(std::make_unique<ThreadGroup>(inside));
  RunThreads(groups * inside, [&](int rank) {
    const int group = rank / inside;
    ThreadCommunicator own(*threads[group], rank % inside);
    std::unique_ptr<SharedMemoryCommunicator> between;
    if (own.rank() == 0) between.reset(new SharedMemoryCommunicator(host.Join(group)));
    HybridCommunicator comm(own, between.get(), group, groups);
    body(comm);
  });
}

// A kind of communicator and its number of ranks.
struct Kind {
  std::string name;
  int ranks;
  std::function<void(const Body&)> run;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

std::vector<Kind> Kinds(const std::vector<int>& sizes, const std::vector<std::pair<int, int>>& hybrids) {
  std::vector<Kind> kinds;
  for (const int size : sizes) {
    kinds.push_back(
        {"Threads" + std::to_string(size), size, [=](const Body& body) { RunRanks(size, body); }});
    kinds.push_back({"Host" + std::to_string(size), size, [=](const Body& body) { RunHost(size, body); }});
  }
  for (const auto& [groups, inside] : hybrids) {
    kinds.push_back({"Hybrid" + std::to_string(groups) + "x" + std::to_string(inside), groups * inside,
                     [=](const Body& body) { RunHybrid(groups, inside, body); }});
  }
  return kinds;
}

std::string NameOf(const testing::TestParamInfo<Kind>& info) { return info.param.name; }

class AnyRanks : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, AnyRanks,
                         testing::ValuesIn(Kinds({1, 2, 3, 4, 8, 12},
                                                 {{1, 8}, {2, 4}, {4, 2}, {8, 1}, {3, 2}})),
                         NameOf);

TEST_P(AnyRanks, SumsAreTheTree) {
  GetParam().run(CheckSums<float>);
  GetParam().run(CheckSums<double>);
}
TEST_P(AnyRanks, BroadcastGivesEveryoneWhatTheFirstHas) { GetParam().run(CheckBroadcasts); }
TEST_P(AnyRanks, GatherGivesTheFirstWhatEveryoneHas) { GetParam().run(CheckGather); }
TEST_P(AnyRanks, OperationsFollowEachOtherInAnyOrder) { GetParam().run(CheckAnyOrder); }

class PowersOfTwo : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, PowersOfTwo,
                         testing::ValuesIn(Kinds({1, 2, 4, 8}, {{1, 8}, {2, 4}, {4, 2}, {8, 1}, {2, 2}})),
                         NameOf);

TEST_P(PowersOfTwo, ShardSumsAreBitIdenticalForAnyNumberOfWorkers) { GetParam().run(CheckShardSums); }

// n bytes over m ranks.
struct Costs {
  std::uint64_t messages, bytes;
};
void ExpectCost(Communicator& comm, const char* what, const Costs& expected,
                const std::function<void()>& operation) {
  const Traffic cost = CostOf(comm, operation);
  EXPECT_EQ(cost.messages, expected.messages) << what << " on rank " << comm.rank();
  EXPECT_EQ(cost.bytes, expected.bytes) << what << " on rank " << comm.rank();
}

class Flat : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Flat, testing::ValuesIn(Kinds({1, 2, 4, 8}, {})), NameOf);

TEST_P(Flat, TrafficFollowsTheFormulas) {
  GetParam().run([](Communicator& comm) {
    const auto others = static_cast<std::uint64_t>(comm.size() - 1);
    const bool first = comm.rank() == 0;
    std::vector<double> values(8192, 1.0);  // large: 64 KiB
    std::string text(1000, 'x');
    ExpectCost(comm, "a barrier", {0, 0}, [&] { comm.Barrier(); });
    ExpectCost(comm, "all-reduction", {2 * others, 2 * others * 65536 / comm.size()},
               [&] { comm.AllReduceSum(std::span<double>(values)); });
    ExpectCost(comm, "reduction", {!first, first ? 0u : 65536u},
               [&] { comm.ReduceSum(std::span<double>(values)); });
    ExpectCost(comm, "broadcast", {first * others, first * others * 65536},
               [&] { comm.Broadcast(std::span<double>(values)); });
    ExpectCost(comm, "broadcast of text", {first * others, first * others * 1000},
               [&] { comm.Broadcast(text); });
    ExpectCost(comm, "gathering", {!first, first ? 0u : 1000u}, [&] { comm.Gather(text); });
  });
}

TEST_P(Flat, SmallOperandsGoToEveryoneAtOnce) {
  GetParam().run([](Communicator& comm) {
    const auto others = static_cast<std::uint64_t>(comm.size() - 1);
    std::vector<float> values(100);
    ExpectCost(comm, "all-reduction", {others, others * 400},
               [&] { comm.AllReduceSum(std::span<float>(values)); });
  });
}

// Inside: one operand to the leader, and one sum back. Between the leaders: what these count.
TEST(HybridCommunicator, TrafficIsThatOfItsParts) {
  RunHybrid(2, 4, [](Communicator& comm) {
    std::vector<double> values(8192, 1.0);
    const bool leader = comm.rank() % 4 == 0;
    ExpectCost(comm, "all-reduction", {leader ? 3u + 2 : 1, leader ? 3u * 65536 + 65536 : 65536},
               [&] { comm.AllReduceSum(std::span<double>(values)); });
  });
}

class Pair : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Pair, testing::ValuesIn(Kinds({2}, {})), NameOf);

TEST_P(Pair, WaitingIsIdleTime) {
  std::atomic<bool> waited = false;
  GetParam().run([&](Communicator& comm) {
    EXPECT_EQ(comm.traffic().idle_s, 0);
    // Whoever comes first waits, unless the other comes before it has looked.
    for (int i = 0; i < 10'000 && !waited; ++i) {
      comm.Barrier();
      if (comm.traffic().idle_s > 0) waited = true;
      comm.Barrier();
    }
  });
  EXPECT_TRUE(waited);
}

TEST(ThreadCommunicator, WhoeverIsAloneNeverWaits) {
  RunRanks(1, [](Communicator& comm) {
    std::vector<double> values(3);
    comm.Barrier();
    comm.AllReduceSum(std::span<double>(values));
    EXPECT_EQ(comm.traffic().idle_s, 0);
  });
}

// Without Abort the three would wait for ever and the test would time out.
TEST(ThreadCommunicator, AbortReleasesTheOthers) {
  RunRanks(4, [](Communicator& comm) {
    if (comm.rank() == 2) {
      comm.Abort();
      return;
    }
    EXPECT_THROW(
        {
          comm.Barrier();
          comm.Barrier();
        },
        Error);
  });
}

// The others are asleep by then, or were never at the barrier; whoever comes later does not wait either.
TEST(ThreadBarrier, AbortWakesSleepersAndRefusesLatecomers) {
  const int threads = UsableProcessors() + 1;  // more than processors: whoever waits sleeps at once
  for (int trial = 0; trial < 200; ++trial) {
    ThreadBarrier barrier(threads);
    RunThreads(threads, [&](int thread) {
      if (thread == 0) {
        // In some trials the others have had time to fall asleep; the test does not depend on whether they have.
        if (trial % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        barrier.Abort();
        barrier.Abort();
        EXPECT_THROW(barrier.Wait(thread), Error);
        return;
      }
      const auto wait_for_ever = [&] {
        for (;;) barrier.Wait(thread);
      };
      EXPECT_THROW(wait_for_ever(), Error);
    });
  }
}

// Of two groups of two, one worker fails: its group is released, wherever its members wait. The other group
// stands for another process, which is ended from outside.
TEST(HybridCommunicator, AbortReleasesTheOwnGroup) {
  const Host host(2);
  ThreadGroup threads(2);
  SharedMemoryCommunicator between = host.Join(0);
  RunThreads(2, [&](int rank) {
    ThreadCommunicator inside(threads, rank);
    HybridCommunicator comm(inside, &between, 0, 2);
    std::vector<double> values(3);
    if (rank == 0) {
      EXPECT_THROW(comm.Broadcast(std::span<double>(values)), Error);
      comm.Abort();
    } else {
      comm.Abort();
      EXPECT_THROW(comm.Broadcast(std::span<double>(values)), Error);
    }
  });
}

TEST(SharedMemoryCommunicator, AWaitThatTakesTooLongSaysWhoWaitsForWhom) {
  const Host host(2);
  SharedMemoryCommunicator comm = host.Join(1, 0.05);
  std::vector<float> values(3);
  try {
    comm.AllReduceSum(std::span<float>(values));
    FAIL() << "it did not wait";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("process 1 waited 0 s for process 0 in an all-reduction"), std::string::npos)
        << message;
  }
}

std::optional<Launch> Detect(const std::map<std::string, std::string>& environment) {
  return DetectLaunch([&](const char* name) -> const char* {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

TEST(Processes, TheEnvironmentTellsWhoStartedThem) {
  EXPECT_FALSE(Detect({}));
  EXPECT_FALSE(Detect({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}}));
  EXPECT_FALSE(Detect({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}));
  const auto open = Detect({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
  ASSERT_TRUE(open);
  EXPECT_EQ(open->kind, "openmpi");
  EXPECT_EQ(open->rank, 3);
  const auto hydra = Detect({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  ASSERT_TRUE(hydra);
  EXPECT_EQ(hydra->kind, "mpich");
  EXPECT_EQ(hydra->rank, 1);
  EXPECT_EQ(Detect({{"PMIX_RANK", "5"}})->kind, "openmpi");
}

TEST(Processes, TheUserDecidesOtherwise) {
  EXPECT_FALSE(Detect({{"TRIREME_MPI", "off"}, {"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}));
  EXPECT_EQ(Detect({{"TRIREME_MPI", "mpich"}, {"PMIX_RANK", "1"}})->kind, "mpich");
  EXPECT_EQ(Detect({{"TRIREME_MPI", "mpi"}})->kind, "mpi");
  EXPECT_THROW(Detect({{"TRIREME_MPI", "lam"}}), Error);
  EXPECT_THROW(Detect({{"PMI_SIZE", "two"}, {"PMI_RANK", "1"}}), Error);
}

}  // namespace
}  // namespace trireme
