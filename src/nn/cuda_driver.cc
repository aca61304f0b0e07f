#include "trireme/nn/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>

#include "trireme/base/text.h"

namespace trireme {
namespace {

// The driver's interface in C, as far as it is used: a device is a number, and 0 says that a call went well.
constexpr int kMajor = 75, kMinor = 76;  // attributes: compute capability

template <class Function>
Function Find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

struct Calls {
  explicit Calls(void* library)
      : init(Find<int (*)(unsigned)>(library, "cuInit")),
        version(Find<int (*)(int*)>(library, "cuDriverGetVersion")),
        count(Find<int (*)(int*)>(library, "cuDeviceGetCount")),
        name(Find<int (*)(char*, int, int)>(library, "cuDeviceGetName")),
        memory(Find<int (*)(std::size_t*, int)>(library, "cuDeviceTotalMem_v2")),
        attribute(Find<int (*)(int*, int, int)>(library, "cuDeviceGetAttribute")) {}
  bool complete() const { return init && version && count && name && memory && attribute; }

  int (*init)(unsigned);
  int (*version)(int*);
  int (*count)(int*);
  int (*name)(char*, int, int);
  int (*memory)(std::size_t*, int);
  int (*attribute)(int*, int, int);
};

}  // namespace

CudaDriver AskCudaDriver() {
  CudaDriver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    driver.missing = "there is no NVIDIA driver (libcuda.so.1)";
    return driver;
  }
  const Calls calls(library);
  if (!calls.complete()) {
    driver.missing = "the NVIDIA driver (libcuda.so.1) is none that is known here";
    return driver;
  }
  int code = calls.init(0), count = 0, version = 0;
  if (code == 0) code = calls.version(&version);
  if (code == 0) code = calls.count(&count);
  if (code != 0) {
    driver.missing = fmt::format("the NVIDIA driver says error {}{}", code, code == 100 ? ": no device" : "");
    return driver;
  }
  driver.version = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  for (int device = 0; device < count; ++device) {
    CudaDriver::Gpu gpu;
    char name[256] = "?";
    std::size_t memory = 0;
    calls.name(name, sizeof(name) - 1, device);
    calls.memory(&memory, device);
    calls.attribute(&gpu.major, kMajor, device);
    calls.attribute(&gpu.minor, kMinor, device);
    gpu.name = Printable(name);
    gpu.memory = memory;
    driver.gpus.push_back(gpu);
  }
  return driver;
}

std::string CudaDriver::Describe() const {
  if (!missing.empty()) return missing;
  std::string text =
      fmt::format("the NVIDIA driver knows {} CUDA device{}", gpus.size(), gpus.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    text += fmt::format("{} cuda:{} {}", i == 0 ? ":" : ",", i, gpus[i].name);
  }
  return text;
}

}  // namespace trireme
