#include "store/shared_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "comm/run_ranks.h"

namespace trireme {
namespace {

constexpr std::size_t kParams = 1061;  // more than a tile, and odd
constexpr std::size_t kStats = 3;
constexpr float kRate = 0.01f;
constexpr UpdateRule kPlain{.learning_rate = kRate, .max_grad_norm = 0};

std::vector<float> Draw(std::uint32_t entity, std::uint64_t step, std::size_t size) {
  RandomStream random(22, Purpose::kTest, entity, step);
  std::vector<float> values(size);
  for (float& v : values) v = static_cast<float>(random.NextNormal() * std::exp(random.NextNormal()));
  return values;
}
std::vector<float> Initial(std::size_t size = kParams) { return Draw(100, 0, size); }

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::string Saved(const ParameterStore& store) {
  StateWriter out;
  store.Save(out);
  return out.Encode();
}

// --- One worker -------------------------------------------------------------------------------------------

class SharedStoreAlone : public testing::TestWithParam<std::tuple<OptimizerKind, bool>> {
 protected:
  const OptimizerKind kind_ = std::get<0>(GetParam());
  const bool share_moments_ = std::get<1>(GetParam());
};
std::string KindAndSharing(const testing::TestParamInfo<std::tuple<OptimizerKind, bool>>& info) {
  return fmt::format("{}_{}", OptimizerName(std::get<0>(info.param)),
                     std::get<1>(info.param) ? "shared" : "own");
}
INSTANTIATE_TEST_SUITE_P(Optimizers, SharedStoreAlone,
                         testing::Combine(testing::Values(OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                                          OptimizerKind::kAdagrad, OptimizerKind::kRmsprop,
                                                          OptimizerKind::kAdam, OptimizerKind::kAdamw),
                                          testing::Bool()),
                         KindAndSharing);

// With and without clipping and rates of their own, for parts that begin and end inside tiles or at their
// edges.
UpdateRule RuleOf(int push, std::size_t size) {
  UpdateRule rule{.learning_rate = kRate / static_cast<float>(1 + push % 7),
                  .max_grad_norm = push % 2 == 0 ? 0.5 : 0.0};
  if (push % 3 == 1) rule.special = {.begin = size / 5, .end = size - size / 5, .learning_rate = 0.003f};
  if (push % 3 == 2) rule.special = {.begin = 1024, .end = 2048, .learning_rate = 0.03f};
  return rule;
}

TEST_P(SharedStoreAlone, EqualsTheLocalStoreBitForBit) {
  constexpr int kPushes = 200, kGradients = 16;
  const OptimizerSettings optimizer{.kind = kind_, .weight_decay = 0.01};
  for (const std::size_t size : {1, 2, 37, 1023, 1024, 1025, 5000}) {
    ThreadGroup group(1);
    ThreadCommunicator comm(group, 0);
    const auto local = MakeAllReduceStore(comm, optimizer, Initial(size));
    SharedParameters parameters(optimizer, share_moments_, Initial(size));
    const auto shared = MakeSharedStore(parameters, 0, nullptr);
    EXPECT_TRUE(SameBits(shared->params(), Initial(size)));
    std::vector<std::vector<float>> gradients;
    for (int i = 0; i < kGradients; ++i) gradients.push_back(Draw(1, i, size + kStats));
    for (int push = 0; push < kPushes; ++push) {
      ASSERT_TRUE(SameBits(shared->Pull(), local->Pull())) << "size " << size << ", push " << push;
      std::vector<float> ours = gradients[push % kGradients], theirs = ours;
      const UpdateRule rule = RuleOf(push, size);
      ASSERT_EQ(shared->Push(ours, rule), local->Push(theirs, rule));
      ASSERT_TRUE(SameBits(ours, theirs));
      ASSERT_TRUE(
          SameBits(std::span(ours).last(kStats), std::span(gradients[push % kGradients]).last(kStats)));
      ASSERT_TRUE(SameBits(shared->params(), local->params())) << "size " << size << ", push " << push;
    }
    EXPECT_FALSE(SameBits(shared->params(), Initial(size)));
    EXPECT_EQ(shared->staleness().pushes[0], std::uint64_t{kPushes});
    EXPECT_EQ(shared->staleness().count(), std::uint64_t{kPushes});
  }
}

TEST(SharedStore, APullAndAPushAreAMessageOfAllParametersEach) {
  SharedParameters parameters({}, true, Initial());
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  EXPECT_EQ(store->traffic().messages, 0u);
  store->Pull();
  EXPECT_EQ(store->traffic().messages, 1u);
  EXPECT_EQ(store->traffic().bytes, kParams * 4);
  std::vector<float> gradient = Draw(0, 0, kParams + kStats);
  store->Push(gradient, kPlain);
  EXPECT_EQ(store->traffic().messages, 2u);
  EXPECT_EQ(store->traffic().bytes, kParams * 8);
  store->Refresh();
  EXPECT_EQ(store->traffic().messages, 2u);
  EXPECT_EQ(store->traffic().bytes, kParams * 8);
}

TEST(SharedStore, RefreshShowsThePushesOfOthersWithoutATurn) {
  SharedParameters parameters({.kind = OptimizerKind::kSgd}, false, std::vector<float>(2, 10.0f));
  Schedule schedule("0< 0> 1< 1>", 2);
  const auto pushing = MakeSharedStore(parameters, 0, &schedule);
  const auto watching = MakeSharedStore(parameters, 1, &schedule);
  pushing->Pull();
  watching->Refresh();
  std::vector<float> gradient = {1, 2};
  pushing->Push(gradient, {.learning_rate = 1, .max_grad_norm = 0});
  EXPECT_EQ(Copy(watching->params()), (std::vector<float>{10, 10}));
  watching->Refresh();
  EXPECT_EQ(Copy(watching->params()), (std::vector<float>{9, 8}));
  EXPECT_EQ(Copy(watching->Pull()), (std::vector<float>{9, 8}));
}

TEST(SharedStore, AssignReplacesTheParameters) {
  SharedParameters parameters({}, true, Initial());
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  const std::vector<float> others = Draw(101, 0, kParams);
  parameters.Assign(others);
  EXPECT_TRUE(SameBits(store->params(), Initial()));
  EXPECT_TRUE(SameBits(store->Pull(), others));
}

TEST(SharedStore, ShareLeavesValuesAsTheyAre) {
  SharedParameters parameters({}, true, Initial());
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  std::vector<double> values = {1, 2.5};
  store->Share(values);
  EXPECT_EQ(values, (std::vector<double>{1, 2.5}));
}

// A push also brings the worker's parameters up to date, so only pushes of others make the next one stale.
TEST(SharedStore, PushesWithoutPullsCountOnlyThoseOfOthersAsStale) {
  SharedParameters parameters({}, true, Initial());
  const auto one = MakeSharedStore(parameters, 0, nullptr);
  const auto other = MakeSharedStore(parameters, 1, nullptr);
  const auto push = [](ParameterStore& store) {
    std::vector<float> gradient = Draw(0, 0, kParams);
    store.Push(gradient, kPlain);
  };
  one->Pull();
  for (int i = 0; i < 3; ++i) push(*one);
  EXPECT_EQ(one->staleness().sum, 0u);
  other->Pull();
  for (int i = 0; i < 2; ++i) push(*other);
  push(*one);
  push(*one);
  EXPECT_EQ(other->staleness().sum, 0u);
  EXPECT_EQ(one->staleness().pushes[0], 4u);
  EXPECT_EQ(one->staleness().pushes[2], 1u);
}

// --- Several workers in a given order ---------------------------------------------------------------------

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

// --- Gradients that are not finite ------------------------------------------------------------------------

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

// --- Checkpoints ------------------------------------------------------------------------------------------

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

void ExpectRefused(const StateReader& in, SharedParameters&& parameters, const std::string& why) {
  const auto store = MakeSharedStore(parameters, 0, nullptr);
  const std::string before = Saved(*store);
  try {
    store->Load(in);
    ADD_FAILURE() << "loaded, although: " << why;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
  }
  EXPECT_EQ(Saved(*store), before);
}

TEST(SharedStore, StateOfAnotherKindIsRefused) {
  const OptimizerSettings adam;
  for (const bool share : {false, true}) {
    SharedParameters parameters(adam, share, Initial());
    const auto store = MakeSharedStore(parameters, 0, nullptr);
    std::vector<float> gradient = Draw(0, 0, kParams);
    store->Push(gradient, kPlain);
    const StateReader in(Saved(*store));
    ExpectRefused(in, SharedParameters({.kind = OptimizerKind::kAdamw}, share, Initial()), "'adam'");
    ExpectRefused(in, SharedParameters({.kind = OptimizerKind::kSgd}, share, Initial()), "'adam'");
    ExpectRefused(in, SharedParameters(adam, share, Initial(kParams + 1)), "another network");
    ExpectRefused(in, SharedParameters(adam, share, Initial(kParams - 1)), "another network");
    ExpectRefused(in, SharedParameters(adam, !share, Initial()), fmt::format("share_moments = {}", share));
  }
}

// --- At once ----------------------------------------------------------------------------------------------

// All numbers are multiples of 1/64 that floats hold exactly, so every parameter tells how many pushes it has
// seen. Some may have been overwritten, but no value may be anything else; and a pair of floats travels
// together.
TEST(SharedStore, FreeRunningPushesMayGetLostButTearNothing) {
  constexpr int kWorkers = 4, kPushes = 500, kTotal = kWorkers * kPushes;
  constexpr std::size_t kSize = 3 * 1024 + 37;
  std::vector<float> start(kSize), gradient(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    start[i] = static_cast<float>(i % 17);
    gradient[i] = static_cast<float>(1 + i % 3) * (i % 5 == 0 ? -1.0f : 1.0f);
  }
  // Pushes that element i has seen, or -1.
  const auto count = [&](std::span<const float> params, std::size_t i) {
    const float k = (start[i] - params[i]) * 64 / gradient[i];
    return k >= 0 && k <= kTotal && k == std::floor(k) ? static_cast<int>(k) : -1;
  };
  const auto wrong = [&](std::span<const float> params, int least) {
    int wrong = 0;
    for (std::size_t i = 0; i < kSize; ++i) wrong += count(params, i) < least;
    for (std::size_t i = 0; i + 1 < kSize; i += 2) wrong += count(params, i) != count(params, i + 1);
    return wrong;
  };
  SharedParameters parameters({.kind = OptimizerKind::kSgd}, false, start);
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int w = 0; w < kWorkers; ++w) stores.push_back(MakeSharedStore(parameters, w, nullptr));
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      int seen_wrong = 0;
      for (int push = 0; push < kPushes; ++push) {
        seen_wrong += wrong(stores[w]->Pull(), push == 0 ? 0 : 1);
        std::vector<float> own = gradient;
        stores[w]->Push(own, {.learning_rate = 1.0f / 64, .max_grad_norm = 0});
        seen_wrong += wrong(stores[w]->params(), 1);
      }
      EXPECT_EQ(seen_wrong, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong(stores[0]->Pull(), 1), 0);
  EXPECT_EQ(StateReader(Saved(*stores[0])).GetValue<std::uint64_t>("store/versions"), std::uint64_t{kTotal});
  Staleness all;
  for (const auto& store : stores) all += store->staleness();
  EXPECT_EQ(all.count(), std::uint64_t{kTotal});
}

// Adam divides one moment by the root of the other. If a worker could see the first after a push and the
// second before it, a parameter whose gradients had been zero so far would be moved by m / eps. With one
// constant gradient the moments tell how many pushes made them: both must tell the same.
TEST(SharedStore, FreeRunningPushesKeepTheMomentsOfAnElementTogether) {
  constexpr int kWorkers = 4, kPushes = 500, kTotal = kWorkers * kPushes;
  constexpr std::size_t kSize = 3 * 1024 + 37;
  const OptimizerSettings slow{.beta1 = 0.999, .beta2 = 0.9995};  // no two of kTotal moments are the same
  std::vector<std::pair<float, float>> after = {{0.0f, 0.0f}};    // moments after 0, 1, ... pushes
  {
    SharedParameters alone(slow, true, std::vector<float>(1));
    const auto store = MakeSharedStore(alone, 0, nullptr);
    for (int push = 0; push < kTotal; ++push) {
      std::vector<float> gradient = {0.5f};
      store->Push(gradient, kPlain);
      const StateReader in(Saved(*store));
      after.emplace_back(in.GetValue<float>("optimizer/moment0"), in.GetValue<float>("optimizer/moment1"));
    }
  }
  SharedParameters parameters(slow, true, std::vector<float>(kSize));
  std::vector<std::unique_ptr<ParameterStore>> stores;
  for (int w = 0; w < kWorkers; ++w) stores.push_back(MakeSharedStore(parameters, w, nullptr));
  std::vector<std::thread> threads;
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      std::vector<float> gradient(kSize, 0.5f);
      for (int push = 0; push < kPushes; ++push) stores[w]->Push(gradient, kPlain);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<float> first(kSize), second(kSize);
  const StateReader in(Saved(*stores[0]));
  in.Get<float>("optimizer/moment0", first);
  in.Get<float>("optimizer/moment1", second);
  for (std::size_t i = 0; i < kSize; ++i) {
    const std::pair<float, float> moments = {first[i], second[i]};
    ASSERT_NE(std::find(after.begin() + 1, after.end(), moments), after.end())
        << "element " << i << ": " << first[i] << ", " << second[i];
  }
}

}  // namespace
}  // namespace trireme
