#include "interrupt.h"

namespace trireme::python {
namespace {

std::atomic<Interrupt*> current{nullptr};

}  // namespace

Interrupt::Interrupt(bool active, std::atomic<bool>& stop) : active_(active), stop_(stop) {
  if (!active_) return;
  outer_ = current.exchange(this);
  struct sigaction action = {};
  action.sa_sigaction = &Handle;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_);
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
  } else if ((self->before_.sa_flags & SA_SIGINFO) != 0) {
    self->before_.sa_sigaction(signal, info, context);
  } else if (self->before_.sa_handler != SIG_DFL && self->before_.sa_handler != SIG_IGN) {
    self->before_.sa_handler(signal);
  }
}

}  // namespace trireme::python
