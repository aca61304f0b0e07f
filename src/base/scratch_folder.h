// A folder that is gone at the end of the scope, however that comes.
#pragma once

#include <filesystem>
#include <utility>

#include "trireme/base/folder_claim.h"

namespace trireme {

class ScratchFolder {
 public:
  // A new one among the temporary files. It is claimed, so that whoever makes one later can tell those of
  // processes that were killed, and removes them. Throws Error.
  ScratchFolder();
  // Takes over `path`, which need not exist yet.
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FolderClaim claim_;
};

}  // namespace trireme
