// An actor desk at work: a transport, and a thread that runs it.
//
// Thread safety: as ActorDesk.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "trireme/experience/actor_desk.h"

namespace trireme {

class ActorService {
 public:
  // `say` is called by the thread.
  ActorService(std::unique_ptr<ServerTransport> transport, ActorDesk::Terms terms, int learners,
               std::function<void(const std::string&)> say)
      : address_(transport->address()),
        transport_(std::move(transport)),
        desk_(*transport_, std::move(terms), learners, std::move(say)),
        thread_([this] { transport_->Run(desk_, [this] { return desk_.left(); }); }) {}
  ~ActorService() { End(/*over=*/false); }
  ActorService(const ActorService&) = delete;
  ActorService& operator=(const ActorService&) = delete;

  const std::string& address() const { return address_; }
  ActorDesk& desk() { return desk_; }
  // Takes leave of the actors (ActorDesk::TakeLeave), waits for them a moment, and listens no more.
  void End(bool over) {
    if (!thread_.joinable()) return;
    desk_.TakeLeave(over);
    thread_.join();
    desk_.EndChoices();
    transport_.reset();  // nobody is let in to wait for nothing
  }

 private:
  const std::string address_;
  std::unique_ptr<ServerTransport> transport_;
  ActorDesk desk_;
  std::thread thread_;
};

}  // namespace trireme
