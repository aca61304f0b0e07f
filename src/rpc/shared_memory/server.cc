#include "trireme/rpc/shared_memory/server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/rpc/shared_memory/message.h"
#include "trireme/rpc/shared_memory/protocol.h"
#include "trireme/rpc/token.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

// How often `stop` and the clients that take too long are looked at.
constexpr milliseconds kTick{50};
// For saying hello; for queued messages to leave: when Run ends, when one stream is closed.
constexpr milliseconds kIntroduction{10'000}, kDrain{1000}, kCloseGrace{5000};
// Who have begun to say hello, at a time.
constexpr std::size_t kMostStrangers = 64;
// Messages of one client before others have their turn.
constexpr int kBurst = 16;

std::string ProcessAt(int socket) {
  ucred who{};
  socklen_t size = sizeof(who);
  getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size);
  return fmt::format("process {}", who.pid);
}

// The welcome, with the segment. False: it cannot be sent.
bool SendSegment(int socket, int segment) {
  char byte = kWelcome;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &segment, sizeof segment);
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

}  // namespace

struct SharedMemoryServer::Peer {
  PeerId number = 0;
  Descriptor socket;
  Deadline overdue;   // until when it must have said hello, or taken what was sent before the end
  std::string hello;  // as much as has come
  Segment segment;
  MessageReader reader;  // once it is let in, as are
  RingMessageWriter writer;
  std::deque<Outgoing> queue;
  std::size_t queued = 0;  // bytes in `queue`
  std::size_t limit = 0;   // bytes of a message from this client

  bool let_in = false;
  bool open = false;     // the handler knows it
  bool gone = false;     // its end of the socket is closed
  bool closing = false;  // ends when `queue` is empty, with:
  char kind = kCause;
  std::string why;
  bool active = false;  // is in active_

  void DropQueue() {
    writer.Drop();
    queue.clear();
    queued = 0;
  }
  bool sent_all() const { return queue.empty() && writer.done(); }
};

SharedMemoryServer::SharedMemoryServer(const std::string& address, const Security& security,
                                       const Limits& limits)
    : token_(security.token),
      limits_(limits),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      newcomer_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  CheckSharedMemoryAddress(address);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, newcomer_.get(), &event) != 0)
    Fail("cannot listen on {}: {}", address, ErrnoText(errno));
  acceptor_ = std::make_unique<Acceptor>(address);
  acceptor_->Start([this](int fd) {
    const std::lock_guard lock(mutex_);
    newcomers_.emplace_back(fd);
    eventfd_write(newcomer_.get(), 1);
  });
}

SharedMemoryServer::~SharedMemoryServer() {
  acceptor_.reset();
  TakeNewcomers();
  while (!peers_.empty()) {
    Peer& peer = *peers_.begin()->second;
    BeginClose(peer, kCause, "the server has stopped");
    End(peer);
  }
}

void SharedMemoryServer::Run(Handler& handler, const std::function<bool()>& stop) {
  TRIREME_CHECK(handler_ == nullptr);
  handler_ = &handler;
  Deadline on_time = Clock::now(), tick = on_time;
  while (!stop()) {
    const Deadline now = Clock::now();
    if (woken_.exchange(false) || now >= on_time) on_time = handler.OnTime(now);
    if (now >= tick) {
      EndOverdue(now);
      tick = now + kTick;
    }
    Turn(std::min(on_time, tick));
  }
  handler_ = nullptr;
  const Deadline deadline = Clock::now() + kDrain;
  const auto busy = [](const auto& entry) { return !entry.second->sent_all(); };
  while (std::any_of(peers_.begin(), peers_.end(), busy) && Clock::now() < deadline) Turn(deadline);
}

void SharedMemoryServer::Wake() {
  woken_ = true;
  eventfd_write(newcomer_.get(), 1);
}

