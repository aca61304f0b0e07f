// The server's end: one event loop over all clients, on the thread that calls Run.
//
// It waits for sockets (epoll). A client whose rings are not idle is active: it is looked at again and again, without a system
// call, until there is nothing to read and nothing to write for it; then both ends know that it sleeps (ring.h).
//
// Who has not said all of its hello yet is a stranger. There are few of them at a time: another one takes the place of the oldest.
//
// A client is served a few messages at a time, and is told nothing about others: its segment is its own. What it writes there
// is checked when it is read, and read once.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/rpc/acceptor.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class SharedMemoryServer final : public ServerTransport {
 public:
  // Listens. Throws Error, see Transport::Listen.
  SharedMemoryServer(const std::string& address, const Security& security, const Limits& limits);
  ~SharedMemoryServer() override;

  const std::string& address() const override { return acceptor_->address(); }
  const Limits& limits() const override { return limits_; }
  void Run(Handler& handler, const std::function<bool()>& stop) override;
  void Send(PeerId peer, Outgoing message) override;
  void Allow(PeerId peer, std::size_t bytes) override;
  void Close(PeerId peer, const std::string& reason) override;
  void Wake() override;

 private:
  struct Peer;

  // Waits for something to happen, but not longer than until then, and handles it.
  void Turn(Deadline until);
  void TakeNewcomers();
  void TakeIn(Descriptor socket);
  void OnSocket(Peer& peer);
  void ReadHello(Peer& peer);
  void LetIn(Peer& peer);
  // Reads and writes what there is. False: nothing is left to do until its socket says so, or the peer is no more.
  bool Serve(Peer& peer);
  bool ReadMessages(Peer& peer);
  void WriteMessages(Peer& peer);
  // From now on the peer ends, when what was sent has left. `kind`: see SocketByte.
  void BeginClose(Peer& peer, char kind, const std::string& why);
  void EndOverdue(Deadline now);
  void End(Peer& peer);
  void Activate(Peer& peer);

  const std::string token_;
  const Limits limits_;
  Descriptor events_;    // epoll
  Descriptor newcomer_;  // eventfd: somebody is in newcomers_, or woken_ is true
  std::atomic<bool> woken_{false};
  std::mutex mutex_;  // guards:
  std::vector<Descriptor> newcomers_;
  // Of the thread that runs:
  Handler* handler_ = nullptr;  // while Run runs
  PeerId next_peer_ = 1;
  std::unordered_map<PeerId, std::unique_ptr<Peer>> peers_;
  std::set<PeerId> strangers_;  // of these, who have not been let in: the oldest first
  std::vector<PeerId> active_;
  std::unique_ptr<Acceptor> acceptor_;  // ends first
};

}  // namespace trireme
