// Small measurements of this machine: what messages and memory cost.
#pragma once

#include <cstddef>

#include "optim/optimizer.h"
#include "plan/constants.h"

namespace trireme {

// A TCP connection between two threads over the loopback: half of a round trip of 8 bytes, and the rate of
// messages of a megabyte. Throws Error when there is no loopback to use.
Link ProbeLoopback();

// Two threads that sum `floats` floats in shared memory: half the time for one float (an allreduce meets
// twice), and the rate of the rest, at 2 (threads - 1) / threads of the bytes as for messages.
Link ProbeThreads(std::size_t floats);

// Seconds per float for gradients of `floats`.
double ProbeAdd(std::size_t floats);
double ProbeCopy(std::size_t floats);
// A pull and a push of the `shared` store.
double ProbeShared(const OptimizerSettings& optimizer, std::size_t floats);

}  // namespace trireme
