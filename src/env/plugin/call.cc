#include "trireme/env/plugin/call.h"

#include <sys/uio.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "trireme/base/text.h"

namespace trireme {

namespace {

// Of a fixed place, so that a signal handler can read it.
[[gnu::tls_model("initial-exec")]] thread_local constinit const PluginCall* current_call = nullptr;

constexpr unsigned kRoundingBits = 0xFFC0;  // of MXCSR: all but the flags of what has happened

// A stack for handlers: there is none left where a plug-in calls itself without end.
class HandlerStack {
 public:
  HandlerStack() {
    stack_t present = {};
    if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
    memory_ = std::make_unique<char[]>(kSize);
    const stack_t own = {.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = kSize};
    sigaltstack(&own, nullptr);
  }
  ~HandlerStack() {
    if (memory_ == nullptr) return;
    const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
  }

 private:
  static constexpr std::size_t kSize = 64 * 1024;
  std::unique_ptr<char[]> memory_;
};

void EnsureHandlerStack() {
  thread_local const HandlerStack stack;
  (void)stack;
}

struct Crash {
  int signal;
  std::string_view meaning;
};
constexpr Crash kCrashes[] = {{SIGSEGV, "segmentation fault"},
                              {SIGBUS, "bus error"},
                              {SIGFPE, "arithmetic error"},
                              {SIGILL, "illegal instruction"},
                              {SIGABRT, "abort"}};

std::mutex users_mutex;  // guards the next two
int users = 0;
struct sigaction before[std::size(kCrashes)];  // written while there are no users; also read by the handler

// Calls nothing but what is safe in a handler.
void OnCrash(int signal, siginfo_t* info, void*) {
  std::size_t which = 0;
  while (kCrashes[which].signal != signal) ++which;
  if (const PluginCall* call = current_call; call != nullptr) {
    const auto part = [](std::string_view text) {
      return iovec{const_cast<char*>(text.data()), text.size()};
    };
    const iovec line[] = {part("\ntrireme: "),
                          part(call->plugin()),
                          part(" crashed in "),
                          part(call->function()),
                          part(" ("),
                          part(kCrashes[which].meaning),
                          part("). A plug-in runs inside the program, which ends with it; the last "
                               "checkpoint is kept. To find the "
                               "mistake, compile it with -g and run: gdb --args trireme envs "),
                          part(call->plugin()),
                          part(" --check\n")};
    [[maybe_unused]] const ssize_t written = writev(STDERR_FILENO, line, std::size(line));
  }
  sigaction(signal, &before[which], nullptr);
  // A fault comes again by itself when the instruction is repeated; what was sent does not.
  if (info->si_code <= 0) raise(signal);
}

}  // namespace

CrashNotes::CrashNotes() {
  const std::lock_guard lock(users_mutex);
  if (users++ > 0) return;
  for (std::size_t i = 0; i < std::size(kCrashes); ++i) {
    struct sigaction action = {};
    action.sa_sigaction = OnCrash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(kCrashes[i].signal, &action, &before[i]);
  }
}

CrashNotes::~CrashNotes() {
  const std::lock_guard lock(users_mutex);
  if (--users > 0) return;
  for (std::size_t i = 0; i < std::size(kCrashes); ++i) {
    struct sigaction present = {};
    sigaction(kCrashes[i].signal, nullptr, &present);
    const bool ours = (present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == OnCrash;
    if (ours) sigaction(kCrashes[i].signal, &before[i], nullptr);
  }
}

PluginCall::PluginCall(const char* plugin, const char* function) noexcept
    : outer_(current_call), plugin_(plugin), function_(function), rounding_(_mm_getcsr() & kRoundingBits) {
  EnsureHandlerStack();
  current_call = this;
}

PluginCall::~PluginCall() {
  current_call = outer_;
  if (const unsigned now = _mm_getcsr(); (now & kRoundingBits) != rounding_) {
    _mm_setcsr((now & ~kRoundingBits) | rounding_);
  }
}

std::string PluginText(const char* text) {
  constexpr std::size_t kLongest = 1000;
  return text == nullptr ? "nothing" : Printable({text, strnlen(text, kLongest)});
}

}  // namespace trireme
