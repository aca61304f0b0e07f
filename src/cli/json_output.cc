#include "trireme/cli/json_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme {

JsonOutput::JsonOutput(bool active) {
  if (!active) return;
  std::fflush(stdout);
  descriptor_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (descriptor_ < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    Fail("cannot set standard output apart for --json: {}", std::strerror(errno));
  }
}

JsonOutput::~JsonOutput() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void JsonOutput::Print(const std::string& json) const {
  TRIREME_CHECK(descriptor_ >= 0);
  const std::string line = json + "\n";
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail("cannot write the output: {}", std::strerror(errno));
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace trireme
