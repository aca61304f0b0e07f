#include "trireme/rpc/acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// For logs, snapshots and the like; and what a server needs to begin with.
constexpr int kReserved = 16, kFewest = 48;
// Connections cost memory even when they are idle. Workers have one each, and their processes one more.
constexpr int kMost = 4096;
// How long a connection may say nothing; how long a system without descriptors is left alone; how often connections that
// have said too little are looked at.
constexpr std::chrono::milliseconds kSilence{10'000}, kPause{100}, kLookAgain{20};
constexpr std::size_t kMostPeeked = 64;

// As many descriptors as the system lets the process have.
int HighestDescriptor() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMost;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < kFewest) {
    Fail("this process may open {} files, and a server needs {}: raise the limit with ulimit -n",
         limit.rlim_cur, kFewest);
  }
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kMost)) - kReserved;
}

}  // namespace

Acceptor::Acceptor(const std::string& address)
    : address_(address),
      highest_(HighestDescriptor()),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      listeners_(ListenAt(address_)) {}

Acceptor::~Acceptor() {
  if (thread_.joinable()) {
    eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  RemoveSocket(address_);
}

void Acceptor::Start(std::function<void(int fd)> hand_over, std::size_t fewest) {
  TRIREME_CHECK(fewest > 0 && fewest <= kMostPeeked);
  hand_over_ = std::move(hand_over);
  fewest_ = fewest;
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Run() {
  bool ended = false;
  while (!ended) {
    try {
      ended = !HandleEvents();
    } catch (const std::bad_alloc&) {
      silent_.clear();
      resume_ = Clock::now() + kPause;
    }
  }
}

bool Acceptor::HandleEvents() {
  const Deadline now = Clock::now();
  while (!silent_.empty() && now - silent_.front().since >= kSilence) silent_.pop_front();

  std::vector<pollfd> ready = {{wake_.get(), POLLIN, 0}};
  const bool listening = now >= resume_;
  for (const Descriptor& listener : listeners_) {
    ready.push_back({listening ? listener.get() : -1, POLLIN, 0});
  }
  const std::size_t heard = ready.size();
  bool some_have_begun = false;
  for (const Silent& silent : silent_) {
    ready.push_back({silent.has_begun ? -1 : silent.connection.get(), POLLIN, 0});
    some_have_begun |= silent.has_begun;
  }

  Deadline until = listening ? Deadline::max() : resume_;
  if (some_have_begun) until = std::min(until, now + kLookAgain);
  if (!silent_.empty()) until = std::min(until, silent_.front().since + kSilence);
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  if (poll(ready.data(), ready.size(), until == Deadline::max() ? -1 : static_cast<int>(wait)) < 0)
    return true;
  if (ready[0].revents != 0) return false;

  for (std::size_t i = heard; i < ready.size(); ++i) {
    Silent& silent = silent_[i - heard];
    if (ready[i].revents != 0 || silent.has_begun) OnHeard(silent);
  }
  std::erase_if(silent_, [](const Silent& silent) { return silent.connection.get() < 0; });
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    if (ready[1 + i].revents != 0 && !AcceptFrom(listeners_[i])) resume_ = now + kPause;
  }
  return true;
}

bool Acceptor::AcceptFrom(const Descriptor& listener) {
  for (;;) {
    Descriptor connection(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection.get() >= 0) {
      connection = MakeRoomFor(std::move(connection));
      if (connection.get() >= 0) silent_.push_back({std::move(connection), Clock::now()});
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    if (silent_.empty()) return false;
    silent_.pop_front();
  }
}

// The system gives the lowest free number, so a high one means that all below are in use.
Descriptor Acceptor::MakeRoomFor(Descriptor connection) {
  while (connection.get() >= highest_ && !silent_.empty()) {
    silent_.pop_front();
    connection = Descriptor(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  }
  return connection.get() < highest_ ? std::move(connection) : Descriptor();
}

void Acceptor::OnHeard(Silent& silent) {
  std::array<char, kMostPeeked> bytes;
  const ssize_t got = recv(silent.connection.get(), bytes.data(), fewest_, MSG_PEEK);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    silent.connection = Descriptor();
  } else if (static_cast<std::size_t>(got) < fewest_) {
    silent.has_begun = true;
  } else {
    hand_over_(silent.connection.Release());
  }
}

}  // namespace trireme
