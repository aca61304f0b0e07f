// Networks by libtorch: towers as its operations, gradients by its automatic differentiation.
//
// Parameters and gradients stay flat on the host. SetParams copies the parameters to the device, in one piece; Forward
// copies inputs there and outputs back; Backward copies the gradient back, in one piece, and adds it to the host's. On
// the processor nothing is copied that need not be.
//
// Same calls give the same bits on the processor: everything runs in the calling thread (OneThreadInFull). What libtorch
// cannot do, as when the memory of a device is full, is an Error.
//
// With 16 bits weights, activations and their gradients have them, and so have products where a device can; what is
// learned, and what crosses to the host, has 32.
#pragma once

#include <memory>

#include "trireme/nn/device.h"
#include "trireme/nn/executor.h"

namespace trireme {

// `network` outlives it. The device is there, and can compute so.
std::unique_ptr<Executor> MakeTorchExecutor(const Network& network, const Computing& computing);

}  // namespace trireme
