#include "trireme/rpc/memory_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// What a stream holds for a server that does not take it, before Send waits: as much as sockets do.
constexpr std::size_t kSocketBuffer = std::size_t{1} << 20;
constexpr std::chrono::milliseconds kTick{50};

// Messages in the order they were sent.
struct Pipe {
  std::deque<Outgoing> messages;
  std::size_t bytes = 0;

  void Push(Outgoing message) {
    bytes += message->size();
    messages.push_back(std::move(message));
  }
  Outgoing Pop() {
    Outgoing message = std::move(messages.front());
    messages.pop_front();
    bytes -= message->size();
    return message;
  }
  void Clear() {
    messages.clear();
    bytes = 0;
  }
};

class BufferReader final : public Incoming {
 public:
  BufferReader() = default;
  explicit BufferReader(Outgoing message) : message_(std::move(message)) {}

  std::size_t size() const override { return message_->size() - offset_; }
  void Read(std::span<std::byte> to) override {
    TRIREME_CHECK(to.size() <= size());
    std::copy_n(message_->data() + offset_, to.size(), to.data());
    offset_ += to.size();
  }

 private:
  Outgoing message_;
  std::size_t offset_ = 0;
};

}  // namespace

// A stream with both its ends.
struct MemoryTransport::Link {
  PeerId number = 0;
  MemoryServer* server = nullptr;  // once it has reached one, as long as that lives
  Pipe to_server, to_client;
  std::size_t limit = 0;  // bytes of a message to the server
  bool frozen = false;
  bool left = false;   // the client has closed its end
  bool lost = false;   // the connection was cut
  bool ended = false;  // the server has closed its end: the client sees `why` after the last message
  std::string why;
  bool told_open = false, told_close = false;  // the handler
};

class MemoryTransport::MemoryStream final : public Stream {
 public:
  MemoryStream(MemoryTransport& transport, std::shared_ptr<Link> link, std::string address, std::string token,
               const Limits& limits)
      : transport_(transport),
        link_(std::move(link)),
        address_(std::move(address)),
        token_(std::move(token)),
        limits_(limits) {}

  ~MemoryStream() override {
    const std::lock_guard lock(transport_.mutex_);
    link_->left = true;
    transport_.changed_.notify_all();
  }

  bool Send(Outgoing message, Deadline deadline) override;
  bool Flush(Deadline deadline) override;
  Incoming* Receive(Deadline deadline) override;
  bool closed() const override { return closed_; }
  std::string why() const override { return why_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  // Reaches the server, unless that is done.
  bool Open(Lock& lock, Deadline deadline);
  bool Close(const std::string& why) {
    closed_ = true;
    why_ = why;
    return false;
  }
  bool HasEnded() const { return link_->lost || (link_->ended && !link_->frozen); }
  bool HasMessage() const { return !link_->frozen && !link_->to_client.messages.empty(); }
  std::string End() const { return link_->lost ? address_ + ": the connection was lost" : link_->why; }

  MemoryTransport& transport_;
  const std::shared_ptr<Link> link_;
  const std::string address_, token_;
  const Limits limits_;
  BufferReader incoming_;
  bool open_ = false, closed_ = false;
  std::string why_;
};

class MemoryTransport::MemoryServer final : public ServerTransport {
 public:
  MemoryServer(MemoryTransport& transport, std::string address, std::string token, const Limits& limits)
      : transport_(transport), address_(std::move(address)), token_(std::move(token)), limits_(limits) {}
  ~MemoryServer() override;

  const std::string& address() const override { return address_; }
  const Limits& limits() const override { return limits_; }
  void Run(Handler& handler, const std::function<bool()>& stop) override;
  void Send(PeerId peer, Outgoing message) override;
  void Allow(PeerId peer, std::size_t bytes) override;
  void Wake() override;
  void Close(PeerId peer, const std::string& reason) override;

  // A client arrives. With the mutex held.
  void Attach(Link& link, const std::string& token);
  // Calls OnTime if `now` is its time.
  void KeepTime(Handler& handler, Deadline now);
  // Tells the handler one thing that has happened. False: nothing has.
  bool HandleOne(Handler& handler);

 private:
  enum class Event { kNone, kOpen, kMessage, kClose };

  // What the handler must be told next about a stream. With the mutex held.
  static Event EventOf(const Link& link);
  // A stream of which there is something to tell, or null. Everybody gets a turn. With the mutex held.
  Link* Next();
  // The link of a client that has not been closed. With the mutex held.
  Link* Find(PeerId peer);
  // Closes the server's end. With the mutex held.
  void End(Link& link, const std::string& why);
  static std::string TooLong(std::size_t bytes, std::size_t limit) {
    return fmt::format("a message of {} bytes is longer than the limit of {}", bytes, limit);
  }

