// `EvaluateRun` makes what it needs and nothing else.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "trireme/env/batch.h"
#include "trireme/env/classic/cart_pole.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::atomic<int> batches{0}, copies{0};

EnvEntry CountedEntry() {
  EnvEntry entry = SoaEntry<CartPole>();
  entry.spec.name = "EvaluateRunTest.CartPole-v0";
  entry.make = [spec = entry.spec](int size) {
    ++batches;
    copies += size;
    return std::make_unique<SoaBatch<CartPole>>(size, spec);
  };
  entry.options = nullptr;
  return entry;
}

TEST(EvaluateRun, MakesNoEnvironmentsToTrainIn) {
  const EnvEntry env = CountedEntry();
  AddEnv(env);
  for (const auto& [algo, store] :
       {std::pair{"ppo", "allreduce"}, {"a2c", "allreduce"}, {"dqn", "allreduce"}, {"a2c", "shared"}}) {
    SCOPED_TRACE(fmt::format("{} {}", algo, store));
    const fs::path path = fs::path(testing::TempDir()) / fmt::format("trireme_evaluate_run_{}", getpid());
    fs::remove_all(path);
    RunSettings settings(env.spec.name, algo, store);
    for (const char* a : {"hidden=[16]", "steps=4096", "envs=16", "eval_episodes=20", "workers=1"}) {
      settings.fields.ApplyAssignment(a, "test");
    }
    if (std::string(algo) == "ppo") settings.fields.ApplyAssignment("normalise_obs=true", "test");
    settings.Resolve();
    const RunFolder folder = RunFolder::Create(path, "", settings.fields.ToToml());
    const RunFacts trained = Train(settings, folder, {.json = true}).facts;
    for (const Which which : {Which::kLast, Which::kBest}) {
      batches = copies = 0;
      const RunFacts evaluated = EvaluateRun(settings, folder, which, 20, settings.run.seed).value();
      EXPECT_EQ(evaluated.eval_return_mean, trained.eval_return_mean);
      EXPECT_EQ(batches, 1);
      EXPECT_EQ(copies, 3) << "20 episodes in 8 groups";
    }
    fs::remove_all(path);
  }
}

}  // namespace
}  // namespace trireme
