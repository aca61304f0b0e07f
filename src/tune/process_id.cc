#include "trireme/tune/process_id.h"

#include <unistd.h>

#include <climits>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace trireme {
namespace {

std::string Host() {
  char name[HOST_NAME_MAX + 1] = {}, space[64] = {};
  gethostname(name, sizeof name - 1);
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return std::string(name) + " " + boot + " " +
         std::string(space, length > 0 ? static_cast<std::size_t>(length) : 0);
}

// -1: there is no such process, or it has ended and waits for its parent.
long long StartOf(int pid) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
  const std::size_t name_end = line.rfind(')');  // a name may hold anything
  if (name_end == std::string::npos) return -1;
  std::istringstream rest(line.substr(name_end + 1));
  std::string state, skipped;
  rest >> state;
  if (state == "Z" || state == "X") return -1;
  for (int i = 0; i < 18; ++i) rest >> skipped;
  long long started = -1;
  rest >> started;
  return started;
}

}  // namespace

ProcessId ProcessId::OfThis() { return {Host(), getpid(), StartOf(getpid())}; }

std::optional<ProcessId> ProcessId::Parse(const std::string& json) {
  const auto parsed = nlohmann::json::parse(json, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("host") || !parsed["host"].is_string()) return std::nullopt;
  for (const char* key : {"pid", "started"}) {
    if (!parsed.contains(key) || !parsed[key].is_number_integer()) return std::nullopt;
  }
  return ProcessId{parsed["host"], parsed["pid"], parsed["started"]};
}

std::string ProcessId::ToJson() const {
  return nlohmann::ordered_json{{"host", host}, {"pid", pid}, {"started", started}}.dump();
}

bool ProcessId::OnThisHost() const { return host == Host(); }
bool ProcessId::Lives() const { return StartOf(pid) == started; }

}  // namespace trireme
