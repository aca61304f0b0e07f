#include "trireme/env/plugin/call.h"

#include <sys/uio.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <set>
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

// This and the next call nothing but what is safe in a handler.
void WriteLine(std::initializer_list<std::string_view> parts) {
  iovec line[16];
  int count = 0;
  for (const std::string_view part : parts) line[count++] = {const_cast<char*>(part.data()), part.size()};
  [[maybe_unused]] const ssize_t written = writev(STDERR_FILENO, line, count);
}

void OnCrash(int signal, siginfo_t* info, void*) {
  std::size_t which = 0;
  while (kCrashes[which].signal != signal) ++which;
  if (const PluginCall* call = current_call; call != nullptr) {
    WriteLine(
        {"\ntrireme: ", call->plugin(), " crashed in ", call->function(), " (", kCrashes[which].meaning,
         "). A plug-in runs inside the program, which ends with it; the last checkpoint is kept. To find the "
         "mistake, compile it with -g and run: gdb --args trireme envs ",
         call->plugin(), " --check\n"});
  }
  sigaction(signal, &before[which], nullptr);
  // A fault comes again by itself when the instruction is repeated; what was sent does not.
  if (info->si_code <= 0) raise(signal);
}

// Runs in the thread that calls exit(). Others may be training: nothing of theirs is taken down.
void OnExit() {
  const PluginCall* call = current_call;
  if (call == nullptr) return;
  std::fflush(stdout);  // what the plug-in has to say of it, maybe
  WriteLine({"\ntrireme: ", call->plugin(), " called exit in ", call->function(),
             ". A plug-in runs inside the program, which ends with it; the last checkpoint is kept. "
             "It should return an error instead\n"});
  _exit(kExitInPlugin);
}

}  // namespace

void TellExits(const void* since) {
  static std::mutex mutex;
  static std::set<const void*> told;  // guarded by mutex
  const std::lock_guard lock(mutex);
  if (!told.insert(since).second) return;
  std::atexit(OnExit);
  std::at_quick_exit(OnExit);
}

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
