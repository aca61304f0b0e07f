// Networks that several workers compute together, as users meet them: what they learn, what survives a signal and a
// kill, what is said.
#include <csignal>

#include "run_util.h"

namespace trireme::testing {
namespace {

class ModelParallelTest : public CliTest {
 protected:
  // Two members of one group, with layers that both can have parts of.
  Args SplitRun(const std::string& name, const std::string& split, const Args& more = {}) const {
    return Set(SmallRun(name), {"hidden=[16,12]"}) + Args{"--workers", "2", "--model-parallel", split} + more;
  }
};

class EitherSplitTest : public ModelParallelTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Splits, EitherSplitTest, ::testing::Values("tensor=2", "pipeline=2"),
                         [](const auto& info) {
                           const std::string split = info.param;
                           return split.substr(0, split.find('='));
                         });

TEST_P(EitherSplitTest, CartPoleIsLearnedAndThePolicyIsWhole) {
  const Json result =
      ResultOf(RunTrireme({"train", "--env", "CartPole-v1", "--workers", "2", "--model-parallel", GetParam(),
                           "--set", "hidden=[32,32]", "--target", "475", "--json", "--out", Path("run")}));
  EXPECT_TRUE(result["reached_target"]) << result;
  EXPECT_EQ(result["model_bytes"].size(), 2u);
  const Json evaluation = ResultOf(RunTrireme({"eval", Path("run"), "--json"}));
  EXPECT_GE(evaluation["eval_return_mean"], 475) << evaluation;
}

TEST_P(EitherSplitTest, AnInterruptedRunGoesOnExactly) {
  ExpectGoesOnExactly([&](const std::string& name) { return SplitRun(name, GetParam()); });
}

TEST_P(EitherSplitTest, AKilledRunGoesOnExactly) {
  const Json whole = ResultOf(RunTrireme(SplitRun("whole", GetParam())));
  Process process(kBinary, Set(SplitRun("killed", GetParam(), {"--straggler", "worker=0,factor=40"}),
                               {"checkpoint_every_s=0"}));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("killed") >= 3; }));
  process.Signal(SIGKILL);
  process.Wait();
  EXPECT_EQ(Resume("killed")["params_sha256"], whole["params_sha256"]);
}

// A pipeline keeps every bit, so a run that is resumed without one, or with one, ends as a run that had none.
TEST_F(ModelParallelTest, ARunGoesOnWithAnotherSplitOrNone) {
  const Json whole =
      ResultOf(RunTrireme(Set(SmallRun("whole"), {"hidden=[16,12]"}) + Args{"--workers", "1"}));
  for (const auto& [name, first, second] :
       {std::tuple{"off", "pipeline=2", "none"}, {"on", "none", "pipeline=2"}}) {
    Process process(kBinary, SplitRun(name, first, {"--straggler", "worker=0,factor=40"}));
    ASSERT_TRUE(process.RunsUntil([&] { return MetricLines(name) >= 3; }));
    process.Signal(SIGTERM);
    process.Wait();
    const Json resumed = Resume(name, {"--model-parallel", second, "--workers", "2"});
    EXPECT_EQ(resumed["params_sha256"], whole["params_sha256"]) << name;
  }
}

TEST_F(ModelParallelTest, PeopleAreToldOfMemoryAndBubbles) {
  Args args = SplitRun("run", "pipeline=2,micro_batches=4");
  std::erase(args, "--json");
  const Outcome outcome = RunTrireme(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::string said = outcome.out + outcome.err;
  EXPECT_NE(said.find("pipeline=2,micro_batches=4"), std::string::npos) << said;
  EXPECT_NE(said.find("by the formula"), std::string::npos) << said;
  EXPECT_NE(ReadText(Path("run/report.html")).find("pipeline=2,micro_batches=4"), std::string::npos);
}

TEST_F(ModelParallelTest, WhatCannotWorkIsRefusedBeforeAnythingIsWritten) {
  const auto refused = [&](const Args& more, const std::vector<std::string>& parts) {
    ExpectRefused(RunTrireme(SmallRun("run") + more), parts);
    EXPECT_FALSE(std::filesystem::exists(Path("run")));
  };
  refused({"--workers", "2", "--model-parallel", "tensor=7"}, {"model_parallel", "7"});
  refused({"--workers", "3", "--model-parallel", "tensor=3"}, {"does not divide hidden layer 0"});
  refused({"--workers", "4", "--model-parallel", "pipeline=4"},
          {"more stages than tower policy has hidden layers"});
  refused({"--workers", "1", "--model-parallel", "tensor=2"}, {"makes groups of 2 workers", "--workers 1"});
  refused({"--workers", "2", "--model-parallel", "columns=2"}, {"expected none, tensor=2 or pipeline=2"});
  refused({"--workers", "2", "--model-parallel", "tensor=99999999999999999999"},
          {"model_parallel", "expected none"});
  refused({"--workers", "2", "--model-parallel", "pipeline=2,micro_batches=0"},
          {"model_parallel", "expected none"});
  refused({"--store", "shared", "--model-parallel", "tensor=2"}, {"use --store allreduce"});
}

}  // namespace
}  // namespace trireme::testing
