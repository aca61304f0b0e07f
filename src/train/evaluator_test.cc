#include "trireme/train/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/comm/thread_communicator.h"
#include "trireme/env/registry.h"
#include "trireme/env/test_env.h"

namespace trireme {
namespace {

// Balances well on the right half of the track and badly on the left: some episodes end several times as late
// as others.
float LeanAction(const float* obs) { return obs[2] + (obs[0] > 0 ? 0.5f : 0.0f) * obs[3] > 0 ? 1.0f : 0.0f; }

// A policy that learns nothing.
class FixedPolicy final : public Algorithm {
 public:
  void Iterate(double, MetricRow&) override {}
  std::int64_t steps_per_iteration() const override { return 1; }
  void Act(std::span<const float> obs, const std::uint8_t*, int n, std::span<float> actions) override {
    EXPECT_GT(n, 0);
    EXPECT_LE(n, kMostActed);
    EXPECT_EQ(obs.size(), static_cast<std::size_t>(n) * 4);
    EXPECT_EQ(actions.size(), static_cast<std::size_t>(n));
    if (first_obs_.empty()) first_obs_.assign(obs.begin(), obs.end());
    for (int b = 0; b < n; ++b) actions[b] = LeanAction(obs.data() + 4 * b);
  }
  void Explore(const ActionRequest&) override { FAIL() << "evaluations do not explore"; }
  void SaveShards(StateWriter&) const override {}
  void SaveCommon(StateWriter&) const override {}
  void LoadShards(const StateReader&) override {}
  void LoadCommon(const StateReader&) override {}

  const std::vector<float>& first_obs() const { return first_obs_; }

