// --device and `trireme devices`, with what is installed and with stand-ins for what is not: fake_torch.cc is a plug-in
// that says it has CUDA devices, fake_cuda.c an NVIDIA driver.

#include <algorithm>
#include <sstream>

#include "run_util.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

class DevicesTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    fs::create_directory(Path("plugins"));
    fs::copy(TRIREME_FAKE_TORCH, Path("plugins/libtrireme_torch.so"));
  }

  // With a libtorch that says `torch` of itself, and a driver that knows `gpus`; -1: there is no driver.
  ProcessOptions Pretending(const std::string& torch, int gpus = -1) const {
    ProcessOptions options{.variables = {"TRIREME_PLUGINS=" + Path("plugins"), "FAKE_TORCH=" + torch,
                                         "FAKE_TORCH_LOG=" + Path("log")}};
    if (gpus >= 0) options.variables.push_back("LD_LIBRARY_PATH=" TRIREME_FAKE_CUDA_FOLDER);
    if (gpus > 0) options.variables.push_back("FAKE_GPUS=" + std::to_string(gpus));
    return options;
  }
  // Sorted: workers ask in any order.
  std::vector<std::string> DevicesAskedFor() const {
    std::istringstream lines(ReadText(Path("log")));
    std::vector<std::string> devices;
    for (std::string line; std::getline(lines, line);) devices.push_back(line);
    std::ranges::sort(devices);
    return devices;
  }
  void ExpectListed(const Outcome& outcome, const std::vector<std::string>& parts) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    for (const std::string& part : parts)
      EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  // The device is refused, and nothing is left of the run.
  void ExpectDeviceRefused(const std::string& device, const ProcessOptions& options,
                           const std::vector<std::string>& parts) {
    ExpectRefused(RunTrireme(SmallRun("run") + Args{"--device", device}, options), parts);
    EXPECT_FALSE(fs::exists(Path("run")));
  }
};

TEST_F(DevicesTest, TheProcessorAndLibtorchAreListed) {
  ExpectListed(
      RunTrireme({"devices"}, Pretending("version=2.1.0")),
      {"fused    the default: ", "processor", " GB of memory", "cpu ", "by libtorch 2.1.0", Path("plugins"),
       "cuda     none: libtorch 2.1.0 was built without CUDA; there is no NVIDIA driver"});
}

TEST_F(DevicesTest, CudaDevicesAreListedWithWhatTheDriverKnows) {
  ExpectListed(RunTrireme({"devices"}, Pretending("cuda=2", 2)),
               {"cuda:0   Pretended 0, 16.0 GB of memory, compute capability 8.6, by libtorch",
                "cuda:1   Pretended 1, "});
}

TEST_F(DevicesTest, WithoutThePluginTheListSaysWhyAndHowToGetIt) {
  WriteText(Path("plugins/libtrireme_torch.so"), "text");
  ExpectListed(RunTrireme({"devices"}, Pretending("", 1)),
               {"fused    the default", "cpu      no: cannot load ", "make torch", "cuda     no",
                "knows 1 CUDA device: cuda:0 Pretended 0"});
}

TEST_F(DevicesTest, WorkersTakeDevicesInTurn) {
  const Json plain = FinishedRun("plain", {"--workers", "4"});
  const Json result =
      ResultOf(RunTrireme(SmallRun("run") + Args{"--workers", "4", "--device", "cuda:1,cuda:0", "--json"},
                          Pretending("cuda=2", 2)));
  EXPECT_EQ(DevicesAskedFor(), (std::vector<std::string>{"cuda:0", "cuda:0", "cuda:1", "cuda:1"}));
  EXPECT_EQ(result["device"], "cuda:1,cuda:0");
  EXPECT_EQ(plain["device"], "fused");
  EXPECT_EQ(result["params_sha256"], plain["params_sha256"]);  // the stand-in computes as the default does
  EXPECT_NE(ReadText(Path("run") + "/config.toml").find("device = \"cuda:1,cuda:0\""), std::string::npos);
  EXPECT_NE(ReadText(Path("run") + "/report.html").find("cuda:1,cuda:0"), std::string::npos);
}

