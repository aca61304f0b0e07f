#include "trireme/tune/line_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace trireme {

LineSocket::~LineSocket() { close(descriptor_); }

bool LineSocket::Write(std::string_view line) {
  std::string left(line);
  left += '\n';
  while (!left.empty()) {
    const ssize_t sent = send(descriptor_, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    left.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

std::optional<std::string> LineSocket::TakeLine() {
  const std::size_t end = received_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

std::optional<std::string> LineSocket::Read() {
  for (;;) {
    if (std::optional<std::string> line = TakeLine()) return line;
    char bytes[4096];
    const ssize_t got = recv(descriptor_, bytes, sizeof bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || received_.size() > kLongest) return std::nullopt;
    received_.append(bytes, static_cast<std::size_t>(got));
  }
}

bool LineSocket::Receive() {
  for (;;) {
    char bytes[4096];
    const ssize_t got = recv(descriptor_, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (got <= 0 || received_.size() > kLongest) return false;
    received_.append(bytes, static_cast<std::size_t>(got));
  }
}

}  // namespace trireme
