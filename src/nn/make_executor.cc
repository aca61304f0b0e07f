#include "trireme/nn/make_executor.h"

#include "trireme/base/error.h"
#include "trireme/nn/cuda_driver.h"
#include "trireme/nn/fused_executor.h"
#include "trireme/nn/torch_plugin.h"

namespace trireme {
namespace {

void RequireCuda(const Device& device, const TorchFacts& torch) {
  if (!torch.with_cuda) {
    Fail(
        "device {}: libtorch {} was built without CUDA, and {}. Use --device cpu, or build the plug-in "
        "against a libtorch with CUDA: make torch LIBTORCH=folder",
        device.name(), torch.version, AskCudaDriver().Describe());
  }
  if (torch.cuda_devices == 0) {
    Fail(
        "device {}: libtorch {} finds no CUDA device; {}. Check nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
        "--device cpu",
        device.name(), torch.version, AskCudaDriver().Describe());
  }
  if (device.index >= torch.cuda_devices) {
    Fail("device {}: libtorch {} finds {} CUDA device{}, the last is cuda:{}; `trireme devices` lists them",
         device.name(), torch.version, torch.cuda_devices, torch.cuda_devices == 1 ? "" : "s",
         torch.cuda_devices - 1);
  }
}

}  // namespace

std::unique_ptr<Executor> MakeExecutor(const Network& network, const Computing& computing) {
  if (!computing.device.by_torch()) return std::make_unique<FusedExecutor>(network, computing.precision);
  RequireDevices({computing.device}, computing.precision);
  return LoadTorch().MakeExecutor(network, computing);
}

void RequireDevices(const std::vector<Device>& devices, Precision precision) {
  for (const Device& device : devices) {
    if (!device.by_torch()) continue;
    if (device.kind == Device::Kind::kCpu && precision == Precision::kFp16) {
      Fail(
          "device cpu: libtorch has no products of fp16 on a processor. Use --precision bf16, or --device "
          "fused");
    }
    const TorchFacts& torch = LoadTorch().facts();
    if (device.kind == Device::Kind::kCuda) RequireCuda(device, torch);
  }
}

}  // namespace trireme
