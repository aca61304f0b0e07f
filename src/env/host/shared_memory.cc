#include "trireme/env/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/system.h"

namespace trireme {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) ::close(fd_);
}

SharedMemory::SharedMemory(std::size_t bytes, const std::string& purpose)
    : fd_(::memfd_create("trireme", MFD_CLOEXEC)), size_(bytes) {
  const auto fail = [&](int error) {
    Fail("cannot get {} bytes of shared memory for {}: {}", bytes, purpose, std::strerror(error));
  };
  if (!fd_.valid()) fail(errno);
  if (bytes > MachineMemory() / 2) fail(ENOMEM);  // the system would rather kill somebody than refuse
  // Taken now, since a process that touches what is not there is killed.
  if (const int error = ::posix_fallocate(fd_.get(), 0, static_cast<off_t>(bytes)); error != 0) fail(error);
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) fail(errno);
  data_ = static_cast<std::byte*>(at);
}

SharedMemory::~SharedMemory() { ::munmap(data_, size_); }

UniqueFd MemoryOf(const std::string& bytes, const std::string& purpose) {
  UniqueFd fd(::memfd_create("trireme", MFD_CLOEXEC));
  std::size_t written = 0;
  while (fd.valid() && written < bytes.size()) {
    const ssize_t n = ::write(fd.get(), bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += static_cast<std::size_t>(n);
  }
  if (!fd.valid() || written < bytes.size()) {
    Fail("cannot get {} bytes of shared memory for {}: {}", bytes.size(), purpose, std::strerror(errno));
  }
  ::lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

std::string BytesOf(int fd) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0) Fail("cannot read what a host process sent: {}", std::strerror(errno));
  std::string bytes(static_cast<std::size_t>(facts.st_size), '\0');
  std::size_t read = 0;
  while (read < bytes.size()) {
    const ssize_t n = ::pread(fd, bytes.data() + read, bytes.size() - read, static_cast<off_t>(read));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) Fail("cannot read what a host process sent: {}", std::strerror(errno));
    read += static_cast<std::size_t>(n);
  }
  return bytes;
}

}  // namespace trireme
