#include "trireme/train/worker.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/comm/group_of_one.h"
#include "trireme/nn/copying_executor.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/in_step_loop.h"

namespace trireme {
namespace {

using ExecutorMaker = std::function<std::unique_ptr<Executor>(const Network&)>;

// What is special about links.
struct Special {
  std::size_t most_state = std::numeric_limits<std::size_t>::max();
  ExecutorMaker make_executor = [](const Network& network) { return trireme::MakeExecutor(network); };
  bool groups_of_one = false;  // each worker makes updates of its own
};

// Threads in step.
class SpecialLinks final : public ClosedInStepLinks {
 public:
  SpecialLinks(const RunContext& context, ThreadGroup& group, int thread, Special special)
      : ClosedInStepLinks(group, thread),
        special_(std::move(special)),
        store_(MakeAllReduceStore(gradient_group().comm, context.settings.algorithm->optimizer(),
                                  context.initial)) {}

  Communicator& everyone() override { return threads(); }
  GradientGroup gradient_group() override {
    if (special_.groups_of_one) return {alone_.comm(), thread()};
    return {everyone()};
  }
  ParameterStore& store() override { return *store_; }
  std::vector<ProcessLink> links() override { return {}; }
  std::size_t most_state() const override { return special_.most_state; }
  std::unique_ptr<Executor> MakeExecutor(const Network& network, const Computing&) override {
    return special_.make_executor(network);
  }
  int rank() const override { return thread(); }

 private:
  Special special_;
  GroupOfOne alone_;
  std::unique_ptr<ParameterStore> store_;
};

class SpecialTopology final : public Topology {
 public:
  SpecialTopology(const RunContext& context, Special special)
      : Topology(context.settings.run.workers), context_(context), special_(std::move(special)) {}
  std::unique_ptr<WorkerLinks> Connect(int thread) override {
    return std::make_unique<SpecialLinks>(context_, threads_, thread, special_);
  }

 private:
  void EndWaits() override {}

  const RunContext context_;
  const Special special_;
};

// Two workers until the end of their run. Returns what was said.
std::vector<std::string> TrainTwo(const RunFolder& folder, const RunSettings& settings,
                                  const Special& special) {
  std::mutex mutex;
  std::vector<std::string> said;
  TrainOptions options{.json = true};
  options.say = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    said.push_back(line);
  };
  const Network network(settings.algorithm->MakeNetwork(settings.env().spec));
  std::vector<float> initial(network.param_count());
  network.Initialise(settings.run.seed, initial);
  const RunContext context{settings, network, options, &folder, initial};
  SpecialTopology topology(context, special);
  const auto body = [&](int thread) { Worker(context, topology, thread, std::nullopt).Run(); };
  std::thread other(body, 1);
  body(0);
  other.join();
  return said;
}

class WorkerTest : public testing::Test {
 protected:
  WorkerTest() {
    for (const char* a : {"workers=2", "envs=16", "horizon=8", "rounds=4", "steps=1024", "eval_every=0",
                          "eval_episodes=2", "hidden=[16]", "checkpoint_every_s=0"}) {
      settings_.fields.ApplyAssignment(a, "test");
    }
    settings_.Resolve();
  }

  struct Left {
    std::vector<std::string> said;
    StateReader checkpoint;
  };
  Left TrainWith(const Special& special) {
    const ScratchFolder root;
    const RunFolder folder =
        RunFolder::Create((root.path() / "run").string(), "run", settings_.fields.ToToml());
    std::vector<std::string> said = TrainTwo(folder, settings_, special);
    return {std::move(said), *ReadNewestCheckpoint(folder.path())};
  }

  RunSettings settings_{"CartPole-v1", "a2c"};
};

TEST_F(WorkerTest, AStateThatIsTooLargeIsLeftOutOfTheCheckpoint) {
  for (const bool narrow : {false, true}) {
    SCOPED_TRACE(narrow);
    const auto [said, checkpoint] = TrainWith(narrow ? Special{.most_state = 100} : Special{});
    EXPECT_EQ(checkpoint.Has("run/partial"), narrow);
    EXPECT_EQ(checkpoint.Has("shard/0/seed"), !narrow);
    EXPECT_TRUE(checkpoint.Has("params"));
    EXPECT_EQ(checkpoint.GetValue<std::int64_t>("progress/steps"), 1024);
    ASSERT_EQ(said.size(), narrow ? 1u : 0u);  // once, though there were two checkpoints
    if (narrow) {
      EXPECT_NE(said[0].find("no experience"), std::string::npos) << said[0];
    }
  }
}

// What the leader leaves is then as if it were alone, though it meets the other.
TEST_F(WorkerTest, WorkIsDividedOverTheGradientGroupNotOverEveryone) {
  const StateReader found = TrainWith({.most_state = 100, .groups_of_one = true}).checkpoint;
  const StateReader expected = TrainWith({}).checkpoint;
  EXPECT_EQ(found.GetText("params"), expected.GetText("params"));
  EXPECT_EQ(found.GetText("progress/eval_mean"), expected.GetText("progress/eval_mean"));
  std::array<WorkerFacts, 2> workers;
  found.Get<WorkerFacts>("progress/per_worker", workers);
  for (const WorkerFacts& worker : workers) EXPECT_EQ(worker.steps, 1024);
}

// Computes on copies, as a device would, and counts its tapes.
class CountedExecutor final : public Executor {
 public:
  CountedExecutor(const Network& network, std::atomic<int>& tapes)
      : inner_(trireme::MakeExecutor(network)), copying_(*inner_), tapes_(tapes) {}
  const Network& network() const override { return copying_.network(); }
  int pass_size() const override { return copying_.pass_size(); }
  std::unique_ptr<Tape> MakeTape(int capacity) const override {
    ++tapes_;
    return copying_.MakeTape(capacity);
  }

 private:
  std::unique_ptr<Executor> inner_;
  CopyingExecutor copying_;
  std::atomic<int>& tapes_;
};

TEST_F(WorkerTest, TheLinksSayWhatComputesTheNetwork) {
  std::atomic<int> made = 0, tapes = 0;
  const auto counted = [&](const Network& network) {
    ++made;
    return std::make_unique<CountedExecutor>(network, tapes);
  };
  const StateReader found = TrainWith({.make_executor = counted}).checkpoint;
  EXPECT_EQ(made, 2);  // workers
  EXPECT_GE(tapes, 2);
  EXPECT_EQ(found.GetText("params"), TrainWith({}).checkpoint.GetText("params"));
}

}  // namespace
}  // namespace trireme
