// Asynchronous workers: against the formulas under a given order of pulls and pushes, and running freely.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/algo/test_plain.h"
#include "trireme/algo/test_run.h"

namespace trireme {
namespace {

// What one worker does between a pull and a push, written from the formulas; the server's part is done by
// Push. A reference runs all of them in one thread, in the order of the schedule.
class ReferenceWorker {
 public:
  virtual ~ReferenceWorker() = default;
  virtual void Pull(const Numbers& server) = 0;
  virtual void Push(Numbers& server) = 0;
};

// The parameters after so many cycles of the schedule.
Numbers RunReference(const std::string& schedule, int cycles, Numbers server,
                     const std::vector<std::unique_ptr<ReferenceWorker>>& workers) {
  for (int cycle = 0; cycle < cycles; ++cycle) {
    for (std::size_t at = 0; at < schedule.size(); at += 3) {  // entries like "0< "
      ReferenceWorker& worker = *workers[schedule[at] - '0'];
      schedule[at + 1] == '<' ? worker.Pull(server) : worker.Push(server);
    }
  }
  return server;
}

// A schedule, and what follows from it for each worker in each of its cycles.
struct Order {
  std::string schedule;
  std::vector<int> pushes;                  // pushes of each worker
  std::vector<std::vector<int>> staleness;  // pushes of each worker that are 0, 1, 2, ... updates late
};
// Worker 1 always misses the push of worker 0.
const Order kInTurns = {"0< 1< 0> 1>", {1, 1}, {{1}, {0, 1}}};
// Worker 0 misses the first two pushes of worker 1, worker 2 that of worker 0, worker 1 at last that of 2.
const Order kIrregular = {"0< 1< 1> 1< 1> 2< 0> 1< 2> 1>", {1, 3, 1}, {{0, 0, 1}, {2, 1}, {0, 1}}};

void ExpectStaleness(const std::vector<Staleness>& found, const Order& order, int cycles) {
  ASSERT_EQ(found.size(), order.staleness.size());
  for (std::size_t worker = 0; worker < found.size(); ++worker) {
    std::array<std::uint64_t, Staleness::kBuckets> pushes = {};
    for (std::size_t late = 0; late < order.staleness[worker].size(); ++late) {
      pushes[late] = static_cast<std::uint64_t>(order.staleness[worker][late]) * cycles;
    }
    EXPECT_EQ(found[worker].pushes, pushes) << "worker " << worker;
  }
}

// What the workers have to do for it, in whole cycles of the schedule.
struct Work {
  int cycles = 0;
  int warm_up = 0;  // iterations without a push
  int pushes = 1;   // in an iteration
  int shards = 1;
};

// Runs the workers as threads, twice, and compares with the reference.
void ExpectAsReference(const AlgorithmRun& run, const Order& order, const Work& work,
                       const std::vector<std::unique_ptr<ReferenceWorker>>& workers) {
  const int cycles = work.cycles;
  std::vector<int> iterations;
  for (const int pushes : order.pushes) iterations.push_back(work.warm_up + pushes * cycles / work.pushes);
  const AlgorithmRun::Asynchronous how{
      .iterations = iterations, .schedule = order.schedule, .shards = work.shards, .share_moments = false};
  const AlgorithmRun::AsynchronousOutcome found = run.Iterate(how);
  ExpectSameMove(run, found.params, RunReference(order.schedule, cycles, ToNumbers(run.initial()), workers));
  ExpectStaleness(found.staleness, order, cycles);

  const AlgorithmRun::AsynchronousOutcome again = run.Iterate(how);
  EXPECT_EQ(again.params, found.params);
  for (std::size_t worker = 0; worker < iterations.size(); ++worker) {
    ExpectSameOutcome(again.workers[worker], found.workers[worker]);
  }
}

// ---- Asynchronous advantage actor-critic ----

struct A3cCase {
  const char* name;
  const char* env;
  Order order;
  int horizon, cycles;
  int shards = 1;
  const char* activation = "tanh";
};

const A3cCase kA3cCases[] = {
    {.name = "TwoInTurns", .env = "CartPole-v1", .order = kInTurns, .horizon = 5, .cycles = 8},
    {.name = "ThreeIrregular", .env = "CartPole-v1", .order = kIrregular, .horizon = 5, .cycles = 6},
    {.name = "SeveralShards",
     .env = "CartPole-v1",
     .order = kInTurns,
     .horizon = 7,
     .cycles = 4,
     .shards = 2},
    {.name = "Relu",
     .env = "CartPole-v1",
     .order = kIrregular,
     .horizon = 6,
     .cycles = 4,
     .activation = "relu"},
    // Episodes are cut off by the limit of 200 steps.
    {.name = "Truncating", .env = "MountainCar-v0", .order = kInTurns, .horizon = 35, .cycles = 6},
};

constexpr int kA3cEnvs = 2;  // of each worker
constexpr double kGamma = 0.9, kTau = 0.3;
constexpr double kAlpha = 0.15, kBeta = 0.4;  // rates of the value and of the policy

// Pull; w- <- tau w + (1 - tau) w-; for b steps: y_t = r_t + gamma v(s_{t+1}; w-), delta_t = v(s_t; w) - y_t,
// accumulate delta_t grad v and delta_t grad ln pi; push both. The server applies their means over the steps.
class ReferenceA3c final : public ReferenceWorker {
 public:
  ReferenceA3c(const AlgorithmRun& run, int rank, int horizon)
      : network_(run.network()),
        policy_(run.Tower(0)),
        value_(run.Tower(1)),
        envs_(run.env(), kA3cEnvs, rank * kA3cEnvs),
        horizon_(horizon),
        target_(ToNumbers(run.initial())) {}

