// A reusable barrier for the threads of one process.
//
// Waiting threads spin for a moment, because the others are usually microseconds away, then give way to
// whoever else wants the processor (the missing thread, perhaps), and then sleep. Where there are more
// threads than processors they give way at once.
//
// Where others want processors, too, threads that wait for each other may come to lie on the same one, each
// spinning while the other cannot run. A thread that finds itself where
// the one it waits for is gives way at once, and moves elsewhere: less and less often if it is brought back,
// because then others want the processors, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace trireme {

class ThreadBarrier {
 public:
  explicit ThreadBarrier(int threads);

  // Blocks until all threads have arrived; `thread` is the caller's number. What a thread wrote before
  // arriving is visible to all after. Returns the seconds spent waiting. Throws Error once Abort() was called.
  double Wait(int thread);
  // Wakes everyone; from now on Wait() throws.
  void Abort();

 private:
  static constexpr double kOften = 2e-3, kSeldom = 0.25;  // seconds between two moves of a thread

  // Each thread writes its own cache lines only and reads those of the others: an arrival costs one trip of a
  // line between two processors.
  struct alignas(128) Seat {
    std::atomic<std::uint32_t> arrivals{0};
    std::atomic<int> processor{-1};  // where the owner was when it came to wait last
    std::uint32_t round = 0;         // the owner's
    double moved_s = 0;              // the owner's, as is the next
    double move_every_s = kOften;
  };

  bool Arrived(const Seat& seat, std::uint32_t round) const;
  void WaitFor(const Seat& seat, std::uint32_t round, int spins) const;
  void Move(Seat& own, double now_s) const;

  const int spins_;
  std::vector<Seat> seats_;
  std::atomic<bool> aborted_{false};
};

}  // namespace trireme