TEST_F(DevicesTest, CudaIsTheFirst) {
  const Json result = ResultOf(RunTrireme(
      SmallRun("run") + Args{"--workers", "1", "--device", "cuda", "--json"}, Pretending("cuda=1")));
  EXPECT_EQ(result["device"], "cuda:0");
  EXPECT_EQ(DevicesAskedFor(), std::vector<std::string>{"cuda:0"});
}

TEST_F(DevicesTest, AsynchronousWorkersTakeThemToo) {
  ResultOf(RunTrireme(SmallRunOf("a2c", "run") +
                          Args{"--store", "shared", "--workers", "3", "--device", "cuda:0,cuda:1", "--json"},
                      Pretending("cuda=2")));
  EXPECT_EQ(DevicesAskedFor(), (std::vector<std::string>{"cuda:0", "cuda:0", "cuda:1"}));
}

// Policies act by the default, also where the device is gone.
TEST_F(DevicesTest, EvaluatingNeedsNoDevice) {
  ResultOf(RunTrireme(SmallRun("run") + Args{"--workers", "1", "--device", "cuda", "--json"},
                      Pretending("cuda=1")));
  const Json result = ResultOf(RunTrireme({"eval", Path("run"), "--json"}, Pretending("")));
  EXPECT_EQ(result["device"], "fused");
}

TEST_F(DevicesTest, WhatIsNoDeviceIsRefused) {
  const ProcessOptions options = Pretending("cuda=2");
  ExpectDeviceRefused("tpu", options, {"'tpu' is no device", "fused", "cuda:0,cuda:1", "`trireme devices`"});
  ExpectDeviceRefused("cude", options, {"'cude'", "'cuda'"});
  ExpectDeviceRefused("", options, {"'' is no device"});
  ExpectDeviceRefused("cuda:", options, {"'cuda:' is no device"});
  ExpectDeviceRefused("cuda:-1", options, {"'cuda:-1' is no device"});
  ExpectDeviceRefused("cuda:99999999999", options, {"is no device"});
  ExpectDeviceRefused("cuda:0,", options, {"'' is no device"});
  ExpectDeviceRefused("cuda,cuda:0", options, {"cuda:0 is there twice", "--workers"});
  ExpectDeviceRefused("cuda:0,cpu", options, {"only CUDA devices can be several"});
  ExpectRefused(RunTrireme(SmallRun("run") + Args{"--workers", "1", "--device", "cuda:0,cuda:1"}, options),
                {"2 devices for 1 worker", "--workers"});
  ExpectRefused(RunTrireme(SmallRun("run") + Args{"--set", "device=tpu"}, options), {"'tpu' is no device"});
}

TEST_F(DevicesTest, WithoutCudaTheErrorSaysWhatWasFoundAndWhatToDo) {
  ExpectDeviceRefused("cuda", Pretending("version=2.1.0"),
                      {"device cuda:0", "libtorch 2.1.0 was built without CUDA",
                       "no NVIDIA driver (libcuda.so.1)", "--device cpu", "make torch LIBTORCH="});
  ExpectDeviceRefused("cuda", Pretending("", 1),
                      {"built without CUDA", "knows 1 CUDA device: cuda:0 Pretended 0"});
  ExpectDeviceRefused("cuda", Pretending("cuda=0", 0),
                      {"finds no CUDA device", "error 100: no device", "nvidia-smi", "--device cpu"});
  ExpectDeviceRefused("cuda:2,cuda:0", Pretending("cuda=2", 2),
                      {"device cuda:2", "finds 2 CUDA devices", "the last is cuda:1"});
}

TEST_F(DevicesTest, APluginOfAnotherLibtorchOrProgramIsRefused) {
  ExpectDeviceRefused("cpu", Pretending("built=1.13.0,version=2.1.0"),
                      {"was built against libtorch 1.13.0", "finds is 2.1.0", "`make torch`"});
  ExpectDeviceRefused("cpu", Pretending("program=0.0.1"), {"belongs to trireme 0.0.1", "`make torch`"});
}

