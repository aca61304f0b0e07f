#include "algo/ppo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_communicator.h"

namespace trireme {
namespace {

using Assignments = std::vector<std::string>;

// A run of PPO as the trainer wires it, without files: settings, and workers as threads.
class PpoRun {
 public:
  static constexpr int kShards = 8;
  static constexpr std::uint64_t kSeed = 3;

  PpoRun(const std::string& env, const Assignments& assignments)
      : env_(FindEnv(env)), settings_(Settings(assignments)), network_(settings_->MakeNetwork(env_.spec)) {}

  static std::unique_ptr<AlgorithmSettings> Settings(const Assignments& assignments) {
    auto settings = PpoEntry().make_settings();
    ConfigFields fields;
    fields.Add(*settings);
    for (const std::string& assignment : assignments) fields.ApplyAssignment(assignment, "test");
    return settings;
  }

  struct Outcome {
    std::vector<float> params;
    std::vector<MetricRow> rows;
    std::string state;  // encoded: of all shards, of the store and what is common
  };

  // Iterates from iteration `begin` to `end`, from `state` unless it is empty.
  Outcome Iterate(int workers, int begin, int end, const std::string& state = "") {
    ThreadGroup group(workers);
    std::vector<StateWriter> parts(workers);
    std::vector<Outcome> outcomes(workers);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers; ++rank) {
      threads.emplace_back([&, rank] {
        ThreadCommunicator comm(group, rank);
        Work(comm, begin, end, state, parts[rank], outcomes[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.params, outcomes[0].params);
    StateWriter all;
    for (StateWriter& part : parts) all.Merge(std::move(part));
    outcomes[0].state = all.Encode();
    return outcomes[0];
  }

 private:
  void Work(Communicator& comm, int begin, int end, const std::string& state, StateWriter& saved,
            Outcome& outcome) const {
    std::vector<float> initial(network_.param_count());
    network_.Initialise(kSeed, initial);
    const auto store = MakeAllReduceStore(comm, settings_->optimizer(), initial);
    const int own = kShards / comm.size();
    const auto algorithm = settings_->Make({.env = env_,
                                            .network = network_,
                                            .store = *store,
                                            .seed = kSeed,
                                            .shards = kShards,
                                            .first_shard = comm.rank() * own,
                                            .own_shards = own});
    if (!state.empty()) {
      const StateReader in(state);
      store->Load(in);
      algorithm->Load(in);
    }
    for (int i = begin; i < end; ++i) {
      MetricRow row;
      algorithm->Iterate(0.1 * i, row);
      outcome.rows.push_back(row);
    }
    algorithm->SaveShards(saved);
    if (comm.rank() == 0) {
      algorithm->SaveCommon(saved);
      store->Save(saved);
    }
    outcome.params.assign(store->params().begin(), store->params().end());
  }

  const EnvEntry& env_;
  std::unique_ptr<AlgorithmSettings> settings_;
  Network network_;
};

struct RunCase {
  const char* name;
  const char* env;
  Assignments assignments;
};

const Assignments kEverything = {"envs=24",           "horizon=40",        "epochs=3",
                                 "minibatches=3",     "hidden=[16]",       "normalise_obs=true",
                                 "entropy_coef=0.01", "desired_kl=0.01",   "normalise_rewards=true",
                                 "target_kl=0.02",    "learning_rate=0.01"};
const RunCase kRunCases[] = {
    {"CartPole", "CartPole-v1", {"envs=16", "horizon=32", "hidden=[16,16]"}},
    {"CartPoleSharedClipped",
     "CartPole-v1",
     {"envs=16", "horizon=32", "hidden=[16]", "shared_tower=true", "value_clip=0.2", "activation=relu",
      "normalise_advantages=false", "clip_schedule=linear", "optimizer=rmsprop"}},
    {"Pendulum", "Pendulum-v1", {"envs=8", "horizon=70", "hidden=[16]", "minibatches=7"}},
    {"PendulumEverything", "Pendulum-v1", kEverything},
    {"CartPoleEverything", "CartPole-v1", kEverything},
    // Episodes are cut off by the limit of 200 steps in every iteration.
    {"MountainCarTruncating", "MountainCar-v0", {"envs=8", "horizon=210", "hidden=[8]", "epochs=1"}},
};

class PpoCases : public testing::TestWithParam<RunCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, PpoCases, testing::ValuesIn(kRunCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(PpoCases, BitIdenticalForAnyNumberOfWorkers) {
  PpoRun run(GetParam().env, GetParam().assignments);
  const PpoRun::Outcome one = run.Iterate(1, 0, 3);
  for (const float p : one.params) ASSERT_TRUE(std::isfinite(p));
  EXPECT_NE(one.params, run.Iterate(1, 0, 0).params);
  for (const int workers : {2, 4, 8}) {
    const PpoRun::Outcome many = run.Iterate(workers, 0, 3);
    EXPECT_EQ(many.params, one.params) << workers << " workers";
    EXPECT_TRUE(many.state == one.state) << workers << " workers";
    for (int i = 0; i < 3; ++i) {
      for (const auto& [name, value] : one.rows[i].values()) {
        if (std::isnan(value)) continue;
        EXPECT_EQ(many.rows[i].Get(name), value) << name << " of iteration " << i;
      }
    }
  }
}

TEST_P(PpoCases, ContinuesBitForBitWithAnotherNumberOfWorkers) {
  PpoRun run(GetParam().env, GetParam().assignments);
  const PpoRun::Outcome whole = run.Iterate(2, 0, 4);
  for (const auto& [before, after] : {std::pair(2, 2), std::pair(1, 4), std::pair(8, 2)}) {
    const PpoRun::Outcome first = run.Iterate(before, 0, 2);
    EXPECT_NE(first.params, whole.params);
    const PpoRun::Outcome second = run.Iterate(after, 2, 4, first.state);
    EXPECT_EQ(second.params, whole.params) << before << " then " << after << " workers";
    EXPECT_TRUE(second.state == whole.state) << before << " then " << after << " workers";
  }
}

TEST(Ppo, RowsHoldWhatTheRegistryPromises) {
  PpoRun run("CartPole-v1", {"envs=16", "horizon=64", "hidden=[16]", "epochs=2", "minibatches=3"});
  const MetricRow row = run.Iterate(2, 0, 1).rows[0];
  std::string names;
  for (const auto& [name, value] : row.values()) {
    names += (names.empty() ? "" : " ") + name;
    EXPECT_TRUE(std::isfinite(value)) << name;
  }
  EXPECT_EQ(names, PpoEntry().metrics);
  EXPECT_EQ(row.Get("updates"), 6);
  EXPECT_GT(row.Get("episodes"), 10);
  EXPECT_EQ(row.Get("episode_return_mean"), row.Get("episode_length_mean"));  // CartPole pays 1 per step
  EXPECT_NEAR(row.Get("episode_return_mean"), 22, 10);  // of a policy that knows nothing
  EXPECT_NEAR(row.Get("entropy"), std::log(2.0), 0.02);
  EXPECT_GE(row.Get("approx_kl"), 0);
}

TEST(Ppo, LearningRateFollowsItsSchedule) {
  const Assignments small = {"envs=8",        "horizon=8", "hidden=[8]",
                             "minibatches=1", "epochs=1",  "learning_rate=0.01"};
  const auto rates = [&](const std::string& extra) {
    Assignments all = small;
    all.push_back(extra);
    std::vector<double> found;
    for (const MetricRow& row : PpoRun("CartPole-v1", all).Iterate(1, 0, 3).rows) {
      found.push_back(row.Get("learning_rate"));
    }
    return found;
  };
  EXPECT_EQ(rates("learning_rate_schedule=constant"), (std::vector<double>{0.01, 0.01, 0.01}));
  const std::vector<double> linear = rates("learning_rate_schedule=linear");
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(linear[i], 0.01 * (1 - 0.1 * i), 1e-12);
  // A desired divergence far beyond what such an update can do raises the rate every time.
  const std::vector<double> adaptive = rates("desired_kl=100");
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(adaptive[i], 0.01 * std::pow(1.5, i), 1e-12);
}

TEST(Ppo, TargetKlEndsAnIterationEarly) {
  Assignments assignments = {"envs=16", "horizon=32", "hidden=[16]", "epochs=10", "learning_rate=0.05"};
  EXPECT_EQ(PpoRun("CartPole-v1", assignments).Iterate(1, 0, 1).rows[0].Get("updates"), 40);
  assignments.push_back("target_kl=0.01");
  const double updates = PpoRun("CartPole-v1", assignments).Iterate(2, 0, 1).rows[0].Get("updates");
  EXPECT_GE(updates, 2);
  EXPECT_LT(updates, 40);
}

TEST(Ppo, DivergenceIsAnErrorThatSaysWhatToDo) {
  const auto settings = PpoRun::Settings({"envs=8", "horizon=8", "hidden=[8]", "minibatches=1", "epochs=1"});
  const EnvEntry& env = FindEnv("CartPole-v1");
  const Network network(settings->MakeNetwork(env.spec));
  std::vector<float> params(network.param_count(), 1e38f);  // overflows in the first layer
  ThreadGroup group(1);
  ThreadCommunicator comm(group, 0);
  const auto store = MakeAllReduceStore(comm, settings->optimizer(), params);
  const auto ppo = settings->Make({.env = env, .network = network, .store = *store, .seed = 1});
  MetricRow row;
  try {
    ppo->Iterate(0, row);
    FAIL() << "a gradient that is not finite was applied";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("learning_rate"), std::string::npos) << error.what();
  }
}

// Message of the Error that validating these settings throws; empty when it throws none.
std::string Refusal(const Assignments& assignments, int shards = 8) {
  try {
    PpoRun::Settings(assignments)->Validate(FindEnv("CartPole-v1").spec, shards);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PpoSettings, RefusesWhatDoesNotFitTogether) {
  EXPECT_EQ(Refusal({}), "");
  EXPECT_EQ(Refusal({"envs=12"}, 4), "");
  EXPECT_NE(Refusal({"envs=12"}).find("envs = 12"), std::string::npos);
  EXPECT_NE(Refusal({"envs=12"}).find("shards = 8"), std::string::npos);
  EXPECT_NE(Refusal({"envs=4"}), "");  // fewer than shards

  EXPECT_EQ(Refusal({"envs=8", "horizon=16", "minibatches=16"}), "");
  EXPECT_NE(Refusal({"envs=8", "horizon=16", "minibatches=17"}).find("minibatches = 17"), std::string::npos);
}

TEST(PpoSettings, RefusesValuesOutOfRange) {
  for (const char* bad : {"envs=0", "envs=-8", "horizon=0", "epochs=0", "minibatches=0", "gamma=1.1",
                          "gae_lambda=-0.1", "clip=0", "learning_rate=0", "learning_rate=nan", "hidden=[0]",
                          "max_grad_norm=-1", "activation=sine", "final_fraction=2"}) {
    EXPECT_THROW(PpoRun::Settings({bad}), Error) << bad;
  }
  EXPECT_THROW(PpoRun::Settings({"hidden=[]"})->MakeNetwork(FindEnv("CartPole-v1").spec), Error);
}

TEST(AlgorithmRegistry, FindsByNameAndSuggests) {
  EXPECT_EQ(FindAlgorithm("ppo").name, "ppo");
  try {
    FindAlgorithm("ppp");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'ppo'?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme
