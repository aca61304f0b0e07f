// Several workers of a shared store in a given order.
#include <limits>
#include <thread>
#include <utility>

#include "trireme/store/shared_store_test_util.h"

namespace trireme {
namespace {

std::vector<std::pair<int, char>> Turns(const std::string& script) {
  std::vector<std::pair<int, char>> turns;
  for (std::size_t i = 0; i + 1 < script.size(); i += 3) turns.emplace_back(script[i] - '0', script[i + 1]);
  return turns;
}

// What a worker pushes depends on what it pulled, so that an exchange of two turns shows.
[[gnu::noinline]] std::vector<float> GradientAt(int worker, int push, std::span<const float> pulled) {
  std::vector<float> gradient = Draw(static_cast<std::uint32_t>(worker), push, pulled.size());
  for (std::size_t i = 0; i < pulled.size(); ++i) gradient[i] += pulled[i] * 0.25f;
  return gradient;
}

// What a worker saw: its parameters after each pull and each push.
using Seen = std::vector<std::vector<float>>;

// The same course of things in plain loops, for SGD, momentum and Adam.
class Serial {
 public:
  Serial(OptimizerKind kind, bool share_moments, int workers)
      : kind_(kind), share_moments_(share_moments), params_(Initial()), workers_(workers) {}

  void Run(const std::vector<std::pair<int, char>>& turns) {
    for (const auto& [w, operation] : turns) {
      Worker& worker = workers_[w];
      if (operation == '<') {
        worker.pulled = params_;
      } else {
        Apply(GradientAt(w, worker.pushes++, worker.pulled), share_moments_ ? common_ : worker.own);
      }
      worker.seen.push_back(params_);
    }
  }

  const std::vector<float>& params() const { return params_; }
  const Seen& seen(int worker) const { return workers_[worker].seen; }

 private:
  struct Memory {
    std::vector<float> m = std::vector<float>(kParams), v = std::vector<float>(kParams);
    int t = 0;
  };
  struct Worker {
    Memory own;
    std::vector<float> pulled;
    int pushes = 0;
    Seen seen;
  };

  // Products and sums round on their own, as those of the optimizers do.
  [[gnu::optimize("fp-contract=off")]] void Apply(const std::vector<float>& gradient, Memory& memory) {
    memory.t += 1;
    const double correction1 = 1 - std::pow(0.9, memory.t), root2 = std::sqrt(1 - std::pow(0.999, memory.t));
    const auto rate = static_cast<float>(kRate * root2 / correction1);
    const auto eps = static_cast<float>(1e-8 * root2);
    const auto add1 = static_cast<float>(1 - 0.9), add2 = static_cast<float>(1 - 0.999);
    for (std::size_t i = 0; i < kParams; ++i) {
      const float g = gradient[i];
      float &p = params_[i], &m = memory.m[i], &v = memory.v[i];
      switch (kind_) {
        case OptimizerKind::kSgd:
          p -= kRate * g;
          break;
        case OptimizerKind::kMomentum:
          m = 0.9f * m + g;
          p -= kRate * m;
          break;
        case OptimizerKind::kAdam:
          m = 0.9f * m + add1 * g;
          v = 0.999f * v + add2 * g * g;
          p -= rate * m / (std::sqrt(v) + eps);
          break;
        default:
          FAIL();
      }
    }
  }

