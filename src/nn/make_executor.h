// Which executor computes a network: said here and nowhere else.
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/device.h"
#include "trireme/nn/executor.h"

namespace trireme {

// For a worker that computes its network alone; workers that share one have theirs from their links
// (train/topology.h). `network` outlives the executor. Throws Error where the device is not there, or cannot.
std::unique_ptr<Executor> MakeExecutor(const Network& network, const Computing& computing = {});

// Throws Error unless all of them are there and can compute so: what is missing, what was found, and what to do.
void RequireDevices(const std::vector<Device>& devices, Precision precision = Precision::kFp32);

}  // namespace trireme
