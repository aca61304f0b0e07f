// A lock on a folder: of several processes one holds it. The operating system gives it back when the process
// ends, however that happens. Where a file system has no locks, everybody gets one.
#pragma once

#include <filesystem>
#include <utility>

namespace trireme {

class FolderClaim {
 public:
  FolderClaim() = default;  // of nothing
  // The claim on `folder`, or of nothing when another process holds it or has just removed it. Throws Error
  // when the folder cannot be opened.
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

}  // namespace trireme
