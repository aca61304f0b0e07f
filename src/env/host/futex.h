// Waiting for a word that another process writes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace trireme {

inline std::uint32_t LoadWord(std::uint32_t& word) {
  return std::atomic_ref(word).load(std::memory_order_seq_cst);
}
inline void StoreWord(std::uint32_t& word, std::uint32_t value) {
  std::atomic_ref(word).store(value, std::memory_order_seq_cst);
}
inline void AddToWord(std::uint32_t& word) { std::atomic_ref(word).fetch_add(1, std::memory_order_seq_cst); }

// Sleeps while `word` is `value`, until it is woken, a signal comes or the time has passed.
inline void FutexWait(std::uint32_t& word, std::uint32_t value, double seconds) {
  const timespec time{
      .tv_sec = static_cast<time_t>(seconds),
      .tv_nsec = static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}
inline void FutexWake(std::uint32_t& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace trireme
