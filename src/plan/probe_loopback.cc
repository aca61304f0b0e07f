#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/system.h"
#include "trireme/plan/probe.h"
#include "trireme/train/speedup.h"

namespace trireme {
namespace {

constexpr std::size_t kSmall = 8, kLarge = 1 << 20;
constexpr int kSmallTrips = 2000, kLargeTrips = 48;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    if (fd < 0) Fail("cannot measure the loopback: {}: give --latency and --bandwidth", std::strerror(errno));
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    const timeval deadline{.tv_sec = 10, .tv_usec = 0};  // nobody waits for ever
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof(deadline));
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

  // False when the other side is gone or slow.
  bool Send(const std::vector<char>& bytes, std::size_t count) const {
    for (std::size_t done = 0; done < count;) {
      const ssize_t n = send(fd_, bytes.data() + done, count - done, MSG_NOSIGNAL);
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }
  bool Receive(std::vector<char>& bytes, std::size_t count) const {
    for (std::size_t done = 0; done < count;) {
      const ssize_t n = recv(fd_, bytes.data() + done, count - done, 0);
      if (n <= 0) return false;
      done += static_cast<std::size_t>(n);
    }
    return true;
  }

 private:
  int fd_;
};

// Answers: small messages with the like, large ones with a small one when all has come.
void Echo(int fd) {
  const Socket peer(fd);
  std::vector<char> bytes(kLarge);
  for (int i = 0; i < kSmallTrips; ++i) {
    if (!peer.Receive(bytes, kSmall) || !peer.Send(bytes, kSmall)) return;
  }
  for (int i = 0; i < kLargeTrips; ++i) {
    if (!peer.Receive(bytes, kLarge) || !peer.Send(bytes, kSmall)) return;
  }
}

double MedianTrip(const Socket& socket, std::size_t size, int trips) {
  std::vector<char> bytes(size);
  std::vector<double> seconds;
  for (int i = 0; i < trips; ++i) {
    const double begun_s = MonotonicSeconds();
    if (!socket.Send(bytes, size) || !socket.Receive(bytes, kSmall)) {
      Fail("measuring the loopback stopped half-way: give --latency and --bandwidth");
    }
    seconds.push_back(MonotonicSeconds() - begun_s);
  }
  return Median(std::move(seconds));
}

}  // namespace

Link ProbeLoopback() {
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const Socket client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // The connection waits in the listener's queue until it is accepted, so one thread can make both ends.
  if (bind(listener.fd(), generic, length) != 0 || listen(listener.fd(), 1) != 0 ||
      getsockname(listener.fd(), generic, &length) != 0 || connect(client.fd(), generic, length) != 0) {
    Fail("cannot measure the loopback: {}: give --latency and --bandwidth", std::strerror(errno));
  }
  const int accepted = accept(listener.fd(), nullptr, nullptr);
  if (accepted < 0) Fail("cannot measure the loopback: {}", std::strerror(errno));
  std::thread echo(Echo, accepted);
  double small_s = 0, large_s = 0;
  std::exception_ptr error;
  try {
    small_s = MedianTrip(client, kSmall, kSmallTrips);
    large_s = MedianTrip(client, kLarge, kLargeTrips);
  } catch (...) {
    error = std::current_exception();
    shutdown(client.fd(), SHUT_RDWR);
  }
  echo.join();
  if (error) std::rethrow_exception(error);
  return {.latency_s = small_s / 2,
          .bytes_per_s = static_cast<double>(kLarge) / std::max(large_s - small_s, 1e-9)};
}

}  // namespace trireme
