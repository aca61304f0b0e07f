#include "rpc/grpc/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace trireme {
namespace {

constexpr char kUnix[] = "unix:";

// The path of a Unix address.
std::optional<std::string> SocketPath(const std::string& address) {
  if (!address.starts_with(kUnix)) return std::nullopt;
  return address.substr(sizeof(kUnix) - 1);
}

// "[::1]:80" -> "::1", "80".
std::pair<std::string, std::string> HostAndPort(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {address, ""};
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

std::string ErrnoText(int error) {
  std::string text = std::strerror(error);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(text[0]));
  return text;
}

// A socket that is closed at the end.
class Socket {
 public:
  Socket(int family, int type) : fd_(socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

sockaddr_un UnixName(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), name.sun_path);
  return name;
}

}  // namespace

void CheckAddress(const std::string& address) {
  if (const std::optional<std::string> path = SocketPath(address)) {
    constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
    if (path->empty()) Fail("'{}' names no file; write unix:/path", address);
    if (path->size() > kLongest) {
      Fail("the path in '{}' is longer than the {} bytes a Unix socket may have; choose a shorter one",
           address, kLongest);
    }
    return;
  }
  const auto [host, port] = HostAndPort(address);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c); });
  if (host.empty() || host.find_first_of("/ \t") != std::string::npos || !digits || std::stoi(port) > 65535) {
    Fail("'{}' is no address; write host:port (127.0.0.1:7000) or unix:/path", address);
  }
}

void RemoveStaleSocket(const std::string& address) {
  const std::optional<std::string> path = SocketPath(address);
  struct stat status {};
  if (!path || lstat(path->c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) Fail("cannot listen on {}: there is a file of that name", address);
  const Socket probe(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK);
  const sockaddr_un name = UnixName(*path);
  // A full queue of connections (EAGAIN) has a listener, too. Only a refusal says that there is none.
  if (connect(probe.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
      errno != ECONNREFUSED) {
    Fail("cannot listen on {}: another server does", address);
  }
  if (unlink(path->c_str()) != 0) {
    Fail("cannot remove the unused socket {}: {}", *path, ErrnoText(errno));
  }
}

std::string WhyNotListen(const std::string& address) {
  const std::string unknown = "the system did not say why";
  if (const std::optional<std::string> path = SocketPath(address)) {
    const Socket probe(AF_UNIX, SOCK_STREAM);
    const sockaddr_un name = UnixName(*path);
    if (bind(probe.fd(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
      return ErrnoText(errno);
    }
    unlink(path->c_str());
    return unknown;
  }
  const auto [host, port] = HostAndPort(address);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return gai_strerror(error);
  }
  std::string why = unknown;
  for (const addrinfo* at = found; at != nullptr && why == unknown; at = at->ai_next) {
    const Socket probe(at->ai_family, at->ai_socktype);
    const int on = 1;
    setsockopt(probe.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(probe.fd(), at->ai_addr, at->ai_addrlen) != 0 || listen(probe.fd(), 1) != 0)
      why = ErrnoText(errno);
  }
  freeaddrinfo(found);
  return why;
}

std::string PeerAddress(const std::string& uri) {
  std::string address = uri;
  for (const std::string_view scheme : {"ipv4:", "ipv6:"}) {
    if (address.starts_with(scheme)) address.erase(0, scheme.size());
  }
  for (const auto& [code, sign] : {std::pair{"%5B", "["}, std::pair{"%5D", "]"}}) {
    if (const std::size_t at = address.find(code); at != std::string::npos) address.replace(at, 3, sign);
  }
  return address;
}

}  // namespace trireme
