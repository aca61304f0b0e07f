// The ranks of a group as threads, for programs that need no more than that (tests, examples).
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "trireme/comm/thread_communicator.h"

namespace trireme {

// Runs `body` as every rank of a group of `size` threads, and waits for all.
inline void RunRanks(int size, const std::function<void(ThreadCommunicator&)>& body) {
  ThreadGroup group(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      ThreadCommunicator comm(group, r);
      body(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace trireme