  MemoryTransport& transport_;
  const std::string address_, token_;
  const Limits limits_;
  PeerId served_ = 0;  // whose event came last: everybody gets a turn
  Deadline on_time_ = Deadline::min();
  bool woken_ = false;  // guarded by the mutex
};

// ------------------------------------------------------------------------------------------ the client's end

bool MemoryTransport::MemoryStream::Open(Lock& lock, Deadline deadline) {
  if (open_ || closed_) return !closed_;
  const auto listening = [&] {
    const auto found = transport_.servers_.find(address_);
    if (found == transport_.servers_.end()) return false;
    found->second->Attach(*link_, token_);
    return true;
  };
  if (!transport_.changed_.wait_until(lock, deadline, listening)) {
    return Close(fmt::format("{}: connection refused", address_));
  }
  return open_ = true;
}

bool MemoryTransport::MemoryStream::Send(Outgoing message, Deadline deadline) {
  Lock lock(transport_.mutex_);
  if (!Open(lock, deadline)) return false;
  const auto ready = [&] { return HasEnded() || link_->to_server.bytes <= kSocketBuffer; };
  if (!transport_.changed_.wait_until(lock, deadline, ready)) return false;
  if (HasEnded()) return Close(End());
  if (message->size() > limits_.message) {
    link_->lost = true;
    transport_.changed_.notify_all();
    return Close(fmt::format("{}: a message of {} bytes is longer than the limit of {}", address_,
                             message->size(), limits_.message));
  }
  link_->to_server.Push(std::move(message));
  transport_.changed_.notify_all();
  return true;
}

// What was sent is on its way at once.
bool MemoryTransport::MemoryStream::Flush(Deadline deadline) {
  Lock lock(transport_.mutex_);
  if (!Open(lock, deadline)) return false;
  return HasEnded() ? Close(End()) : true;
}

Incoming* MemoryTransport::MemoryStream::Receive(Deadline deadline) {
  Lock lock(transport_.mutex_);
  if (!Open(lock, deadline)) return nullptr;
  const auto ready = [&] { return HasMessage() || HasEnded(); };
  if (!transport_.changed_.wait_until(lock, deadline, ready)) return nullptr;
  if (!HasMessage()) {
    Close(End());
    return nullptr;
  }
  incoming_ = BufferReader(link_->to_client.Pop());
  return &incoming_;
}

// ------------------------------------------------------------------------------------------ the server's end

MemoryTransport::MemoryServer::~MemoryServer() {
  const std::lock_guard lock(transport_.mutex_);
  transport_.servers_.erase(address_);
  for (auto& [number, link] : transport_.links_) {
    if (link->server != this) continue;
    End(*link, fmt::format("{}: the server has stopped", address_));
    link->server = nullptr;
  }
  transport_.changed_.notify_all();
}

void MemoryTransport::MemoryServer::Attach(Link& link, const std::string& token) {
  if (!token_.empty() && token != token_) {
    link.ended = true;
    link.why = fmt::format("{}: the server refused the token", address_);
    return;
  }
  link.server = this;
  link.limit = limits_.first;
  transport_.changed_.notify_all();
}

void MemoryTransport::MemoryServer::Run(Handler& handler, const std::function<bool()>& stop) {
  while (!stop()) {
    const Deadline now = Clock::now();
    KeepTime(handler, now);
    if (HandleOne(handler)) continue;
    std::unique_lock lock(transport_.mutex_);
    transport_.changed_.wait_until(lock, std::min(on_time_, now + kTick),
                                   [&] { return woken_ || Next() != nullptr; });
  }
}

void MemoryTransport::MemoryServer::KeepTime(Handler& handler, Deadline now) {
  bool woken = false;
  {
    const std::lock_guard lock(transport_.mutex_);
    woken = std::exchange(woken_, false);
  }
  if (woken || now >= on_time_) on_time_ = handler.OnTime(now);
}

MemoryTransport::MemoryServer::Event MemoryTransport::MemoryServer::EventOf(const Link& link) {
  const bool over = link.lost || link.ended;
  if (!link.told_open) return link.frozen || over ? Event::kNone : Event::kOpen;
  if (link.told_close) return Event::kNone;
  if (over) return Event::kClose;
  if (link.frozen) return Event::kNone;
  if (!link.to_server.messages.empty()) return Event::kMessage;
  return link.left ? Event::kClose : Event::kNone;
}

MemoryTransport::Link* MemoryTransport::MemoryServer::Next() {
  auto& links = transport_.links_;
  auto at = links.upper_bound(served_);
  for (std::size_t i = 0; i < links.size(); ++i, ++at) {
    if (at == links.end()) at = links.begin();
    if (at->second->server == this && EventOf(*at->second) != Event::kNone) return at->second.get();
  }
  return nullptr;
}

bool MemoryTransport::MemoryServer::HandleOne(Handler& handler) {
  std::unique_lock lock(transport_.mutex_);
  Link* link = Next();
  if (link == nullptr) return false;
  const PeerId peer = served_ = link->number;
  switch (EventOf(*link)) {
    case Event::kNone:
      break;
    case Event::kOpen:
      link->told_open = true;
      lock.unlock();
      handler.OnOpen(peer, fmt::format("memory:{}", peer));
      break;
    case Event::kMessage: {
      BufferReader message(link->to_server.Pop());
      transport_.changed_.notify_all();
      if (message.size() > link->limit) {
        End(*link, TooLong(message.size(), link->limit));
        break;
      }
      lock.unlock();
      handler.OnMessage(peer, message);
      break;
    }
    case Event::kClose:
      link->told_close = true;
      lock.unlock();
      handler.OnClose(peer);
      break;
  }
  return true;
}

MemoryTransport::Link* MemoryTransport::MemoryServer::Find(PeerId peer) {
  const auto found = transport_.links_.find(peer);
  if (found == transport_.links_.end()) return nullptr;
  Link& link = *found->second;
  return link.server == this && !link.lost && !link.ended ? &link : nullptr;
}

void MemoryTransport::MemoryServer::End(Link& link, const std::string& why) {
  if (link.ended || link.lost) return;
  link.ended = true;
  link.why = why;
  link.to_server.Clear();
  transport_.changed_.notify_all();
}

void MemoryTransport::MemoryServer::Send(PeerId peer, Outgoing message) {
  const std::lock_guard lock(transport_.mutex_);
  Link* link = Find(peer);
  if (link == nullptr) return;
  if (message->size() > limits_.message) {
    return End(*link, TooLong(message->size(), limits_.message));
  }
  if (!link->to_client.messages.empty() && link->to_client.bytes + message->size() > limits_.queued) {
    link->to_client.Clear();
    return End(*link,
               fmt::format("{}: the server dropped the stream, because its messages were not received here",
                           address_));
  }
  link->to_client.Push(std::move(message));
  transport_.changed_.notify_all();
}

void MemoryTransport::MemoryServer::Allow(PeerId peer, std::size_t bytes) {
  const std::lock_guard lock(transport_.mutex_);
  if (Link* link = Find(peer)) link->limit = std::min(bytes, limits_.message);
}

void MemoryTransport::MemoryServer::Wake() {
  const std::lock_guard lock(transport_.mutex_);
  woken_ = true;
  transport_.changed_.notify_all();
}

void MemoryTransport::MemoryServer::Close(PeerId peer, const std::string& reason) {
  const std::lock_guard lock(transport_.mutex_);
  if (Link* link = Find(peer)) End(*link, reason);
}

// --------------------------------------------------------------------------------------------- the transport

MemoryTransport::~MemoryTransport() = default;

std::unique_ptr<Stream> MemoryTransport::Connect(const std::string& address, const Security& security,
                                                 const Limits& limits) {
  const std::lock_guard lock(mutex_);
  std::erase_if(links_,
                [](const auto& entry) { return entry.second.use_count() == 1 && entry.second->told_close; });
  auto link = std::make_shared<Link>();
  link->number = next_stream_++;
  links_[link->number] = link;
  return std::make_unique<MemoryStream>(*this, std::move(link), address, security.token, limits);
}

std::unique_ptr<ServerTransport> MemoryTransport::Listen(const std::string& address, const Security& security,
                                                         const Limits& limits) {
  const std::lock_guard lock(mutex_);
  std::string chosen = address;
  if (chosen.ends_with(":0")) chosen.replace(chosen.size() - 1, 1, std::to_string(next_port_++));
  if (servers_.contains(chosen)) Fail("cannot listen on {}: address already in use", chosen);
  auto server = std::make_unique<MemoryServer>(*this, chosen, security.token, limits);
  servers_[chosen] = server.get();
  changed_.notify_all();
  return server;
}

void MemoryTransport::Pump(ServerTransport& server, ServerTransport::Handler& handler, Deadline now) {
  auto* memory = dynamic_cast<MemoryServer*>(&server);
  TRIREME_CHECK(memory != nullptr);
  memory->KeepTime(handler, now);
  while (memory->HandleOne(handler)) {
  }
}

void MemoryTransport::Cut(PeerId stream) {
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(stream);
  if (found == links_.end()) return;
  Link& link = *found->second;
  link.lost = true;
  link.to_server.Clear();
  link.to_client.Clear();
  changed_.notify_all();
}

void MemoryTransport::Freeze(PeerId stream) {
  const std::lock_guard lock(mutex_);
  if (const auto found = links_.find(stream); found != links_.end()) found->second->frozen = true;
}

void MemoryTransport::Thaw(PeerId stream) {
  const std::lock_guard lock(mutex_);
  if (const auto found = links_.find(stream); found != links_.end()) found->second->frozen = false;
  changed_.notify_all();
}

}  // namespace trireme
