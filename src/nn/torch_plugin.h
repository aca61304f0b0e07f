// The second executor, by libtorch, for any device that has. It is a library of its own (nn/torch), loaded when a run
// asks for a device, so that neither the program nor libtrireme.so is linked with libtorch.
//
// The plug-in is built against one libtorch: Debian's, or that of a folder (`make torch LIBTORCH=folder`). It finds the
// same one again when it is loaded; the environment variable TRIREME_LIBTORCH says where it has moved to.
#pragma once

#include <memory>
#include <string>

#include "trireme/nn/device.h"
#include "trireme/nn/executor.h"

namespace trireme {

struct TorchFacts {
  std::string program;        // Version() of the program that the plug-in was built with
  std::string built_against;  // libtorch when the plug-in was compiled: "1.13.0"
  std::string version;        // libtorch as it is
  bool with_cuda = false;     // libtorch was built with CUDA
  int cuda_devices = 0;       // that libtorch can use
};

// Thread safe.
class TorchPlugin {
 public:
  virtual ~TorchPlugin() = default;
  virtual const TorchFacts& facts() const = 0;
  // `network` outlives the executor. Throws Error.
  virtual std::unique_ptr<Executor> MakeExecutor(const Network& network,
                                                 const Computing& computing) const = 0;
};

inline constexpr const char* kTorchLibrary = "libtrireme_torch.so";

// Loads it at the first call. Throws Error, which says what to do, when it is not there, does not load, or does not
// belong to this program or to the libtorch it finds. Thread safe.
const TorchPlugin& LoadTorch();

}  // namespace trireme
