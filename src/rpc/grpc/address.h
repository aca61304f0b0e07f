// Addresses as users write them: "host:port" or "unix:/path".
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme {

// Throws Error unless `address` has one of the two forms.
void CheckAddress(const std::string& address);

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

// Sockets that listen at `address` and do not block: one, or one for each of the addresses of a name. A port
// of 0 in it is replaced by the one that was chosen. A Unix socket that nobody listens on any more makes way.
// Throws Error: "cannot listen on ...".
std::vector<Descriptor> ListenAt(std::string& address);

// Removes the socket of a Unix address that is not listened on any more.
void RemoveSocket(const std::string& address);

// Where a client comes from, in our form, from gRPC's ("ipv4:10.0.0.1:555").
std::string PeerAddress(const std::string& uri);

}  // namespace trireme
