#include "trireme/server/disk/folder_lock.h"

#include "trireme/base/error.h"

namespace trireme {

ServerFolderLock::ServerFolderLock(const std::filesystem::path& folder) : claim_(FolderClaim::Try(folder)) {
  if (!claim_.held())
    Fail("another server uses {}: stop it, or give this one another folder", folder.string());
}

}  // namespace trireme
