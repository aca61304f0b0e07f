#include "trireme/metrics/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {

AppendFile::AppendFile(std::filesystem::path path, std::uint64_t keep_bytes) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) Fail("cannot write {}: {}", path_.string(), std::strerror(errno));
  struct stat info;
  if (::fstat(fd_, &info) != 0) {
    const int error = errno;
    ::close(fd_);
    Fail("cannot inspect {}: {}", path_.string(), std::strerror(error));
  }
  regular_ = S_ISREG(info.st_mode);
  if (regular_) size_ = static_cast<std::uint64_t>(info.st_size);
  try {
    CutTo(keep_bytes);
  } catch (const Error&) {
    ::close(fd_);
    throw;
  }
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::CutTo(std::uint64_t bytes) {
  if (!regular_ || bytes >= size_) return;
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0)
    Fail("cannot shorten {}: {}", path_.string(), std::strerror(errno));
  size_ = bytes;
}

void AppendFile::Append(std::string_view record) {
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // The first failure is the one worth reporting: if the cut fails too, readers still skip a partial
      // record.
      if (regular_ && rest.size() < record.size()) (void)!::ftruncate(fd_, static_cast<off_t>(size_));
      Fail("cannot write {}: {}", path_.string(), std::strerror(error));
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  size_ += record.size();
}

void AppendFile::Flush() {
  if (regular_ && ::fsync(fd_) != 0) Fail("cannot flush {}: {}", path_.string(), std::strerror(errno));
}

}  // namespace trireme
