#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trireme/base/rng.h"
#include "trireme/comm/run_ranks.h"
#include "trireme/store/parameter_store.h"

namespace trireme {
namespace {

constexpr std::size_t kParams = 37;
constexpr std::size_t kStats = 3;
constexpr UpdateRule kPlain{.learning_rate = 0.01f, .max_grad_norm = 0};

std::vector<float> Draw(std::uint32_t entity, std::uint64_t step, std::size_t size) {
  RandomStream random(21, Purpose::kTest, entity, step);
  std::vector<float> values(size);
  for (float& v : values) v = static_cast<float>(random.NextNormal() * std::exp(3 * random.NextNormal()));
  return values;
}
std::vector<float> Initial() { return Draw(100, 0, kParams); }

// Rank r's part of push `step`, statistics included.
std::vector<float> Share(int rank, int step) {
  return Draw(static_cast<std::uint32_t>(rank), step, kParams + kStats);
}
std::vector<float> TreeSum(int begin, int end, int step) {
  if (end - begin == 1) return Share(begin, step);
  std::vector<float> sum = TreeSum(begin, (begin + end) / 2, step);
  const std::vector<float> right = TreeSum((begin + end) / 2, end, step);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

struct Outcome {
  std::vector<float> params, gradient;
  double norm = 0;
};

// Five pushes of the summed gradient by a worker on its own.
Outcome PushSums(int ranks, const OptimizerSettings& optimizer, const UpdateRule& rule) {
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  const auto store = MakeAllReduceStore(comm, optimizer, Initial());
  Outcome outcome;
  for (int step = 0; step < 5; ++step) {
    outcome.gradient = TreeSum(0, ranks, step);
    outcome.norm = store->Push(outcome.gradient, rule);
  }
  outcome.params = Copy(store->Pull());
  return outcome;
}

class AllReduceStoreRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AllReduceStoreRanks, testing::Values(1, 2, 4));

TEST_P(AllReduceStoreRanks, PushOfSharesEqualsPushOfTheirSum) {
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kAdam}) {
    const ParameterGroups groups = {{3, 9, 0.02f, 0.1}, {10, 20, 0.03f}, {20, 30, 0}};
    for (const UpdateRule& rule :
         {UpdateRule{.learning_rate = 0.01f}, UpdateRule{.learning_rate = 0.01f, .max_grad_norm = 0.5},
          UpdateRule{.learning_rate = 0.01f, .max_grad_norm = 0.5, .groups = groups}}) {
      const OptimizerSettings optimizer{.kind = kind};
      const Outcome expected = PushSums(GetParam(), optimizer, rule);
      EXPECT_NE(expected.params, Initial());
      const bool frozen =
          std::equal(expected.params.begin() + 20, expected.params.begin() + 30, Initial().begin() + 20);
      EXPECT_EQ(frozen, !rule.groups.empty());
      RunRanks(GetParam(), [&](Communicator& comm) {
        const auto store = MakeAllReduceStore(comm, optimizer, Initial());
        EXPECT_EQ(Copy(store->Pull()), Initial());
        for (int step = 0; step < 5; ++step) {
          std::vector<float> gradient = Share(comm.rank(), step);
          const double norm = store->Push(gradient, rule);
          if (step < 4) continue;
          EXPECT_EQ(norm, expected.norm);
          EXPECT_EQ(gradient, expected.gradient);
        }
        EXPECT_EQ(Copy(store->Pull()), expected.params);
      });
    }
  }
}

// SGD with rate 1: what is subtracted from the parameters is the gradient as applied.
TEST_P(AllReduceStoreRanks, StatisticsTravelAlongButAreNotApplied) {
  RunRanks(GetParam(), [](Communicator& comm) {
    const auto store = MakeAllReduceStore(comm, {.kind = OptimizerKind::kSgd}, std::vector<float>(2, 10.0f));
    std::vector<float> gradient = {1, 2, 1000, 5};
    const double norm = store->Push(gradient, {.learning_rate = 1, .max_grad_norm = 0});
    const auto n = static_cast<float>(comm.size());
    EXPECT_EQ(Copy(store->Pull()), (std::vector<float>{10 - n, 10 - 2 * n}));
    EXPECT_EQ(gradient[2], 1000 * n);
    EXPECT_EQ(gradient[3], 5 * n);
    EXPECT_NEAR(norm, n * std::sqrt(5.0), 1e-9);  // of the parameters alone
  });
}

