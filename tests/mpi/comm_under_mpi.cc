// The conformance kit of communicators between real processes: every process runs all of it, under mpirun.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "trireme/base/error.h"
#include "trireme/comm/conformance.h"
#include "trireme/comm/hybrid_communicator.h"
#include "trireme/comm/processes.h"
#include "trireme/comm/thread_communicator.h"

namespace trireme {
namespace {

Processes& World() { return *ConnectProcesses(); }
std::string Shared() { return std::getenv("TRIREME_MPI_SHARED"); }

TEST(Mpi, ThereAreAsManyProcessesAsWereStarted) {
  const char* expected = std::getenv("TRIREME_TEST_PROCESSES");
  ASSERT_NE(expected, nullptr);
  EXPECT_EQ(World().size(), std::atoi(expected));
  EXPECT_GE(World().processors(), 1);
}
TEST(Mpi, SumsAreTheTree) {
  CheckSums<float>(World());
  CheckSums<double>(World());
}
TEST(Mpi, ShardSumsAreBitIdentical) {
  if (8 % World().size() == 0) CheckShardSums(World());
}
TEST(Mpi, Broadcasts) { CheckBroadcasts(World()); }
TEST(Mpi, Gathers) { CheckGather(World()); }
TEST(Mpi, AnyOrder) { CheckAnyOrder(World()); }

TEST(Mpi, Messages) { CheckMessages(World()); }
TEST(Mpi, Groups) { CheckSplit(World()); }

// A thread of its own stands for the threads of a process.
TEST(Mpi, ThreadsInside) {
  ThreadGroup alone(1);
  ThreadCommunicator inside(alone, 0);
  HybridCommunicator comm(inside, &World(), World().rank(), World().size());
  CheckAnyOrder(comm);
}

TEST(Mpi, TrafficFollowsTheFormulas) {
  const auto m = static_cast<std::uint64_t>(World().size());
  const bool messages = Shared() == "off";
  if (!std::has_single_bit(m) || (Shared() == "2" && m > 2)) return;
  const auto rounds = static_cast<std::uint64_t>(std::bit_width(m) - 1);
  std::vector<float> small(1024), large(1 << 20);  // 4 KiB, 4 MiB
  const Traffic few = CostOf(World(), [&] { World().AllReduceSum(std::span<float>(small)); });
  const Traffic many = CostOf(World(), [&] { World().AllReduceSum(std::span<float>(large)); });
  EXPECT_EQ(few.messages, messages ? rounds : m - 1);
  EXPECT_EQ(few.bytes, 4096 * few.messages);
  EXPECT_EQ(many.bytes, 2 * (m - 1) * (4 << 20) / m);
  // Halves of 2, 1, 1/2, ... MiB in segments of 512 KiB, and back: the last in segments, the others whole.
  std::uint64_t segments = 0, half = 4 << 20;
  const auto in_half = [&] { return std::max<std::uint64_t>(1, half >> 19); };
  for (std::uint64_t i = 0; i < rounds; ++i) {
    half /= 2;
    segments += in_half() + (i + 1 < rounds ? 1 : in_half());
  }
  EXPECT_EQ(many.messages, messages ? segments : 2 * (m - 1));
  const Traffic gathered = CostOf(World(), [&] { World().Gather(std::string(1000, 'x')); });
  EXPECT_EQ(gathered.bytes, World().rank() == 0 ? 0 : messages ? 1008 : 1000);
}

// Four hosts of two: inside one operand to the leader and one sum back, between the four leaders as messages.
TEST(Mpi, TrafficBetweenHostsIsThatOfTheirLeaders) {
  if (Shared() != "2" || World().size() != 8) return;
  std::vector<float> values(1024);
  const Traffic cost = CostOf(World(), [&] { World().AllReduceSum(std::span<float>(values)); });
  EXPECT_EQ(cost.messages, World().rank() % 2 == 0 ? 1 + 2 : 1);
  EXPECT_EQ(cost.bytes, 4096 * cost.messages);
}

}  // namespace
}  // namespace trireme

// One rank that fails makes mpirun fail.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    if (trireme::ConnectProcesses() == nullptr) trireme::Fail("start this with mpirun");
    if (trireme::ConnectProcesses()->rank() != 0) {
      delete testing::UnitTest::GetInstance()->listeners().Release(
          testing::UnitTest::GetInstance()->listeners().default_result_printer());
    }
    const int code = RUN_ALL_TESTS();
    if (code != 0) std::fprintf(stderr, "rank %d failed\n", trireme::ConnectProcesses()->rank());
    trireme::LeaveProcesses(code);
    return code;
  } catch (const trireme::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    trireme::LeaveProcesses(1);
    return 1;
  }
}
