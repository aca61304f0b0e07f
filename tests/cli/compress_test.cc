// Compressed gradients and parameters, as users meet them: what they learn, what survives, what is said.
#include <csignal>

#include "server_util.h"

namespace trireme::testing {
namespace {

class CompressTest : public ServerCliTest {
 protected:
  // Two workers in step on servers of their own.
  Args OnServers(const std::string& name, const std::string& codec, const Args& more = {}) const {
    return SmallRun(name) +
           Args{"--store", "server", "--servers", "2", "--workers", "2", "--compress", codec} + more;
  }
};

class CodecTest : public CompressTest, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Codecs, CodecTest,
                         ::testing::Values("fp16", "bf16", "int8", "onebit", "topk=0.01", "powersgd=4"),
                         [](const auto& info) {
                           const std::string codec = info.param;
                           return codec.substr(0, codec.find('='));
                         });

TEST_P(CodecTest, CartPoleIsLearned) {
  for (const char* seed : {"1", "2"}) {
    const Json result = ResultOf(
        RunTrireme({"train",     "--env",  "CartPole-v1", "--algo", "ppo",        "--store",  "server",
                    "--servers", "1",      "--workers",   "2",      "--compress", GetParam(), "--target",
                    "475",       "--seed", seed,          "--json", "--out",      Path(seed)}));
    EXPECT_TRUE(result["reached_target"]) << result;
    EXPECT_EQ(result["compress"], GetParam());
    EXPECT_GT(result["bytes_saved"], 0.4 * result["bytes_sent"].get<double>());
    EXPECT_GT(result["compress_s"], 0);
    EXPECT_GT(result["decompress_s"], 0);
  }
}

TEST_P(CodecTest, AnInterruptedRunGoesOnExactly) {
  ExpectGoesOnExactly([&](const std::string& name) { return OnServers(name, GetParam()); });
}

// Gradients go to servers with the bits of --precision, unless --compress says otherwise, and one that overflows is left
// out by all workers.
TEST_F(CompressTest, ThePrecisionIsThatOfMessages) {
  const Args in_step = {"--store", "server", "--servers", "2", "--workers", "2"};
  const auto run = [&](const std::string& name, const Args& more) {
    return ResultOf(RunTrireme(SmallRun(name) + in_step + more));
  };
  const Json bf16 = run("bf16", {"--precision", "bf16"});
  EXPECT_EQ(bf16["compress"], "bf16");
  EXPECT_GT(bf16["bytes_saved"], 0.4 * bf16["bytes_sent"].get<double>());
  EXPECT_EQ(run("said", {"--precision", "bf16", "--compress", "bf16"})["params_sha256"],
            bf16["params_sha256"]);
  const Json plain = run("plain", {"--precision", "bf16", "--compress", "none"});
  EXPECT_FALSE(plain.contains("compress")) << plain;
  EXPECT_NE(plain["params_sha256"], bf16["params_sha256"]);
  EXPECT_EQ(FinishedRun("threads", {"--precision", "bf16"})["params_sha256"], plain["params_sha256"]);

  for (const char* codec : {"auto", "none"}) {
    const std::string name = std::string("fp16_") + codec;
    run(name, {"--precision", "fp16", "--compress", codec, "--set", "value_coef=10000"});
    double skipped = 0;
    for (const Json& row : TimelessRows(Path(name))) skipped += row["skipped_updates"].get<double>();
    EXPECT_GT(skipped, 0);
  }
}

TEST_F(CompressTest, LocalStepsLearnCartPole) {
  for (const char* algo : {"ppo", "a2c", "dqn"}) {
    const Args args = {"train",         "--env", "CartPole-v1", "--algo", algo,     "--workers", "2",
                       "--local-steps", "8",     "--target",    "475",    "--json", "--out",     Path(algo)};
    const Json result = ResultOf(RunTrireme(args));
    EXPECT_TRUE(result["reached_target"]) << result;
  }
}

// With other workers nothing is lost, which is said.
TEST_F(CompressTest, AResumeWithOtherWorkersSaysSo) {
  Process process(kBinary, OnServers("cut", "topk=0.01", {"--straggler", "worker=0,factor=40"}));
  ASSERT_TRUE(process.RunsUntil([&] { return MetricLines("cut") >= 3; }));
  process.Signal(SIGTERM);
  process.Wait();
  const Outcome outcome = RunTrireme({"train", "--resume", Path("cut"), "--workers", "4"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE((outcome.out + outcome.err).find("added up over all workers: their number has changed"),
            std::string::npos)
      << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("topk=0.01 saved "), std::string::npos) << outcome.out;
}

TEST_F(CompressTest, AKilledServerChangesNothing) {
  const Args more = {"--workers", "1", "--compress", "onebit", "--store", "server"};
  const Json whole = ResultOf(RunTrireme(SmallRun("whole") + more + Args{"--servers", "1"}));
  auto server = StartServer("server");
  Process worker(kBinary, SmallRun("run") + more +
                              Args{"--servers", Address("server"), "--straggler", "worker=0,factor=40"});
  for (const std::size_t lines : {2, 5}) {
    ASSERT_TRUE(worker.RunsUntil([&] { return MetricLines("run") >= lines; }));
    server->Signal(SIGKILL);
    server->Wait();
    server = StartServer("server");
  }
  EXPECT_EQ(ResultOf(worker.Wait())["params_sha256"], whole["params_sha256"]);
}

TEST_F(CompressTest, AWorkerWithAnotherCodecIsRefused) {
  const auto server = StartServer("server");
  const auto args = [&](const std::string& name, const std::string& codec) {
    return SmallRun(name) +
           Args{"--workers", "1", "--async", "--servers", Address("server"), "--compress", codec};
  };
  Process worker(kBinary, args("one", "int8") + Args{"--straggler", "worker=0,factor=40"});
  ASSERT_TRUE(worker.RunsUntil([&] { return MetricLines("one") >= 1; }));
  ExpectRefused(RunTrireme(args("other", "onebit")), {"compress \"int8\", the worker \"onebit\""});
  EXPECT_EQ(worker.Wait().code, 0);
}

// In step all scale their losses alike, or none does; on their own it is no matter.
TEST_F(CompressTest, AWorkerInStepWithAnotherPrecisionIsRefused) {
  const auto server = StartServer("server");
  const auto args = [&](const std::string& name, const std::string& precision) {
    return Set(SmallRun(name), {"run_workers=2"}) +
           Args{"--workers",  "1",    "--sync",      "--servers", Address("server"),
                "--compress", "none", "--precision", precision};
  };
  Process first(kBinary, args("one", "fp32"));
  ASSERT_TRUE(first.RunsUntil([&] { return Said("server", "worker 0 joined"); }));
  ExpectRefused(RunTrireme(args("other", "fp16")), {"precision \"fp32\", the worker \"fp16\""});
  Process second(kBinary, args("two", "fp32"));
  EXPECT_EQ(second.Wait().code, 0);
  EXPECT_EQ(first.Wait().code, 0);
}

TEST_F(CompressTest, BadSettingsAreOneLine) {
  ExpectRefused(RunTrireme(SmallRun("bad") + Args{"--compress", "gzip"}),
                {"compress: there is no way to compress called 'gzip': there are fp16, bf16, int8"});
  ExpectRefused(RunTrireme(SmallRun("bad") + Args{"--compress", "topk=7"}), {"topk=7", "from 1e-06 to 1"});
  ExpectRefused(RunTrireme(SmallRun("bad") + Args{"--local-steps", "4", "--store", "server"}),
                {"--store allreduce"});
  ExpectRefused(RunTrireme(SmallRun("bad") + Args{"--local-steps", "many"}), {"--local-steps"});
  ExpectRefused(RunTrireme(SmallRun("bad") + Args{"--store", "server", "--set", "compress_params=onebit"}),
                {"compress_params = onebit", "say compress"});
}

}  // namespace
}  // namespace trireme::testing
