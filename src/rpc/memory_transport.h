// Streams inside one process, for tests of what is built on them: the same contract as over a network, with
// the faults of a network at the test's command, and nothing left to chance.
//
// Two ways to use it. With threads: servers call Run on threads of their own, clients Send and Receive on
// theirs. On one thread: Connect, Send, then MemoryTransport::Pump, which lets a server handle everything
// that is there, then Receive with a deadline in the past. Time is then what the test says.
//
// Streams are numbered from 1 in the order of Connect, over all servers; the number is the server's PeerId.
//
// Thread safety: a transport may be used from any thread; its streams and servers as their contracts say. It
// must outlive them.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "trireme/rpc/transport.h"

namespace trireme {

class MemoryTransport final : public Transport {
 public:
  MemoryTransport() = default;
  ~MemoryTransport() override;

  // Any text is an address; ":0" at its end gets a number. Certificates are not looked at, the token is.
  std::unique_ptr<Stream> Connect(const std::string& address, const Security& security,
                                  const Limits& limits = {}) override;
  std::unique_ptr<ServerTransport> Listen(const std::string& address, const Security& security,
                                          const Limits& limits = {}) override;

  // Lets `server` (of this transport) handle all that has happened, and what `handler` does about it. OnTime
  // is called if `now` has reached what it asked for.
  void Pump(ServerTransport& server, ServerTransport::Handler& handler, Deadline now = Clock::now());

  // The connection is lost: both ends learn it at once, what is on its way is gone.
  void Cut(PeerId stream);
  // Nothing passes in either direction, and nobody is told, until Thaw: a frozen machine, a cable pulled out.
  void Freeze(PeerId stream);
  void Thaw(PeerId stream);

 private:
  struct Link;
  class MemoryStream;
  class MemoryServer;

  std::mutex mutex_;                 // guards everything of the transport, its streams and its servers
  std::condition_variable changed_;  // anything of that
  std::map<PeerId, std::shared_ptr<Link>> links_;
  std::map<std::string, MemoryServer*> servers_;  // that listen
  PeerId next_stream_ = 1;
  int next_port_ = 1;
};

}  // namespace trireme
