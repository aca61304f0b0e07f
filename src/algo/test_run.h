// What the tests of algorithms share: runs that are wired as the trainer wires them, but without files; and what
// must hold for every algorithm. test_plain.h has what to compare with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/algo/algorithm.h"
#include "trireme/base/rng.h"
#include "trireme/comm/thread_communicator.h"
#include "trireme/env/registry.h"
#include "trireme/nn/copying_executor.h"
#include "trireme/nn/make_executor.h"
#include "trireme/nn/plain_tower.h"
#include "trireme/store/schedule.h"
#include "trireme/store/shared_store.h"

namespace trireme {

using Assignments = std::vector<std::string>;

inline std::unique_ptr<AlgorithmSettings> SettingsWith(const std::string& algo,
                                                       const Assignments& assignments) {
  auto settings = FindAlgorithm(algo).make_settings();
  ConfigFields fields;
  fields.Add(*settings);
  for (const std::string& assignment : assignments) fields.ApplyAssignment(assignment, "test");
  return settings;
}

// Message of the Error that validating these settings throws; empty when it throws none.
inline std::string Refusal(const std::string& algo, const Assignments& assignments, int shards = 8) {
  try {
    SettingsWith(algo, assignments)->Validate(FindEnv("CartPole-v1").spec, shards);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline bool Mentions(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

// What the executor by libtorch is tested on: the processor, unless TRIREME_TEST_DEVICE names another device.
inline Device TorchDevice() {
  const char* chosen = std::getenv("TRIREME_TEST_DEVICE");
  return ParseDevices(chosen == nullptr ? "cpu" : chosen)[0];
}

class AlgorithmRun {
 public:
  static constexpr int kShards = 8;
  static constexpr std::uint64_t kSeed = 3;

  // How the network is computed: where the parameters are, on copies as on a device, or by libtorch.
  enum class Computed { kInPlace, kOnCopies, kByTorch };

  AlgorithmRun(const std::string& algo, const std::string& env, const Assignments& assignments,
               Computed computed = Computed::kInPlace)
      : AlgorithmRun(algo, FindEnv(env), assignments, computed) {}
  AlgorithmRun(const std::string& algo, const EnvEntry& env, const Assignments& assignments,
               Computed computed = Computed::kInPlace)
      : env_(env),
        settings_(SettingsWith(algo, assignments)),
        network_(settings_->MakeNetwork(env_.spec)),
        executor_(MakeExecutor(network_, {computed == Computed::kByTorch ? TorchDevice() : Device()})),
        copying_(*executor_),
        computed_(computed),
        initial_(network_.param_count()) {
    network_.Initialise(kSeed, initial_);
  }

  const EnvEntry& env() const { return env_; }
  const Network& network() const { return network_; }
  const std::vector<float>& initial() const { return initial_; }
  PlainTower Tower(std::size_t i) const { return {network_.spec().towers[i], network_.layout()}; }

  struct Outcome {
    std::vector<float> params;
    std::vector<MetricRow> rows;
    std::string state;  // encoded: of all shards, of the store and what is common
  };

  // Workers in step, from iteration `begin` to `end`, from `state` unless it is empty; the last `newcomers` of them
  // with fresh shards.
  Outcome Iterate(int workers, int begin, int end, const std::string& state = "", int newcomers = 0) const {
    ThreadGroup group(workers);
    std::vector<StateWriter> parts(workers);
    std::vector<Outcome> outcomes(workers);
    OnThreads(workers, [&](int rank) {
      ThreadCommunicator comm(group, rank);
      try {
        const auto store = MakeAllReduceStore(comm, settings_->optimizer(), initial_);
        const int own = kShards / workers;
        const auto algorithm = Make(*store, kShards, rank * own, own);
        if (!state.empty()) {
          store->Load(StateReader(state));
          if (rank < workers - newcomers) algorithm->LoadShards(StateReader(state));
          algorithm->LoadCommon(StateReader(state));
          if (newcomers == workers) algorithm->BeginWithoutExperience();
        }
        Work(*algorithm, *store, begin, end, outcomes[rank]);
        algorithm->SaveShards(parts[rank]);
        if (rank > 0) return;
        algorithm->SaveCommon(parts[rank]);
        store->Save(parts[rank]);
      } catch (const Error& error) {
        ADD_FAILURE() << "worker " << rank << ": " << error.what();
        comm.Abort();
      }
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.params, outcomes[0].params);
    StateWriter all;
    for (StateWriter& part : parts) all.Merge(std::move(part));
    outcomes[0].state = all.Encode();
    return outcomes[0];
  }

  // How asynchronous workers go about it: in a given order, or freely when there is none.
  struct Asynchronous {
    std::vector<int> iterations;  // of each worker, who leaves the schedule after them
    std::string schedule = "";
    int shards = 1;  // of each worker
    bool share_moments = false;
    int first = 0;  // iteration
  };
  struct AsynchronousOutcome {
    std::vector<float> params;  // as the workers have left them
    std::vector<Outcome> workers;
    std::vector<Staleness> staleness;
  };

  AsynchronousOutcome Iterate(const Asynchronous& how) const {
    const int workers = static_cast<int>(how.iterations.size());
    SharedParameters shared(settings_->optimizer(), how.share_moments, initial_);
    std::optional<Schedule> schedule;
    if (!how.schedule.empty()) schedule.emplace(how.schedule, workers);
    ThreadGroup group(workers);
    AsynchronousOutcome all{
        .params = {}, .workers = std::vector<Outcome>(workers), .staleness = std::vector<Staleness>(workers)};
    OnThreads(workers, [&](int rank) {
      try {
        const auto store = MakeSharedStore(shared, rank, schedule ? &*schedule : nullptr);
        const auto algorithm = Make(*store, how.shards, rank * how.shards, how.shards);
        ThreadCommunicator(group, rank).Barrier();  // so that all are there when the first one starts
        Work(*algorithm, *store, how.first, how.first + how.iterations[rank], all.workers[rank]);
        if (schedule) schedule->Leave(rank);
        all.staleness[rank] = store->staleness();
        StateWriter state;
        algorithm->SaveShards(state);
        algorithm->SaveCommon(state);
        all.workers[rank].state = state.Encode();
      } catch (const Error& error) {
        ADD_FAILURE() << "worker " << rank << ": " << error.what();
        if (schedule) schedule->Abort();
      }
    });
    const auto store = MakeSharedStore(shared, 0, nullptr);
    all.params.assign(store->params().begin(), store->params().end());
    return all;
  }

  // Of a worker on its own, whose parameters are `params` at first. Throws what Iterate throws.
  MetricRow IterateFrom(std::span<const float> params) const {
    ThreadGroup group(1);
    ThreadCommunicator comm(group, 0);
    const auto store = MakeAllReduceStore(comm, settings_->optimizer(), params);
    MetricRow row;
    Make(*store, 1, 0, 1)->Iterate(0, row);
    return row;
  }

  // What the policy does without exploring, after so many iterations. obs: [n, obs].
  std::vector<float> Act(std::span<const float> obs, int iterations = 0) const {
    ThreadGroup group(1);
    ThreadCommunicator comm(group, 0);
    const auto store = MakeAllReduceStore(comm, settings_->optimizer(), initial_);
    const std::size_t n = obs.size() / env_.spec.obs.size();
    std::vector<float> actions(n * env_.spec.action.size());
    const auto algorithm = Make(*store, 1, 0, 1);
    Outcome ignored;
    Work(*algorithm, *store, 0, iterations, ignored);
    algorithm->Act(obs, nullptr, static_cast<int>(n), actions);
    return actions;
  }

 private:
  template <class Body>
  static void OnThreads(int workers, Body&& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers; ++rank) threads.emplace_back([&body, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  std::unique_ptr<Algorithm> Make(ParameterStore& store, int shards, int first_shard, int own_shards) const {
    const Executor& executor = computed_ == Computed::kOnCopies ? copying_ : *executor_;
    return settings_->Make({.env = env_,
                            .executor = executor,
                            .store = store,
                            .seed = kSeed,
                            .shards = shards,
                            .first_shard = first_shard,
                            .own_shards = own_shards});
  }

  static void Work(Algorithm& algorithm, const ParameterStore& store, int begin, int end, Outcome& outcome) {
    for (int i = begin; i < end; ++i) {
      MetricRow row;
      algorithm.Iterate(0.1 * i, row);
      outcome.rows.push_back(row);
    }
    outcome.params.assign(store.params().begin(), store.params().end());
  }

  EnvEntry env_;
  std::unique_ptr<AlgorithmSettings> settings_;
  Network network_;
  std::unique_ptr<const Executor> executor_;
  CopyingExecutor copying_;
  Computed computed_;
  std::vector<float> initial_;
};

// ---- What must hold for every algorithm, with any settings ----

struct RunCase {
  const char* name;
  const char* algo;
  const char* env;
  Assignments assignments;
};

inline std::string NameOfCase(const testing::TestParamInfo<RunCase>& info) { return info.param.name; }

// The names the registry promises, in its order. NaN stands for what was not measured, and for nothing else:
// means over episodes when none ended, means over updates when there was none.
inline void ExpectPromisedRow(const std::string& algo, const MetricRow& row) {
  std::string names;
  for (const auto& [name, value] : row.values()) {
    names += (names.empty() ? "" : " ") + name;
    const bool of_episodes = name == "episode_return_mean" || name == "episode_length_mean";
    const bool given =
        name == "episodes" || name == "updates" || name == "epsilon" || name == "learning_rate";
    const bool measured = given || row.Get(of_episodes ? "episodes" : "updates") > 0;
    EXPECT_EQ(std::isnan(value), !measured) << name;
    EXPECT_FALSE(std::isinf(value)) << name;
  }
  EXPECT_EQ(names, FindAlgorithm(algo).metrics);
}

inline void ExpectSameRows(const std::vector<MetricRow>& found, const std::vector<MetricRow>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(found[i].values().size(), expected[i].values().size());
    for (const auto& [name, value] : expected[i].values()) {
      const double other = found[i].Get(name);
      EXPECT_TRUE(other == value || (std::isnan(other) && std::isnan(value)))
          << name << " of iteration " << i << ": " << other << ", not " << value;
    }
  }
}

inline void ExpectSameOutcome(const AlgorithmRun::Outcome& found, const AlgorithmRun::Outcome& expected) {
  EXPECT_EQ(found.params, expected.params);
  EXPECT_TRUE(found.state == expected.state);
  ExpectSameRows(found.rows, expected.rows);
}

inline void ExpectSameBitsForAnyNumberOfWorkers(const RunCase& c) {
  const AlgorithmRun run(c.algo, c.env, c.assignments);
  const AlgorithmRun::Outcome one = run.Iterate(1, 0, 3);
  for (const float p : one.params) ASSERT_TRUE(std::isfinite(p));
  for (const MetricRow& row : one.rows) ExpectPromisedRow(c.algo, row);
  EXPECT_NE(one.params, run.initial());
  for (const int workers : {2, 4, 8}) {
    SCOPED_TRACE(fmt::format("{} workers", workers));
    ExpectSameOutcome(run.Iterate(workers, 0, 3), one);
  }
}

inline void ExpectContinuationWithAnotherNumberOfWorkers(const RunCase& c) {
  const AlgorithmRun run(c.algo, c.env, c.assignments);
  AlgorithmRun::Outcome whole = run.Iterate(2, 0, 4);
  whole.rows.erase(whole.rows.begin(), whole.rows.begin() + 2);
  for (const auto& [before, after] : {std::pair(2, 2), std::pair(1, 4), std::pair(8, 2)}) {
    SCOPED_TRACE(fmt::format("{} then {} workers", before, after));
    const AlgorithmRun::Outcome first = run.Iterate(before, 0, 2);
    EXPECT_NE(first.params, whole.params);
    ExpectSameOutcome(run.Iterate(after, 2, 4, first.state), whole);
  }
}

// With parameters that overflow in the network.
inline void ExpectDivergenceIsAnError(const std::string& algo, const Assignments& assignments) {
  const AlgorithmRun run(algo, "CartPole-v1", assignments);
  try {
    run.IterateFrom(std::vector<float>(run.network().param_count(), 1e38f));
    FAIL() << "a gradient that is not finite was applied";
  } catch (const Error& error) {
    EXPECT_TRUE(Mentions(error.what(), "learning_rate")) << error.what();
  }
}

inline void ExpectOutOfRange(const std::string& algo, const std::vector<const char*>& assignments) {
  for (const char* bad : assignments) EXPECT_THROW(SettingsWith(algo, {bad}), Error) << bad;
}

}  // namespace trireme
