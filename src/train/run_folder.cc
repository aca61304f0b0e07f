#include "train/run_folder.h"

#include "base/error.h"
#include "base/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.toml";

fs::path FreshPath(const std::string& name) {
  for (int i = 1; i < 1'000'000; ++i) {
    fs::path path = fs::path("runs") / fmt::format("{}-{:03}", name, i);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return path;
  }
  Fail("runs/ is full of runs named {}: remove some or choose --out", name);
}

}  // namespace

RunFolder RunFolder::Create(fs::path path, const std::string& name, const std::string& config) {
  if (path.empty()) path = FreshPath(name);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status)) {
    if (!fs::is_directory(status)) Fail("--out {} is a file: choose a folder", path.string());
    if (fs::exists(path / kConfigName, error)) {
      Fail("--out {} holds another run: choose another folder, or continue it with --resume {}",
           path.string(), path.string());
    }
    if (!fs::is_empty(path, error) && !error) {
      Fail("--out {} is not empty: choose another folder", path.string());
    }
  }
  error.clear();
  fs::create_directories(path, error);
  if (error) Fail("cannot make the folder {}: {}", path.string(), error.message());
  RunFolder folder(path);
  folder.WriteConfig(config);
  return folder;
}

RunFolder RunFolder::Open(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) Fail("--resume {}: there is no such folder", path.string());
  if (!fs::exists(path / kConfigName, error)) {
    Fail("--resume {}: no run was recorded there (config.toml is missing): start it again with --out",
         path.string());
  }
  return RunFolder(path);
}

std::string RunFolder::ReadConfig() const { return ReadFile(path_ / kConfigName); }

void RunFolder::WriteConfig(const std::string& config) const {
  WriteFileAtomically(path_ / kConfigName, config);
}

}  // namespace trireme
