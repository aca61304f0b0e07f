#include <fmt/format.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/base/plugin.h"
#include "trireme/base/simd.h"
#include "trireme/base/system.h"
#include "trireme/cli/commands.h"
#include "trireme/metrics/progress.h"
#include "trireme/nn/cuda_driver.h"
#include "trireme/nn/torch_plugin.h"

namespace trireme {
namespace {

void Print(const std::string& device, const std::string& what) { fmt::print("{:<8} {}\n", device, what); }

void ListCuda(const TorchFacts& torch) {
  const CudaDriver driver = AskCudaDriver();
  for (int i = 0; i < torch.cuda_devices; ++i) {
    std::string what = fmt::format("by libtorch {}", torch.version);
    if (i < static_cast<int>(driver.gpus.size())) {
      const CudaDriver::Gpu& gpu = driver.gpus[i];
      what = fmt::format("{}, {} of memory, compute capability {}.{}, {}", gpu.name, FormatBytes(gpu.memory),
                         gpu.major, gpu.minor, what);
    }
    Print(fmt::format("cuda:{}", i), what);
  }
  if (torch.cuda_devices > 0) return;
  Print("cuda",
        fmt::format("none: libtorch {} {}; {}", torch.version,
                    torch.with_cuda ? "finds no CUDA device" : "was built without CUDA", driver.Describe()));
}

void ListDevices() {
  const int processors = UsableProcessors();
  Print("fused", fmt::format("the default: {}, {}, {} processor{}, {} of memory", ProcessorName(),
                             IsaName(CurrentIsa()), processors, processors == 1 ? "" : "s",
                             FormatBytes(MachineMemory())));
  try {
    const TorchFacts& torch = LoadTorch().facts();
    Print("cpu", fmt::format("the same processors by libtorch {}, one thread for each worker ({})",
                             torch.version, FindPlugin(kTorchLibrary)->string()));
    ListCuda(torch);
    fmt::print("\nTrain on one with: trireme train --env CartPole-v1 --device cpu\n");
  } catch (const Error& error) {
    Print("cpu", fmt::format("no: {}", error.what()));
    Print("cuda", fmt::format("no, for the same reason; {}", AskCudaDriver().Describe()));
  }
}

}  // namespace

Command AddDevicesCommand(CommandLine& program) {
  program.AddCommand("devices", "List what networks can be computed on");
  return [] {
    ListDevices();
    return 0;
  };
}

}  // namespace trireme
