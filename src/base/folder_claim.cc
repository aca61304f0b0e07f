#include "trireme/base/folder_claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Whether `path` still names the folder behind `fd`: its last owner may have removed it.
bool IsStillAt(const std::filesystem::path& path, int fd) {
  struct stat open, named;
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 && open.st_dev == named.st_dev &&
         open.st_ino == named.st_ino;
}

}  // namespace

FolderClaim FolderClaim::Try(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return {};
  if (fd < 0) Fail("cannot open the folder {}: {}", folder.string(), std::strerror(errno));
  FolderClaim claim(fd);
  claim.alone_ = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (!claim.alone_ && errno == EWOULDBLOCK) return {};
  if (!IsStillAt(folder, fd)) return {};
  return claim;
}

FolderClaim::~FolderClaim() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace trireme
