// What the operating system knows: clocks, processors and descriptors.
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

// For main(), before all else: whichever of standard input, output and error is closed becomes /dev/null, so
// that no file of ours gets its number and what is written to it.
void OpenStandardDescriptors();

}  // namespace trireme
