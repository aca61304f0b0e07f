// How a process waits for another: it spins for a moment, because the other is usually microseconds away,
// then gives way to whoever else wants the processor, and after a while sleeps a little at a time.
#pragma once

#include <sched.h>
#include <time.h>

#include "trireme/base/system.h"

namespace trireme {

inline constexpr int kUsualSpins = 4'000;  // some tens of microseconds

// Calls done() until it is true. `spins` is 0 where there are more processes than processors. Calls late()
// now and then with the seconds that have passed, which may throw. Returns these seconds.
template <class Done, class Late>
double WaitUntil(int spins, Done&& done, Late&& late) {
  if (done()) return 0;
  const double begun_s = MonotonicSeconds();
  for (int i = 0; i < spins; ++i) {
    if (done()) return MonotonicSeconds() - begun_s;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (double waited_s = 0;; waited_s = MonotonicSeconds() - begun_s) {
    if (done()) return MonotonicSeconds() - begun_s;
    late(waited_s);
    if (waited_s < 2e-3) {
      sched_yield();
    } else {
      const timespec moment{.tv_sec = 0, .tv_nsec = waited_s < 1 ? 50'000 : 1'000'000};
      nanosleep(&moment, nullptr);
    }
  }
}

}  // namespace trireme
