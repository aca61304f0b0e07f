#include "trireme/base/plugin.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// The folder of the shared library that this code is in; empty where it is part of the program.
fs::path OwnLibraryFolder() {
  Dl_info info;
  void* map = nullptr;
  if (dladdr1(reinterpret_cast<void*>(&OwnLibraryFolder), &info, &map, RTLD_DL_LINKMAP) == 0) return {};
  return fs::path(static_cast<const link_map*>(map)->l_name).parent_path();
}

}  // namespace

std::vector<fs::path> PluginFolders() {
  std::vector<fs::path> folders;
  if (const char* chosen = std::getenv("TRIREME_PLUGINS"); chosen != nullptr && *chosen != '\0') {
    folders.emplace_back(chosen);
  }
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) {
    folders.push_back(program.parent_path());
    folders.push_back(program.parent_path().parent_path() / TRIREME_LIBDIR / "trireme");
  }
  if (const fs::path own = OwnLibraryFolder(); !own.empty()) folders.push_back(own / "trireme");
  return folders;
}

std::optional<fs::path> FindPlugin(const std::string& library) {
  for (const fs::path& folder : PluginFolders()) {
    std::error_code ignored;
    if (fs::exists(folder / library, ignored)) return folder / library;
  }
  return std::nullopt;
}

void* PluginSymbol(const std::string& library, const std::string& symbol, const std::string& what_for,
                   const std::string& how) {
  const std::optional<fs::path> path = FindPlugin(library);
  if (!path) {
    std::string searched;
    for (const fs::path& folder : PluginFolders()) {
      searched += (searched.empty() ? "" : ", ") + folder.string();
    }
    Fail("this build has no {}: there is no {} in {}. {}; or set TRIREME_PLUGINS to its folder", what_for,
         library, searched, how);
  }
  // dlopen counts: the library is loaded once, and never unloaded.
  void* handle = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) Fail("cannot load {} for {}: {}", path->string(), what_for, dlerror());
  void* address = dlsym(handle, symbol.c_str());
  if (address == nullptr) {
    Fail("{} has no {}: it belongs to another version of trireme; build both again", path->string(), symbol);
  }
  return address;
}

}  // namespace trireme
