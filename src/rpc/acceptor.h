// Listens, and hands connections over when they begin to talk: for gRPC, and for shared memory.
//
// gRPC's own listener never accepts again once it found no descriptor for a connection. This one
// - keeps some descriptors free for files: a connection for which there is none above that is closed, unless one
//   that has said nothing yet can be closed instead, the oldest first;
// - keeps connections that have said nothing, or less than a client begins with, and closes them after ten seconds;
// - goes on by itself when the system had no descriptors or no memory for a while.
//
// Has a thread of its own. Thread safety: Start once, then only the destructor.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/rpc/address.h"
#include "trireme/rpc/transport.h"

namespace trireme {

class Acceptor {
 public:
  // Listens, but accepts nothing before Start. Throws Error, see Transport::Listen; also when the process may
  // have too few descriptors.
  explicit Acceptor(const std::string& address);
  ~Acceptor();

  const std::string& address() const { return address_; }
  // From now on `hand_over` is called, from another thread, with every connection that has said `fewest` bytes, and owns it.
  void Start(std::function<void(int fd)> hand_over, std::size_t fewest = 1);

 private:
  struct Silent {
    Descriptor connection;
    Deadline since;
    bool has_begun = false;  // and said too little: it is looked at now and then
  };

  void Run();
  // Waits for something to happen and handles it. False: the end has come.
  bool HandleEvents();
  // Takes in those that wait at `listener`. False: there is no room for another one at all.
  bool AcceptFrom(const Descriptor& listener);
  // With a number below the highest, or none.
  Descriptor MakeRoomFor(Descriptor connection);
  // Hands over or closes a connection of which something was heard.
  void OnHeard(Silent& silent);

  std::string address_;
  int highest_;  // descriptors from here on are for files
  Descriptor wake_;
  std::vector<Descriptor> listeners_;
  std::function<void(int)> hand_over_;
  std::size_t fewest_ = 1;
  std::deque<Silent> silent_;          // oldest first; the thread's, as is
  Deadline resume_ = Deadline::min();  // until when nothing is accepted
  std::thread thread_;
};

}  // namespace trireme