 private:
  std::vector<float> first_obs_;
};

const EnvEntry& CartPole() {
  static const EnvEntry entry = FindEnv("CartPole-v1");
  return entry;
}

using Results = std::vector<std::optional<Evaluation>>;

// What each of `workers` threads gets, where `stop` says what stops it.
Results EvaluateAll(const EnvEntry& env, const EvaluationPlan& plan, int workers,
                    const std::function<EvaluationStop(int rank)>& stop, bool leader_has_none = false) {
  ThreadGroup group(workers);
  Results results(workers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator comm(group, rank);
      FixedPolicy policy;
      Evaluator evaluator(env, plan);
      const int own = plan.groups / workers;
      const EvaluationStop stops = stop(rank);
      const int first = stops.leads && leader_has_none ? 0 : rank * own;
      results[rank] = evaluator.Run(policy, comm, first, stops.leads && leader_has_none ? 0 : own, stops);
      // Its servers tell the others that it has gone; here it takes part in what follows.
      double nothing = 0;
      if (!results[rank] && stops.may_leave) comm.AllReduceSum(std::span<double>(&nothing, 1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void ExpectSame(const std::optional<Evaluation>& a, const std::optional<Evaluation>& b) {
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->mean, b->mean);
  EXPECT_EQ(a->std, b->std);
  EXPECT_EQ(a->cut_off, b->cut_off);
}

// Evaluates with `workers` threads and checks that all of them get the same.
Evaluation Evaluate(const EnvEntry& env, const EvaluationPlan& plan, int workers) {
  const Results results =
      EvaluateAll(env, plan, workers, [](int rank) { return EvaluationStop{.leads = rank == 0}; });
  for (const auto& result : results) ExpectSame(result, results[0]);
  return *results[0];
}
Evaluation Evaluate(std::uint64_t seed, int episodes, int groups, int workers) {
  return Evaluate(CartPole(), {.seed = seed, .episodes = episodes, .groups = groups}, workers);
}

// Episode e, on its own: the copy numbered e in its first episode.
double ReturnOfEpisode(std::uint64_t seed, Purpose purpose, int episode) {
  const auto batch = CartPole().make(1);
  batch->Reset(seed, purpose, static_cast<std::uint32_t>(episode));
  do {
    const float action = LeanAction(FloatObs(batch->obs()).data());
    batch->Step({&action, 1});
  } while (batch->finished().empty());
  return batch->finished()[0].episode_return;
}

TEST(Evaluator, MeasuresTheFirstEpisodeOfEveryCopy) {
  constexpr int kEpisodes = 21;
  std::vector<double> returns;
  for (int e = 0; e < kEpisodes; ++e) returns.push_back(ReturnOfEpisode(5, Purpose::kEvalReset, e));
  double mean = 0, variance = 0;
  for (const double r : returns) mean += r / kEpisodes;
  for (const double r : returns) variance += (r - mean) * (r - mean) / kEpisodes;
  // Copies that end early begin further episodes, which must not count.
  ASSERT_GT(std::ranges::max(returns), 2 * std::ranges::min(returns));

  const Evaluation result = Evaluate(5, kEpisodes, 8, 1);
  EXPECT_NEAR(result.mean, mean, 1e-9);
  EXPECT_NEAR(result.std, std::sqrt(variance), 1e-9);
  EXPECT_EQ(result.episodes, kEpisodes);
}

TEST(Evaluator, TheSameForAnyNumberOfWorkers) {
  // Fewer episodes than groups, not a multiple of them, and more than one pass of the network.
  for (const int episodes : {1, 5, 21, 300}) {
    const Evaluation one = Evaluate(5, episodes, 8, 1);
    for (const int workers : {2, 4, 8}) {
      const Evaluation many = Evaluate(5, episodes, 8, workers);
      EXPECT_EQ(many.mean, one.mean) << episodes << " episodes, " << workers << " workers";
      EXPECT_EQ(many.std, one.std) << episodes << " episodes, " << workers << " workers";
    }
    const Evaluation ungrouped = Evaluate(5, episodes, 1, 1);
    EXPECT_EQ(ungrouped.mean, one.mean) << episodes << " episodes";
  }
}

TEST(Evaluator, StartsFromStatesNeverTrainedOn) {
  constexpr int kEpisodes = 16;
  FixedPolicy policy;
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  Evaluator(CartPole(), {.seed = 5, .episodes = kEpisodes}).Run(policy, comm, 0, 1);
  const auto starts = [&](Purpose purpose) {
    const auto batch = CartPole().make(kEpisodes);
    batch->Reset(5, purpose, 0);
    const std::span<const float> rows = FloatObs(batch->obs());
    return std::vector<float>(rows.begin(), rows.end());
  };
  EXPECT_EQ(policy.first_obs(), starts(Purpose::kEvalReset));
  const std::vector<float> training = starts(Purpose::kEnvReset);
  for (std::size_t i = 0; i < training.size(); ++i) EXPECT_NE(policy.first_obs()[i], training[i]);
}

// Lists episodes of copies that it does not have.
class MiscountingBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void StepEnd() override {
    inner_->StepEnd();
    finished_.assign(inner_->finished().begin(), inner_->finished().end());
    for (EpisodeEnd& end : finished_) end.env += size();
  }
  std::span<const EpisodeEnd> finished() const override { return finished_; }

 private:
  std::vector<EpisodeEnd> finished_;
};

TEST(Evaluator, RefusesEnvironmentsThatAreNotWhatTheySay) {
  const auto error = [](const EnvEntry& env) -> std::string {
    FixedPolicy policy;
    ThreadGroup group(1);
    ThreadCommunicator comm(group, 0);
    try {
      Evaluator(env, {.seed = 5, .episodes = 4}).Run(policy, comm, 0, 1);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error(ForwardingEntry<ForwardingBatch>("Honest-v0", {})), "");
  const std::string copies = error(ForwardingEntry<MiscountingBatch>("Miscounting-v0", {}));
  EXPECT_NE(copies.find("Miscounting-v0 is not what it says it is: it lists the end of copy"),
            std::string::npos)
      << copies;
  EnvEntry wide = ForwardingEntry<ForwardingBatch>("Wide-v0", {});
  wide.spec.obs = {{5}};
  EXPECT_NE(error(wide).find("Wide-v0 is not what it says it is: its batches have other observations"),
            std::string::npos);
}

EnvEntry CartPoleFor(int steps) {
  const std::pair<std::string, std::string> limit{"max_steps", std::to_string(steps)};
  return FindEnv("CartPole-v1", {&limit, 1});
}

TEST(Evaluator, CutsOffEpisodesThatHaveNoLimit) {
  constexpr int kSteps = 60;
  for (const int workers : {1, 4}) {
    const EvaluationPlan plan{.seed = 5, .episodes = 300, .groups = 8, .max_steps = kSteps};
    const Evaluation endless = Evaluate(CartPoleFor(0), plan, workers);
    const Evaluation limited = Evaluate(CartPoleFor(kSteps), plan, workers);
    EXPECT_EQ(endless.mean, limited.mean);
    EXPECT_EQ(endless.std, limited.std);
    EXPECT_EQ(limited.cut_off, 0) << "by its own limit";
    int longer = 0;
    for (int e = 0; e < plan.episodes; ++e) longer += ReturnOfEpisode(5, Purpose::kEvalReset, e) > kSteps;
    EXPECT_EQ(endless.cut_off, longer);
    EXPECT_GT(longer, 0);
    EXPECT_LT(longer, plan.episodes);
  }
  // An environment's own limit counts, however far it is.
  EXPECT_EQ(Evaluate(CartPole(), {.seed = 5, .max_steps = 1}, 1).mean, Evaluate(5, 100, 1, 1).mean);
}

class StoppedEvaluation : public testing::Test {
 protected:
  // From the third time on that somebody asks.
  bool Soon() { return ++asked_ > 2; }
  static bool Never() { return false; }

  const EvaluationPlan plan_{.seed = 5, .episodes = 40, .groups = 8};
  std::atomic<int> asked_{0};
};

TEST_F(StoppedEvaluation, WhoeverLeadsStopsItForAll) {
  for (const auto& result : EvaluateAll(CartPole(), plan_, 4, [&](int rank) {
         return EvaluationStop{.requested = [this, rank] { return rank == 0 ? Soon() : Never(); },
                               .leads = rank == 0};
       })) {
    EXPECT_FALSE(result);
  }
}

// One that has run its part already may be waiting when the others are stopped.
TEST_F(StoppedEvaluation, ALeaderThatIsReadyStopsItToo) {
  std::atomic<bool> stop{false};
  for (const auto& result : EvaluateAll(
           CartPole(), plan_, 2,
           [&](int rank) {
             return EvaluationStop{.requested =
                                       [this, &stop] {
                                         if (Soon()) stop = true;
                                         return stop.load();
                                       },
                                   .leads = rank == 0};
           },
           /*leader_has_none=*/true)) {
    EXPECT_FALSE(result);
  }
}

TEST_F(StoppedEvaluation, OthersGoOnWithoutTheWorkerThatLeaves) {
  const Results results = EvaluateAll(CartPole(), plan_, 2, [&](int rank) {
    return EvaluationStop{.requested = [this, rank] { return rank == 1 ? Soon() : Never(); },
                          .leads = rank == 0,
                          .may_leave = rank != 0};
  });
  EXPECT_FALSE(results[1]);
  ExpectSame(results[0], Evaluate(CartPole(), plan_, 1));
}

// Workers of other processes that cannot go on without it, and were told nothing.
TEST_F(StoppedEvaluation, WhoeverMayNotLeaveFinishesIt) {
  const Results results = EvaluateAll(CartPole(), plan_, 2, [&](int rank) {
    return EvaluationStop{.requested = [this, rank] { return rank == 1 ? Soon() : Never(); },
                          .leads = rank == 0};
  });
  ExpectSame(results[1], results[0]);
  ExpectSame(results[0], Evaluate(CartPole(), plan_, 1));
}

// Environments may be costly to make: one batch serves all groups of all evaluations, with the same bits.
TEST(Evaluator, MakesItsEnvironmentsOnce) {
  std::vector<int> made;
  EnvEntry counted = CartPole();
  counted.make = [&](int size) {
    made.push_back(size);
    return CartPole().make(size);
  };
  FixedPolicy policy;
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  for (const auto& [episodes, groups, size] :
       {std::tuple{21, 8, 3}, {5, 8, 1}, {300, 1, Algorithm::kMostActed}}) {
    made.clear();
    Evaluator evaluator(counted, {.seed = 5, .episodes = episodes, .groups = groups});
    EXPECT_TRUE(made.empty()) << "before they are needed";
    const auto first = evaluator.Run(policy, comm, 0, groups),
               second = evaluator.Run(policy, comm, 0, groups);
    ExpectSame(first, second);
    EXPECT_EQ(made, std::vector<int>{size});
    double mean = 0;
    for (int e = 0; e < episodes; ++e) mean += ReturnOfEpisode(5, Purpose::kEvalReset, e) / episodes;
    EXPECT_NEAR(first->mean, mean, 1e-9);
  }
}

// Some in every part, fewer than parts, and groups that differ in size; with and without a limit.
TEST(Evaluator, EnvironmentsThatStepElsewhereGiveTheSame) {
  for (const int limit : {500, 0}) {
    const EnvEntry here = CartPoleFor(limit);
    EnvEntry there = here;
    there.facts.steps_elsewhere = true;
    there.make = [spec = there.spec, make = there.make](int size) {
      return std::make_unique<ThreadedBatch>(make(size), spec);
    };
    for (const int episodes : {3, 21, 60}) {
      SCOPED_TRACE(fmt::format("{} episodes of at most {} steps", episodes, limit));
      const EvaluationPlan plan{.seed = 5, .episodes = episodes, .groups = 8, .max_steps = 70};
      const Evaluation expected = Evaluate(here, plan, 1);
      for (const int workers : {1, 2}) ExpectSame(Evaluate(there, plan, workers), expected);
    }
  }
}

TEST(Evaluator, AllPartsAreOnTheirWayAtOnce) {
  for (const auto& [episodes, parts] : {std::pair{3, 3}, {13, 4}}) {
    Meeting meeting(parts);
    const EnvEntry env = MeetingEntry(CartPoleFor(7), meeting);  // a pole does not fall so soon
    EXPECT_NEAR(Evaluate(env, {.seed = 5, .episodes = episodes}, 1).mean, 7, 1e-9);
    EXPECT_TRUE(meeting.Met(7));
  }
}

// What is on its way when an evaluation is stopped does not get in the way of the next.
TEST_F(StoppedEvaluation, CanBeMadeUpForWhereEnvironmentsStepElsewhere) {
  EnvEntry env =
      ForwardingEntry<ThreadedBatch>("Threaded-v0", {.reproducible = true, .steps_elsewhere = true});
  FixedPolicy policy;
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  Evaluator evaluator(env, plan_);
  EXPECT_FALSE(evaluator.Run(policy, comm, 0, 8, {.requested = [this] { return Soon(); }}));
  ExpectSame(evaluator.Run(policy, comm, 0, 8), Evaluate(CartPole(), plan_, 1));
}

TEST(Evaluator, TheSeedChoosesTheEpisodes) {
  EXPECT_EQ(Evaluate(5, 50, 8, 1).mean, Evaluate(5, 50, 8, 1).mean);
  EXPECT_NE(Evaluate(5, 50, 8, 1).mean, Evaluate(6, 50, 8, 1).mean);
}

}  // namespace
}  // namespace trireme
