// Actors for whom central inference chooses: they collect what they would with a network of their own, and runs learn from it.
#include "trireme/train/central_acting.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/algo/collecting.h"
#include "trireme/env/test_env.h"
#include "trireme/train/test_runs.h"
#include "trireme/train/test_stop.h"

namespace trireme {
namespace {

// Eight iterations of 256 steps, each of two updates of four trajectories: 32 steps.
const Assignments kSmall = {
    "hidden=[16]", "steps=2048",        "eval_every=1024", "eval_episodes=9",   "shards=4",
    "envs=16",     "horizon=8",         "rounds=2",        "workers=1",         "actors=2",
    "seed=3",      "entropy_coef=0.01", "queue=4",         "inference=central", "inference_batch=64"};

class CentralRuns : public RunsTest {
 protected:
  static std::unique_ptr<RunSettings> Settings(const Assignments& extra = {},
                                               const std::string& env = "CartPole-v1") {
    return SettingsOf(env, "impala", "allreduce", {kSmall, extra});
  }
};

template <class T>
bool SameBits(const T& a, const T& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof *a.data()) == 0;
}

// An actor with a network of its own, and one whose choices are made together with those of three others, who ask all the time.
void ExpectTheSameTrajectories(const RunSettings& settings, std::size_t experience_bits) {
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  std::vector<float> params(network.param_count());
  network.Initialise(9, params);
  const TrainOptions options;
  const RunContext context{settings, network, options, nullptr, params};
  const auto [steps, envs] = settings.algorithm->TrajectorySize(settings.run.shards);
  MemoryChannel channel(1);
  const auto learner = channel.MakeLearnerEnd();
  learner->Publish(params);
  CentralActing central(context);
  central.service().Attach(channel);

  const auto executor = MakeExecutor(network, settings.run.ComputingOf(0));
  const auto own = settings.algorithm->MakeActing(settings.env().spec, *executor, envs);
  CentralInference::Member asker(central.service());
  ElsewhereActing asking([&](const ActionRequest& request) {
    if (!asker.Choose(request)) throw ChoicesEnd();
  });
  Collector alone(settings.env(), {3, envs, 77}, steps, *own),
      asks(settings.env(), {3, envs, 77}, steps, asking);

  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int other = 0; other < 3; ++other) {
    others.emplace_back([&, other] {
      CentralInference::Member asks_too(central.service());
      ElsewhereActing acting([&](const ActionRequest& request) {
        if (!asks_too.Choose(request)) throw ChoicesEnd();
      });
      Collector collector(settings.env(), {10 + other, envs, 5}, steps, acting);
      Trajectory trajectory;
      while (!over) {
        asks_too.Come();
        collector.Collect(params, trajectory);
        asks_too.Go();
      }
    });
  }
  const auto in_company = [&] { return central.service().facts().batches.mean() > envs; };
  while (!in_company()) std::this_thread::yield();
  Trajectory expected, found;
  for (int round = 0; round < 6; ++round) {
    if (round > 0) {
      for (float& param : params) param += 0.03f;
      learner->Publish(params);
    }
    alone.Collect(params, expected);
    asker.Come();
    asks.Collect(params, found);
    asker.Go();
    EXPECT_TRUE(SameBits(expected.obs, found.obs));
    EXPECT_TRUE(SameBits(expected.actions, found.actions));
    EXPECT_TRUE(SameBits(expected.extra, found.extra));
    EXPECT_TRUE(SameBits(expected.rewards, found.rewards));
    EXPECT_TRUE(SameBits(expected.terminated, found.terminated));
    EXPECT_EQ(expected.truncated_samples, found.truncated_samples);
  }
  over = true;
  for (std::thread& other : others) other.join();
  EXPECT_EQ(RowLayout(settings.env().spec).plain(), experience_bits == 32);
}

TEST_F(CentralRuns, ActorsCollectWhatTheyWouldWithANetworkOfTheirOwn) {
  for (const char* env : {"CartPole-v1", "Pendulum-v1"}) {
    for (const char* hidden : {"hidden=[16]", "hidden=[64,33]"}) {
      SCOPED_TRACE(std::string(env) + " " + hidden);
      ExpectTheSameTrajectories(*Settings({hidden, "inference_wait_us=20000"}, env), 32);
    }
  }
  ExpectTheSameTrajectories(*Settings({"experience=bf16", "precision=bf16", "inference_wait_us=20000"}), 16);
}

std::uint64_t Sum(const std::vector<std::uint64_t>& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
}

