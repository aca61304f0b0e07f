// Starting processes by mpirun of one of the two MPIs of Debian.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::testing {

// Where mpirun of `kind` ("openmpi", "mpich") is; empty when it is not installed.
inline std::string MpirunOf(const std::string& kind) {
  const std::string path = "/usr/bin/mpirun." + kind;
  return std::filesystem::exists(path) ? path : "";
}

// Its arguments for `processes` on this machine, however many processors it has, as any user, over loopback.
inline std::vector<std::string> MpirunArgs(const std::string& kind, int processes) {
  if (kind == "openmpi") {
    return {"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(processes)};
  }
  return {"-launcher", "fork", "-n", std::to_string(processes)};
}

}  // namespace trireme::testing
