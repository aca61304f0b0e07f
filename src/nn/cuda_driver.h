// What the NVIDIA driver says is in the machine, whether or not a libtorch can use it. For lists and errors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct CudaDriver {
  struct Gpu {
    std::string name;
    std::uint64_t memory = 0;  // bytes
    int major = 0, minor = 0;  // compute capability
  };

  std::string missing;  // why nothing is known: "there is no NVIDIA driver (libcuda.so.1)"; empty: it answers
  std::string version;  // the newest CUDA it can run: "12.2"
  std::vector<Gpu> gpus;  // in the order of cuda:0, cuda:1, ...

  // "the NVIDIA driver knows 1 CUDA device: cuda:0 Tesla T4", or what is missing.
  std::string Describe() const;
};

// Loads the driver, if there is one. Never fails.
CudaDriver AskCudaDriver();

}  // namespace trireme
