#include "trireme/base/system.h"

#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <limits>

#include "trireme/base/text.h"

namespace trireme {
namespace {

double Seconds(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

double MonotonicSeconds() { return Seconds(CLOCK_MONOTONIC); }
double CpuSeconds() { return Seconds(CLOCK_PROCESS_CPUTIME_ID); }

int UsableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

int CurrentProcessor() { return sched_getcpu(); }

void LeaveProcessors(std::span<const int> processors) {
  cpu_set_t usable, elsewhere;
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return;
  elsewhere = usable;
  for (const int processor : processors) {
    if (processor >= 0 && processor < CPU_SETSIZE) CPU_CLR(processor, &elsewhere);
  }
  if (CPU_COUNT(&elsewhere) == 0) return;
  if (sched_setaffinity(0, sizeof(elsewhere), &elsewhere) == 0) sched_setaffinity(0, sizeof(usable), &usable);
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos)
      return Printable(line.substr(colon + 2));
  }
  return "a processor without a name";
}

std::uint64_t MachineMemory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::uint64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    std::uint64_t kibibytes = 0;
    if (key == "MemAvailable:" && file >> kibibytes) return 1024 * kibibytes;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return MachineMemory();
}

void EnsureHome() {
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return;
  const passwd* const user = ::getpwuid(::getuid());
  if (user != nullptr && user->pw_dir != nullptr && *user->pw_dir == '/') ::setenv("HOME", user->pw_dir, 1);
}

void OpenStandardDescriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // The lowest free number is the one that is missing.
    if (::open("/dev/null", O_RDWR) != descriptor) std::abort();
  }
}

}  // namespace trireme