  void Pull(const Numbers& server) override {
    const Numbers params = server;
    for (std::size_t i = 0; i < params.size(); ++i) target_[i] = kTau * params[i] + (1 - kTau) * target_[i];
    gradient_.assign(params.size(), 0.0);
    for (int t = 0; t < horizon_; ++t) {
      const auto steps = envs_.Step([&](const Numbers& obs, const PhiloxBlock& draws) {
        return SampleAction(Softmax(policy_.Forward(params, obs)), draws);
      });
      for (const PlainStep& step : steps) Accumulate(params, step);
    }
  }

  void Push(Numbers& server) override {
    const ParamRange value = network_.TowerRange(1);
    for (std::size_t i = 0; i < server.size(); ++i) {
      const double rate = value.begin <= i && i < value.end ? kAlpha : kBeta;
      server[i] -= rate * gradient_[i] / (kA3cEnvs * horizon_);
    }
  }

  static int ends;  // of episodes, so that a test can tell that there were some

 private:
  void Accumulate(const Numbers& params, const PlainStep& step) {
    const double next = step.terminated ? 0 : value_.Forward(target_, step.next_obs)[0];
    const double y = step.reward + kGamma * next;
    const double delta = value_.Forward(params, step.obs)[0] - y;
    value_.AddGradient(params, step.obs, {delta}, gradient_);
    Numbers d_logits;  // of delta ln pi(a|s)
    for (const double p : Softmax(policy_.Forward(params, step.obs))) d_logits.push_back(-delta * p);
    d_logits[step.action] += delta;
    policy_.AddGradient(params, step.obs, d_logits, gradient_);
    ends += step.terminated || step.truncated;
  }

