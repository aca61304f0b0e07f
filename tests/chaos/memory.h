// How much memory a process has.
#pragma once

#include <sys/types.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace trireme::testing {

// Of its own: pages of files that it has read are not counted, the system takes them back when it wants. 0: it is gone.
inline long OwnMemoryKiB(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::atol(line.c_str() + 8);
  }
  return 0;
}

}  // namespace trireme::testing
