#include "trireme/comm/processes.h"

#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/plugin.h"

namespace trireme {
namespace {

constexpr double kTimeout_s = 300;
constexpr std::chrono::seconds kMoment{3};  // longer than mpirun takes to end the others

Processes* connected = nullptr;  // lives as long as the program; only the main thread uses it

std::string LibraryOf(const std::string& kind) {
  const std::string own = fmt::format("libtrireme_mpi_{}.so", kind);
  const std::string any = "libtrireme_mpi.so";
  return kind == "mpi" || (!HavePlugin(own) && HavePlugin(any)) ? any : own;
}

double TimeoutSeconds() {
  const char* text = std::getenv("TRIREME_MPI_TIMEOUT");
  if (text == nullptr) return kTimeout_s;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(seconds > 0)) {
    Fail("TRIREME_MPI_TIMEOUT = {}: say how many seconds, like 300", text);
  }
  return seconds;
}

}  // namespace

std::optional<Launch> DetectLaunch(const std::function<const char*(const char*)>& environment) {
  const auto number = [&](const char* name) -> std::optional<int> {
    const char* text = environment(name);
    if (text == nullptr || *text == '\0') return std::nullopt;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end != '\0' || value < 0 || value > 1'000'000) {
      Fail("{} = {} in the environment is no number of processes: unset it, or set TRIREME_MPI=off", name,
           text);
    }
    return static_cast<int>(value);
  };
  const char* set = environment("TRIREME_MPI");
  const std::string_view chosen = set == nullptr ? "" : set;
  if (chosen == "off") return std::nullopt;
  if (!chosen.empty() && chosen != "openmpi" && chosen != "mpich" && chosen != "mpi") {
    Fail("TRIREME_MPI = {}: choose openmpi, mpich, mpi (any other) or off", chosen);
  }

  struct Sign {
    const char* size;  // null: not told
    const char* rank;
    const char* kind;
  };
  static constexpr Sign kSigns[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "openmpi"},
                                    {"PMI_SIZE", "PMI_RANK", "mpich"},
                                    {nullptr, "PMIX_RANK", "openmpi"}};
  for (const Sign& sign : kSigns) {
    const std::optional<int> rank = number(sign.rank);
    const std::optional<int> size = sign.size == nullptr ? 2 : number(sign.size);
    if (!rank || !size) continue;
    if (*size < 2 && chosen.empty()) return std::nullopt;
    return Launch{chosen.empty() ? sign.kind : std::string(chosen), *rank};
  }
  if (chosen.empty()) return std::nullopt;
  return Launch{std::string(chosen), 0};
}

std::optional<Launch> DetectLaunch() {
  return DetectLaunch([](const char* name) -> const char* { return std::getenv(name); });
}

Processes* ConnectProcesses() {
  if (connected != nullptr) return connected;
  const std::optional<Launch> launch = DetectLaunch();
  if (!launch) return nullptr;
  const double timeout_s = TimeoutSeconds();
  const auto connect = reinterpret_cast<ConnectMpi>(PluginSymbol(LibraryOf(launch->kind), "TriremeConnectMpi",
                                                                 launch->kind == "openmpi" ? "Open MPI"
                                                                 : launch->kind == "mpich" ? "MPICH"
                                                                                           : "MPI"));
  connected = connect(timeout_s);
  return connected;
}

void LetFirstProcessSpeak() {
  if (connected != nullptr && connected->rank() != 0) std::this_thread::sleep_for(kMoment);
}

void LeaveProcesses(int code) {
  if (Processes* const all = std::exchange(connected, nullptr)) all->Leave(code);
}

}  // namespace trireme