  const Network& network_;
  PlainTower policy_, value_;
  PlainEnvs envs_;
  int horizon_;
  Numbers target_, gradient_;
};
int ReferenceA3c::ends = 0;

class A3c : public testing::TestWithParam<A3cCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, A3c, testing::ValuesIn(kA3cCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(A3c, FollowsTheFormulas) {
  const A3cCase& c = GetParam();
  const AlgorithmRun run(
      "a2c", c.env,
      {fmt::format("envs={}", kA3cEnvs), fmt::format("horizon={}", c.horizon), "rounds=1", "hidden=[7,5]",
       fmt::format("activation={}", c.activation), "policy_gain=1", "optimizer=sgd", "max_grad_norm=0",
       "learning_rate_schedule=constant", "value_coef=1", "gae_lambda=0", fmt::format("gamma={}", kGamma),
       fmt::format("target_tau={}", kTau), fmt::format("learning_rate={}", kBeta),
       fmt::format("value_learning_rate={}", kAlpha)});
  std::vector<std::unique_ptr<ReferenceWorker>> workers;
  for (std::size_t rank = 0; rank < c.order.pushes.size(); ++rank) {
    workers.push_back(std::make_unique<ReferenceA3c>(run, static_cast<int>(rank), c.horizon));
  }
  ReferenceA3c::ends = 0;
  ExpectAsReference(run, c.order, {.cycles = c.cycles, .shards = c.shards}, workers);
  EXPECT_GT(ReferenceA3c::ends, 0);
}

// ---- Asynchronous double Q-learning ----

struct QCase {
  const char* name;
  const char* env;
  Order order;
  int horizon, updates, batch, cycles;
  int replay = 1000;
  const char* hidden = "[7,5]";
};

const QCase kQCases[] = {
    {.name = "TwoInTurns",
     .env = "CartPole-v1",
     .order = kInTurns,
     .horizon = 5,
     .updates = 1,
     .batch = 12,
     .cycles = 10},
    {.name = "ThreeIrregular",
     .env = "CartPole-v1",
     .order = kIrregular,
     .horizon = 5,
     .updates = 1,
     .batch = 12,
     .cycles = 6},
    {.name = "SeveralUpdates",
     .env = "CartPole-v1",
     .order = kInTurns,
     .horizon = 5,
     .updates = 3,
     .batch = 12,
     .cycles = 12},
    {.name = "ReplayWrapsAround",
     .env = "CartPole-v1",
     .order = kInTurns,
     .horizon = 5,
     .updates = 1,
     .batch = 12,
     .cycles = 8,
     .replay = 25},
    // More samples in a batch than fit into one pass.
    {.name = "SeveralPasses",
     .env = "CartPole-v1",
     .order = kInTurns,
     .horizon = 8,
     .updates = 1,
     .batch = 90,
     .cycles = 4,
     .hidden = "[512]"},
    {.name = "Truncating",
     .env = "MountainCar-v0",
     .order = kInTurns,
     .horizon = 35,
     .updates = 1,
     .batch = 40,
     .cycles = 8},
};

constexpr int kQEnvs = 2;    // of each worker
constexpr int kQWarmUp = 2;  // rounds without an update
constexpr double kEpsilon = 0.3, kQTau = 0.2, kQRate = 0.1;

// Pull w_new; w- <- tau w_new + (1 - tau) w-; sample b transitions;
// y = r + gamma Q(s', argmax_a Q(s', a; w_new); w-); gradient of 1/(2b) sum (Q(s, a; w_new) - y)^2; push.
class ReferenceDoubleQ final : public ReferenceWorker {
 public:
  ReferenceDoubleQ(const AlgorithmRun& run, int rank, const QCase& c)
      : case_(c),
        rank_(rank),
        q_(run.Tower(0)),
        choices_(run.env().spec.action.choices()),
        envs_(run.env(), kQEnvs, rank * kQEnvs),
        seen_(ToNumbers(run.initial())),
        target_(seen_) {}

  void Pull(const Numbers& server) override {
    if (updates_ == 0) {
      for (int round = 0; round < kQWarmUp; ++round) Collect();
    }
    if (updates_ % case_.updates == 0) Collect();
    const Numbers params = server;
    for (std::size_t i = 0; i < params.size(); ++i) {
      target_[i] = kQTau * params[i] + (1 - kQTau) * target_[i];
    }
    gradient_.assign(params.size(), 0.0);
    RandomStream random(AlgorithmRun::kSeed, Purpose::kReplay, static_cast<std::uint32_t>(rank_), updates_);
    for (int i = 0; i < case_.batch; ++i) {
      const PlainStep& step = replay_[random.NextBelow(static_cast<std::uint32_t>(replay_.size()))];
      const int best = BestAction(q_.Forward(params, step.next_obs));
      const double next = step.terminated ? 0 : q_.Forward(target_, step.next_obs)[best];
      const double y = step.reward + kGamma * next;
      Numbers d_q(choices_, 0.0);
      d_q[step.action] = (q_.Forward(params, step.obs)[step.action] - y) / case_.batch;
      q_.AddGradient(params, step.obs, d_q, gradient_);
    }
    ++updates_;
  }

  void Push(Numbers& server) override {
    for (std::size_t i = 0; i < server.size(); ++i) server[i] -= kQRate * gradient_[i];
    seen_ = server;
  }

 private:
  // A round of experience, with the parameters as the worker saw them last.
  void Collect() {
    for (int t = 0; t < case_.horizon; ++t) {
      const auto steps = envs_.Step([&](const Numbers& obs, const PhiloxBlock& draws) {
        if (ToUniform(draws[0]) >= static_cast<float>(kEpsilon)) return BestAction(q_.Forward(seen_, obs));
        return static_cast<int>((std::uint64_t{draws[1]} * choices_) >> 32);
      });
      for (const PlainStep& step : steps) {
        const std::size_t slot = added_++ % case_.replay;
        if (slot == replay_.size()) replay_.emplace_back();
        replay_[slot] = step;
      }
    }
  }

  const QCase& case_;
  int rank_;
  PlainTower q_;
  std::size_t choices_;
  PlainEnvs envs_;
  std::vector<PlainStep> replay_;
  std::uint64_t added_ = 0, updates_ = 0;
  Numbers seen_, target_, gradient_;
};

class AsynchronousDoubleQ : public testing::TestWithParam<QCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, AsynchronousDoubleQ, testing::ValuesIn(kQCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(AsynchronousDoubleQ, FollowsTheFormulas) {
  const QCase& c = GetParam();
  const AlgorithmRun run(
      "dqn", c.env,
      {fmt::format("envs={}", kQEnvs), fmt::format("horizon={}", c.horizon),
       fmt::format("updates={}", c.updates), "rounds=1", fmt::format("batch={}", c.batch),
       fmt::format("replay={}", c.replay), fmt::format("hidden={}", c.hidden),
       fmt::format("learning_starts={}", (kQWarmUp + 1) * kQEnvs * c.horizon),
       fmt::format("epsilon_start={}", kEpsilon), fmt::format("epsilon_end={}", kEpsilon), "target_every=1",
       fmt::format("target_tau={}", kQTau), fmt::format("gamma={}", kGamma), "optimizer=sgd",
       "max_grad_norm=0", fmt::format("learning_rate={}", kQRate)});
  std::vector<std::unique_ptr<ReferenceWorker>> workers;
  for (std::size_t rank = 0; rank < c.order.pushes.size(); ++rank) {
    workers.push_back(std::make_unique<ReferenceDoubleQ>(run, static_cast<int>(rank), c));
  }
  ExpectAsReference(run, c.order, {.cycles = c.cycles, .warm_up = kQWarmUp, .pushes = c.updates}, workers);
}

// ---- On any store ----

struct StoreCase {
  const char* name;
  const char* algo;
  Assignments assignments;
  double updates;  // of a worker in three iterations
};

const StoreCase kStoreCases[] = {
    {"A2c",
     "a2c",
     {"envs=16", "rounds=8", "hidden=[24,16]", "target_tau=0.1", "value_learning_rate=0.002"},
     3 * 8},
    {"Dqn",
     "dqn",
     {"envs=16", "rounds=8", "hidden=[24,16]", "batch=64", "updates=2", "target_every=5", "replay=4096",
      "learning_starts=128", "prioritised=true", "n_step=3"},
     3 * 16 - 2},
};

class OnTheSharedStore : public testing::TestWithParam<StoreCase> {};
INSTANTIATE_TEST_SUITE_P(Algorithms, OnTheSharedStore, testing::ValuesIn(kStoreCases),
                         [](const auto& info) { return info.param.name; });

// What the algorithm itself saves.
std::string OwnState(const AlgorithmRun::Outcome& outcome, const std::string& section) {
  return StateReader(outcome.state).GetText(section);
}

TEST_P(OnTheSharedStore, OneWorkerIsOnTheLocalStoreBitForBit) {
  const StoreCase& c = GetParam();
  const AlgorithmRun run(c.algo, "CartPole-v1", c.assignments);
  const AlgorithmRun::Outcome local = run.Iterate(1, 0, 3);
  EXPECT_NE(local.params, run.initial());
  for (const bool share_moments : {false, true}) {
    const AlgorithmRun::AsynchronousOutcome shared = run.Iterate(
        {.iterations = {3}, .schedule = "", .shards = AlgorithmRun::kShards, .share_moments = share_moments});
    EXPECT_EQ(shared.params, local.params);
    EXPECT_EQ(shared.workers[0].params, local.params);
    ExpectSameRows(shared.workers[0].rows, local.rows);
    const std::string target = fmt::format("{}/target", c.algo);
    EXPECT_TRUE(OwnState(shared.workers[0], target) == OwnState(local, target));
    EXPECT_EQ(shared.staleness[0].pushes[0], c.updates);
    EXPECT_EQ(shared.staleness[0].count(), c.updates);
  }
}

TEST_P(OnTheSharedStore, FreeWorkersStayFiniteAndEveryPushCounts) {
  const StoreCase& c = GetParam();
  const AlgorithmRun run(c.algo, "CartPole-v1", c.assignments);
  for (const bool share_moments : {false, true}) {
    const AlgorithmRun::AsynchronousOutcome free = run.Iterate(
        {.iterations = {3, 3, 3, 3}, .schedule = "", .shards = 4, .share_moments = share_moments});
    EXPECT_NE(free.params, run.initial());
    for (const float p : free.params) ASSERT_TRUE(std::isfinite(p));
    for (std::size_t worker = 0; worker < 4; ++worker) {
      double updates = 0;
      for (const MetricRow& row : free.workers[worker].rows) {
        ExpectPromisedRow(c.algo, row);
        updates += row.Get("updates");
      }
      EXPECT_EQ(updates, c.updates);
      EXPECT_EQ(free.staleness[worker].count(), c.updates);
    }
    // Each worker has environments of its own.
    for (std::size_t worker = 1; worker < 4; ++worker) {
      EXPECT_NE(OwnState(free.workers[0], "shard/0/env/state/0"),
                OwnState(free.workers[worker], fmt::format("shard/{}/env/state/0", 4 * worker)));
    }
  }
}

}  // namespace
}  // namespace trireme
