#include "server/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace trireme {

ServerFolderLock::ServerFolderLock(const std::filesystem::path& folder)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ < 0) Fail("cannot open the folder {}: {}", folder.string(), std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(fd_);
  Fail("another server uses {}: stop it, or give this one another folder", folder.string());
}

ServerFolderLock::~ServerFolderLock() { ::close(fd_); }

}  // namespace trireme
