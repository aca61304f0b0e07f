#include "trireme/choose/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/base/error.h"
#include "trireme/choose/trial.h"

namespace trireme {
namespace {

std::set<std::string> TextsOf(const std::vector<Choice>& choices) {
  std::set<std::string> texts;
  for (const Choice& choice : choices) {
    EXPECT_TRUE(texts.insert(choice.text()).second) << choice.text() << " is there twice";
  }
  return texts;
}

std::string Text(int workers, const char* store, const char* compress = "none", const char* split = "none") {
  return Choice{workers, store, compress, split}.text();
}

TEST(ChoiceTest, ASmallNetworkInOneProcessIsAMatterOfWorkersAndStores) {
  EXPECT_EQ(TextsOf(Choices({}, {.processors = 6, .params = 10'000})),
            (std::set{Text(1, "allreduce"), Text(2, "allreduce"), Text(4, "allreduce")}));
  EXPECT_EQ(TextsOf(Choices({}, {.processors = 3, .params = 10'000, .may_go_alone = true})),
            (std::set{Text(1, "allreduce"), Text(2, "allreduce"), Text(2, "shared"), Text(3, "shared")}));
  EXPECT_EQ(TextsOf(Choices({.store = "shared"}, {.processors = 2, .params = 10'000})),
            (std::set{Text(1, "shared"), Text(2, "shared")}));
}

TEST(ChoiceTest, ALargeNetworkMayBeSplit) {
  EXPECT_EQ(TextsOf(Choices({}, {.processors = 2, .params = kWorthSplitting})),
            (std::set{Text(1, "allreduce"), Text(2, "allreduce"), Text(2, "allreduce", "none", "tensor=2"),
                      Text(2, "allreduce", "none", "pipeline=2")}));
  EXPECT_EQ(Choices({}, {.processors = 2, .params = kWorthSplitting - 1}).size(), 2u);
  // Groups may be made of processes.
  const auto texts = TextsOf(Choices({}, {.processes = 2, .processors = 1, .params = kWorthSplitting}));
  EXPECT_TRUE(texts.contains(Text(1, "allreduce", "none", "tensor=2")));
  EXPECT_FALSE(texts.contains(Text(1, "allreduce", "int8", "tensor=2")));
}

TEST(ChoiceTest, CodecsAreForMessagesBetweenProcesses) {
  const auto texts =
      TextsOf(Choices({}, {.processes = 2, .processors = 1, .params = 10'000, .may_go_alone = true}));
  EXPECT_EQ(texts.size(), 7u);
  EXPECT_TRUE(texts.contains(Text(1, "allreduce", "topk=0.01")));
  EXPECT_FALSE(texts.contains(Text(1, "shared")));
  const auto on_servers = TextsOf(Choices({.store = "server"}, {.processors = 2, .params = 10'000}));
  EXPECT_EQ(on_servers.size(), 14u);
  EXPECT_TRUE(on_servers.contains(Text(2, "server", "int8")));
}

TEST(ChoiceTest, WhatWasGivenStays) {
  const Surroundings cluster{
      .processes = 2, .processors = 4, .params = kWorthSplitting, .may_go_alone = true};
  for (const Choice& choice : Choices({.workers = 2}, cluster)) EXPECT_EQ(choice.workers, 2);
  for (const Choice& choice : Choices({.store = "local"}, cluster)) EXPECT_EQ(choice.store, "local");
  for (const Choice& choice : Choices({.compress = "topk=0.5"}, cluster)) {
    EXPECT_EQ(choice.compress, "topk=0.5");
    EXPECT_EQ(choice.model_parallel, "none");
  }
  for (const Choice& choice : Choices({.model_parallel = "tensor=2"}, cluster)) {
    EXPECT_EQ(choice.model_parallel, "tensor=2");
    EXPECT_EQ(choice.compress, "none");
  }
  // The settings refuse it, and say why.
  const Choice all{2, "allreduce", "int8", "tensor=2"};
  EXPECT_EQ(Choices({2, "allreduce", "int8", "tensor=2"}, cluster), std::vector{all});
}

TEST(ChoiceTest, WhatIsExactComesFirstAndOthersSayWhatTheyGiveUp) {
  const std::vector<Choice> choices = Choices({}, {.processes = 2, .processors = 2, .params = 1'000'000});
  const auto exact = [](const Choice& choice) { return GivesUp(choice, {}).empty(); };
  EXPECT_TRUE(std::ranges::is_partitioned(choices, exact));
  EXPECT_EQ(GivesUp({4, "allreduce", "none", "pipeline=2"}, {}), "");
  EXPECT_NE(GivesUp({4, "allreduce", "none", "tensor=2"}, {}), "");
  EXPECT_NE(GivesUp({4, "allreduce", "fp16"}, {}), "");
  EXPECT_NE(GivesUp({4, "shared"}, {}), "");
  // Who asks for something knows what it is.
  EXPECT_EQ(GivesUp({4, "shared"}, {.store = "shared"}), "");
  EXPECT_EQ(GivesUp({4, "allreduce", "fp16"}, {.compress = "fp16"}), "");
}

TEST(ChoiceTest, TheFastestIsTakenUnlessItGivesUpSomethingForLittle) {
  const auto chosen = [](std::vector<TriedChoice> tried) { return Fastest(tried); };
  const Choice any;
  EXPECT_EQ(chosen({{any, "", 100}, {any, "", 101}}), 1u);
  EXPECT_EQ(chosen({{any, "", 100}, {any, "rounding", 109}}), 0u);
  EXPECT_EQ(chosen({{any, "", 100}, {any, "rounding", 111}, {any, "rounding", 300}}), 2u);
  EXPECT_EQ(chosen({{any, "", kUnknown}, {any, "", 3}, {any, "rounding", kUnknown}}), 1u);
  EXPECT_EQ(chosen({{any, "", kUnknown}, {any, "rounding", 3}}), 1u);
}

TEST(ChoiceTest, TheLineTellsTheChoiceItsFigureAndTheNext) {
  const std::vector<TriedChoice> tried = {{{1, "allreduce"}, "", 1.0e6},
                                          {{2, "allreduce"}, "", 1.8e6},
                                          {{2, "shared"}, "not exact", 1.9e6},
                                          {{4, "allreduce"}, "", kUnknown}};
  EXPECT_EQ(ChoiceLine(tried, 1, 2),
            "parallel auto: workers=2 store=allreduce compress=none model_parallel=none: predicted 1.8M "
            "steps/s (of 4 choices, 2 more do not fit into memory; next: workers=2 store=shared "
            "compress=none model_parallel=none: 1.9M)");
  EXPECT_EQ(ChoiceLine(std::span(tried).subspan(2, 1), 0, 0),
            "parallel auto: workers=2 store=shared compress=none model_parallel=none: predicted 1.9M "
            "steps/s; not exact (of 1 choice)");
}

// ---- Trials ----

TEST(TrialTest, AnIterationIsItsFirstRoundAndTheOthers) {
  using Rounds = std::vector<TimedRound>;
  EXPECT_TRUE(std::isnan(IterationSeconds(Rounds{{0, 5.0}}, 4)));
  EXPECT_DOUBLE_EQ(IterationSeconds(Rounds{{0, 5.0}, {0, 1.0}, {0, 3.0}}, 4), 5 + 3 * 2);
  // Nobody says how many updates an iteration has, and none is over.
  EXPECT_TRUE(std::isnan(IterationSeconds(Rounds{{0, 5.0}, {0, 1.0}}, 0)));
  // One is over: it had two.
  EXPECT_DOUBLE_EQ(IterationSeconds(Rounds{{0, 9.0}, {0, 1.0}, {1, 4.0}}, 0), 4 + 1);
  EXPECT_DOUBLE_EQ(IterationSeconds(Rounds{{0, 9.0}, {0, 1.0}, {1, 4.0}}, 8), 4 + 1);
  // Only the second counts, which was over and had memory and kernels ready.
  EXPECT_DOUBLE_EQ(
      IterationSeconds(Rounds{{0, 9.0}, {0, 7.0}, {0, 7.0}, {1, 4.0}, {1, 2.0}, {2, 50.0}, {2, 50.0}}, 3),
      4 + 2);
  EXPECT_DOUBLE_EQ(IterationSeconds(Rounds{{0, 9.0}, {1, 2.0}, {2, 4.0}, {3, 70.0}}, 1), 3);
}

std::unique_ptr<RunSettings> SmallRun(const std::string& algo, const std::vector<std::string>& more = {}) {
  auto settings = std::make_unique<RunSettings>("CartPole-v1", algo);
  for (const char* a : {"envs=16", "hidden=[64,64]"}) settings->fields.ApplyAssignment(a, "test");
  for (const std::string& a : more) settings->fields.ApplyAssignment(a, "test");
  settings->Resolve();
  return settings;
}

TEST(TrialTest, EveryWayOfOneProcessCanBeTried) {
  for (const char* algo : {"ppo", "a2c", "dqn"}) {
    for (const auto& more : {std::vector<std::string>{"workers=1"},
                             {"workers=2"},
                             {"workers=3", "store=shared"},
                             {"workers=2", "model_parallel=tensor=2"},
                             {"workers=4", "model_parallel=pipeline=2"},
                             {"workers=2", "local_steps=3"},
                             {"workers=2", "precision=bf16"}}) {
      SCOPED_TRACE(algo + (" " + more.back()));
      const double steps_per_s = TrySettings(*SmallRun(algo, more), {}, 0.01);
      EXPECT_GT(steps_per_s, 0);
      EXPECT_TRUE(std::isfinite(steps_per_s));
    }
  }
}

// Iterations of a hundred million rounds: it ends in the first.
TEST(TrialTest, EndsInTheMiddleOfAnIteration) {
  const auto settings = SmallRun(
      "ppo", {"epochs=1000", "horizon=2048", "minibatches=4096", "workers=2", "target_kl=0", "desired_kl=0"});
  EXPECT_GT(TrySettings(*settings, {}, 0.01), 0);
}

TEST(TrialTest, EndsWhenItIsStopped) {
  const std::atomic<bool> stop = true;
  EXPECT_THROW(TrySettings(*SmallRun("ppo", {"workers=2"}), {.stop = &stop}, 1e9), Error);
}

TEST(ChooseParallelTest, LeavesSettingsThatCanBeRun) {
  const auto settings = SmallRun("ppo");
  const std::string line = ChooseParallel({.store = "allreduce"}, {}, 2, 0.1, *settings);
  EXPECT_TRUE(line.starts_with("parallel auto: workers=")) << line;
  EXPECT_NE(line.find("(of 2 choices; next: "), std::string::npos) << line;
  EXPECT_GT(settings->run.predicted_steps_per_s, 0);
  EXPECT_GE(settings->run.workers, 1);
  EXPECT_EQ(settings->run.store, "allreduce");
  EXPECT_EQ(settings->run.compress, "none");
  EXPECT_EQ(settings->run.model_parallel, "none");

  ChooseParallel({.workers = 2, .model_parallel = "tensor=2"}, {}, 1, 0.05, *settings);
  EXPECT_EQ(settings->run.workers, 2);
  EXPECT_EQ(settings->run.model_parallel, "tensor=2");
}

TEST(ChooseParallelTest, RefusesWhatCannotBeOrDoesNotFit) {
  const auto refusal = [](const GivenChoice& given, RunSettings& settings) -> std::string {
    try {
      ChooseParallel(given, {}, 2, 0.05, settings);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto settings = SmallRun("ppo");
  EXPECT_NE(refusal({.workers = 3, .store = "allreduce"}, *settings).find("workers = 3"), std::string::npos);
  EXPECT_NE(refusal({.store = "shared", .compress = "int8"}, *settings).find("--store shared sends none"),
            std::string::npos);
  try {
    ChooseParallel({}, {}, 2, 0.05, *settings, 1000);
    ADD_FAILURE() << "fits into 1000 bytes";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("of memory at least"), std::string::npos) << error.what();
  }
}

// Two workers with a copy each are too much, one is not.
TEST(ChooseParallelTest, WhatDoesNotFitIsNotTried) {
  const auto settings = SmallRun("ppo", {"workers=1"});
  const Network network(settings->algorithm->MakeNetwork(settings->env().spec));
  const std::uint64_t one = MemoryNeeded(*settings, network.param_count());
  const auto neighbours = static_cast<std::uint64_t>(std::max(1, UsableProcessors() / 2));
  const std::string line = ChooseParallel({.store = "allreduce"}, {}, 2, 0.05, *settings, one * neighbours);
  EXPECT_EQ(settings->run.workers, 1);
  EXPECT_NE(line.find("of 1 choice, 1 more do not fit into memory"), std::string::npos) << line;
}

TEST(ChooseParallelTest, MembersOfAGroupNeedHalfTheMemoryForTheNetwork) {
  constexpr std::size_t kParams = 100'000'000;
  const auto needed = [](const std::vector<std::string>& more) {
    const auto settings = SmallRun("ppo", more);
    return static_cast<double>(MemoryNeeded(*settings, kParams));
  };
  const double one = needed({"workers=1"}), two = needed({"workers=2"});
  const double split = needed({"workers=2", "model_parallel=tensor=2"});
  EXPECT_GT(one, 4.0 * kParams * 4);  // parameters, gradient, two moments
  EXPECT_GT(two, 1.5 * one);
  EXPECT_LT(split, 1.1 * one);
}

}  // namespace
}  // namespace trireme