  OptimizerKind kind_;
  bool share_moments_;
  std::vector<float> params_;
  Memory common_;
  std::vector<Worker> workers_;
};

// Lets every worker, as a thread that dawdles now and then, take its part of `rounds` rounds. Pushes are
// numbered from `first_push` on.
std::vector<Seen> RunThreads(const std::string& script, int rounds,
                             const std::vector<std::unique_ptr<ParameterStore>>& stores,
                             std::vector<int> first_push) {
  std::vector<Seen> seen(stores.size());
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < stores.size(); ++w) {
    threads.emplace_back([&, w] {
      RandomStream random(4, Purpose::kTest, static_cast<std::uint32_t>(w), 0);
      std::vector<float> pulled;
      int push = first_push[w];
      for (int round = 0; round < rounds; ++round) {
        for (const auto& [worker, operation] : Turns(script)) {
          if (worker != static_cast<int>(w)) continue;
          for (std::uint32_t i = random.NextBelow(8); i > 0; --i) std::this_thread::yield();
          if (operation == '<') {
            pulled = Copy(stores[w]->Pull());
          } else {
            std::vector<float> gradient = GradientAt(worker, push++, pulled);
            stores[w]->Push(gradient, kPlain);
          }
          seen[w].push_back(Copy(stores[w]->params()));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
}

// Shared parameters, a schedule and a store for each worker.
struct Team {
  Team(const OptimizerSettings& optimizer, bool share_moments, const std::string& script, int workers)
      : parameters(optimizer, share_moments, Initial()), schedule(script, workers) {
    for (int w = 0; w < workers; ++w) stores.push_back(MakeSharedStore(parameters, w, &schedule));
  }

  SharedParameters parameters;
  Schedule schedule;
  std::vector<std::unique_ptr<ParameterStore>> stores;
};

class SharedStoreScripted : public SharedStoreAlone {
 protected:
  void ExpectSerial(const std::string& script, int workers, int rounds) {
    Team team({.kind = kind_}, share_moments_, script, workers);
    const std::vector<Seen> seen = RunThreads(script, rounds, team.stores, std::vector<int>(workers, 0));
    Serial serial(kind_, share_moments_, workers);
    for (int round = 0; round < rounds; ++round) serial.Run(Turns(script));
    for (int w = 0; w < workers; ++w) {
      ASSERT_EQ(seen[w].size(), serial.seen(w).size());
      for (std::size_t i = 0; i < seen[w].size(); ++i) {
        ASSERT_TRUE(SameBits(seen[w][i], serial.seen(w)[i])) << "worker " << w << ", turn " << i;
      }
      team.stores[w]->Refresh();
      EXPECT_TRUE(SameBits(team.stores[w]->params(), serial.params()));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Optimizers, SharedStoreScripted,
                         testing::Combine(testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                                          OptimizerKind::kAdam),
                                          testing::Bool()),
                         KindAndSharing);

// Versions at the pulls and pushes of a round: 0 0 0> 1>.
const std::string kTwoInTurn = "0< 1< 0> 1> ";
// Likewise: 0 0 0> 1 1 1> 2> 3> 4 4> 5 5 5 5> 6> 7>.
const std::string kThreeIrregular = "0< 2< 0> 0< 1< 2> 0> 1> 2< 2> 1< 0< 2< 0> 1> 2> ";

TEST_P(SharedStoreScripted, TwoInTurnEqualASerialLoop) { ExpectSerial(kTwoInTurn, 2, 10); }
TEST_P(SharedStoreScripted, ThreeIrregularEqualASerialLoop) { ExpectSerial(kThreeIrregular, 3, 4); }

void ExpectStaleness(const Staleness& staleness, std::vector<std::uint64_t> pushes, std::uint64_t most) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < pushes.size(); ++i) sum += i * pushes[i];
  pushes.resize(Staleness::kBuckets);
  EXPECT_EQ(std::vector<std::uint64_t>(staleness.pushes.begin(), staleness.pushes.end()), pushes);
  EXPECT_EQ(staleness.sum, sum);
  EXPECT_EQ(staleness.most, most);
}

TEST(SharedStore, StalenessIsAsCountedByHand) {
  Team two({}, true, kTwoInTurn, 2);
  RunThreads(kTwoInTurn, 5, two.stores, {0, 0});
  ExpectStaleness(two.stores[0]->staleness(), {5}, 0);
  ExpectStaleness(two.stores[1]->staleness(), {0, 5}, 1);

  Team three({}, false, kThreeIrregular, 3);
  RunThreads(kThreeIrregular, 4, three.stores, {0, 0, 0});
  ExpectStaleness(three.stores[0]->staleness(), {8, 4}, 1);
  ExpectStaleness(three.stores[1]->staleness(), {0, 4, 4}, 2);
  ExpectStaleness(three.stores[2]->staleness(), {4, 4, 4}, 2);
  EXPECT_EQ(three.stores[0]->traffic().messages, 24u);
  EXPECT_EQ(three.stores[1]->traffic().messages, 16u);
  EXPECT_EQ(three.stores[1]->traffic().bytes, 16 * kParams * 4);
}

TEST(SharedStore, ANonFiniteGradientLeavesEverythingAsItWas) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const double max_norm : {0.0, 0.5}) {
      const UpdateRule rule{.learning_rate = kRate, .max_grad_norm = max_norm};
      SharedParameters parameters({}, true, Initial());
      const auto store = MakeSharedStore(parameters, 0, nullptr);
      store->Pull();
      std::vector<float> gradient = Draw(0, 0, kParams);
      store->Push(gradient, rule);
      const std::string before = Saved(*store);
      const Traffic traffic = store->traffic();
      gradient = Draw(0, 1, kParams);
      gradient[kParams - 1] = bad;
      const std::vector<float> as_given = gradient;
      EXPECT_FALSE(std::isfinite(store->Push(gradient, rule)));
      EXPECT_TRUE(SameBits(gradient, as_given));
      EXPECT_EQ(Saved(*store), before);  // parameters, moments, versions, staleness
      EXPECT_EQ(store->traffic().messages, traffic.messages);
    }
  }
}

TEST(SharedStore, ANonFiniteStatisticDoesNotStopTheUpdate) {
  SharedParameters parameters({}, true, Initial());
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  std::vector<float> gradient = Draw(0, 0, kParams + kStats);
  gradient.back() = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isfinite(store->Push(gradient, kPlain)));
  EXPECT_FALSE(SameBits(store->Pull(), Initial()));
}

// Its turn to push stays: the worker may push another gradient, and a pull is an Error instead of waiting.
TEST(SharedStore, ANonFiniteGradientTakesNoTurn) {
  Team team({}, true, kTwoInTurn, 2);
  const std::vector<float> bad(kParams, std::numeric_limits<float>::quiet_NaN());
  team.stores[0]->Pull();
  team.stores[1]->Pull();
  std::vector<float> gradient = bad;
  EXPECT_FALSE(std::isfinite(team.stores[0]->Push(gradient, kPlain)));
  EXPECT_THROW(team.stores[0]->Pull(), Error);
  gradient = Draw(0, 0, kParams);
  EXPECT_TRUE(std::isfinite(team.stores[0]->Push(gradient, kPlain)));
  gradient = Draw(1, 0, kParams);
  EXPECT_TRUE(std::isfinite(team.stores[1]->Push(gradient, kPlain)));
  ExpectStaleness(team.stores[1]->staleness(), {0, 1}, 1);
}

// The others wait for that turn until the worker leaves.
TEST(SharedStore, WhoLeavesAfterANonFiniteGradientReleasesTheOthers) {
  Team team({}, true, kTwoInTurn, 2);
  team.stores[0]->Pull();
  team.stores[1]->Pull();
  std::thread other([&] {
    std::vector<float> gradient = Draw(1, 0, kParams);
    EXPECT_TRUE(std::isfinite(team.stores[1]->Push(gradient, kPlain)));
  });
  std::vector<float> gradient(kParams, std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(std::isfinite(team.stores[0]->Push(gradient, kPlain)));
  team.schedule.Leave(0);
  other.join();
  ExpectStaleness(team.stores[1]->staleness(), {1}, 0);
}

TEST_P(SharedStoreScripted, LoadedWorkersContinueBitForBit) {
  const OptimizerSettings optimizer{.kind = kind_};
  Team team(optimizer, share_moments_, kTwoInTurn, 2);
  RunThreads(kTwoInTurn, 3, team.stores, {0, 0});
  const std::string states[] = {Saved(*team.stores[0]), Saved(*team.stores[1])};
  const std::vector<Seen> expected = RunThreads(kTwoInTurn, 3, team.stores, {3, 3});

  Team loaded(optimizer, share_moments_, kTwoInTurn, 2);
  for (const int w : {1, 0}) loaded.stores[w]->Load(StateReader(states[w]));
  for (const int w : {0, 1}) EXPECT_EQ(Saved(*loaded.stores[w]), states[w]);
  EXPECT_EQ(RunThreads(kTwoInTurn, 3, loaded.stores, {3, 3}), expected);
  for (const int w : {0, 1}) {
    EXPECT_EQ(loaded.stores[w]->staleness().pushes, team.stores[w]->staleness().pushes);
    EXPECT_EQ(Saved(*loaded.stores[w]), Saved(*team.stores[w]));
  }
}

}  // namespace
}  // namespace trireme
