#include "interrupt.h"

namespace trireme::python {
namespace {

std::atomic<Interrupt*> current{nullptr};

}  // namespace

Interrupt::Interrupt(bool active, std::atomic<bool>& stop) : active_(active), stop_(stop) {
  if (!active_) return;
  outer_ = current.exchange(this);
  const struct sigaction action = Action(SA_RESTART);
  sigaction(SIGINT, &action, &before_);
}

struct sigaction Interrupt::Action(int flags) {
  struct sigaction action = {};
  action.sa_sigaction = &Handle;
  action.sa_flags = SA_SIGINFO | flags;
  sigemptyset(&action.sa_mask);
  return action;
}

Interrupt::~Interrupt() {
  if (!active_) return;
  sigaction(SIGINT, &before_, nullptr);
  current.store(outer_);
}

void Interrupt::Handle(int signal, siginfo_t* info, void* context) {
  Interrupt* self = current.load();
  if (self == nullptr) return;
  if (!self->came_.exchange(true)) {
    self->stop_.store(true);
    // The next one ends what Python waits for.
    const struct sigaction action = Action(0);
    sigaction(SIGINT, &action, nullptr);
  } else if ((self->before_.sa_flags & SA_SIGINFO) != 0) {
    self->before_.sa_sigaction(signal, info, context);
  } else if (self->before_.sa_handler != SIG_DFL && self->before_.sa_handler != SIG_IGN) {
    self->before_.sa_handler(signal);
  }
}

}  // namespace trireme::python
