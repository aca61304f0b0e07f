#include "trireme/rpc/shared_memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "trireme/base/error.h"

namespace trireme {
namespace {

[[noreturn]] void FailForMemory(int error) {
  Fail("there is no shared memory for another stream: {}", ErrnoText(error));
}

}  // namespace

void Segment::Unmap::operator()(std::byte* bytes) const { munmap(bytes, kBytes); }

Segment::Segment(const Descriptor& fd) {
  void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) FailForMemory(errno);
  bytes_.reset(static_cast<std::byte*>(at));
}

Segment Segment::Create(Descriptor& fd) {
  fd = Descriptor(memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) FailForMemory(errno);
  if (const int error = posix_fallocate(fd.get(), 0, kBytes); error != 0) FailForMemory(error);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) FailForMemory(errno);
  return Segment(fd);
}

Segment Segment::Attach(const Descriptor& fd) {
  struct stat facts {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd.get(), &facts) != 0 || facts.st_size != kBytes)
    Fail("what the server shares is not the memory of a stream");
  return Segment(fd);
}

}  // namespace trireme
