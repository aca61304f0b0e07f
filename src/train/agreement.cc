#include "trireme/train/agreement.h"

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/simd.h"

namespace trireme {
namespace {

// What must be the same everywhere, a line each.
std::string Identity(const RunSettings& settings, const std::string& version) {
  return fmt::format("version = {}\ninstruction set = {}\n{}", version, IsaName(CurrentIsa()),
                     settings.fields.ToToml());
}

void CheckSame(const std::string& mine, const std::string& other, int process) {
  std::istringstream here(mine), there(other);
  for (;;) {
    std::string expected, found;
    const bool more_here = static_cast<bool>(std::getline(here, expected));
    const bool more_there = static_cast<bool>(std::getline(there, found));
    if (!more_here && !more_there) return;
    if (expected == found) continue;
    Fail(
        "process {} has '{}' where process 0 has '{}': start all processes of a run with the same program "
        "and "
        "the same settings, on the same kind of processor",
        process, found, expected);
  }
}

}  // namespace

void AgreeOnSettings(const RunSettings& settings, const std::string& version, Communicator& processes) {
  const std::vector<std::string> all = processes.Gather(Identity(settings, version));
  for (std::size_t process = 1; process < all.size(); ++process) {
    CheckSame(all[0], all[process], static_cast<int>(process));
  }
}

}  // namespace trireme
