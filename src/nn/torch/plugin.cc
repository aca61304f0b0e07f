// What libtrireme_torch.so exports.
#include <ATen/Version.h>
#include <torch/cuda.h>
#include <torch/version.h>

#include <regex>
#include <string>

#include "trireme/base/version.h"
#include "trireme/nn/torch/executor.h"
#include "trireme/nn/torch_plugin.h"

namespace trireme {
namespace {

// "1.13.0" of "..., TORCH_VERSION=1.13.0, USE_CUDA=OFF, ..."; empty where it does not say.
std::string BuildSetting(const std::string& config, const std::string& name) {
  std::smatch match;
  return std::regex_search(config, match, std::regex(name + "=([^, ]*)")) ? match[1].str() : "";
}

class Plugin final : public TorchPlugin {
 public:
  Plugin() {
    const std::string config = at::show_config();
    facts_.program = Version();
    facts_.built_against = TORCH_VERSION;
    facts_.version = BuildSetting(config, "TORCH_VERSION");
    const std::string cuda = BuildSetting(config, "USE_CUDA");
    facts_.with_cuda = cuda == "ON" || cuda == "1";
    facts_.cuda_devices = facts_.with_cuda ? static_cast<int>(torch::cuda::device_count()) : 0;
  }

  const TorchFacts& facts() const override { return facts_; }
  std::unique_ptr<Executor> MakeExecutor(const Network& network, const Computing& computing) const override {
    return MakeTorchExecutor(network, computing);
  }

 private:
  TorchFacts facts_;
};

}  // namespace
}  // namespace trireme

extern "C" const trireme::TorchPlugin* TriremeTorch() {
  static const trireme::Plugin plugin;
  return &plugin;
}
