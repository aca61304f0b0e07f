#include "trireme/train/run_folder.h"

#include <optional>
#include <random>

#include "trireme/base/error.h"
#include "trireme/base/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigName = "config.toml";
constexpr const char* kIdName = "run-id";
constexpr int kMostTries = 1000;  // somebody else makes and removes the folder again and again

void MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) Fail("cannot make the folder {}: {}", path.string(), error.message());
}

// Why a folder that this process has claimed cannot take a new run; nothing if it can. A process killed while
// it made the folder leaves a part of config.toml, which is not worth keeping.
std::optional<std::string> Obstacle(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kConfigName, error)) {
    return fmt::format("holds another run: choose another folder, or continue it with --resume {}",
                       folder.string());
  }
  for (const fs::path& path : ListFolder(folder)) {
    if (path.filename() != fmt::format("{}.tmp", kConfigName)) return "is not empty: choose another folder";
  }
  return std::nullopt;
}

// Makes the folder that the user has chosen.
std::pair<fs::path, FolderClaim> ClaimChosen(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_directory(status))
    Fail("--out {} is a file: choose a folder", path.string());
  for (int i = 0; i < kMostTries; ++i) {
    MakeFolder(path);
    FolderClaim claim = FolderClaim::Try(path);
    if (!claim.held()) {
      if (!fs::exists(path, error)) continue;  // it was just removed
      Fail("--out {}: another process is training there: choose another folder", path.string());
    }
    if (const auto obstacle = Obstacle(path)) Fail("--out {} {}", path.string(), *obstacle);
    return {path, std::move(claim)};
  }
  Fail("--out {}: somebody removes it again and again: choose another folder", path.string());
}

// Makes one below runs/ that nobody else has.
std::pair<fs::path, FolderClaim> ClaimFresh(const std::string& name) {
  MakeFolder("runs");
  for (int i = 1; i < 1'000'000; ++i) {
    fs::path path = fs::path("runs") / fmt::format("{}-{:03}", name, i);
    std::error_code error;
    if (!fs::create_directory(path, error)) {
      if (error) Fail("cannot make the folder {}: {}", path.string(), error.message());
      continue;
    }
    FolderClaim claim = FolderClaim::Try(path);
    if (claim.held() && !Obstacle(path)) return {std::move(path), std::move(claim)};
  }
  Fail("runs/ is full of runs named {}: remove some or choose --out", name);
}

void RequireRun(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) Fail("there is no folder {}", path.string());
  if (!fs::exists(path / kConfigName, error)) {
    Fail("{} holds no run (config.toml is missing): start one there with --out", path.string());
  }
}

}  // namespace

RunFolder RunFolder::Create(const fs::path& path, const std::string& name, const std::string& config) {
  auto [where, claim] = path.empty() ? ClaimFresh(name) : ClaimChosen(path);
  RunFolder folder(std::move(where), std::move(claim));
  folder.WriteConfig(config);
  folder.created_ = folder.claim_.alone();
  return folder;
}

RunFolder RunFolder::Resume(const fs::path& path) {
  RequireRun(path);
  FolderClaim claim = FolderClaim::Try(path);
  RequireRun(path);  // while it was not claimed its owner may have taken it back
  if (!claim.held()) Fail("another process is training in {}: wait for it to end, or stop it", path.string());
  return {path, std::move(claim)};
}

RunFolder RunFolder::Open(const fs::path& path) {
  RequireRun(path);
  return {path, FolderClaim()};
}

void RunFolder::RemoveResult() const {
  std::error_code error;
  fs::remove(result(), error);
  if (error) Fail("cannot remove {}: {}", result().string(), error.message());
}

void RunFolder::RemoveIfUnused() const noexcept try {
  if (!created_) return;
  for (const fs::path& path : ListFolder(path_)) {
    if (path.filename() != kConfigName && path.filename() != kIdName) return;
  }
  std::error_code ignored;
  fs::remove(path_ / kIdName, ignored);
  fs::remove(path_ / kConfigName, ignored);
  fs::remove(path_, ignored);
} catch (const Error&) {
  // What cannot be listed stays.
}

std::string RunFolder::Id() const {
  const fs::path file = path_ / kIdName;
  if (!fs::exists(file)) WriteFileAtomically(file, NewRunId() + "\n");
  std::string id = ReadFile(file);
  while (id.ends_with('\n')) id.pop_back();
  if (id.empty()) Fail("{} is empty: replay servers know this run by what was in it", file.string());
  return id;
}

std::string NewRunId() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

std::string RunFolder::ReadConfig() const { return ReadFile(path_ / kConfigName); }

void RunFolder::WriteConfig(const std::string& config) const {
  WriteFileAtomically(path_ / kConfigName, config);
}

}  // namespace trireme
