// A folder that one server uses at a time.
#pragma once

#include <filesystem>

#include "trireme/base/folder_claim.h"

namespace trireme {

// Holds the folder as long as it lives. The operating system gives it back when the process ends, however
// that happens; where a file system has no locks, this does nothing. Belongs to one thread.
class ServerFolderLock {
 public:
  // Throws Error when another server has it, or when the folder cannot be opened.
  explicit ServerFolderLock(const std::filesystem::path& folder);

 private:
  FolderClaim claim_;
};

}  // namespace trireme
