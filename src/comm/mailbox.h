// Messages from one thread of a group to another, in order. A message is copied twice; the memory between is used
// again.
//
// Thread safety: one thread puts, one takes, and any may Abort().
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <vector>

namespace trireme {

class Mailbox {
 public:
  // Copies the values and does not wait for the taker.
  void Put(std::span<const float> values);
  // Blocks until a message is there, and requires one of this length. Returns the seconds spent waiting. `spins`: 0
  // where there are more threads than processors. Throws Error once `aborted`.
  double Take(std::span<float> values, int spins, const std::atomic<bool>& aborted);

 private:
  std::atomic<std::uint64_t> messages_{0};  // put and not taken
  std::mutex mutex_;                        // guards what follows
  std::list<std::vector<float>> full_, empty_;
};

}  // namespace trireme