void SharedMemoryServer::Send(PeerId number, Outgoing message) {
  const auto found = peers_.find(number);
  if (found == peers_.end() || found->second->closing) return;
  Peer& peer = *found->second;
  if (message->size() > limits_.message) {
    Close(number, fmt::format("a message of {} bytes is longer than the server's limit of {}",
                              message->size(), limits_.message));
    return;
  }
  if (!peer.queue.empty() && peer.queued + message->size() > limits_.queued) {
    peer.DropQueue();
    return BeginClose(peer, kCause,
                      "the server dropped the stream, because its messages were not received here");
  }
  peer.queued += message->size();
  peer.queue.push_back(std::move(message));
  WriteMessages(peer);
  if (!peer.sent_all()) Activate(peer);
}

void SharedMemoryServer::Allow(PeerId peer, std::size_t bytes) {
  const auto found = peers_.find(peer);
  if (found != peers_.end()) found->second->limit = std::min(bytes, limits_.message);
}

void SharedMemoryServer::Close(PeerId peer, const std::string& reason) {
  const auto found = peers_.find(peer);
  if (found != peers_.end()) BeginClose(*found->second, kReason, reason.substr(0, kLongestReason));
}

void SharedMemoryServer::Turn(Deadline until) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()),
                               active_.empty() ? MillisecondsUntil(until) : 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u64 == 0) {
      TakeNewcomers();
    } else if (const auto found = peers_.find(events[i].data.u64); found != peers_.end()) {
      OnSocket(*found->second);
    }
  }
  for (const PeerId number : std::exchange(active_, {})) {
    const auto found = peers_.find(number);
    if (found == peers_.end()) continue;
    Peer& peer = *found->second;
    peer.active = false;
    if (Serve(peer)) Activate(peer);
  }
}

// ------------------------------------------------------------------------------------------------ arriving

void SharedMemoryServer::TakeNewcomers() {
  eventfd_t ignored = 0;
  eventfd_read(newcomer_.get(), &ignored);
  std::vector<Descriptor> newcomers;
  {
    const std::lock_guard lock(mutex_);
    newcomers.swap(newcomers_);
  }
  for (Descriptor& socket : newcomers) {
    TakeIn(std::move(socket));
    if (strangers_.size() > kMostStrangers) End(*peers_.at(*strangers_.begin()));
  }
}

// Most have said all of their hello before they come here.
void SharedMemoryServer::TakeIn(Descriptor socket) {
  const PeerId number = next_peer_++;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = number}};
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) return;
  auto peer = std::make_unique<Peer>();
  peer->number = number;
  peer->socket = std::move(socket);
  peer->overdue = Clock::now() + kIntroduction;
  peer->limit = limits_.first;
  Peer& newcomer = *(peers_[number] = std::move(peer));
  strangers_.insert(number);
  ReadHello(newcomer);
}

void SharedMemoryServer::OnSocket(Peer& peer) {
  if (!peer.let_in && !peer.closing) return ReadHello(peer);
  // It wakes this end, or leaves. What else it says means nothing.
  std::array<char, 256> bytes;
  const ssize_t got = recv(peer.socket.get(), bytes.data(), bytes.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    peer.gone = true;
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr);
    peer.DropQueue();
  }
  Activate(peer);
}

void SharedMemoryServer::ReadHello(Peer& peer) {
  std::array<char, kLongestHello> bytes;
  const ssize_t got = recv(peer.socket.get(), bytes.data(), kLongestHello - peer.hello.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) peer.hello.append(bytes.data(), static_cast<std::size_t>(got));
  const std::string_view said = peer.hello;
  const std::string_view program = kHello.substr(0, kHello.size() - 2);  // without the version
  const bool greets = got > 0 && said.starts_with(program.substr(0, said.size()));
  if (greets && said.ends_with('\n')) {
    LetIn(peer);
  } else if (!greets || said.size() == kLongestHello) {
    End(peer);  // a stranger
  }
}

