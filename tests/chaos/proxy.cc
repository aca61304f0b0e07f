#include "proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

namespace trireme::testing {
namespace {

sockaddr_in Loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

int Listen(std::uint16_t& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(fd, 64) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port on loopback");
  }
  port = ntohs(address.sin_port);
  return fd;
}

// Two sockets, and what is on its way between them.
struct Relay {
  int ends[2] = {-1, -1};
  std::string pending[2];  // to ends[i]
  bool open = true;

  void Close() {
    for (int& end : ends) {
      if (end >= 0) ::close(end);
      end = -1;
    }
    open = false;
  }

  void Move() {
    char block[65536];
    for (int to = 0; to < 2 && open; ++to) {
      if (pending[to].size() < 1 << 20) {
        const ssize_t got = ::recv(ends[1 - to], block, sizeof block, MSG_DONTWAIT);
        if (got > 0) pending[to].append(block, static_cast<std::size_t>(got));
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return Close();
      }
      if (!pending[to].empty()) {
        const ssize_t sent =
            ::send(ends[to], pending[to].data(), pending[to].size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) pending[to].erase(0, static_cast<std::size_t>(sent));
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return Close();
      }
    }
  }
};

Relay Accept(int listener, std::uint16_t target) {
  Relay relay;
  relay.ends[0] = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  relay.ends[1] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(target);
  const int on = 1;
  if (relay.ends[0] < 0 ||
      ::connect(relay.ends[1], reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    relay.Close();
    return relay;
  }
  for (const int end : relay.ends) ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return relay;
}

}  // namespace

Proxy::Proxy(std::uint16_t port) : target_(port), listener_(Listen(port_)), thread_([this] { Run(); }) {}

Proxy::~Proxy() {
  ended_ = true;
  thread_.join();
  ::close(listener_);
}

void Proxy::Run() {
  std::vector<Relay> relays;
  bool was_cut = false;
  while (!ended_) {
    if (cut_) {
      was_cut = true;
      ::poll(nullptr, 0, 5);
      continue;
    }
    if (was_cut) {
      for (Relay& relay : relays) relay.Close();
      was_cut = false;
    }
    std::vector<pollfd> waits = {{listener_, POLLIN, 0}};
    for (const Relay& relay : relays) {
      for (int i = 0; i < 2; ++i) {
        const int events =
            (relay.pending[1 - i].size() < 1 << 20 ? POLLIN : 0) | (relay.pending[i].empty() ? 0 : POLLOUT);
        waits.push_back({relay.ends[i], static_cast<short>(events), 0});
      }
    }
    if (::poll(waits.data(), waits.size(), 20) <= 0) continue;
    for (Relay& relay : relays) relay.Move();
    if (waits[0].revents != 0) relays.push_back(Accept(listener_, target_));
    std::erase_if(relays, [](const Relay& relay) { return !relay.open; });
  }
  for (Relay& relay : relays) relay.Close();
}

std::uint16_t FreePort() {
  std::uint16_t port = 0;
  ::close(Listen(port));
  return port;
}

}  // namespace trireme::testing
