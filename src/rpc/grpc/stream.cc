#include "trireme/rpc/grpc/stream.h"

#include <grpcpp/create_channel.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/rpc/address.h"
#include "trireme/rpc/grpc/security.h"
#include "trireme/rpc/grpc/settings.h"
#include "trireme/rpc/grpc/why.h"

namespace trireme {
namespace {

// What a closing stream allows the server for taking what is on its way.
constexpr std::chrono::milliseconds kFarewell{200};
// Between attempts to find a server at a Unix socket.
constexpr std::chrono::milliseconds kPause{20};
// What a failed call allows for telling why. The answer is normally there already.
constexpr std::chrono::milliseconds kExplanation{500};

// gRPC hands a tag back as it is and never looks behind it.
// NOLINTNEXTLINE(performance-no-int-to-ptr)
void* Tag(int operation) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(operation)); }

}  // namespace

GrpcStream::GrpcStream(const std::string& address, const Security& security, const Limits& limits)
    : address_(address),
      token_(security.token),
      limits_(limits),
      channel_((CheckAddress(address),
                grpc::CreateCustomChannel(address, ClientCredentials(security), ClientSettings()))),
      stub_(channel_) {}

GrpcStream::~GrpcStream() {
  if (open_ && !closed_) {
    const Deadline deadline = Clock::now() + kFarewell;
    if (Wait(kWrite, deadline) && state_[kWrite].ok) {
      call_->WritesDone(Begin(kWrite));
      // The server answers by ending the stream, after it has read everything.
      do {
        arrived_ = false;
        BeginRead();
      } while (Wait(kRead, deadline) && state_[kRead].ok);
    }
  }
  if (context_) context_->TryCancel();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

bool GrpcStream::Flush(Deadline deadline) {
  if (!Open(deadline) || !Wait(kWrite, deadline)) return false;
  if (state_[kWrite].ok) return true;
  Close(Why(address_, Finish()));
  return false;
}

bool GrpcStream::Send(Outgoing message, Deadline deadline) {
  if (!Flush(deadline)) return false;
  if (message->size() > limits_.message) {
    Close(fmt::format("{}: a message of {} bytes is longer than the limit of {}", address_, message->size(),
                      limits_.message));
    return false;
  }
  leaving_ = PieceWriter(std::move(message));
  BeginWrite();
  return true;
}

Incoming* GrpcStream::Receive(Deadline deadline) {
  if (!Open(deadline)) return nullptr;
  for (;;) {
    BeginRead();
    if (!Wait(kRead, deadline)) return nullptr;
    if (!state_[kRead].ok) {
      Close(Why(address_, Finish()));
      return nullptr;
    }
    arrived_ = false;
    try {
      if (incoming_.Add(buffer_, limits_.message)) return &incoming_;
    } catch (const Error& error) {
      Close(fmt::format("{}: {}", address_, error.what()));
      return nullptr;
    }
  }
}

bool GrpcStream::Open(Deadline deadline) {
  if (open_ || closed_) return !closed_;
  if (!MayTrust(deadline)) return false;
  std::string why = fmt::format("{}: no answer", address_);
  do {
    if (!call_) {
      context_ = std::make_unique<grpc::ClientContext>();
      if (!token_.empty()) context_->AddMetadata("authorization", token_);
      call_ = stub_.PrepareCall(context_.get(), kMethod, &queue_);
      call_->StartCall(Begin(kStart));
    }
    if (!Wait(kStart, deadline)) break;
    if (state_[kStart].ok) return open_ = true;
    const grpc::Status status = Finish();
    call_.reset();
    why = Why(address_, status);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
    // The channel tries again by itself; a new call makes sense when it does.
    if (channel_->GetState(true) == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      channel_->NotifyOnStateChange(GRPC_CHANNEL_TRANSIENT_FAILURE, ToTimespec(deadline), &queue_,
                                    Begin(kChannel));
      Wait(kChannel, Deadline::max());
    }
  } while (Clock::now() < deadline);
  Close(why);
  return false;
}

bool GrpcStream::MayTrust(Deadline deadline) {
  constexpr std::string_view kUnix = "unix:";
  if (trusted_ || token_.empty() || !address_.starts_with(kUnix)) return true;
  const sockaddr_un name = UnixName(address_.substr(kUnix.size()));
  for (;;) {
    const Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const bool somebody = connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
    const std::string why = somebody ? StrangerAt(probe) : ErrnoText(errno);
    trusted_ = somebody && why.empty();
    if (trusted_) return true;
    if (somebody || Clock::now() >= deadline) {
      Close(fmt::format("{}: {}", address_, why));
      return false;
    }
    std::this_thread::sleep_for(kPause);
  }
}

void* GrpcStream::Begin(Operation operation) {
  TRIREME_CHECK(!state_[operation].pending);
  state_[operation].pending = true;
  return Tag(operation);
}

bool GrpcStream::Wait(Operation operation, Deadline deadline) {
  // gRPC rounds up to milliseconds: only what lies far back is not waited for.
  const gpr_timespec until =
      deadline <= Clock::now() ? gpr_inf_past(GPR_CLOCK_REALTIME) : ToTimespec(deadline);
  while (state_[operation].pending) {
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, until) != grpc::CompletionQueue::GOT_EVENT) return false;
    const auto done = static_cast<Operation>(reinterpret_cast<std::intptr_t>(tag));
    state_[done] = {.pending = false, .ok = ok};
    if (done == kWrite && ok) BeginWrite();
    if (done == kRead) arrived_ = ok;
  }
  return true;
}

// The next piece, if there is one.
void GrpcStream::BeginWrite() {
  if (!leaving_.done()) call_->Write(leaving_.Next(), Begin(kWrite));
}

void GrpcStream::BeginRead() {
  if (!state_[kRead].pending && !arrived_) call_->Read(&buffer_, Begin(kRead));
}

grpc::Status GrpcStream::Finish() {
  leaving_ = {};
  // The status comes after all messages; those that nobody will ask for any more are dropped.
  const Deadline deadline = Clock::now() + kExplanation;
  bool in_time = true;
  while (in_time && open_ && (state_[kRead].pending || state_[kRead].ok)) {
    arrived_ = false;
    BeginRead();
    in_time = Wait(kRead, deadline);
  }
  call_->Finish(&status_, Begin(kFinish));
  if (!in_time || !Wait(kFinish, deadline)) {
    context_->TryCancel();
    Wait(kFinish, Deadline::max());
  }
  return status_;
}

void GrpcStream::Close(const std::string& why) {
  closed_ = true;
  why_ = why;
  leaving_ = {};
  if (context_) context_->TryCancel();
}

}  // namespace trireme
