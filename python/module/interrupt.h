// Ctrl-C while the interpreter is not looking.
#pragma once

#include <atomic>
#include <csignal>

namespace trireme::python {

// While it lives, and if `active`, the first SIGINT sets `stop` and is kept from Python, whose handler would otherwise
// raise somewhere in the middle; further ones are Python's as before. For the main thread; may be nested.
class Interrupt {
 public:
  Interrupt(bool active, std::atomic<bool>& stop);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool came() const { return came_.load(); }

 private:
  static void Handle(int signal, siginfo_t* info, void* context);
  static struct sigaction Action(int flags);

  const bool active_;
  std::atomic<bool>& stop_;
  std::atomic<bool> came_{false};
  Interrupt* outer_ = nullptr;
  struct sigaction before_ = {};
};

}  // namespace trireme::python