void SharedMemoryServer::LetIn(Peer& peer) {
  if (handler_ == nullptr) return;
  if (!peer.hello.starts_with(kHello))
    return BeginClose(peer, kCause, "this is a server of Trireme, of another version");
  const std::string token = peer.hello.substr(kHello.size(), peer.hello.size() - kHello.size() - 1);
  if (!token_.empty() && !SameSecret(token, token_))
    return BeginClose(peer, kCause, "the server refused the token");
  try {
    Descriptor segment;
    peer.segment = Segment::Create(segment);
    if (!SendSegment(peer.socket.get(), segment.get())) return End(peer);
  } catch (const Error& error) {
    return BeginClose(peer, kCause, error.what());
  }
  SegmentHead& head = peer.segment.head();
  const int socket = peer.socket.get();
  peer.reader = MessageReader(RingReader(head.to_server, peer.segment.to_server(), socket));
  peer.writer = RingMessageWriter(RingWriter(head.to_client, peer.segment.to_client(), socket));
  peer.hello = {};
  peer.let_in = peer.open = true;
  strangers_.erase(peer.number);
  handler_->OnOpen(peer.number, ProcessAt(socket));
  Activate(peer);
}

// ------------------------------------------------------------------------------------------------- serving

void SharedMemoryServer::Activate(Peer& peer) {
  if (!std::exchange(peer.active, true)) active_.push_back(peer.number);
}

bool SharedMemoryServer::Serve(Peer& peer) {
  WriteMessages(peer);
  const bool more = ReadMessages(peer);
  if ((peer.gone && !more) || (peer.closing && peer.sent_all())) {
    End(peer);
    return false;
  }
  if (more || !peer.let_in) return more;
  try {
    return (!peer.closing && handler_ != nullptr && !peer.reader.Sleep()) ||
           (!peer.writer.done() && !peer.writer.Sleep());
  } catch (const Error& error) {
    peer.DropQueue();
    BeginClose(peer, kReason, error.what());
    return true;
  }
}

// True: there may be more.
bool SharedMemoryServer::ReadMessages(Peer& peer) {
  for (int i = 0; i < kBurst; ++i) {
    if (!peer.let_in || peer.closing || handler_ == nullptr) return false;
    try {
      if (peer.gone) peer.reader.Freeze();
      if (!peer.reader.Next(peer.limit)) return false;
    } catch (const Error& error) {
      BeginClose(peer, kReason, error.what());
      return false;
    }
    handler_->OnMessage(peer.number, peer.reader);
  }
  return true;
}

void SharedMemoryServer::WriteMessages(Peer& peer) {
  if (peer.gone) peer.DropQueue();
  try {
    for (;;) {
      if (!peer.writer.done()) peer.writer.Advance();
      if (!peer.writer.done() || peer.queue.empty()) return;
      peer.queued -= peer.queue.front()->size();
      peer.writer.Begin(std::move(peer.queue.front()));
      peer.queue.pop_front();
    }
  } catch (const Error& error) {
    peer.DropQueue();
    BeginClose(peer, kReason, error.what());
  }
}

// -------------------------------------------------------------------------------------------------- ending

void SharedMemoryServer::BeginClose(Peer& peer, char kind, const std::string& why) {
  if (peer.closing) return;
  peer.closing = true;
  peer.kind = kind;
  peer.why = why;
  peer.overdue = Clock::now() + kCloseGrace;
  Activate(peer);
}

void SharedMemoryServer::EndOverdue(Deadline now) {
  std::vector<Peer*> overdue;
  for (const auto& [number, peer] : peers_) {
    if ((peer->closing || !peer->let_in) && now > peer->overdue) overdue.push_back(peer.get());
  }
  for (Peer* const peer : overdue) End(*peer);
}

void SharedMemoryServer::End(Peer& peer) {
  if (peer.closing) {
    const std::string reason = peer.kind + peer.why;
    (void)send(peer.socket.get(), reason.data(), reason.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (peer.let_in) peer.segment.head().ended.store(1);
  const PeerId number = peer.number;
  const bool known = peer.open;
  strangers_.erase(number);
  peers_.erase(number);
  if (known && handler_ != nullptr) handler_->OnClose(number);
}

}  // namespace trireme
