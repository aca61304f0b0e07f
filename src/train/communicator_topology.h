// Stores `local` and `allreduce`: workers in step that a communicator connects, threads of this process and, by
// MPI, of others.
#pragma once

#include <memory>

#include "trireme/train/stores.h"

namespace trireme {

std::unique_ptr<Topology> MakeCommunicatorTopology(const RunContext& context);

}  // namespace trireme
