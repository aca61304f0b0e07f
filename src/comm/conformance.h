// What every Communicator must do, as checks that all ranks of a group make together. Tests run them on
// threads, on hybrids and under mpirun.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/comm/peer_communicator.h"
#include "trireme/comm/shard_sum.h"

namespace trireme {

// Values whose sum depends on the order of addition: all signs, sixteen powers of two, full mantissas.
inline std::vector<float> AwkwardValues(int shard, std::size_t size) {
  std::vector<float> values(size);
  std::uint32_t hash = 0x9e3779b9u * static_cast<std::uint32_t>(shard + 1);
  for (float& value : values) {
    hash = hash * 1664525u + 1013904223u;
    const auto mantissa = static_cast<std::int32_t>(hash);
    value = static_cast<float>(mantissa) * (1.0f / static_cast<float>(1u << (hash >> 12 & 15)));
  }
  return values;
}

// The sum of terms [first, last) as the tree of communicator.h: the left half is the largest power of two
// below their number.
template <class T>
T TreeOf(const std::vector<std::vector<T>>& terms, int first, int last, std::size_t i) {
  if (last - first == 1) return terms[first][i];
  int left = 1;
  while (2 * left < last - first) left *= 2;
  return TreeOf(terms, first, first + left, i) + TreeOf(terms, first + left, last, i);
}

template <class T>
std::vector<std::vector<T>> Operands(int ranks, std::size_t size) {
  std::vector<std::vector<T>> all;
  for (int r = 0; r < ranks; ++r) {
    const std::vector<float> drawn = AwkwardValues(r, size);
    all.emplace_back(drawn.begin(), drawn.end());
  }
  return all;
}

template <class T>
std::vector<T> TreeSums(const std::vector<std::vector<T>>& terms) {
  std::vector<T> sums(terms[0].size());
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = TreeOf(terms, 0, static_cast<int>(terms.size()), i);
  return sums;
}

// Sizes around everything that is cut into lines, blocks, chunks or segments.
inline const std::vector<std::size_t> kSizes = {0, 1, 15, 64, 1003, 8192, 8193, 16384, 16385, 65537, 300'007};

// The property everything else rests on: the tree, on every rank, at any size.
template <class T>
void CheckSums(Communicator& comm) {
  for (const std::size_t size : kSizes) {
    const std::vector<std::vector<T>> operands = Operands<T>(comm.size(), size);
    const std::vector<T> expected = size == 0 ? std::vector<T>() : TreeSums(operands);
    for (int round = 0; round < 3; ++round) {
      std::vector<T> values = operands[comm.rank()];
      comm.AllReduceSum(std::span<T>(values));
      EXPECT_TRUE(values == expected) << "all-reduction of " << size << " on rank " << comm.rank();
    }
    std::vector<T> values = operands[comm.rank()];
    comm.ReduceSum(std::span<T>(values));
    EXPECT_TRUE(values == (comm.rank() == 0 ? expected : operands[comm.rank()]))
        << "reduction of " << size << " on rank " << comm.rank();
  }
}

// Eight shards give the same bits on any number of workers.
inline void CheckShardSums(Communicator& comm) {
  constexpr int kShards = 8;
  ASSERT_EQ(kShards % comm.size(), 0);
  for (const std::size_t size : kSizes) {
    if (size == 0) continue;
    const std::vector<std::vector<float>> shards = Operands<float>(kShards, size);
    const int own = kShards / comm.size();
    ShardSum<float> sum(size);
    for (int s = 0; s < own; ++s) {
      const std::vector<float>& values = shards[comm.rank() * own + s];
      std::copy(values.begin(), values.end(), sum.Next().begin());
      sum.Add();
    }
    const std::span<float> total = sum.Total();
    comm.AllReduceSum(total);
    const std::vector<float> expected = TreeSums(shards);
    EXPECT_TRUE(std::equal(total.begin(), total.end(), expected.begin())) << "size " << size;
  }
}

inline void CheckBroadcasts(Communicator& comm) {
  for (const std::size_t size : kSizes) {
    const std::vector<float> first = AwkwardValues(0, size);
    std::vector<float> values = AwkwardValues(comm.rank(), size);
    comm.Broadcast(std::span<float>(values));
    EXPECT_TRUE(values == first) << size;
    std::vector<double> doubles(values.begin(), values.end());
    if (comm.rank() != 0) doubles.assign(size, -1);
    comm.Broadcast(std::span<double>(doubles));
    EXPECT_TRUE(std::equal(doubles.begin(), doubles.end(), first.begin())) << size;
    std::string bytes(comm.rank() == 0 ? size : 3 * comm.rank(), static_cast<char>('a' + comm.rank() % 20));
    comm.Broadcast(bytes);
    EXPECT_TRUE(bytes == std::string(size, 'a')) << size;
  }
}

// Lengths that differ between ranks, none included.
inline void CheckGather(Communicator& comm) {
  const auto text = [](int rank, std::size_t scale) {
    return std::string(scale * static_cast<std::size_t>(rank * 7 % 5), static_cast<char>('a' + rank % 20));
  };
  for (const std::size_t scale : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}}) {
    const std::vector<std::string> everywhere = comm.AllGather(text(comm.rank(), scale));
    ASSERT_EQ(everywhere.size(), static_cast<std::size_t>(comm.size()));
    for (int r = 0; r < comm.size(); ++r)
      EXPECT_TRUE(everywhere[r] == text(r, scale)) << r << " at " << scale;
    const std::vector<std::string> all = comm.Gather(text(comm.rank(), scale));
    if (comm.rank() != 0) {
      EXPECT_TRUE(all.empty());
      continue;
    }
    ASSERT_EQ(all.size(), static_cast<std::size_t>(comm.size()));
    for (int r = 0; r < comm.size(); ++r) EXPECT_TRUE(all[r] == text(r, scale)) << r << " at scale " << scale;
  }
}

