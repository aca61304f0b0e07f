// What the operating system knows: clocks and processors.
#pragma once

namespace trireme {

// Seconds of a clock that never jumps.
double MonotonicSeconds();
// Processor time of the whole process, in seconds.
double CpuSeconds();
// Processors this process may use.
int UsableProcessors();

}  // namespace trireme
