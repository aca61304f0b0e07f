// How far the run in a folder is, for decisions before it goes on.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/train/run_folder.h"

namespace trireme {

struct Standing {
  std::int64_t steps = 0;
  bool reached = false;  // `target`, after `steps_to_target`
  double target = 0;
  std::int64_t steps_to_target = -1;
};

// From the newest checkpoint; nothing where none was written yet. Throws Error.
std::optional<Standing> ReadStanding(const RunFolder& folder);

}  // namespace trireme
