// A reusable barrier for the threads of one process.
//
// Waiting threads spin for a moment, because the others are usually microseconds away, then give way to
// whoever else wants the processor (the missing thread, perhaps), and then sleep. Where there are more
// threads than processors they sleep at once.
#pragma once

#include <atomic>
#include <cstdint>

namespace trireme {

class ThreadBarrier {
 public:
  explicit ThreadBarrier(int threads);

  // Blocks until all threads have arrived. What a thread wrote before arriving is visible to all after.
  // Throws Error once Abort() was called.
  void Wait();
  // Wakes everyone; from now on Wait() throws.
  void Abort();

 private:
  const int threads_;
  const int spins_;
  std::atomic<int> arrived_{0};
  std::atomic<std::uint32_t> round_{0};  // the value changes when a round completes
  std::atomic<bool> aborted_{false};
};

}  // namespace trireme
