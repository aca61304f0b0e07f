// The folder a run writes: docs/run-folder.md describes what is in it.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace trireme {

// A lock on a folder: of several processes one holds it. The operating system gives it back when the process
// ends, however that happens. Where a file system has no locks, everybody gets one.
class FolderClaim {
 public:
  FolderClaim() = default;  // of nothing
  // The claim on `folder`, which exists, or of nothing when another process holds it. Throws Error when the
  // folder cannot be opened.
  static FolderClaim Try(const std::filesystem::path& folder);
  ~FolderClaim();
  FolderClaim(FolderClaim&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), alone_(std::exchange(other.alone_, false)) {}
  FolderClaim& operator=(FolderClaim&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(alone_, other.alone_);
    return *this;
  }

  bool held() const { return fd_ >= 0; }
  // Certainly held by nobody else: false where the file system has no locks.
  bool alone() const { return alone_; }

 private:
  explicit FolderClaim(int fd) : fd_(fd) {}
  int fd_ = -1;
  bool alone_ = false;
};

// Whoever trains in a folder claims it before it reads or writes anything there, and keeps the claim for as
// long as this object lives; a killed run can be resumed at once. Whoever has no claim only reads.
class RunFolder {
 public:
  // Makes and claims a new folder for a run, with its settings in config.toml. An empty path chooses a fresh
  // name below runs/. Throws Error when the path is a file, holds another run or other files, cannot be
  // written, or is claimed by another process.
  static RunFolder Create(const std::filesystem::path& path, const std::string& name,
                          const std::string& config);
  // Claims the folder of an earlier run, to continue it. Throws Error when it holds none, or when another
  // process trains in it.
  static RunFolder Resume(const std::filesystem::path& path);
  // The folder of a run to read from; somebody may be training in it. Throws Error when it holds no run.
  static RunFolder Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }
  std::filesystem::path result() const { return path_ / "result.json"; }
  // Takes a new run back that has failed before anything happened: nothing but the settings is in a folder
  // that Create() has made and nobody else can have claimed.
  void RemoveIfUnused() const;

  std::string ReadConfig() const;
  // Replaces config.toml, for a resumed run whose settings were changed.
  void WriteConfig(const std::string& config) const;

 private:
  RunFolder(std::filesystem::path path, FolderClaim claim)
      : path_(std::move(path)), claim_(std::move(claim)) {}
  std::filesystem::path path_;
  FolderClaim claim_;
  bool created_ = false;
};

}  // namespace trireme
