#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "comm/shard_sum.h"
#include "comm/run_ranks.h"

namespace trireme {
namespace {

// Values whose sum depends on the order of addition.
std::vector<float> AwkwardValues(int shard, std::size_t size) {
  RandomStream random(7, Purpose::kTest, static_cast<std::uint32_t>(shard), 0);
  std::vector<float> values(size);
  for (float& v : values) v = static_cast<float>(random.NextNormal() * std::exp(4 * random.NextNormal()));
  return values;
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Values(1, 2, 4, 8));

// The property everything else rests on: eight shards give the same bits on any number of workers.
TEST_P(Ranks, ShardSumsAreBitIdenticalForAnyNumberOfWorkers) {
  constexpr int kShards = 8;
  for (const std::size_t size : {std::size_t{1}, std::size_t{15}, std::size_t{64}, std::size_t{1003}}) {
    std::vector<std::vector<float>> shards;
    for (int s = 0; s < kShards; ++s) shards.push_back(AwkwardValues(s, size));
    std::vector<float> expected(size);
    for (std::size_t i = 0; i < size; ++i) {
      float x[kShards];
      for (int s = 0; s < kShards; ++s) x[s] = shards[s][i];
      expected[i] = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    }
    RunRanks(GetParam(), [&](Communicator& comm) {
      const int own = kShards / comm.size();
      ShardSum<float> sum(size);
      for (int round = 0; round < 3; ++round) {
        for (int s = 0; s < own; ++s) {
          const std::vector<float>& values = shards[comm.rank() * own + s];
          std::copy(values.begin(), values.end(), sum.Next().begin());
          sum.Add();
        }
        const std::span<float> total = sum.Total();
        comm.AllReduceSum(total);
        EXPECT_TRUE(std::equal(total.begin(), total.end(), expected.begin())) << "size " << size;
        comm.Barrier();
      }
    });
  }
}

TEST_P(Ranks, ReduceGivesTheRootTheSameTreeAndLeavesTheOthersAlone) {
  RunRanks(GetParam(), [&](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      const std::vector<float> drawn = AwkwardValues(comm.rank(), 131);
      std::vector<double> own(drawn.begin(), drawn.end()), all = own, reduced = own;
      comm.AllReduceSum(std::span<double>(all));
      const std::uint64_t before = comm.traffic().bytes;
      comm.ReduceSum(reduced, root);
      EXPECT_EQ(reduced, comm.rank() == root ? all : own);
      EXPECT_EQ(comm.traffic().bytes - before, comm.rank() == root ? 0 : 131 * sizeof(double));
    }
  });
}

TEST_P(Ranks, BroadcastGivesEveryoneTheRootsValues) {
  RunRanks(GetParam(), [&](Communicator& comm) {
    for (int root = 0; root < comm.size(); ++root) {
      std::vector<double> values = {1.0 * comm.rank(), 2.0};
      comm.Broadcast(values, root);
      EXPECT_EQ(values[0], root);
    }
  });
}

TEST_P(Ranks, TrafficFollowsTheFormula) {
  RunRanks(GetParam(), [&](Communicator& comm) {
    std::vector<float> values(1024, 1.0f);
    comm.AllReduceSum(std::span<float>(values));
    const auto others = static_cast<std::uint64_t>(comm.size() - 1);
    EXPECT_EQ(comm.traffic().messages, 2 * others);
    EXPECT_EQ(comm.traffic().bytes, 2 * others * 4096 / static_cast<std::uint64_t>(comm.size()));
  });
}

TEST(ThreadCommunicator, AnyNumberOfRanksCanAdd) {
  for (const int size : {3, 5, 6, 7, 12}) {
    RunRanks(size, [&](Communicator& comm) {
      std::vector<double> values(70, 1 << comm.rank());
      comm.AllReduceSum(std::span<double>(values));
      for (const double value : values) EXPECT_EQ(value, (1 << comm.size()) - 1);
    });
  }
}

TEST(ThreadCommunicator, WaitingIsIdleTime) {
  for (const int size : {1, 2}) {
    RunRanks(size, [](Communicator& comm) {
      EXPECT_EQ(comm.traffic().idle_s, 0);
      comm.Barrier();
      EXPECT_EQ(comm.traffic().idle_s > 0, comm.size() > 1);
    });
  }
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

}  // namespace
}  // namespace trireme
