// The client's end of a stream, on gRPC.
//
// It has a completion queue of its own, and nobody but the caller waits on it: the thread that calls Send or
// Receive does the reading and writing of the network itself, for all streams of the process, and every wait
// has the caller's deadline. While nobody waits, what the system's socket buffers cannot hold stays where it
// is.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <array>
#include <memory>
#include <string>

#include "trireme/rpc/grpc/bytes.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class GrpcStream final : public Stream {
 public:
  // Throws Error, see Transport::Connect.
  GrpcStream(const std::string& address, const Security& security, const Limits& limits);
  ~GrpcStream() override;

  bool Send(Outgoing message, Deadline deadline) override;
  bool Flush(Deadline deadline) override;
  Incoming* Receive(Deadline deadline) override;
  bool closed() const override { return closed_; }
  std::string why() const override { return why_; }

 private:
  // What can be under way, at most one of each kind. Also the tags in the completion queue.
  enum Operation { kStart, kWrite, kRead, kFinish, kChannel, kOperations };
  struct State {
    bool pending = false;
    bool ok = true;  // how the last one ended
  };

  // Connects and starts the call if that has not been done; tries again until the deadline.
  bool Open(Deadline deadline);
  // Whether whoever listens at a Unix socket may be given the token; waits until somebody does.
  bool MayTrust(Deadline deadline);
  void* Begin(Operation operation);
  // Until `operation` is not under way any more. False: the deadline came first.
  bool Wait(Operation operation, Deadline deadline);
  void BeginRead();
  void BeginWrite();
  // The status of a call of which some operation failed.
  grpc::Status Finish();
  void Close(const std::string& why);

  const std::string address_;
  const std::string token_;
  const Limits limits_;
  grpc::CompletionQueue queue_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  std::array<State, kOperations> state_;
  grpc::ByteBuffer buffer_;  // where the read under way goes
  grpc::Status status_;      // where Finish puts it
  PieceReader incoming_;
  PieceWriter leaving_;   // the message that is being written
  bool arrived_ = false;  // a piece that nobody has taken is in buffer_
  bool trusted_ = false;  // see MayTrust
  bool open_ = false;     // the call has reached a server
  bool closed_ = false;
  std::string why_;
};

}  // namespace trireme