// Hundreds of operations of changing kind and size, with ranks that come late, each at other times: whoever
// is ahead must not overwrite what the others still read.
inline void CheckAnyOrder(Communicator& comm) {
  RandomStream common(3, Purpose::kTest, 1000, 0),
      own(3, Purpose::kTest, static_cast<std::uint32_t>(comm.rank()), 1);
  for (int i = 0; i < 300; ++i) {
    const auto kind = common.NextBelow(5);
    const std::size_t size = 1 + common.NextBelow(i % 20 == 0 ? 100'000 : 300);
    volatile std::uint32_t late = own.NextBelow(4) == 0 ? own.NextBelow(20'000) : 0;
    while (late > 0) late = late - 1;
    const double mine = comm.rank() + i;
    const double all = comm.size() * (comm.size() - 1) / 2.0 + comm.size() * i;
    std::vector<double> values(size, mine);
    switch (kind) {
      case 0:
        comm.AllReduceSum(std::span<double>(values));
        ASSERT_EQ(values, std::vector<double>(size, all)) << i;
        break;
      case 1:
        comm.ReduceSum(std::span<double>(values));
        ASSERT_EQ(values, std::vector<double>(size, comm.rank() == 0 ? all : mine)) << i;
        break;
      case 2:
        comm.Broadcast(std::span<double>(values));
        ASSERT_EQ(values, std::vector<double>(size, i)) << i;
        break;
      case 3: {
        const std::vector<std::string> gathered =
            comm.Gather(std::string(size, static_cast<char>(comm.rank())));
        for (std::size_t r = 0; r < gathered.size(); ++r) {
          ASSERT_EQ(gathered[r], std::string(size, static_cast<char>(r))) << i;
        }
        break;
      }
      default:
        comm.Barrier();
    }
  }
}

// Everybody sends to everybody, several messages before anybody has looked: they arrive, in order.
inline void CheckMessages(PeerCommunicator& comm) {
  const std::size_t sizes[] = {3, 0, 10'007};
  for (int round = 0; round < 20; ++round) {
    const auto values = [&](int rank, std::size_t size) {
      return std::vector<float>(size, static_cast<float>(100 * rank + round));
    };
    for (int to = 0; to < comm.size(); ++to) {
      for (const std::size_t size : sizes) {
        if (to != comm.rank()) comm.Send(to, values(comm.rank(), size));
      }
    }
    double all = 1;  // beside collective operations
    comm.AllReduceSum(std::span(&all, 1));
    ASSERT_EQ(all, comm.size());
    for (int from = comm.size() - 1; from >= 0; --from) {
      for (const std::size_t size : sizes) {
        if (from == comm.rank()) continue;
        std::vector<float> received(size);
        comm.Receive(from, received);
        ASSERT_EQ(received, values(from, size));
      }
    }
  }
}

// Two groups, of those with even and odd ranks, that know nothing of each other.
inline void CheckSplit(PeerCommunicator& comm) {
  const auto part = comm.Split(comm.rank() % 2);
  EXPECT_EQ(part->size(), (comm.size() + 1 - comm.rank() % 2) / 2);
  EXPECT_EQ(part->rank(), comm.rank() / 2);
  CheckSums<float>(*part);
  CheckAnyOrder(*part);
  CheckGather(*part);
  CheckMessages(*part);
  EXPECT_EQ(part->Split(part->rank())->size(), 1);
  comm.Barrier();
}

// What `operation` costs this rank.
template <class Operation>
Traffic CostOf(Communicator& comm, Operation&& operation) {
  const Traffic before = comm.traffic();
  operation();
  Traffic cost = comm.traffic();
  cost -= before;
  return cost;
}

}  // namespace trireme
