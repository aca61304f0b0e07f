#include "trireme/tune/processor_claim.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace trireme {
namespace {

// A name that one process of the machine can have, and that is free when it ends. -1: another one has it.
int TakeName(const std::string& name) {
  const int holder = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (holder < 0) return -1;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // names that begin with 0 are no files
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(holder, reinterpret_cast<const sockaddr*>(&address), size) == 0) return holder;
  close(holder);
  return -1;
}

}  // namespace

ProcessorClaim::ProcessorClaim() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (int i = 0; i < CPU_SETSIZE && lock_ < 0; ++i) {
    if (!CPU_ISSET(static_cast<std::size_t>(i), &set)) continue;
    lock_ = TakeName(fmt::format("trireme-trial-on-processor-{}", i));
    if (lock_ >= 0) processor_ = i;
  }
}

ProcessorClaim::~ProcessorClaim() {
  if (lock_ >= 0) close(lock_);
}

}  // namespace trireme
