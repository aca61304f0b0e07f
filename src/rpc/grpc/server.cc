#include "trireme/rpc/grpc/server.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/rpc/address.h"
#include "trireme/rpc/grpc/security.h"
#include "trireme/rpc/grpc/settings.h"
#include "trireme/rpc/grpc/why.h"
#include "trireme/rpc/token.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

// How often `stop` and the clients that do not take their last messages are looked at.
constexpr milliseconds kTick{50};
// For queued messages to leave: when Run ends, when one stream is closed, when the server goes away.
constexpr milliseconds kDrain{1000}, kCloseGrace{20'000}, kFarewell{200};
// Bytes that every client of HTTP/2 begins with; one of TLS says more.
constexpr std::size_t kPreface = 24;
// Reasons travel in a header of limited size.
constexpr std::size_t kLongestReason = 4096;

}  // namespace

// What the tags in the completion queue point to.
struct GrpcServer::Event {
  enum Kind { kAccepted, kRead, kWritten, kFinished, kWoken } kind;
  Call* call;
};

struct GrpcServer::Call {
  PeerId peer = 0;
  grpc::GenericServerContext context;
  grpc::GenericServerAsyncReaderWriter stream{&context};
  Event accepted{Event::kAccepted, this}, read{Event::kRead, this}, written{Event::kWritten, this},
      finished{Event::kFinished, this};
  bool reading = false, writing = false, finishing = false;  // what is under way

  grpc::ByteBuffer buffer;  // where the read under way goes
  PieceReader message;      // what came before
  std::size_t limit = 0;    // bytes of a message from this client
  PieceWriter leaving;      // the message that is being written
  std::deque<Outgoing> queue;
  std::size_t queued = 0;  // bytes in `queue`

  bool open = false;     // the handler knows it
  bool closing = false;  // ends with `status` when the queue is empty
  bool ended = false;    // Finish was called
  grpc::Status status;
  Deadline overdue;  // when closing

  void DropQueue() {
    leaving = {};
    queue.clear();
    queued = 0;
  }
};

GrpcServer::GrpcServer(const std::string& address, const Security& security, const Limits& limits)
    : token_(security.token), limits_(limits) {
  CheckAddress(address);
  const std::shared_ptr<grpc::ServerCredentials> credentials = ServerCredentials(security);
  acceptor_ = std::make_unique<Acceptor>(address);
  grpc::ServerBuilder builder;
  ApplyServerSettings(builder);
  connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterAsyncGenericService(&service_);
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (!server_) {
    queue_->Shutdown();
    Fail("cannot listen on {}: gRPC does not start", address);
  }
  const auto hand_over = [this](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    connections_->HandleNewConnection(&connection);
  };
  acceptor_->Start(hand_over, kPreface);
  Accept();
}

GrpcServer::~GrpcServer() {
  handler_ = nullptr;
  acceptor_.reset();
  for (const auto& [peer, call] : calls_) {
    if (call->peer == 0) continue;
    call->DropQueue();
    BeginClose(*call, grpc::Status(grpc::StatusCode::UNAVAILABLE, "the server has stopped"));
  }
  const Deadline deadline = Clock::now() + kFarewell;
  while (calls_.size() > 1 && HandleEvent(deadline)) {
  }
  down_ = true;
  server_->Shutdown(ToTimespec(Clock::now()));
  queue_->Shutdown();
  while (HandleEvent(Deadline::max())) {
  }
}

void GrpcServer::Run(Handler& handler, const std::function<bool()>& stop) {
  TRIREME_CHECK(handler_ == nullptr);
  handler_ = &handler;
  Deadline on_time = Clock::now(), tick = on_time;
  while (!stop()) {
    const Deadline now = Clock::now();
    if (std::exchange(woken_, false) || now >= on_time) on_time = handler.OnTime(now);
    if (now >= tick) {
      CancelOverdue(now);
      tick = now + kTick;
    }
    HandleEvent(std::min(on_time, tick));
  }
  handler_ = nullptr;
  const Deadline deadline = Clock::now() + kDrain;
  const auto busy = [](const auto& entry) { return entry.second->writing || entry.second->finishing; };
  while (std::any_of(calls_.begin(), calls_.end(), busy) && HandleEvent(deadline)) {
  }
}

void GrpcServer::Send(PeerId peer, Outgoing message) {
  const auto found = calls_.find(peer);
  if (found == calls_.end() || found->second->closing) return;
  Call& call = *found->second;
  if (message->size() > limits_.message) {
    Close(peer, fmt::format("a message of {} bytes is longer than the server's limit of {}", message->size(),
                            limits_.message));
    return;
  }
  if (!call.queue.empty() && call.queued + message->size() > limits_.queued) {
    // One message is half on its way, so no reason can follow it.
    call.DropQueue();
    BeginClose(call, grpc::Status::CANCELLED);
    call.context.TryCancel();
    return;
  }
  call.queued += message->size();
  call.queue.push_back(std::move(message));
  Advance(call);
}

void GrpcServer::Allow(PeerId peer, std::size_t bytes) {
  const auto found = calls_.find(peer);
  if (found != calls_.end()) found->second->limit = std::min(bytes, limits_.message);
}

