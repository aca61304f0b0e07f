#include "trireme/comm/barrier.h"

#include <algorithm>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/system.h"

namespace trireme {
namespace {

constexpr int kSpins = 2'000;  // some ten microseconds
constexpr int kYields = 200;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadBarrier::ThreadBarrier(int threads)
    : spins_(threads <= UsableProcessors() ? kSpins : 0), seats_(threads) {}

double ThreadBarrier::Wait(int thread) {
  if (aborted_.load(std::memory_order_acquire)) throw Error("another worker failed");
  Seat& own = seats_[thread];
  const std::uint32_t round = ++own.round;
  own.processor.store(CurrentProcessor(), std::memory_order_relaxed);
  own.arrivals.fetch_add(1, std::memory_order_acq_rel);
  own.arrivals.notify_all();
  double idle_s = 0;
  for (const Seat& seat : seats_) {
    if (Arrived(seat, round)) continue;
    const double since_s = MonotonicSeconds();
    const bool together = spins_ > 0 && seat.processor.load(std::memory_order_relaxed) ==
                                            own.processor.load(std::memory_order_relaxed);
    if (together) Move(own, since_s);
    WaitFor(seat, round, together ? 0 : spins_);
    idle_s += MonotonicSeconds() - since_s;
  }
  if (aborted_.load(std::memory_order_acquire)) throw Error("another worker failed");
  return idle_s;
}

void ThreadBarrier::Move(Seat& own, double now_s) const {
  const double since_s = now_s - own.moved_s;
  if (since_s < own.move_every_s) return;
  own.move_every_s =
      std::clamp(own.move_every_s * (since_s < 4 * own.move_every_s ? 2 : 0.5), kOften, kSeldom);
  own.moved_s = now_s;
  std::vector<int> taken;
  for (const Seat& seat : seats_) taken.push_back(seat.processor.load(std::memory_order_relaxed));
  LeaveProcessors(taken);
}

// A thread may be a round ahead. The numbers wrap.
bool ThreadBarrier::Arrived(const Seat& seat, std::uint32_t round) const {
  return static_cast<std::int32_t>(seat.arrivals.load(std::memory_order_acquire) - round) >= 0;
}

void ThreadBarrier::WaitFor(const Seat& seat, std::uint32_t round, int spins) const {
  for (int i = 0; i < spins; ++i) {
    if (Arrived(seat, round)) return;
    Pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (Arrived(seat, round)) return;
    std::this_thread::yield();
  }
  // Abort() counts an arrival of everybody, so whoever sleeps wakes and whoever comes later does not sleep.
  for (;;) {
    const std::uint32_t arrivals = seat.arrivals.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(arrivals - round) >= 0) return;
    if (aborted_.load(std::memory_order_acquire)) return;
    seat.arrivals.wait(arrivals, std::memory_order_acquire);
  }
}

void ThreadBarrier::Abort() {
  aborted_.store(true, std::memory_order_release);
  for (Seat& seat : seats_) {
    seat.arrivals.fetch_add(1, std::memory_order_acq_rel);
    seat.arrivals.notify_all();
  }
}

}  // namespace trireme
