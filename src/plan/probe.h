// Small measurements of this machine: what messages and memory cost.
#pragma once

#include <cstddef>

#include "trireme/optim/optimizer.h"
#include "trireme/plan/constants.h"

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

// What a trip to a server costs: a push and the parameters that come back, to a process of this program on
// this machine, on a Unix socket, with its folder, as `trireme train --servers 1` has it.
struct ServerTrips {
  TripCost worker, server;     // the server's: beyond applying
  double latency_s = 0;        // the rest of a trip
  double overlapped = 1;       // the worker's part of a trip that it does not wait for, relative to `worker`
  double poll_s = 0;           // how long it takes to find that an answer has not come
  int crowd = 1;               // workers on every processor, each of which pushes on its own,
  double crowded_round_s = 0;  // need so long for a round: thinking and a trip
};
struct TripQuestion {
  OptimizerSettings optimizer;
  std::size_t floats = 1;        // of a push
  double think_s = 0;            // that a worker computes between two trips, while others rest
  double apply_s_per_float = 0;  // that a server needs in any case
  double seconds = 1;            // to measure for, about
};
// Starts processes of this program, so the caller must be `trireme`. Throws Error, also when this build has
// no gRPC.
ServerTrips ProbeServer(const TripQuestion& question);

}  // namespace trireme
