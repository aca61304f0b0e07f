// Addresses as users write them: "host:port" or "unix:/path" for gRPC, "shm:/path" for shared memory.
#pragma once

#include <sys/un.h>

#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Throws Error unless `address` has one of the two forms of gRPC.
void CheckAddress(const std::string& address);
// The same for the one of shared memory, whose processes meet at a Unix socket. Returns its path.
std::string CheckSharedMemoryAddress(const std::string& address);

// A system's word for it, as it stands behind a colon.
std::string ErrnoText(int error);
// Of a socket. Requires that its path is not too long.
sockaddr_un UnixName(const std::string& path);

// A descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Sockets that listen at `address`, which has been checked, and do not block: one, or one for each of the addresses of a name. A port
// of 0 in it is replaced by the one that was chosen. A Unix socket that nobody listens on any more makes way.
// Throws Error: "cannot listen on ...".
std::vector<Descriptor> ListenAt(std::string& address);

// Who listens at a Unix socket to which `connection` leads, if it is neither this user nor root: anybody may listen where
// everybody may write, and a secret is for one's own. Empty: it is one of these; else what to say about it.
std::string StrangerAt(const Descriptor& connection);

// Removes the socket of a Unix address that is not listened on any more.
void RemoveSocket(const std::string& address);

// Where a client comes from, in our form, from gRPC's ("ipv4:10.0.0.1:555").
std::string PeerAddress(const std::string& uri);

}  // namespace trireme