TEST_F(DevicesTest, AMissingPluginIsNamedWithHowToGetIt) {
  fs::remove(Path("plugins/libtrireme_torch.so"));
  fs::create_directory(Path("bin"));
  fs::copy(kBinary, Path("bin/trireme"));
  const Outcome outcome =
      Process(Path("bin/trireme"), SmallRun("run") + Args{"--device", "cpu"}, Pretending("")).Wait();
  ExpectRefused(outcome, {"has no libtorch", "libtrireme_torch.so", Path("plugins"), "`make torch`"});
  EXPECT_FALSE(fs::exists(Path("run")));
}

TEST_F(DevicesTest, AnotherDeviceAfterAResumeIsSaidInOneLine) {
  const ProcessOptions options = Pretending("cuda=1");
  ResultOf(RunTrireme(SmallRun("run") + Args{"--workers", "1", "--device", "cuda", "--json"}, options));
  const Args resume = {"train", "--resume", Path("run"), "--steps"};
  const Outcome same = RunTrireme(resume + Args{"6144"}, options);
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.err.find("goes on with device"), std::string::npos) << same.err;
  const Outcome other = RunTrireme(resume + Args{"7168", "--device", "fused"}, options);
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.err.find("goes on with device fused after cuda:0: "), std::string::npos) << other.err;
  const Outcome back = RunTrireme(resume + Args{"8192", "--device", "cpu"}, options);
  EXPECT_NE(back.err.find("goes on with device cpu after fused: "), std::string::npos) << back.err;
}

#ifdef TRIREME_HAS_TORCH

// With the real one, on the processor.
class TorchRunTest : public CliTest {
 protected:
  static ProcessOptions With(const std::string& libtorch) {
    return {.variables = {"TRIREME_PLUGINS=" TRIREME_PLUGIN_FOLDER, "TRIREME_LIBTORCH=" + libtorch}};
  }
  // Those of Debian, under another path.
  std::string Moved() const {
    fs::create_directories(Path("moved/lib"));
    for (const auto& entry : fs::directory_iterator(TRIREME_LIBTORCH_FOLDER)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("libtorch") || name.starts_with("libc10")) {
        fs::create_symlink(entry.path(), Path("moved/lib/" + name));
      }
    }
    return Path("moved");
  }
};

TEST_F(TorchRunTest, TheSameSeedGivesTheSameBitsForAnyWorkersAndAcrossAResume) {
  // Nothing depends on how many steps there will be.
  const Args device = {"--device", "cpu", "--set", "learning_rate_schedule=constant"};
  const Json one = FinishedRun("one", device + Args{"--workers", "1"});
  EXPECT_EQ(one["device"], "cpu");
  EXPECT_EQ(FinishedRun("two", device + Args{"--workers", "2"})["params_sha256"], one["params_sha256"]);
  EXPECT_NE(FinishedRun("fused")["params_sha256"], one["params_sha256"]);
  Args half = SmallRun("half") + device;
  *std::ranges::find(half, "5120") = "2560";
  ResultOf(RunTrireme(half + Args{"--json"}));
  EXPECT_EQ(Resume("half", {"--steps", "5120"})["params_sha256"], one["params_sha256"]);
}

TEST_F(TorchRunTest, ALibtorchThatHasMovedIsFoundByItsFolder) {
  ResultOf(RunTrireme(SmallRun("run") + Args{"--device", "cpu", "--json"}, With(Moved())));
}

TEST_F(TorchRunTest, AFolderWithoutThatLibtorchIsRefused) {
  const Args args = SmallRun("run") + Args{"--device", "cpu"};
  ExpectRefused(RunTrireme(args, With(Path("nothing"))),
                {"TRIREME_LIBTORCH=" + Path("nothing") + " has no libc10.so",
                 "make torch LIBTORCH=" + Path("nothing")});
  const std::string moved = Moved();
  fs::remove(moved + "/lib/libtorch_cpu.so.1.13");
  WriteText(moved + "/lib/libtorch_cpu.so.1.13", "text");
  ExpectRefused(RunTrireme(args, With(moved)), {"cannot load " + moved + "/lib/libtorch_cpu.so.1.13"});
}

#endif

}  // namespace
}  // namespace trireme::testing
