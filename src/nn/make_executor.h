// Which executor computes a network: said here and nowhere else.
#pragma once

#include <memory>

#include "trireme/nn/executor.h"

namespace trireme {

// For a worker that computes its network alone; workers that share one have theirs from their links
// (train/topology.h). `network` outlives the executor.
std::unique_ptr<Executor> MakeExecutor(const Network& network);

}  // namespace trireme
