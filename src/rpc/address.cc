#include "trireme/rpc/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// The path of an address that is a Unix socket.
std::optional<std::string> SocketPath(const std::string& address) {
  for (const std::string_view scheme : {"unix:", "shm:"}) {
    if (address.starts_with(scheme)) return address.substr(scheme.size());
  }
  return std::nullopt;
}

void CheckPath(const std::string& address, const std::string& path, const char* form) {
  constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (path.empty()) Fail("'{}' names no file; write {}", address, form);
  if (path.size() > kLongest) {
    Fail("the path in '{}' is longer than the {} bytes a Unix socket may have; choose a shorter one", address,
         kLongest);
  }
}

// "[::1]:80" -> "::1", "80".
std::pair<std::string, std::string> HostAndPort(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {address, ""};
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, address.substr(colon + 1)};
}

// Makes way for a socket: removes one that nobody listens on any more.
void RemoveStaleSocket(const std::string& address, const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) Fail("cannot listen on {}: there is a file of that name", address);
  const Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const sockaddr_un name = UnixName(path);
  // A full queue of connections (EAGAIN) has a listener, too. Only a refusal says that there is none.
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
      errno != ECONNREFUSED) {
    Fail("cannot listen on {}: another server does", address);
  }
  if (unlink(path.c_str()) != 0) Fail("cannot remove the unused socket {}: {}", path, ErrnoText(errno));
}

// A socket that listens, or none with errno set. Two servers at one port would share the clients by chance,
// so there is no SO_REUSEPORT.
Descriptor Listen(int family, const sockaddr* name, socklen_t size) {
  Descriptor listener(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) return listener;
  const int on = 1;
  if (family != AF_UNIX) {
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    // Connections inherit these. A machine that vanished is given up when it takes nothing for so long.
    const unsigned milliseconds = 60'000;
    setsockopt(listener.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(listener.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
  }
  if (bind(listener.get(), name, size) != 0 || listen(listener.get(), SOMAXCONN) != 0) return Descriptor();
  return listener;
}

int PortOf(const Descriptor& listener) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &size);
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

std::vector<Descriptor> ListenAtName(std::string& address) {
  auto [host, port] = HostAndPort(address);
  addrinfo hints{}, *first = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &first); error != 0) {
    Fail("cannot listen on {}: {}", address, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(first, freeaddrinfo);
  std::vector<Descriptor> listeners;
  int problem = 0;
  for (addrinfo* at = first; at != nullptr; at = at->ai_next) {
    if (!listeners.empty()) {  // all at the port that the first one got
      auto* name = at->ai_addr;
      const auto number = htons(static_cast<std::uint16_t>(PortOf(listeners[0])));
      if (at->ai_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6*>(name)->sin6_port = number;
      } else {
        reinterpret_cast<sockaddr_in*>(name)->sin_port = number;
      }
    }
    Descriptor listener = Listen(at->ai_family, at->ai_addr, at->ai_addrlen);
    if (listener.get() >= 0) {
      listeners.push_back(std::move(listener));
    } else {
      problem = errno;
    }
  }
  // A name may have addresses that this machine does not use; a port that somebody has is not shared.
  if (listeners.empty() || (problem == EADDRINUSE && port != "0")) {
    Fail("cannot listen on {}: {}", address, ErrnoText(problem));
  }
  if (address.ends_with(":0")) address.replace(address.size() - 1, 1, std::to_string(PortOf(listeners[0])));
  return listeners;
}

}  // namespace

std::string ErrnoText(int error) {
  std::string text = std::strerror(error);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(text[0]));
  return text;
}

sockaddr_un UnixName(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), name.sun_path);
  return name;
}

void CheckAddress(const std::string& address) {
  if (address.starts_with("unix:")) return CheckPath(address, *SocketPath(address), "unix:/path");
  const auto [host, port] = HostAndPort(address);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c); });
  if (host.empty() || host.find_first_of("/ \t") != std::string::npos || !digits || std::stoi(port) > 65535) {
    Fail("'{}' is no address; write host:port (127.0.0.1:7000) or unix:/path", address);
  }
}

std::string CheckSharedMemoryAddress(const std::string& address) {
  if (!address.starts_with("shm:")) Fail("'{}' is no address of shared memory; write shm:/path", address);
  std::string path = *SocketPath(address);
  CheckPath(address, path, "shm:/path");
  return path;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

std::vector<Descriptor> ListenAt(std::string& address) {
  const std::optional<std::string> path = SocketPath(address);
  if (!path) return ListenAtName(address);
  RemoveStaleSocket(address, *path);
  const sockaddr_un name = UnixName(*path);
  std::vector<Descriptor> listeners;
  listeners.push_back(Listen(AF_UNIX, reinterpret_cast<const sockaddr*>(&name), sizeof(name)));
  if (listeners[0].get() < 0) Fail("cannot listen on {}: {}", address, ErrnoText(errno));
  return listeners;
}

std::string StrangerAt(const Descriptor& connection) {
  ucred who{};
  socklen_t size = sizeof(who);
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return ErrnoText(errno);
  if (who.uid == 0 || who.uid == geteuid()) return "";
  return fmt::format(
      "user {} listens there, and is not given your token: put the socket into a folder of your own",
      who.uid);
}

void RemoveSocket(const std::string& address) {
  if (const std::optional<std::string> path = SocketPath(address)) unlink(path->c_str());
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
