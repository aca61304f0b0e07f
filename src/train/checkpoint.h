// Checkpoints on disk: docs/checkpoint-format.md describes the bytes.
//
// A run keeps its two newest checkpoints, checkpoint-<steps>.trireme. Each is written to a temporary, flushed
// and renamed, so a crash leaves the earlier ones whole; each carries a version and a SHA-256 of its content,
// so a damaged one is recognised.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/state.h"
#include "trireme/base/state_sections.h"

namespace trireme {

// Writes a checkpoint of `steps` steps and removes all but the two newest. Throws Error; what was there
// stays.
void WriteCheckpoint(const std::filesystem::path& folder, std::int64_t steps, StateWriter&& state);

// One file of this format, on its own. Throws Error; what was there stays.
void WriteStateFile(const std::filesystem::path& file, StateWriter&& state);
// "<prefix><steps>.trireme", and the steps in such a name; nothing for any other.
std::string StateFileName(std::string_view prefix, std::int64_t steps);
std::optional<std::int64_t> StepsInName(const std::filesystem::path& path, std::string_view prefix);

// All checkpoints of a run, newest first.
std::vector<std::filesystem::path> ListCheckpoints(const std::filesystem::path& folder);

// Reads one file. Throws Error that says what is wrong with it: not a checkpoint, another version, truncated,
// damaged. Only what `keep` wants is held in memory; all is checked.
StateReader ReadCheckpoint(const std::filesystem::path& file, const KeepSection& keep = KeepAll);

// The newest checkpoint of a run folder, or nothing where none was written yet. When the newest is damaged,
// throws Error that names it and the previous good one.
std::optional<StateReader> ReadNewestCheckpoint(const std::filesystem::path& folder,
                                                const KeepSection& keep = KeepAll);

}  // namespace trireme