// An alarm that has not rung yet is heard after this.
void GrpcServer::Wake() {
  static Event event{Event::kWoken, nullptr};
  if (!alarm_set_.exchange(true)) alarm_.Set(queue_.get(), ToTimespec(Clock::now()), &event);
}

void GrpcServer::Close(PeerId peer, const std::string& reason) {
  const auto found = calls_.find(peer);
  if (found == calls_.end()) return;
  BeginClose(*found->second, grpc::Status(kClosedByServer, reason.substr(0, kLongestReason)));
}

void GrpcServer::Accept() {
  auto call = std::make_unique<Call>();
  call->limit = limits_.first;
  service_.RequestCall(&call->context, &call->stream, queue_.get(), queue_.get(), &call->accepted);
  calls_[0] = std::move(call);
}

bool GrpcServer::HandleEvent(Deadline deadline) {
  void* tag = nullptr;
  bool ok = false;
  if (queue_->AsyncNext(&tag, &ok, ToTimespec(deadline)) != grpc::CompletionQueue::GOT_EVENT) return false;
  const Event event = *static_cast<Event*>(tag);
  if (event.kind == Event::kWoken) {
    woken_ = true;
    alarm_set_.store(false);  // before OnTime looks for why
    return true;
  }
  Call& call = *event.call;
  switch (event.kind) {
    case Event::kAccepted:
      if (ok) {
        OnAccepted(call);
      } else {
        calls_.erase(0);  // the server shuts down
      }
      return true;
    case Event::kRead:
      call.reading = false;
      OnRead(call, ok);
      break;
    case Event::kWritten:
      call.writing = false;
      OnWritten(call, ok);
      break;
    case Event::kFinished:
      call.finishing = false;
      TellClosed(call);
      break;
    case Event::kWoken:
      break;
  }
  if (call.closing && !call.reading && !call.writing && !call.finishing) calls_.erase(call.peer);
  return true;
}

void GrpcServer::OnAccepted(Call& call) {
  const PeerId peer = call.peer = next_peer_++;
  calls_[peer] = std::move(calls_[0]);
  Accept();
  if (call.context.method() != kMethod) {
    BeginClose(call, grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                                  "this is a server of Trireme, of another version"));
    return;
  }
  const auto& metadata = call.context.client_metadata();
  const auto token = metadata.find(kTokenKey);
  const std::string given =
      token == metadata.end() ? "" : std::string(token->second.data(), token->second.size());
  if (!token_.empty() && !SameSecret(given, token_)) {
    BeginClose(call, grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "the server refused the token"));
    return;
  }
  call.open = true;
  if (handler_ != nullptr) handler_->OnOpen(peer, PeerAddress(call.context.peer()));
  BeginRead(call);
}

void GrpcServer::BeginRead(Call& call) {
  if (call.ended || down_) return;
  call.reading = true;
  call.stream.Read(&call.buffer, &call.read);
}

void GrpcServer::OnRead(Call& call, bool ok) {
  if (!ok) {
    // The client has left, or its connection has. Nobody waits for what is queued.
    call.DropQueue();
    BeginClose(call, grpc::Status::OK);
    TellClosed(call);
    return;
  }
  if (call.closing) {
    call.message.Clear();
  } else {
    TakePiece(call);
  }
  // Also of a stream that is closing: to notice when the client leaves.
  BeginRead(call);
}

void GrpcServer::TakePiece(Call& call) {
  try {
    if (!call.message.Add(call.buffer, call.limit)) return;
  } catch (const Error& error) {
    call.message.Clear();
    return BeginClose(call, grpc::Status(kClosedByServer, error.what()));
  }
  if (handler_ != nullptr) handler_->OnMessage(call.peer, call.message);
  call.message.Clear();
}

void GrpcServer::OnWritten(Call& call, bool ok) {
  if (!ok) call.DropQueue();
  Advance(call);
}

void GrpcServer::Advance(Call& call) {
  if (call.writing || call.ended || down_) return;
  if (call.leaving.done() && !call.queue.empty()) {
    call.queued -= call.queue.front()->size();
    call.leaving = PieceWriter(std::move(call.queue.front()));
    call.queue.pop_front();
  }
  if (!call.leaving.done()) {
    call.writing = true;
    call.stream.Write(call.leaving.Next(), &call.written);
  } else if (call.closing) {
    call.ended = call.finishing = true;
    call.stream.Finish(call.status, &call.finished);
  }
}

void GrpcServer::BeginClose(Call& call, const grpc::Status& status) {
  if (call.closing) return;
  call.closing = true;
  call.status = status;
  call.overdue = Clock::now() + kCloseGrace;
  Advance(call);
}

void GrpcServer::CancelOverdue(Deadline now) {
  for (const auto& [peer, call] : calls_) {
    if (call->closing && now > call->overdue) call->context.TryCancel();
  }
}

void GrpcServer::TellClosed(Call& call) {
  if (std::exchange(call.open, false) && handler_ != nullptr) handler_->OnClose(call.peer);
}

}  // namespace trireme
