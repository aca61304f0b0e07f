// The folder a run writes: docs/run-folder.md describes what is in it.
#pragma once

#include <filesystem>
#include <string>

namespace trireme {

class RunFolder {
 public:
  // Makes a new folder for a run, with its settings in config.toml. An empty path chooses a fresh name below
  // runs/. Throws Error when the path is a file, holds another run or other files, or cannot be written.
  static RunFolder Create(std::filesystem::path path, const std::string& name, const std::string& config);
  // Opens the folder of an earlier run. Throws Error when it holds none.
  static RunFolder Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path result() const { return path_ / "result.json"; }
  // Takes a run back that has failed before anything happened: the settings are all that is in the folder.
  void RemoveIfUnused() const;

  std::string ReadConfig() const;
  // Replaces config.toml, for a resumed run whose settings were changed.
  void WriteConfig(const std::string& config) const;

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// Held while a process trains in a folder. The operating system gives it back when the process ends, however
// that happens, so a killed run can be resumed at once. Where a file system has no locks, it does nothing.
class FolderLock {
 public:
  // Throws Error when another process holds it.
  explicit FolderLock(const RunFolder& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace trireme
