// Store `shared`: threads of one process that move on their own on one memory (free_loop.h).
#pragma once

#include <memory>

#include "trireme/train/stores.h"

namespace trireme {

std::unique_ptr<Topology> MakeSharedTopology(const RunContext& context);

}  // namespace trireme
