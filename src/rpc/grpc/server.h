// The server's end, on gRPC: one completion queue, waited on by the thread that calls Run and by nobody else.
//
// Each client is a Call with at most one read, one write and one finish under way; what else is to be written
// queues up in it. A Call is deleted when nothing of it is under way any more.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "trireme/rpc/acceptor.h"
#include "trireme/rpc/grpc/bytes.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class GrpcServer final : public ServerTransport {
 public:
  // Listens. Throws Error, see Transport::Listen.
  GrpcServer(const std::string& address, const Security& security, const Limits& limits);
  ~GrpcServer() override;

  const std::string& address() const override { return acceptor_->address(); }
  const Limits& limits() const override { return limits_; }
  void Run(Handler& handler, const std::function<bool()>& stop) override;
  void Send(PeerId peer, Outgoing message) override;
  void Allow(PeerId peer, std::size_t bytes) override;
  void Wake() override;
  void Close(PeerId peer, const std::string& reason) override;

 private:
  struct Call;
  struct Event;

  // Lets gRPC hand over the next client.
  void Accept();
  // Handles one event, if one comes until the deadline.
  bool HandleEvent(Deadline deadline);
  void OnAccepted(Call& call);
  void BeginRead(Call& call);
  void OnRead(Call& call, bool ok);
  void TakePiece(Call& call);
  void OnWritten(Call& call, bool ok);
  // Starts what is to be done next: a write, or the end.
  void Advance(Call& call);
  void BeginClose(Call& call, const grpc::Status& status);
  // Ends calls whose clients do not take what was sent before the end.
  void CancelOverdue(Deadline now);
  void TellClosed(Call& call);

  const std::string token_;
  const Limits limits_;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<Acceptor> acceptor_;
  Handler* handler_ = nullptr;  // while Run runs
  bool down_ = false;           // nothing new may be started
  grpc::Alarm alarm_;           // what wakes the queue
  std::atomic<bool> alarm_set_{false};
  bool woken_ = false;  // OnTime is due
  PeerId next_peer_ = 1;
  // By number; 0 is the one that waits for a client.
  std::unordered_map<PeerId, std::unique_ptr<Call>> calls_;
};

}  // namespace trireme
