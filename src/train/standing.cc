#include "trireme/train/standing.h"

#include "trireme/train/checkpoint.h"
#include "trireme/train/run_state.h"

namespace trireme {

std::optional<Standing> ReadStanding(const RunFolder& folder) {
  const std::optional<StateReader> checkpoint = ReadNewestCheckpoint(
      folder.path(), [](std::string_view section) { return section.starts_with("progress/"); });
  if (!checkpoint) return std::nullopt;
  RunProgress progress;
  progress.Visit([&](const char* name, auto& value) {
    value = checkpoint->GetValue<std::decay_t<decltype(value)>>(name);
  });
  return Standing{.steps = progress.steps,
                  .reached = progress.reached,
                  .target = progress.target,
                  .steps_to_target = progress.steps_to_target};
}

}  // namespace trireme