TEST_F(CentralRuns, LearnFromEveryTrajectoryOnceAndTellOfBatches) {
  for (const char* workers : {"workers=1", "workers=2"}) {
    SCOPED_TRACE(workers);
    const auto settings = Settings({workers, "actors=4"});
    const TrainResult result = Go(*settings, Folder(workers, *settings));
    EXPECT_EQ(result.facts.steps, 2048);
    EXPECT_EQ(Sum(result.facts.lag), 8u * 2 * 4);
    EXPECT_EQ(result.facts.rounds, 16u);
    // Each of the 64 trajectories has asked 8 times; some that nobody has learned from may have, too.
    EXPECT_GE(Sum(result.facts.inference_latency_us), 8u * 64);
    EXPECT_LE(Sum(result.facts.inference_batches), Sum(result.facts.inference_latency_us));
    EXPECT_GE(result.facts.inference_batch_mean, 4) << "an actor has four environments";
    EXPECT_LE(result.facts.inference_batch_mean, 16);
    EXPECT_LE(result.facts.inference_batches.size(), 5u) << "no more than 16 at a time";
  }
}

// Each for itself: there is nothing to tell.
TEST_F(CentralRuns, LocalInferenceHasNoFigures) {
  const auto settings = Settings({"inference=local"});
  const TrainResult result = Go(*settings, Folder("run", *settings));
  EXPECT_TRUE(result.facts.inference_batches.empty());
  EXPECT_TRUE(result.facts.inference_latency_us.empty());
}

TEST_F(CentralRuns, ARunGoesOnWithTheOtherInference) {
  const auto begun = Settings();
  const RunFolder folder = Folder("run", *begun);
  Go(*begun, folder);
  std::int64_t steps = 2048;
  for (const char* inference : {"inference=local", "inference=central"}) {
    steps += 512;
    const auto longer = Settings({inference, fmt::format("steps={}", steps)});
    EXPECT_EQ(Go(*longer, folder).facts.steps, steps);
  }
}

TEST_F(CentralRuns, StoppedTheyLeaveACheckpoint) {
  const auto settings = Settings({"steps=100000000", "eval_every=0"});
  const TrainResult result = TrainOneIteration(*settings, Folder("run", *settings));
  EXPECT_TRUE(result.interrupted);
  EXPECT_GT(result.facts.steps, 0);
}

// Fails in its hundredth step.
class FailingBatch final : public ForwardingBatch {
 public:
  using ForwardingBatch::ForwardingBatch;
  void StepBegin(std::span<const float> actions) override {
    if (++steps_ == 100) Fail("this environment fails");
    ForwardingBatch::StepBegin(actions);
  }

 private:
  int steps_ = 0;
};

TEST_F(CentralRuns, AnActorThatFailsSaysWhy) {
  AddEnv(ForwardingEntry<FailingBatch>("CentralRuns.Failing-v0", {.reproducible = true}));
  const auto settings = Settings({"inference_wait_us=1000000"}, "CentralRuns.Failing-v0");
  const std::string why = Refusal(*settings, Folder("run", *settings));
  EXPECT_TRUE(Mentions(why, "this environment fails")) << why;
}

// IMPALA, with something to say of whole trajectories.
class NotingSettings final : public AlgorithmSettings {
 public:
  class Noting final : public Acting {
   public:
    void SetParams(std::span<const float>) override {}
    void Choose(const ActionRequest&) override {}
    bool notes() const override { return true; }
  };

  void Fields(ConfigFields& field) override { impala_->Fields(field); }
  void Validate(const EnvSpec& env, int shards) const override { impala_->Validate(env, shards); }
  std::uint64_t ExperienceBytes(const EnvSpec& env) const override { return impala_->ExperienceBytes(env); }
  NetworkSpec MakeNetwork(const EnvSpec& env) const override { return impala_->MakeNetwork(env); }
  const OptimizerSettings& optimizer() const override { return impala_->optimizer(); }
  std::unique_ptr<Algorithm> Make(const WorkerContext& context) const override {
    return impala_->Make(context);
  }
  StepsAndEnvs TrajectorySize(int shards) const override { return impala_->TrajectorySize(shards); }
  std::unique_ptr<Acting> MakeActing(const EnvSpec&, const Executor&, int) const override {
    return std::make_unique<Noting>();
  }

 private:
  std::unique_ptr<AlgorithmSettings> impala_ = FindAlgorithm("impala").make_settings();
};

TEST_F(CentralRuns, RefuseWhatDoesNotFitTogether) {
  const auto refusal = [](const Assignments& extra) { return RefusalOf([&] { Settings(extra); }); };
  EXPECT_TRUE(Mentions(refusal({"actors=0", "queue=0"}), "inference = central is how actors choose"));
  EXPECT_TRUE(Mentions(refusal({"schedule=0< 1< 0> 1> 0< 1< 0> 1> 2< 2>"}), "use --inference local"));
  EXPECT_TRUE(Mentions(refusal({"inference=remote"}), "central"));
  AlgorithmEntry noting = FindAlgorithm("impala");
  noting.name = "CentralRuns.noting";
  noting.make_settings = [] { return std::make_unique<NotingSettings>(); };
  AddAlgorithm(std::move(noting));
  const std::string why =
      RefusalOf([] { SettingsOf("CartPole-v1", "CentralRuns.noting", "allreduce", {kSmall}); });
  EXPECT_TRUE(Mentions(why, "actors of CentralRuns.noting need its network") &&
              Mentions(why, "use --inference local"))
      << why;
}

}  // namespace
}  // namespace trireme
