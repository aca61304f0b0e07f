// Stands for the plug-in with libtorch where tests need another one than is installed: another version, or CUDA devices.
//
//   FAKE_TORCH=cuda=2,version=2.1.0,built=2.1.0,program=0.1.0    what it says of itself; all may be left out
//   FAKE_TORCH_LOG=file                                          gets a line with the device of each executor
//
// Whatever the device, it computes as the program does by default.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>

#include "trireme/base/version.h"
#include "trireme/nn/make_executor.h"
#include "trireme/nn/torch_plugin.h"

namespace trireme {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string Said(const std::string& key, const std::string& otherwise) {
  const std::string all = "," + Variable("FAKE_TORCH") + ",";
  const std::size_t at = all.find("," + key + "=");
  if (at == std::string::npos) return otherwise;
  const std::size_t begin = at + key.size() + 2;
  return all.substr(begin, all.find(',', begin) - begin);
}

class FakeTorch final : public TorchPlugin {
 public:
  FakeTorch() {
    facts_.program = Said("program", Version());
    facts_.version = Said("version", "2.1.0");
    facts_.built_against = Said("built", facts_.version);
    facts_.with_cuda = Said("cuda", "no") != "no";
    facts_.cuda_devices = facts_.with_cuda ? std::stoi(Said("cuda", "")) : 0;
  }

  const TorchFacts& facts() const override { return facts_; }
  std::unique_ptr<Executor> MakeExecutor(const Network& network, const Computing& computing) const override {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    std::ofstream(Variable("FAKE_TORCH_LOG"), std::ios::app) << computing.device.name() << "\n";
    return trireme::MakeExecutor(network);
  }

 private:
  TorchFacts facts_;
};

}  // namespace
}  // namespace trireme

extern "C" const trireme::TorchPlugin* TriremeTorch() {
  static const trireme::FakeTorch plugin;
  return &plugin;
}
