// Store `server`: workers that find each other and their parameters on parameter servers, in step
// (in_step_loop.h) or on their own (elastic_loop.h).
#pragma once

#include <memory>

#include "trireme/train/stores.h"

namespace trireme {

// Starts servers if the settings say so; they live below the folder of the run. Throws Error.
std::unique_ptr<Topology> MakeServerTopology(const RunContext& context);

}  // namespace trireme
