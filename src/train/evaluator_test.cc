#include "trireme/train/evaluator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
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

// Evaluates with `workers` threads and checks that all of them get the same.
Evaluation Evaluate(std::uint64_t seed, int episodes, int groups, int workers) {
  const Evaluator evaluator(CartPole(), seed, episodes, groups);
  ThreadGroup group(workers);
  std::vector<Evaluation> results(workers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator comm(group, rank);
      FixedPolicy policy;
      const int own = groups / workers;
      results[rank] = evaluator.Run(policy, comm, rank * own, own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Evaluation& result : results) {
    EXPECT_EQ(result.mean, results[0].mean);
    EXPECT_EQ(result.std, results[0].std);
  }
  return results[0];
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
  Evaluator(CartPole(), 5, kEpisodes, 1).Run(policy, comm, 0, 1);
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
      Evaluator(env, 5, 4, 1).Run(policy, comm, 0, 1);
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

TEST(Evaluator, TheSeedChoosesTheEpisodes) {
  EXPECT_EQ(Evaluate(5, 50, 8, 1).mean, Evaluate(5, 50, 8, 1).mean);
  EXPECT_NE(Evaluate(5, 50, 8, 1).mean, Evaluate(6, 50, 8, 1).mean);
}

}  // namespace
}  // namespace trireme
