// Before several processes train together they make sure that they mean the same run.
#pragma once

#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/train/run_config.h"

namespace trireme {

// All processes call it with their resolved settings and the version of the program. Throws Error in the
// first process when another one has other settings, another version or another kind of processor (whose
// rounding would make the replicas drift apart), and names the difference.
void AgreeOnSettings(const RunSettings& settings, const std::string& version, Communicator& processes);

}  // namespace trireme
