// Runs of several processes, which are threads here; tests/mpi has them as processes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "trireme/base/file.h"
#include "trireme/base/simd.h"
#include "trireme/base/system.h"
#include "trireme/comm/run_ranks.h"
#include "trireme/train/agreement.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Assignments = std::vector<std::string>;

struct Split {
  int processes, workers;
};

class SeveralProcesses : public testing::Test {
 protected:
  ~SeveralProcesses() override { fs::remove_all(root_); }

  static std::unique_ptr<RunSettings> Settings(Split split, const Assignments& extra = {}) {
    auto settings = std::make_unique<RunSettings>("CartPole-v1", "ppo");
    for (const char* a : {"envs=16", "horizon=32", "hidden=[16]", "steps=2048", "eval_every=1024",
                          "eval_episodes=9", "minibatches=2"}) {
      settings->fields.ApplyAssignment(a, "test");
    }
    settings->fields.ApplyAssignment(fmt::format("workers={}", split.workers), "test");
    for (const std::string& a : extra) settings->fields.ApplyAssignment(a, "test");
    settings->Resolve(split.processes, 1);
    return settings;
  }

  // `stop` ends it after one iteration.
  static TrainResult Go(const RunSettings& settings, const RunFolder& folder, Split split,
                        const std::atomic<bool>* stop = nullptr) {
    TrainResult result;
    RunRanks(split.processes, [&](PeerCommunicator& processes) {
      const TrainOptions options{.json = true, .stop = stop, .processes = &processes};
      if (processes.rank() == 0) {
        result = Train(settings, folder, options);
      } else {
        TrainAlong(settings, options);
      }
    });
    return result;
  }

  RunFolder Folder(const std::string& name, const RunSettings& settings) const {
    return RunFolder::Create(root_ / name, "", settings.fields.ToToml());
  }

  const fs::path root_ = fs::path(testing::TempDir()) / fmt::format("trireme_processes_{}", getpid());
};

TEST_F(SeveralProcesses, TheSameForAnySplit) {
  std::optional<RunFacts> expected;
  for (const Split split : {Split{1, 8}, Split{2, 4}, Split{4, 2}, Split{8, 1}, Split{2, 1}, Split{1, 1}}) {
    const auto settings = Settings(split);
    const RunFolder folder = Folder(fmt::format("{}x{}", split.processes, split.workers), *settings);
    const RunFacts facts = Go(*settings, folder, split).facts;
    EXPECT_EQ(facts.workers, split.processes * split.workers);
    EXPECT_EQ(facts.per_worker.size(), static_cast<std::size_t>(facts.workers));
    if (!expected) expected = facts;
    EXPECT_EQ(facts.params_sha256, expected->params_sha256);
    EXPECT_EQ(facts.eval_return_mean, expected->eval_return_mean);
    std::int64_t steps = 0;
    for (const WorkerFacts& worker : facts.per_worker) steps += worker.steps;
    EXPECT_EQ(steps, 2048);
    EXPECT_EQ(ReadFile(folder.result()), ResultJson(facts) + "\n");
  }
}

TEST_F(SeveralProcesses, AResumedRunMayBeSplitOtherwise) {
  const auto whole = Settings({1, 1});
  const RunFacts expected = Go(*whole, Folder("whole", *whole), {1, 1}).facts;
  const RunFolder folder = Folder("run", *whole);
  const std::atomic<bool> stop{true};
  for (const Split split : {Split{2, 2}, Split{4, 1}, Split{1, 2}}) {
    EXPECT_TRUE(Go(*Settings(split), folder, split, &stop).interrupted);
  }
  const TrainResult last = Go(*Settings({2, 4}), folder, {2, 4});
  EXPECT_FALSE(last.interrupted);
  EXPECT_EQ(last.facts.steps, expected.steps);
  EXPECT_EQ(last.facts.params_sha256, expected.params_sha256);
}

std::string Disagreement(const RunSettings& first, const RunSettings& other, const std::string& version) {
  std::string message;
  RunRanks(3, [&](PeerCommunicator& processes) {
    try {
      const bool odd_one = processes.rank() == 2;
      AgreeOnSettings(odd_one ? other : first, odd_one ? version : "1", processes);
    } catch (const Error& error) {
      EXPECT_EQ(processes.rank(), 0);
      message = error.what();
    }
  });
  return message;
}

TEST_F(SeveralProcesses, DifferencesAreNamed) {
  const auto settings = Settings({1, 1}), other = Settings({1, 1}, {"seed=5"});
  EXPECT_EQ(Disagreement(*settings, *settings, "1"), "");
  const std::string seeds = Disagreement(*settings, *other, "1");
  EXPECT_NE(seeds.find("process 2 has 'seed = 5' where process 0 has 'seed = 1'"), std::string::npos)
      << seeds;
  const std::string versions = Disagreement(*settings, *settings, "2");
  EXPECT_NE(versions.find("process 2 has 'version = 2' where process 0 has 'version = 1'"), std::string::npos)
      << versions;
}

std::string Refusal(Split split, const Assignments& extra) {
  auto settings = std::make_unique<RunSettings>("CartPole-v1", "a2c");
  settings->fields.ApplyAssignment(fmt::format("workers={}", split.workers), "test");
  for (const std::string& a : extra) settings->fields.ApplyAssignment(a, "test");
  try {
    settings->Resolve(split.processes, 4);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(SeveralProcesses, WhatCannotWorkIsRefused) {
  EXPECT_EQ(Refusal({2, 4}, {}), "");
  EXPECT_NE(Refusal({3, 1}, {}).find("workers = 1 in each of 3 processes does not divide shards = 8"),
            std::string::npos);
  EXPECT_NE(Refusal({2, 8}, {}).find("up to 8 in all"), std::string::npos);
  for (const char* store : {"local", "shared"}) {
    EXPECT_NE(Refusal({2, 1}, {fmt::format("store={}", store)}).find("lives in the memory of one process"),
              std::string::npos);
  }
}

TEST_F(SeveralProcesses, AutomaticWorkersShareTheProcessors) {
  const auto workers = [](int processes, int processors) {
    auto settings = std::make_unique<RunSettings>("CartPole-v1", "ppo");
    settings->Resolve(processes, processors);
    return settings->run.workers;
  };
  EXPECT_EQ(workers(1, 16), 8);
  EXPECT_EQ(workers(2, 16), 4);
  EXPECT_EQ(workers(2, 3), 2);
  EXPECT_EQ(workers(8, 3), 1);
}

}  // namespace
}  // namespace trireme
