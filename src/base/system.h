// What the operating system knows: clocks and processors.
#pragma once

#include <cstdint>

namespace trireme {

// Seconds of a clock that never jumps.
double MonotonicSeconds();
// Processor time of the whole process, in seconds.
double CpuSeconds();
// Processors this process may use.
int UsableProcessors();
// Memory of the machine, in bytes.
std::uint64_t MachineMemory();

}  // namespace trireme
