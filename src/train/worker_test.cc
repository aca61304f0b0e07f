#include "trireme/train/worker.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/scratch_folder.h"
#include "trireme/train/checkpoint.h"
#include "trireme/train/in_step_loop.h"

namespace trireme {
namespace {

// Threads in step, of which each can hand in so many bytes of state.
class NarrowLinks final : public InStepLinks {
 public:
  NarrowLinks(const RunContext& context, ThreadGroup& group, int thread, std::size_t most_state)
      : InStepLinks(group, thread),
        store_(MakeAllReduceStore(threads(), context.settings.algorithm->optimizer(), context.initial)),
        most_state_(most_state) {}

  Communicator& comm() override { return threads(); }
  ParameterStore& store() override { return *store_; }
  std::vector<ProcessLink> links() override { return {}; }
  Entry Join(std::int64_t) override { return {}; }
  std::size_t most_state() const override { return most_state_; }
  int rank() const override { return thread(); }
  int leader() const override { return 0; }
  bool led_elsewhere() const override { return false; }
  bool open() const override { return false; }
  Boundary Announce(const Boundary& own, RunProgress&) override {
    return {BroadcastDecision(comm(), own.decision)};
  }
  void AddSteps(std::int64_t) override {}
  bool ended() const override { return false; }
  void Leave(bool) override {}

 private:
  std::unique_ptr<ParameterStore> store_;
  std::size_t most_state_;
};

class NarrowTopology final : public Topology {
 public:
  NarrowTopology(const RunContext& context, std::size_t most_state)
      : Topology(context.settings.run.workers), context_(context), most_state_(most_state) {}
  std::unique_ptr<WorkerLinks> Connect(int thread) override {
    return std::make_unique<NarrowLinks>(context_, threads_, thread, most_state_);
  }

 private:
  void EndWaits() override {}

  const RunContext context_;
  const std::size_t most_state_;
};

// Two workers until the end of their run. Returns what was said.
std::vector<std::string> TrainTwo(const RunFolder& folder, const RunSettings& settings,
                                  std::size_t most_state) {
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
  NarrowTopology topology(context, most_state);
  const auto body = [&](int thread) { Worker(context, topology, thread, std::nullopt).Run(); };
  std::thread other(body, 1);
  body(0);
  other.join();
  return said;
}

TEST(Worker, AStateThatIsTooLargeIsLeftOutOfTheCheckpoint) {
  RunSettings settings("CartPole-v1", "a2c");
  for (const char* a : {"workers=2", "envs=16", "horizon=8", "rounds=4", "steps=1024", "eval_every=0",
                        "eval_episodes=2", "hidden=[16]", "checkpoint_every_s=0"}) {
    settings.fields.ApplyAssignment(a, "test");
  }
  settings.Resolve();
  for (const bool narrow : {false, true}) {
    SCOPED_TRACE(narrow);
    const ScratchFolder root;
    const RunFolder folder =
        RunFolder::Create((root.path() / "run").string(), "run", settings.fields.ToToml());
    const std::vector<std::string> said =
        TrainTwo(folder, settings, narrow ? 100 : std::numeric_limits<std::size_t>::max());
    const StateReader checkpoint = *ReadNewestCheckpoint(folder.path());
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

}  // namespace
}  // namespace trireme