TEST_P(AllReduceStoreRanks, TheSumIsClippedNotTheShares) {
  RunRanks(GetParam(), [](Communicator& comm) {
    const auto n = static_cast<float>(comm.size());
    const auto store = MakeAllReduceStore(comm, {.kind = OptimizerKind::kSgd}, std::vector<float>(2, 0.0f));
    std::vector<float> gradient = {3 / n, 4 / n, 77};  // the sum is (3, 4), of norm 5
    EXPECT_NEAR(store->Push(gradient, {.learning_rate = 1, .max_grad_norm = 0.5}), 5, 1e-6);
    EXPECT_NEAR(store->Pull()[0], -0.3f, 1e-6);
    EXPECT_NEAR(store->Pull()[1], -0.4f, 1e-6);
    EXPECT_EQ(gradient[2], 77 * n);  // statistics are not scaled
    gradient = {3 / n, 4 / n, 0};
    EXPECT_NEAR(store->Push(gradient, {.learning_rate = 1, .max_grad_norm = 6}), 5, 1e-6);
    EXPECT_NEAR(store->Pull()[0], -3.3f, 1e-6);
  });
}

TEST_P(AllReduceStoreRanks, ANonFiniteGradientOfOneLeavesEveryonesParameters) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const double max_norm : {0.0, 0.5}) {
      const UpdateRule rule{.learning_rate = 0.01f, .max_grad_norm = max_norm};
      RunRanks(GetParam(), [&](Communicator& comm) {
        const auto store = MakeAllReduceStore(comm, {}, Initial());
        const auto reference = MakeAllReduceStore(comm, {}, Initial());
        std::vector<float> gradient = Share(comm.rank(), 0);
        if (comm.rank() == comm.size() - 1) gradient[5] = bad;
        EXPECT_FALSE(std::isfinite(store->Push(gradient, rule)));
        EXPECT_EQ(Copy(store->Pull()), Initial());
        // The optimizer did not notice either.
        std::vector<float> next = Share(comm.rank(), 1), same = next;
        EXPECT_TRUE(std::isfinite(store->Push(next, rule)));
        reference->Push(same, rule);
        EXPECT_EQ(Copy(store->Pull()), Copy(reference->Pull()));
      });
    }
  }
}

// A statistic may be NaN (no episode ended): that is no reason not to learn.
TEST_P(AllReduceStoreRanks, ANonFiniteStatisticDoesNotStopTheUpdate) {
  RunRanks(GetParam(), [&](Communicator& comm) {
    const auto store = MakeAllReduceStore(comm, {}, Initial());
    std::vector<float> gradient = Share(comm.rank(), 0);
    gradient.back() = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isfinite(store->Push(gradient, {.learning_rate = 0.01f, .max_grad_norm = 0.5})));
    EXPECT_NE(Copy(store->Pull()), Initial());
  });
}

TEST_P(AllReduceStoreRanks, ShareSumsOverWorkers) {
  RunRanks(GetParam(), [](Communicator& comm) {
    const auto store = MakeAllReduceStore(comm, {}, Initial());
    std::vector<double> values = {1.0 * comm.rank(), 2.0};
    store->Share(values);
    EXPECT_EQ(values[0], comm.size() * (comm.size() - 1) / 2.0);
    EXPECT_EQ(values[1], 2.0 * comm.size());
  });
}

TEST_P(AllReduceStoreRanks, ALoadedStoreContinuesBitForBit) {
  RunRanks(GetParam(), [](Communicator& comm) {
    const auto store = MakeAllReduceStore(comm, {}, Initial());
    const auto push = [&](ParameterStore& to, int step) {
      std::vector<float> gradient = Share(comm.rank(), step);
      to.Push(gradient, kPlain);
    };
    for (int step = 0; step < 3; ++step) push(*store, step);
    StateWriter out;
    store->Save(out);
    const StateReader in(out.Encode());
    const auto loaded = MakeAllReduceStore(comm, {}, std::vector<float>(kParams));
    loaded->Load(in);
    EXPECT_EQ(Copy(loaded->Pull()), Copy(store->Pull()));
    for (int step = 3; step < 5; ++step) {
      push(*store, step);
      push(*loaded, step);
    }
    EXPECT_EQ(Copy(loaded->Pull()), Copy(store->Pull()));

    const auto other_size = MakeAllReduceStore(comm, {}, std::vector<float>(kParams + 1));
    EXPECT_THROW(other_size->Load(in), Error);
    const auto other_kind = MakeAllReduceStore(comm, {.kind = OptimizerKind::kSgd}, Initial());
    EXPECT_THROW(other_kind->Load(in), Error);
  });
}

}  // namespace
}  // namespace trireme
