// `trireme train --parallel auto` from outside: what it leaves, what it keeps and what it refuses. Never how fast
// anything is.

#include "run_util.h"

namespace trireme::testing {
namespace {

class ParallelTest : public CliTest {
 protected:
  // The line of config.toml that sets `key`.
  std::string Setting(const std::string& run, const std::string& key) const {
    const std::string text = "\n" + ReadText(Path(run) + "/config.toml");
    const std::size_t begin = text.find("\n" + key + " = ");
    if (begin == std::string::npos) return "";
    const std::size_t value = begin + key.size() + 4;
    return text.substr(value, text.find('\n', value) - value);
  }
  void Refused(const Args& more, const std::vector<std::string>& parts) const {
    SCOPED_TRACE(::testing::PrintToString(more));
    ExpectRefused(RunTrireme(Args{"train", "--env", "CartPole-v1", "--out", Path("no")} + more), parts);
    EXPECT_FALSE(std::filesystem::exists(Path("no")));
  }
};

TEST_F(ParallelTest, TheChoiceIsKeptAndPredictedBesideReal) {
  const Json chosen = FinishedRun("chosen", {"--parallel", "auto"});
  EXPECT_GT(chosen["predicted_steps_per_s"], 0);
  EXPECT_GT(chosen["training_steps_per_s"], 0);
  EXPECT_EQ(Setting("chosen", "workers"), chosen["workers"].dump());
  EXPECT_EQ(Setting("chosen", "store"), chosen["store"].dump());
  EXPECT_EQ(std::stod(Setting("chosen", "predicted_steps_per_s")), chosen["predicted_steps_per_s"]);
  const std::string report = ReadText(Path("chosen") + "/report.html");
  EXPECT_NE(report.find("by --parallel auto"), std::string::npos);

  // A resume goes on with it, and so does a run with the same file.
  const Json resumed = Resume("chosen", {"--steps", "10240"});
  for (const char* key : {"workers", "store", "model_parallel", "predicted_steps_per_s"}) {
    EXPECT_EQ(resumed[key], chosen[key]) << key;
  }
  const Json again = ResultOf(
      RunTrireme({"train", "--config", Path("chosen") + "/config.toml", "--out", Path("again"), "--json"}));
  for (const char* key : {"workers", "store", "model_parallel", "predicted_steps_per_s"}) {
    EXPECT_EQ(again[key], chosen[key]) << key;
  }
}

TEST_F(ParallelTest, WorkersInStepAreTheSameBitsWhoeverChoseThem) {
  const Json chosen = FinishedRun("chosen", {"--parallel", "auto", "--store", "allreduce"});
  const Json alone = FinishedRun("alone", {"--workers", "1"});
  EXPECT_EQ(chosen["params_sha256"], alone["params_sha256"]);
  EXPECT_TRUE(chosen.contains("predicted_steps_per_s"));
  EXPECT_FALSE(alone.contains("predicted_steps_per_s"));
  // Who chooses otherwise later has no prediction.
  const Json other = Resume("chosen", {"--steps", "10240", "--workers", "1"});
  EXPECT_FALSE(other.contains("predicted_steps_per_s"));
}

TEST_F(ParallelTest, PeopleAreToldAndWhatTheyGaveStays) {
  Args args = SmallRun("told") + Args{"--parallel", "auto", "--workers", "2", "--set", "store=allreduce"};
  std::erase(args, "--json");
  const Outcome outcome = RunTrireme(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("parallel auto: workers=2 store=allreduce compress=none model_parallel=none: "
                             "predicted "),
            std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.out.find("by --parallel auto"), std::string::npos) << outcome.out;
}

// Through server processes of its own, with one codec or another.
TEST_F(ParallelTest, ServersOfTheRunCanBeTried) {
  const Json chosen =
      FinishedRun("chosen", {"--parallel", "auto", "--store", "server", "--async", "--workers", "1"});
  EXPECT_EQ(chosen["store"], "server");
  EXPECT_GT(chosen["predicted_steps_per_s"], 0);
  const Json in_step =
      FinishedRun("in_step", {"--parallel", "auto", "--store", "server", "--compress", "none"});
  EXPECT_EQ(in_step["params_sha256"], FinishedRun("alone", {"--workers", "1"})["params_sha256"]);
}

TEST_F(ParallelTest, WhatMakesNoSenseIsRefused) {
  Refused({"--parallel", "fast"}, {"--parallel fast", "expected auto"});
  Refused({"--parallel", "auto", "--workers", "1", "--store", "allreduce", "--compress", "none",
           "--model-parallel", "none"},
          {"nothing to choose"});
  Refused({"--parallel", "auto", "--workers", "3"}, {"workers = 3"});
  Refused({"--parallel", "auto", "--store", "shared", "--compress", "int8"}, {"--store shared sends none"});
  Refused({"--parallel", "auto", "--model-parallel", "tensor=2", "--precision", "bf16"},
          {"model_parallel = tensor=2 does not go together with precision = bf16"});
  Refused({"--parallel", "auto", "--servers", "127.0.0.1:7171"}, {"127.0.0.1:7171", "--compress"});
  Refused({"--parallel", "auto", "--store", "shared", "--set", "schedule=0< 0>"}, {"schedule"});
  FinishedRun("done", {"--workers", "1"});
  ExpectRefused(RunTrireme({"train", "--resume", Path("done"), "--parallel", "auto"}), {"is for new runs"});
}

}  // namespace
}  // namespace trireme::testing
