#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/plugin.h"
#include "trireme/base/version.h"
#include "trireme/nn/torch_plugin.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHow = "`make torch` installs libtorch and builds it";

std::string ChosenFolder() {
  const char* folder = std::getenv("TRIREME_LIBTORCH");
  return folder == nullptr ? "" : folder;
}

std::string HowToBuildAgain() {
  const std::string folder = ChosenFolder();
  return folder.empty() ? "build it again with `make torch`"
                        : fmt::format("build it again with `make torch LIBTORCH={}`", folder);
}

// Those of libtorch itself among what the plug-in needs; each after what it needs in turn.
std::vector<std::string> PartsOfLibtorch(const fs::path& plugin) {
  const auto order = [](const std::string& name) {
    return name.starts_with("libc10") ? 0 : name.starts_with("libtorch.so") ? 2 : 1;
  };
  std::vector<std::string> parts = NeededLibraries(plugin);
  std::erase_if(parts, [](const std::string& name) {
    return !name.starts_with("libc10") && !name.starts_with("libtorch");
  });
  std::ranges::sort(parts, {}, [&](const std::string& name) { return std::pair(order(name), name); });
  return parts;
}

// A library that is loaded already is taken for whatever needs one of its name. All must be in the folder: a mixture of
// two libtorchs would crash.
void LoadLibtorchFrom(const fs::path& folder, const fs::path& plugin) {
  std::vector<fs::path> files;
  for (const std::string& name : PartsOfLibtorch(plugin)) {
    std::error_code ignored;
    const fs::path in_lib = folder / "lib" / name, plain = folder / name;
    if (!fs::exists(in_lib, ignored) && !fs::exists(plain, ignored)) {
      Fail("TRIREME_LIBTORCH={} has no {}, which {} was built against: {}", folder.string(), name,
           plugin.string(), HowToBuildAgain());
    }
    files.push_back(fs::exists(in_lib, ignored) ? in_lib : plain);
  }
  for (const fs::path& file : files) {
    if (dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
      Fail("cannot load {} of TRIREME_LIBTORCH: {}", file.string(), dlerror());
    }
  }
}

const TorchPlugin& Load() {
  const auto plugin = FindPlugin(kTorchLibrary);
  if (plugin && !ChosenFolder().empty()) LoadLibtorchFrom(ChosenFolder(), *plugin);
  using Get = const TorchPlugin* (*)();
  const Get get = [&] {
    try {
      return reinterpret_cast<Get>(PluginSymbol(kTorchLibrary, "TriremeTorch", "libtorch", kHow));
    } catch (const Error& error) {
      if (!plugin) throw;
      Fail("{}. If its libtorch has been replaced, {}; if it has moved, set TRIREME_LIBTORCH to its folder",
           error.what(), HowToBuildAgain());
    }
  }();
  const TorchPlugin& torch = *get();
  const TorchFacts& facts = torch.facts();
  if (facts.program != Version()) {
    Fail("{} belongs to trireme {}, and this is {}: {}", plugin->string(), facts.program, Version(),
         HowToBuildAgain());
  }
  if (facts.version != facts.built_against) {
    Fail("{} was built against libtorch {}, and the one it finds is {}: {}", plugin->string(),
         facts.built_against, facts.version, HowToBuildAgain());
  }
  return torch;
}

}  // namespace

const TorchPlugin& LoadTorch() {
  static const TorchPlugin& torch = Load();
  return torch;
}

}  // namespace trireme
