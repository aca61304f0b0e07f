// What the operating system knows: clocks, processors and descriptors.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace trireme {

// Seconds of a clock that never jumps.
double MonotonicSeconds();
// Processor time of the whole process, in seconds.
double CpuSeconds();
// Processors this process may use.
int UsableProcessors();
// Where the calling thread runs just now.
int CurrentProcessor();
// Moves the calling thread to a processor that it may use and that is not among these, if there is one. It
// stays as free as before to be moved again.
void LeaveProcessors(std::span<const int> processors);
// What kind they are: "Intel(R) Xeon(R) Processor"; "a processor without a name" where the system does not say.
std::string ProcessorName();
// Memory of the machine, in bytes.
std::uint64_t MachineMemory();
// What of it programs could still have, caches that can be dropped included; all of it where the system does not say.
std::uint64_t AvailableMemory();

// For main(), before all else: whichever of standard input, output and error is closed becomes /dev/null, so
// that no file of ours gets its number and what is written to it.
void OpenStandardDescriptors();

// For main(): where HOME is not set, it becomes the home folder of the user as the system has it, if that knows one. Not to be
// called when there are other threads.
void EnsureHome();

}  // namespace trireme
