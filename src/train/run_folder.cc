#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.toml";

fs::path FreshPath(const std::string& name) {
  for (int i = 1; i < 1'000'000; ++i) {
    fs::path path = fs::path("runs") / fmt::format("{}-{:03}", name, i);
    // Making the folder claims the name: of two processes only one succeeds.
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (fs::create_directory(path, error)) return path;
    if (error) Fail("cannot make the folder {}: {}", path.string(), error.message());
  }
  Fail("runs/ is full of runs named {}: remove some or choose --out", name);
}

// A process killed while it made the folder leaves a part of config.toml, which is not worth keeping.
bool HoldsOtherFiles(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().filename() != fmt::format("{}.tmp", kConfigName)) return true;
  }
  return false;
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
    if (HoldsOtherFiles(path)) Fail("--out {} is not empty: choose another folder", path.string());
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
  if (!fs::is_directory(path, error)) Fail("there is no folder {}", path.string());
  if (!fs::exists(path / kConfigName, error)) {
    Fail("{} holds no run (config.toml is missing): start one there with --out", path.string());
  }
  return RunFolder(path);
}

void RunFolder::RemoveIfUnused() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    if (entry.path().filename() != kConfigName) return;
  }
  fs::remove(path_ / kConfigName, ignored);
  fs::remove(path_, ignored);
}

std::string RunFolder::ReadConfig() const { return ReadFile(path_ / kConfigName); }

void RunFolder::WriteConfig(const std::string& config) const {
  WriteFileAtomically(path_ / kConfigName, config);
}

FolderLock::FolderLock(const RunFolder& folder)
    : fd_(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0 || ::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  Fail("another process is training in {}: wait for it to end, or stop it", folder.path().string());
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace trireme
