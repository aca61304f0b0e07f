// Messages between workers and servers: long-lived two-way streams of byte messages.
//
// What carries them is behind this interface, so that the logic of servers and stores needs no network
// library to compile or to be tested: gRPC between hosts (rpc/grpc, a library of its own, see LoadGrpc()), memory that processes of
// one host share (rpc/shared_memory), or nothing, in tests (memory_transport.h).
//
// A client opens a Stream to a server and uses it from one thread. A server runs one event loop on one thread
// and calls its Handler from there; nothing in a handler needs a lock. Messages of one stream arrive in
// order, each once, or the stream is closed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/base/aligned.h"

namespace trireme {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Bytes to be sent. The transport shares them until they have left, so nobody changes them after Send.
using Outgoing = std::shared_ptr<const AlignedBuffer<std::byte>>;

// A received message, read from front to back straight to where its parts belong.
class Incoming {
 public:
  virtual ~Incoming() = default;
  // Bytes that are left.
  virtual std::size_t size() const = 0;
  // The next to.size() bytes. Requires to.size() <= size().
  virtual void Read(std::span<std::byte> to) = 0;
};

// What both ends must agree on to talk at all.
struct Security {
  std::string token = "";        // shared secret; empty: none
  std::string certificate = "";  // PEM: of this end (a client needs one only for mutual TLS)
  std::string private_key = "";  // PEM: its key
  std::string authority = "";    // PEM: who signs the other end; a server that has one demands certificates
  bool tls = false;
};

// What one end is willing to hold for the other. Both ends should have the same.
struct Limits {
  std::size_t message = std::size_t{1} << 30;  // bytes of one message; a longer one closes its stream
  // The same for a client of which a server knows nothing yet, see ServerTransport::Allow.
  std::size_t first = std::size_t{1} << 17;
  std::size_t queued = std::size_t{1} << 28;  // bytes waiting for one client that does not take them
};

// The client's end.
class Stream {
 public:
  virtual ~Stream() = default;  // closes; what was sent still arrives if the server takes it at once

  // Starts to send and returns; at most one message may be on its way: waits for the one before. False when
  // the stream is closed or the deadline passed. What the system's buffers cannot hold (more than some
  // hundred kilobytes) leaves while somebody waits in Send, Flush or Receive of this stream.
  virtual bool Send(Outgoing message, Deadline deadline) = 0;
  // Waits until what was sent has left, for whoever is going to be busy with something else. False: as Send.
  virtual bool Flush(Deadline deadline) = 0;
  // The next message, or null when the stream is closed or nothing came until the deadline. `closed()` tells
  // which. A message stays valid until the next Receive.
  virtual Incoming* Receive(Deadline deadline) = 0;
  virtual bool closed() const = 0;
  // Why it is closed, for people: what the server said (see ServerTransport::Close) and nothing else, or the
  // address and the cause ("127.0.0.1:7000: connection refused"). Empty while it is open.
  virtual std::string why() const = 0;
};

// A client of a server keeps its number as long as its stream lives; numbers are not used again.
using PeerId = std::uint64_t;

class ServerTransport {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnOpen(PeerId peer, const std::string& address) = 0;
    virtual void OnMessage(PeerId peer, Incoming& message) = 0;
    // The stream is gone, whoever closed it: once for each OnOpen, unless Run ends before.
    virtual void OnClose(PeerId peer) = 0;
    // Called when `when` (returned by the call before; at first immediately) has come. Returns the next time.
    virtual Deadline OnTime(Deadline now) = 0;
  };

  virtual ~ServerTransport() = default;  // closes all streams

  // Where it really listens: with the port that was chosen when 0 was asked for.
  virtual const std::string& address() const = 0;
  // What it was opened with.
  virtual const Limits& limits() const = 0;
  // Calls `handler` from this thread until `stop` is true (looked at at least ten times a second), then lets
  // messages already given to Send leave, within a second. Once.
  virtual void Run(Handler& handler, const std::function<bool()>& stop) = 0;
  // From the handler only. Messages to one peer queue up (a peer that lets them exceed Limits::queued is
  // closed); a peer that is gone is no error.
  virtual void Send(PeerId peer, Outgoing message) = 0;
  // From now on a message of this peer may have so many bytes, or Limits::message if that is less. At first
  // it is Limits::first: little is held for a client before the handler knows it. A longer message closes its
  // stream, as does one for which there is no memory. From the handler only.
  virtual void Allow(PeerId peer, std::size_t bytes) = 0;
  // OnTime is called soon, by whoever runs it, not only when it asked to be. Any thread, as long as it lives. A transport that
  // cannot keeps to the time that was asked for.
  virtual void Wake() {}
  // After what was sent; the client sees `reason`. No more messages of this peer are handled. OnClose follows
  // later, never from within this call. From the handler only.
  virtual void Close(PeerId peer, const std::string& reason) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // `address`: "host:port" or "unix:/path"; for shared memory "shm:/path". Does not wait for the server: a stream that cannot connect until
  // the first deadline is closed then.
  // Throws Error when the address or the keys make no sense.
  virtual std::unique_ptr<Stream> Connect(const std::string& address, const Security& security,
                                          const Limits& limits = {}) = 0;
  // Throws Error: address in use, unreadable keys, and so on. Port 0 picks a free one.
  virtual std::unique_ptr<ServerTransport> Listen(const std::string& address, const Security& security,
                                                  const Limits& limits = {}) = 0;
};

// Whether nobody but this machine can reach an address that a server listens at.
inline bool OnThisMachineOnly(const std::string& address) {
  return address.starts_with("unix:") || address.starts_with("shm:") || address.starts_with("127.") ||
         address.starts_with("localhost:") || address.starts_with("[::1]:");
}

// The gRPC transport. Loads its library at the first call; throws Error when this build has none.
Transport& LoadGrpc();
// The one of memory that processes of this host share. They meet at a Unix socket, and need no library.
Transport& SharedMemoryStreams();
// The one that an address of a user is for: "shm:/path", or else gRPC.
Transport& TransportFor(const std::string& address);

}  // namespace trireme
