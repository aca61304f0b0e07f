#include "trireme/comm/barrier.h"

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
    : threads_(threads), spins_(threads <= UsableProcessors() ? kSpins : 0) {}

void ThreadBarrier::Wait() {
  const std::uint32_t round = round_.load(std::memory_order_acquire);
  if (aborted_.load(std::memory_order_acquire)) throw Error("another worker failed");
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_acq_rel);
    round_.notify_all();
    return;
  }
  for (int i = 0; i < spins_ && round_.load(std::memory_order_acquire) == round; ++i) Pause();
  for (int i = 0; i < kYields && round_.load(std::memory_order_acquire) == round; ++i)
    std::this_thread::yield();
  while (round_.load(std::memory_order_acquire) == round) round_.wait(round, std::memory_order_acquire);
  if (aborted_.load(std::memory_order_acquire)) throw Error("another worker failed");
}

void ThreadBarrier::Abort() {
  aborted_.store(true, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_acq_rel);
  round_.notify_all();
}

}  // namespace trireme
