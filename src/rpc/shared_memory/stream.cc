#include "trireme/rpc/shared_memory/stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/rpc/shared_memory/protocol.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

// Between attempts to connect.
constexpr milliseconds kPause{20};
// What a closing stream allows the server for taking what is on its way.
constexpr milliseconds kFarewell{200};
// What a server that has closed a stream is allowed for telling why.
constexpr milliseconds kExplanation{500};

// One byte, and the descriptor that came with it, if one did. False: nothing has come, see errno; 0: the end.
bool ReceiveByte(int socket, char& byte, Descriptor& with) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (got == 0) errno = 0;
  if (got <= 0) return false;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    with = Descriptor(fd);
  }
  return true;
}

}  // namespace

SharedMemoryStream::SharedMemoryStream(const std::string& address, const Security& security,
                                       const Limits& limits)
    : address_(address), path_(CheckSharedMemoryAddress(address)), token_(security.token), limits_(limits) {}

SharedMemoryStream::~SharedMemoryStream() {
  const Deadline deadline = Clock::now() + kFarewell;
  try {
    while (open_ && !closed_ && !lost_ && !writer_.done()) {
      writer_.Advance();
      if (!writer_.done() && !Sleep(true, false, deadline)) break;
    }
  } catch (const Error&) {  // nobody is left to hear of it
  }
}

bool SharedMemoryStream::Flush(Deadline deadline) {
  if (!Open(deadline)) return false;
  try {
    for (;;) {
      writer_.Advance();
      if (lost_ || segment_.head().ended.load() != 0) return Close(End());
      if (writer_.done()) return true;
      if (!Sleep(true, false, deadline)) return false;
    }
  } catch (const Error& error) {
    return Close(fmt::format("{}: {}", address_, error.what()));
  }
}

bool SharedMemoryStream::Send(Outgoing message, Deadline deadline) {
  if (!Flush(deadline)) return false;
  try {
    if (message->size() > limits_.message) {
      return Close(fmt::format("{}: a message of {} bytes is longer than the limit of {}", address_,
                               message->size(), limits_.message));
    }
    writer_.Begin(std::move(message));
    writer_.Advance();
  } catch (const Error& error) {
    return Close(fmt::format("{}: {}", address_, error.what()));
  }
  return true;
}

Incoming* SharedMemoryStream::Receive(Deadline deadline) {
  if (!Open(deadline)) return nullptr;
  try {
    for (;;) {
      const bool last_look = lost_;  // what was sent before the end is there before it
      if (!lost_) writer_.Advance();
      if (reader_.Next(limits_.message)) return &reader_;
      if (last_look) {
        Close(End());
        return nullptr;
      }
      if (!Sleep(!writer_.done(), true, deadline)) return nullptr;
    }
  } catch (const Error& error) {
    Close(fmt::format("{}: {}", address_, error.what()));
    return nullptr;
  }
}

bool SharedMemoryStream::Open(Deadline deadline) {
  if (open_ || closed_) return !closed_;
  for (;;) {
    const std::string problem = TryToOpen(deadline);
    if (problem.empty()) return !closed_;
    if (Clock::now() >= deadline) return Close(fmt::format("{}: {}", address_, problem));
    poll(nullptr, 0, MillisecondsUntil(std::min(deadline, Clock::now() + kPause)));
  }
}

std::string SharedMemoryStream::TryToOpen(Deadline deadline) {
  socket_ = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const sockaddr_un name = UnixName(path_);
  if (socket_.get() < 0 ||
      connect(socket_.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    return errno == EAGAIN ? "no answer" : ErrnoText(errno);
  }
  if (const std::string stranger = token_.empty() ? "" : StrangerAt(socket_); !stranger.empty()) {
    Close(fmt::format("{}: {}", address_, stranger));
    return "";
  }
  const std::string hello = fmt::format("{}{}\n", kHello, token_);
  (void)send(socket_.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
  do {
    char answer = 0;
    Descriptor segment;
    if (ReceiveByte(socket_.get(), answer, segment)) return OnAnswer(answer, std::move(segment));
    if (errno != EAGAIN && errno != EINTR)
      return "the server ended the connection at once: it is full, or no server for shm:";
  } while (WaitForSocket(deadline));
  return "no answer";
}

std::string SharedMemoryStream::OnAnswer(char answer, Descriptor segment) {
  try {
    if (answer == kReason || answer == kCause) {
      kind_ = answer;
      Close(End());
    } else if (answer == kWelcome) {
      if (segment.get() < 0) Fail("this process has too many open files for another stream: raise ulimit -n");
      segment_ = Segment::Attach(segment);
      writer_ = RingMessageWriter(RingWriter(segment_.head().to_server, segment_.to_server(), socket_.get()));
      reader_ = MessageReader(RingReader(segment_.head().to_client, segment_.to_client(), socket_.get()));
      open_ = true;
    } else {
      Close(fmt::format("{}: what listens there is not a server of Trireme for shm:", address_));
    }
  } catch (const Error& error) {
    Close(fmt::format("{}: {}", address_, error.what()));
  }
  return "";
}

bool SharedMemoryStream::WaitForSocket(Deadline deadline) {
  pollfd ready{socket_.get(), POLLIN, 0};
  for (;;) {
    if (poll(&ready, 1, MillisecondsUntil(deadline)) > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

void SharedMemoryStream::ReadSocket() {
  std::array<char, 256> bytes;
  const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) lost_ = true;
  for (ssize_t i = 0; i < got; ++i) {
    if (kind_ != kNone) {
      if (text_.size() < kLongestReason) text_ += bytes[i];
    } else {
      kind_ = bytes[i];  // a call to wake up is none
    }
  }
}

bool SharedMemoryStream::Sleep(bool for_room, bool for_message, Deadline deadline) {
  if (for_room && !writer_.Sleep()) return true;
  if (for_message && !reader_.Sleep()) return true;
  if (!WaitForSocket(deadline)) return false;
  ReadSocket();
  return true;
}

std::string SharedMemoryStream::End() {
  const Deadline deadline = Clock::now() + kExplanation;
  do {
    ReadSocket();
  } while (!lost_ && WaitForSocket(deadline));
  if (kind_ == kReason) return text_;
  return fmt::format("{}: {}", address_, kind_ == kCause ? text_ : "the connection was lost");
}

bool SharedMemoryStream::Close(const std::string& why) {
  closed_ = true;
  why_ = why;
  writer_.Drop();
  socket_ = Descriptor();
  return false;
}

}  // namespace trireme
