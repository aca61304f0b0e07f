// The client's end of a stream through shared memory.
#pragma once

#include <string>

#include "trireme/rpc/shared_memory/message.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class SharedMemoryStream final : public Stream {
 public:
  // Throws Error, see Transport::Connect.
  SharedMemoryStream(const std::string& address, const Security& security, const Limits& limits);
  ~SharedMemoryStream() override;

  bool Send(Outgoing message, Deadline deadline) override;
  bool Flush(Deadline deadline) override;
  Incoming* Receive(Deadline deadline) override;
  bool closed() const override { return closed_; }
  std::string why() const override { return why_; }

 private:
  // Connects and is let in if that has not been done; tries again until the deadline.
  bool Open(Deadline deadline);
  // One attempt. Empty: it is open, or closed for good; else why it is neither.
  std::string TryToOpen(Deadline deadline);
  std::string OnAnswer(char answer, Descriptor segment);
  bool WaitForSocket(Deadline deadline);
  // Takes what has come through the socket.
  void ReadSocket();
  // Until the server has done something. False: the deadline came first.
  bool Sleep(bool for_room, bool for_message, Deadline deadline);
  // Why the server has closed the stream, or that it is gone; waits a moment for it.
  std::string End();
  bool Close(const std::string& why);

  const std::string address_, path_, token_;
  const Limits limits_;
  Descriptor socket_;
  Segment segment_;
  RingMessageWriter writer_;
  MessageReader reader_;
  bool open_ = false, closed_ = false;
  bool lost_ = false;  // the socket has ended
  char kind_ = kNone;  // of the reason, once it has begun to come,
  std::string text_;   // and what has come
  std::string why_;

  static constexpr char kNone = 0;
};

}  // namespace trireme
